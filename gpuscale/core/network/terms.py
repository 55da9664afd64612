"""Terms of an expected collective: the formulas of `core.network.expected` with what they took.

Start-up and transfer: Thakur et al. 2005 (IJHPCA 19(1), section 3); protocols, rings and trees: Hu
et al. (arXiv:2507.04786).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuscale.core.network import expected
from gpuscale.core.network.calibration import PROTOCOL_BLEND, SMALLEST_EFF, LinkCalibration
from gpuscale.core.records import Term, term_of


def collective_term(given: expected.RankGroup) -> Term:
    """Explain `group_time_s` of the same ranks."""
    value = expected.group_time_s(given)
    x = given.settled
    ways = [
        _tree(x, *way) if name == "tree_s" else _way(name, *way, x)
        for name, way in expected.ways_of(x).items()
    ]
    ways += _custom(x)
    names = [way.name for way in ways]
    fastest = f"min({', '.join(names)})" if len(ways) > 1 else names[0]
    correction = x.correction
    if correction is not None:
        fastest += " * exp(correction)"
    source = f"the fastest way that the library has, never below the data sheet; {x.source}"
    more = {"links_s": value, "least_s": x.least_s, "correction": correction or 0.0}
    return term_of("links_s", "s", f"max({fastest}, least_s)", source, *ways, **more)


def _tree(x: expected.RankGroup, traffic: expected.LinkTraffic, kind: str) -> Term:
    links = _way("links_tree_s", traffic, kind, x)
    channels = expected.tree_channels_s(x.size_bytes, x.n, x.n_in, x.fabric)
    value = {"tree_s": max(links.value, channels), "channels_s": channels}
    text = "a double tree, no faster than its channels carry"
    return term_of("tree_s", "s", "max(links_tree_s, channels_s)", text, links, **value)


def _custom(x: expected.RankGroup) -> Iterator[Term]:
    """Kernels of serving libraries: every rank reads all, or its part and the sums."""
    c, n = x.fabric.inner.op("custom"), x.n
    eff = c.eff_frac * max(SMALLEST_EFF, 1.0 - c.small_group_loss / n)
    more = {"ranks": n, "size_bytes": x.size_bytes, "reached_bytes_per_s": x.up * eff}
    start = "base_s + hop_s * (ranks - 1)"
    forms = {
        "one_shot_s": f"{start} + size_bytes * (ranks - 1) / reached_bytes_per_s",
        "two_shot_s": f"({start}) * bulk_factor"
        " + 2 * size_bytes * (ranks - 1) / ranks / reached_bytes_per_s",
    }
    for (name, formula), value in zip(forms.items(), expected.custom_s(x), strict=False):
        yield term_of(name, "s", formula, x.source, c, **more, **{name: value})


def _way(name: str, t: expected.LinkTraffic, kind: str, x: expected.RankGroup) -> Term:
    """Faster protocol of one algorithm, smoothly."""
    c = (x.fabric.inner if x.n_in >= x.n else x.fabric.outer).op(kind)
    latency, transfer = _latency(t, kind, x), _transfer(t, kind, x)
    lat, trans = latency.value, transfer.value
    formula = "latency_s + transfer_s / ll_eff_frac"
    value = {"low_latency_s": lat + trans / c.ll_eff_frac}
    parts = latency, transfer
    low = term_of("low_latency_s", "s", formula, "low-latency protocol", *parts, c, **value)
    value = {"bulk_s": lat * c.bulk_factor + trans + (c.ramp_s * trans) ** 0.5}
    formula = "latency_s * bulk_factor + transfer_s + sqrt(ramp_s * transfer_s)"
    value |= {"latency_s": lat, "transfer_s": trans}
    bulk = term_of("bulk_s", "s", formula, "bulk protocol", c, **value)
    faster = "min(low_latency_s, bulk_s)"
    formula = (
        f"{faster} * (1 + ({faster} / max(low_latency_s, bulk_s)) ** {PROTOCOL_BLEND:g})"
        f" ** (-1 / {PROTOCOL_BLEND:g})"
    )
    source = f"the faster of two protocols, smoothly; {x.source}"
    return term_of(name, "s", formula, source, low, bulk, **{name: x.way_s(t, kind)})


def _latency(t: expected.LinkTraffic, kind: str, x: expected.RankGroup) -> Term:
    inner, outer = x.fabric.inner.op(kind), x.fabric.outer.op(kind)
    formula, value = "base_s + hop_s * hops", inner.base_s + inner.hop_s * t.inner_hops
    if x.n_in < x.n:
        formula += " + network_hop_s * network_hops"
        value += outer.hop_s * t.outer_hops
    more = {"hops": t.inner_hops, "network_hop_s": outer.hop_s, "network_hops": t.outer_hops}
    text = "start, and every step between ranks"
    return term_of("latency_s", "s", formula, text, inner, latency_s=value, **more)


def _transfer(t: expected.LinkTraffic, kind: str, x: expected.RankGroup) -> Term:
    inner = _level("inner", x.fabric.inner, kind, (t.inner_bytes, x.n_in, x.up))
    if x.n_in >= x.n:
        return Term("transfer_s", inner.value, "s", inner.formula, inner.inputs, inner.source)
    outer = _level("outer", x.fabric.outer, kind, (t.outer_bytes, x.n / x.n_in, x.out))
    longer, shorter = "max(inner_s, outer_s)", "min(inner_s, outer_s)"
    power = f"{expected.LEVEL_BLEND:g}"
    formula = f"{longer} * (1 + ({shorter} / {longer}) ** {power}) ** (1 / {power})"
    text = "two levels at once: the longer, and a little of the other"
    value = expected.blend_levels(inner.value, outer.value)
    return term_of("transfer_s", "s", formula, text, inner, outer, transfer_s=value)


def _level(name: str, link: LinkCalibration, kind: str, moved: tuple[float, float, float]) -> Term:
    """Bytes of the busiest link over what it reaches."""
    n_bytes, n, rate = moved
    c = link.op(kind)
    own = name == "inner"
    value = link.transfer_s(kind, n_bytes, n, rate) if own else c.transfer_s(n_bytes, n, rate)
    formula = (
        "link_bytes / (bytes_per_s * eff_frac"
        f" * max({SMALLEST_EFF:g}, 1 - small_group_loss / ranks))"
    )
    share = link.share_frac(n)
    if own and n_bytes > 0.0 and share != 1.0:
        formula = formula.replace("(bytes_per_s", "(links_frac * bytes_per_s")
    if own and n_bytes > 0.0 and link.shared_bytes_per_s > 0.0:
        formula = f"max({formula}, ranks * link_bytes / shared_bytes_per_s)"
    text = "bytes of the busiest link at what a group of so many reaches"
    more = {"link_bytes": n_bytes, "bytes_per_s": rate, "ranks": n, "links_frac": share}
    return term_of(f"{name}_s", "s", formula, text, c, link, **more, **{f"{name}_s": value})
