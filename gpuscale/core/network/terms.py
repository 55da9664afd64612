"""Terms of an expected collective: the formulas of `core.network.expected` with what they took.

Start-up and transfer: Thakur et al. 2005 (IJHPCA 19(1), section 3); protocols, rings and trees: Hu
et al. (arXiv:2507.04786).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.core.network.bound import bound_s
from gpuscale.core.network.calibration import KIND, PROTOCOL_BLEND, SMALLEST_EFF
from gpuscale.core.network.expected import (
    LEVEL_BLEND,
    Group,
    Traffic,
    blend_levels,
    group_time_s,
    reduces_in_switch,
    ring_traffic,
    traffic_of,
    traffic_time_s,
    tree_channels_s,
    tree_traffic,
)
from gpuscale.core.records import Term

if TYPE_CHECKING:
    from gpuscale.core.network.calibration import LinkCalibration


def collective_term(given: Group) -> Term:
    """Explain `expected_collective_time_s` of the same arguments."""
    x = given._replace(up=given.up or 1.0, out=given.out or 1.0)
    if x.fabric.bridge is not None and x.n_in == 2.0:
        x = x._replace(
            fabric=replace(x.fabric, inner=x.fabric.bridge), up=x.fabric.bridge_bytes_per_s
        )
    kind = KIND.get(x.op, x.op)
    if x.op == "all-reduce":
        ways = _all_reduce(x)
        kind = "custom" if x.algorithm == "custom" else kind
    else:
        traffic = traffic_of(x.op, x.size_bytes, x.n, x.n_in, x.network_frac)
        ways = (_way("algorithm_s", traffic, kind, x),)
    switch = x.algorithm == "nvls" or (
        x.algorithm in ("auto", "custom") and reduces_in_switch(x.fabric, x.n_in)
    )
    out = x.out / x.network_frac
    least = bound_s(x.op, x.size_bytes, x.n, x.n_in, x.up, out, in_switch=switch)
    inputs = {way.name: way.value for way in ways}
    fastest = f"min({', '.join(inputs)})" if len(ways) > 1 else ways[0].name
    table = x.fabric.inner.op(kind).table
    if table is not None and x.n_in >= x.n and x.size_bytes >= 1.0:
        inputs["correction"] = table.at(x.size_bytes, x.n)
        fastest += " * exp(correction)"
    return Term(
        name="links_s",
        value=group_time_s(given),
        unit="s",
        formula=f"max({fastest}, least_s)",
        inputs=inputs | {"least_s": least},
        source=f"the fastest way that the library has, never below the data sheet; {x.source}",
        children=ways,
    )


def _all_reduce(x: Group) -> tuple[Term, ...]:
    """Every algorithm that the library may take."""
    size, n, n_in, named = x.size_bytes, x.n, x.n_in, x.algorithm
    switch = reduces_in_switch(x.fabric, n_in)
    found = []
    if named in ("auto", "ring", "custom"):
        found.append(_way("ring_s", ring_traffic(size, n, n_in, 2.0), "all-reduce", x))
    if named == "nvls" or (named in ("auto", "custom") and switch):
        found.append(_way("in_switch_s", tree_traffic(size, n, n_in, True), "nvls", x))
    if named == "tree" or (named == "auto" and n_in < n and not switch):
        tree = _way("links_tree_s", tree_traffic(size, n, n_in, False), "all-reduce", x)
        inputs = {
            "links_tree_s": tree.value,
            "channels_s": tree_channels_s(size, n, n_in, x.fabric),
        }
        found.append(
            Term(
                name="tree_s",
                value=max(inputs.values()),
                unit="s",
                formula="max(links_tree_s, channels_s)",
                inputs=inputs,
                source="a double tree, no faster than its channels carry",
                children=(tree,),
            )
        )
    if named == "custom" and n_in >= n and n <= x.fabric.inner.custom_ranks:
        found += _custom(x)
    return tuple(found)


def _custom(x: Group) -> tuple[Term, ...]:
    """Kernels of serving libraries: every rank reads all, or its part and the sums."""
    c, n = x.fabric.inner.op("custom"), x.n
    inputs = {"base_s": c.base_s, "hop_s": c.hop_s, "ranks": n}
    link = x.fabric.inner
    each = {"size_bytes": x.size_bytes, "reached_bytes_per_s": x.up * _eff(link, "custom", n)}
    latency = c.base_s + c.hop_s * (n - 1.0)
    one = latency + c.transfer_s(x.size_bytes * (n - 1.0), n, x.up)
    two = latency * c.bulk_factor + c.transfer_s(2.0 * x.size_bytes * (n - 1.0) / n, n, x.up)
    return (
        Term(
            "one_shot_s",
            one,
            "s",
            "base_s + hop_s * (ranks - 1) + size_bytes * (ranks - 1) / reached_bytes_per_s",
            inputs | each,
            x.source,
        ),
        Term(
            "two_shot_s",
            two,
            "s",
            "(base_s + hop_s * (ranks - 1)) * bulk_factor"
            " + 2 * size_bytes * (ranks - 1) / ranks / reached_bytes_per_s",
            inputs | each | {"bulk_factor": c.bulk_factor},
            x.source,
        ),
    )


def _eff(link: LinkCalibration, kind: str, n: float) -> float:
    c = link.op(kind)
    return c.eff_frac * max(SMALLEST_EFF, 1.0 - c.small_group_loss / n)


def _way(name: str, t: Traffic, kind: str, x: Group) -> Term:
    """Faster protocol of one algorithm, smoothly."""
    one_domain = x.n_in >= x.n
    link = x.fabric.inner if one_domain else x.fabric.outer
    c = link.op(kind)
    latency, transfer = _latency(t, kind, x), _transfer(t, kind, x)
    inputs = {"latency_s": latency.value, "transfer_s": transfer.value}
    low = Term(
        "low_latency_s",
        latency.value + transfer.value / c.ll_eff_frac,
        "s",
        "latency_s + transfer_s / ll_eff_frac",
        inputs | {"ll_eff_frac": c.ll_eff_frac},
        "low-latency protocol",
        children=(latency, transfer),
    )
    bulk = Term(
        "bulk_s",
        latency.value * c.bulk_factor + transfer.value + (c.ramp_s * transfer.value) ** 0.5,
        "s",
        "latency_s * bulk_factor + transfer_s + sqrt(ramp_s * transfer_s)",
        inputs | {"bulk_factor": c.bulk_factor, "ramp_s": c.ramp_s},
        "bulk protocol",
    )
    faster = "min(low_latency_s, bulk_s)"
    return Term(
        name=name,
        value=traffic_time_s(
            t,
            kind,
            n=x.n,
            n_in=x.n_in,
            fabric=x.fabric,
            scaleup_bytes_per_s=x.up,
            scaleout_bytes_per_s=x.out,
        ),
        unit="s",
        formula=f"{faster} * (1 + ({faster} / max(low_latency_s, bulk_s)) ** {PROTOCOL_BLEND:g})"
        f" ** (-1 / {PROTOCOL_BLEND:g})",
        inputs={"low_latency_s": low.value, "bulk_s": bulk.value},
        source=f"the faster of two protocols, smoothly; {x.source}",
        children=(low, bulk),
    )


def _latency(t: Traffic, kind: str, x: Group) -> Term:
    inner, outer = x.fabric.inner.op(kind), x.fabric.outer.op(kind)
    inputs = {"base_s": inner.base_s, "hop_s": inner.hop_s, "hops": t.inner_hops}
    formula, value = "base_s + hop_s * hops", inner.base_s + inner.hop_s * t.inner_hops
    if x.n_in < x.n:
        inputs |= {"network_hop_s": outer.hop_s, "network_hops": t.outer_hops}
        formula += " + network_hop_s * network_hops"
        value += outer.hop_s * t.outer_hops
    return Term("latency_s", value, "s", formula, inputs, "start, and every step between ranks")


def _transfer(t: Traffic, kind: str, x: Group) -> Term:
    inner = _level("inner", x.fabric.inner, kind, (t.inner_bytes, x.n_in, x.up))
    if x.n_in >= x.n:
        return Term("transfer_s", inner.value, "s", inner.formula, inner.inputs, inner.source)
    outer = _level("outer", x.fabric.outer, kind, (t.outer_bytes, x.n / x.n_in, x.out))
    value = blend_levels(inner.value, outer.value)
    inputs = {"inner_s": inner.value, "outer_s": outer.value}
    longer, shorter = "max(inner_s, outer_s)", "min(inner_s, outer_s)"
    formula = f"{longer} * (1 + ({shorter} / {longer}) ** {LEVEL_BLEND:g}) ** (1 / {LEVEL_BLEND:g})"
    text = "two levels at once: the longer, and a little of the other"
    return Term("transfer_s", value, "s", formula, inputs, text, children=(inner, outer))


def _level(name: str, link: LinkCalibration, kind: str, moved: tuple[float, float, float]) -> Term:
    """Bytes of the busiest link over what it reaches."""
    n_bytes, n, rate = moved
    c = link.op(kind)
    own = name == "inner"
    value = link.transfer_s(kind, n_bytes, n, rate) if own else c.transfer_s(n_bytes, n, rate)
    inputs = {
        "link_bytes": n_bytes,
        "bytes_per_s": rate,
        "eff_frac": c.eff_frac,
        "small_group_loss": c.small_group_loss,
        "ranks": n,
    }
    formula = (
        "link_bytes / (bytes_per_s * eff_frac"
        f" * max({SMALLEST_EFF:g}, 1 - small_group_loss / ranks))"
    )
    if own and n_bytes > 0.0 and (share := link.share_frac(n)) != 1.0:
        inputs["links_frac"] = share
        formula = formula.replace("(bytes_per_s", "(links_frac * bytes_per_s")
    if own and n_bytes > 0.0 and link.shared_bytes_per_s > 0.0:
        inputs["shared_bytes_per_s"] = link.shared_bytes_per_s
        formula = f"max({formula}, ranks * link_bytes / shared_bytes_per_s)"
    text = "bytes of the busiest link at what a group of so many reaches"
    return Term(f"{name}_s", value, "s", formula, inputs, text)
