"""The answer of `network`: levels, design, bill, losses, the all-reduce to expect; its terms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpuscale.answers import options
from gpuscale.answers.parts import network_blocks as shown
from gpuscale.answers.parts.collective_answer import Told, expected_time
from gpuscale.answers.parts.network_blocks import NetworkAnswer, Planned
from gpuscale.answers.parts.network_wish import levels_of, of_hosts, parts_of, wished
from gpuscale.answers.summary import changed
from gpuscale.core.fabric import TREES
from gpuscale.core.fabric.bill import NetworkBill, bill, clos_cables
from gpuscale.core.fabric.clos import nvlink_domain, switches_by_ports
from gpuscale.core.fabric.of_cluster import NetworkPlan, design_of, plan_of
from gpuscale.core.fabric.records import Design, Loss, losses
from gpuscale.core.network.hierarchy import network_levels, network_report
from gpuscale.core.network.ideal import ideal_collective
from gpuscale.core.records import Term, made_of, term_of
from gpuscale.core.run.checkpoint import SECONDS_PER_MONTH, network_stops_per_s
from gpuscale.errors import GpuscaleError
from gpuscale.io.inputs import load_inputs
from gpuscale.io.run import load_nvlink, network_rates
from gpuscale.render.document import Document, Text
from gpuscale.specs.hardware import ClusterSpec

if TYPE_CHECKING:
    from gpuscale.answers.parts.asked import Network

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
        found += _design_terms(r, r.design)
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


def _design_terms(r: NetworkAnswer, made: Design) -> list[Term]:
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


ALL_REDUCE_BYTES = 1e9
"""Buffer of one GPU whose all-reduce is shown."""

MOST_LISTED = 2_000_000
"""Longest cable list that is written."""


def network_document(asked: Network) -> Document:
    """Design the network that is asked for."""
    loaded = load_inputs(
        asked, cluster=asked.cluster or options.DEFAULT_CLUSTER, catalogue=asked.catalogue
    )
    if asked.hosts and asked.gpus:
        raise GpuscaleError("give --gpus or --hosts, not both")
    spec, switch = wished(asked, of_hosts(loaded.cluster) if asked.hosts else loaded.cluster)
    alone = spec.node_egress_bytes_per_s is None  # no network known: the scale-up domain only
    n_gpus = (
        asked.hosts or asked.gpus or spec.n_gpus or (spec.scaleup_domain_gpus if alone else 1024)
    )
    try:
        plan, made = _design(spec, n_gpus)
        spec = levels_of(asked, spec, made.bisection if made else ())
        report = network_report(spec, n_gpus)
    except ValueError as error:
        raise GpuscaleError(
            f"{spec.name}: {error}", "give fewer with --gpus, or more with --radix or --tiers"
        ) from None
    planned = Planned(spec, switch, plan)
    bill, losses = _bill(asked, planned, made)
    told = _all_reduce(asked, spec, n_gpus)
    answer = made_of(
        NetworkAnswer,
        report,
        levels=tuple(v for v in report.levels if v.gpus_under > 1 or not asked.hosts),
        scaleup=_scaleup(spec),
        design=made,
        **_counts(plan, made),
        bill=bill,
        losses=losses,
        failure_s=_failure_s(made),
        all_reduce=told and told.answer,
        cables=tuple(_cables(plan, made)) if asked.cables else (),
    )
    return _document(asked, answer, loaded, planned, terms_of(answer, spec, told))


def _design(spec: ClusterSpec, n_gpus: int) -> tuple[NetworkPlan | None, Design | None]:
    """Plan and design of the scale-out network; none where one scale-up domain is enough."""
    plan = plan_of(spec, n_gpus)
    alone = n_gpus <= spec.scaleup_domain_gpus
    if plan is None or alone and plan.wish.topology != "torus":
        return None, None
    return plan, design_of(plan)


def _scaleup(spec: ClusterSpec) -> Design | None:
    """One NVLink domain behind switches; None where links are direct or not known."""
    found = re.search(r"nvlink\D*(\d)", spec.gpu.scaleup_link.lower())
    known = load_nvlink(int(found[1])) if found else None
    rate, chips = spec.scaleup_bytes_per_s or spec.gpu.scaleup_bytes_per_s, spec.n_scaleup_switches
    if known is None or rate is None or not chips or spec.scaleup_domain_gpus < 2:
        return None
    n, ports = known.links_per_gpu, known.ports_per_chip
    return nvlink_domain(spec.scaleup_domain_gpus, n, rate / n, ports, chips)


def _failure_s(made: Design | None) -> float | None:
    """Mean time between failures of a link or a switch, by published rates."""
    if made is None or not made.n_switches:
        return None
    link, switch, _ = network_rates()
    return 1 / network_stops_per_s(made.n_links, made.n_switches, link, switch)


def _counts(plan: NetworkPlan | None, made: Design | None) -> dict[str, object]:
    names = ("leaf", "spine", "core")
    if plan is None or made is None:
        keys = ("n_switches", "n_switches_by_ports", "n_links", "n_cables")
        return dict.fromkeys([*keys, *(f"n_{t}_switches" for t in names)])
    full = made.topology in TREES and not plan.wish.oversubscription
    return {
        "n_switches": made.n_switches,
        "n_switches_by_ports": switches_by_ports(made.n_host_links, plan.ports.up, made.n_tiers)
        if full
        else None,
        "n_links": made.n_links,
        "n_cables": made.n_cables,
        **{f"n_{t}_switches": made.switches(t) for t in names},
    }


def _bill(
    asked: Network, p: Planned, made: Design | None
) -> tuple[NetworkBill | None, tuple[Loss, ...]]:
    spec, switch, plan = p
    if plan is None or made is None or made.topology == "torus":
        return None, ()
    parts = parts_of(asked, switch, plan.ports.down_bytes_per_s)
    hit = losses(made, plan.hosts, spec.network.rack_gpus) if made.topology in TREES else ()
    return bill(made, parts), hit


def _all_reduce(asked: Network, spec: ClusterSpec, n_gpus: int) -> Told | None:
    levels = network_levels(spec)
    if n_gpus < 2 or asked.hosts or spec.scaleup_class == "ici" or not levels:
        return None
    found = ideal_collective("all-reduce", ALL_REDUCE_BYTES, n_gpus, levels)
    return expected_time(found, spec, levels, 1, None, asked.calibration)


def _cables(plan: NetworkPlan | None, made: Design | None) -> Any:
    if plan is None or made is None:
        raise GpuscaleError("--cables: there is no network to cable", "give more with --gpus")
    n = made.n_links
    if n > MOST_LISTED:
        raise GpuscaleError(f"--cables: {n:,} links are too many for a list", "list one zone")
    try:
        return list(clos_cables(made, plan.hosts, plan.wish))
    except ValueError as error:
        raise GpuscaleError(f"--cables: {error}", "counts are in the answer") from None


def _document(
    asked: Network, answer: NetworkAnswer, loaded: Any, p: Planned, terms: tuple[Term, ...]
) -> Document:
    n, spec, switch = answer.n_gpus, p.spec, p.switch
    what = f"{n:,} hosts of one port each" if asked.hosts else f"{n:,} GPUs of {spec.name}"
    title = f"{what} in {answer.n_nodes:,} nodes" if not asked.hosts else what
    title += f", {spec.fabric or 'no network named'}, {asked.catalogue} figures."
    details = shown.details(answer, p)
    details["figures"] = [Text(title), *changed(loaded), *details["figures"]]
    return Document.layered(
        "network",
        loaded.inputs(
            n_gpus=answer.n_gpus,
            switch=switch.name if switch else None,
            switch_radix=spec.switch_radix,
            topology=spec.network.topology,
            oversubscription=list(spec.network.oversubscription),
            catalogue=asked.catalogue,
        ),
        answer,
        (),
        details,
        warnings=[*loaded.warnings, *shown.warnings(answer, p)],
        terms=terms,
        csv_table=shown.cable_table(answer.cables) if asked.cables else None,
        pictures=(lambda: shown.pictures(answer, spec)) if answer.design else None,
    )
