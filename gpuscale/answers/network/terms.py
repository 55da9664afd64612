"""Terms of `network`: bandwidths of the levels, counts of the design, its price and failures."""

from __future__ import annotations

from gpuscale.answers.collective.expected import Told
from gpuscale.answers.network.records import NetworkAnswer
from gpuscale.core.fabric.records import Design
from gpuscale.core.records import Term, term_of
from gpuscale.specs.cluster import ClusterSpec

SOURCE = "How to Scale Your Model, GPU chapter, networking"

DESIGN = "NVIDIA DGX SuperPOD reference architectures; Al-Fares et al., SIGCOMM 2008"


def terms_of(r: NetworkAnswer, spec: ClusterSpec, told: Told | None) -> tuple[Term, ...]:
    """Explain the headline numbers."""
    levels = _levels(r, spec)
    found = [*levels]
    if r.collective_bytes_per_s is not None and levels:
        inputs = {
            f"{_key(v.name)}_bytes_per_s": v.collective_bytes_per_s
            for v in r.levels
            if v.collective_bytes_per_s is not None
        }
        formula = f"min({', '.join(inputs)})" if len(inputs) > 1 else next(iter(inputs))
        name, value = "collective_bytes_per_s", r.collective_bytes_per_s
        found.append(Term(name, value, "bytes_per_s", formula, inputs, "the slowest level"))
    if told is not None:
        found.append(told.term())
    if r.design is not None:
        found += _design(r, r.design)
    return tuple(found)


def _key(name: str) -> str:
    return name.replace("-", "_").replace(" ", "_")


def _levels(r: NetworkAnswer, spec: ClusterSpec) -> list[Term]:
    found = []
    for level in r.levels:
        if level.collective_bytes_per_s is None:
            continue
        key = "scaleup_bytes_per_s" if level.name == "node" else "node_egress_bytes_per_s"
        origin = spec.sources.get(key, f"{spec.name}: {key}")
        own = term_of("bytes_per_s_per_gpu", "bytes_per_s", "", origin, level)
        name = f"collective bandwidth, {level.name}"
        formula = "n_children * gpus_below * bytes_per_s_per_gpu / (n_children - 1)"
        value = {name: level.collective_bytes_per_s}
        found.append(term_of(name, "bytes_per_s", formula, SOURCE, own, level, **value))
    return found


def _design(r: NetworkAnswer, made: Design) -> list[Term]:
    """Explain counts as sums over tiers and groups of links; what is built of them."""
    found = _uplinks(made)
    switches = {_key(t.name): float(t.n_switches) for t in made.tiers}
    if made.n_extra_switches:
        switches["extra"] = float(made.n_extra_switches)
    links = {_key(f"{g.lower}_{g.upper}"): g for g in made.links}
    if switches:
        found.append(_count("n_switches", made.n_switches, switches, "switches of each tier"))
    if len(links) == len(made.links) > 0:
        each = {k: float(g.n_links) for k, g in links.items()}
        found.append(_count("n_links", made.n_links, each, "links between each two tiers"))
        each = {k: float(g.n_cables) for k, g in links.items()}
        found.append(_count("n_cables", made.n_cables, each, "cables between each two tiers"))
    if r.failure_s is not None:
        found.append(_failure(r.failure_s, made))
    if r.bill is not None and r.bill.usd is not None:
        inputs: dict[str, float] = {}
        for i, item in enumerate(r.bill.items, 1):
            inputs |= {f"n_{i}": float(item.n), f"usd_{i}": float(item.unit_usd or 0.0)}
        formula = " + ".join(f"n_{i} * usd_{i}" for i in range(1, len(r.bill.items) + 1))
        names = "; ".join(f"{i} {item.item}" for i, item in enumerate(r.bill.items, 1))
        source = f"bill of materials: {names}"
        found.append(Term("network_usd", r.bill.usd, "usd", formula, inputs, source))
    return found


def _count(name: str, value: int, parts: dict[str, float], source: str) -> Term:
    return Term(name, float(value), "count", " + ".join(parts), parts, f"{source}; {DESIGN}")


def _failure(value: float, made: Design) -> Term:
    from gpuscale.core.run.failures import SECONDS_PER_MONTH
    from gpuscale.io.run import network_rates

    link, switch, source = network_rates()
    failures = "n_links * link_failures_per_month + n_switches * switch_failures_per_month"
    formula = f"{SECONDS_PER_MONTH:g} / ({failures})"
    rates = {"link_failures_per_month": link, "switch_failures_per_month": switch}
    return term_of("failure_s", "s", formula, source, made, failure_s=value, **rates)


def _uplinks(made: Design) -> list[Term]:
    """Links of a tier upwards: what its switches have of ports."""
    if len(made.tiers) < 2 or not made.n_networks or made.topology == "dragonfly+":
        return []
    found = []
    for lower, upper in zip(made.tiers, made.tiers[1:], strict=False):
        if lower.n_switches and upper.n_switches:
            inputs = {"n_switches": float(lower.n_switches), "ports_up": float(lower.ports_up)}
            name, n = f"links {lower.name} to {upper.name}", float(made.group(lower.name))
            found.append(Term(name, n, "count", "n_switches * ports_up", inputs, DESIGN))
    return found
