"""The answer of `network` as records, and how it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.parts.collective_answer import ExpectedCollective
from gpuscale.answers.parts.network_wish import counted
from gpuscale.core.fabric.bill import COLUMNS, Cable, NetworkBill
from gpuscale.core.fabric.check import CableReport
from gpuscale.core.fabric.of_cluster import NetworkPlan
from gpuscale.core.fabric.records import Design, Loss
from gpuscale.core.network.hierarchy import NetworkReport
from gpuscale.core.quantity import format_si
from gpuscale.core.records import NamedTuple, asdict, dataclass
from gpuscale.render.document import Block, Column, Facts, Table, Text
from gpuscale.specs.hardware import ClusterSpec
from gpuscale.specs.run import SwitchSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscale.render.chart import Chart


Row = tuple[str, str, str]


def rate(value: Any) -> str:
    """Bandwidth with its unit."""
    return format_si(value, "bytes_per_s")


def details(r: NetworkAnswer, p: Planned) -> dict[str, list[Block]]:
    """Figures, levels, tiers, links, bill, losses."""
    made, spec = r.design, p.spec
    found: dict[str, list[Block]] = {
        "figures": _figures(r, p),
        "levels": [level_table(r, spec)] if r.levels else [],
    }
    if made is None:
        return found
    return found | {
        "tiers": [_tiers(made, spec)] if made.tiers else [],
        "links": [_links(made)],
        "bill": [_bill(r.bill)] if r.bill else [],
        "losses": [_losses(r, spec)] if r.losses else [],
        "cables": [Text(_cable_text(r.cables))] if r.cables else [],
    }


def _cable_text(cables: Sequence[Cable]) -> str:
    lengths = {c.length: 0 for c in cables}
    for c in cables:
        lengths[c.length] += 1
    text = ", ".join(f"{n:,} {name}" for name, n in lengths.items())
    return f"{len(cables):,} cables ({text}); --format csv or -o FILE.csv lists"


def level_table(r: NetworkAnswer, spec: ClusterSpec) -> Table:
    """Bandwidth of every level; the bisection of a torus stands in its design."""
    columns: dict[str, str | Column] = {
        "name": Column("level", "level", right=False),
        "n_children": "children",
        "gpus_under": f"{counted(spec)} under it",
        "bytes_per_s_per_gpu": f"per {counted(spec)[:-1]}",
        "bytes_per_s_per_node": "per node",
        "child_bytes_per_s": "one child",
        "total_bytes_per_s": "all children",
        "bisection_bytes_per_s": "bisection, 2-way",
        "collective_bytes_per_s": "collective",
    }
    if spec.network.topology == "torus":
        del columns["bisection_bytes_per_s"]
    return Table.of(columns, r.levels, "bandwidth per level (one direction)")


def _figures(r: NetworkAnswer, p: Planned) -> list[Block]:
    """List what most ask first, which is the summary too; then what else is known."""
    rows: list[Row] = []
    more: list[Row] = []
    spec, made = p.spec, r.design
    if made is not None and p.plan is not None:
        rows += _design_rows(r, made, p, p.plan)
        if made.reach_gpus:
            more.append(("reach", f"{made.reach_gpus:,}", f"{counted(spec)} with so many tiers"))
        if n := made.n_manager_links:
            more.append(("management", str(n), "host ports of the fabric manager"))
    if r.collective_bytes_per_s is not None:
        text = f"all-gather over all {counted(spec)}; slowest level: {r.slowest_level}"
        rows.append(("bandwidth", rate(r.collective_bytes_per_s), text))
    if r.all_reduce is not None:
        e = r.all_reduce
        low_high = f"{format_si(e.low_s, 's', 3)} to {format_si(e.high_s, 's', 3)}"
        text = f"of 1 GB, expected (80 %: {low_high}); bus bandwidth {rate(e.busbw_bytes_per_s)}"
        rows.append(("all-reduce", format_si(e.time_s, "s", 3), text))
    rows += _bill_rows(r, p.switch)
    if r.failure_s is not None:
        note = "a link or a switch, by the rates of Alibaba HPN (0.057 and 0.051 % a month)"
        rows.append(("one fails", f"every {format_si(r.failure_s, 's', 3)}", note))
    if r.losses:
        worst = max(r.losses, key=lambda v: (v.n_gpus_cut, v.bisection_frac))
        what = counted(spec)
        note = f"{worst.n_gpus:,} {what} touched, {worst.n_gpus_cut:,} cut off"
        rows.append(("worst loss", worst.part, note))
    if r.n_scaleup_switches is not None:
        more.append(("scale-up switches", str(r.n_scaleup_switches), "chips, all domains"))
    if r.scaleup is not None:
        one, cut = r.scaleup, r.scaleup.bisection[0]
        chips = f"{one.n_switches} chips, {one.links[0].n_links:,} links of "
        note = f"{chips}{rate(one.links[0].bytes_per_s)}, bisection {rate(cut.bytes_per_s)} one way"
        more.append(("scale-up domain", f"{one.n_gpus} GPUs", note))
    counts = (spec.n_leaf_switches, spec.n_spine_switches, spec.n_core_switches)
    if counts[0] is not None:
        text = " / ".join(str(c) for c in counts if c is not None)
        more.append(("published switches", text, f"leaf / spine / core of {spec.name}"))
    rows = rows or [("network", "none", "no scale-out figures are known")]
    return [Facts(rows, "network"), *([Facts(more)] if more else [])]


def _design_rows(r: NetworkAnswer, made: Design, p: Planned, plan: NetworkPlan) -> list[Row]:
    wish, spec, switch = plan.wish, p.spec, p.switch
    cut = made.bisection[-1] if made.bisection else None
    gbit = f"{8 * cut.bytes_per_s_per_gpu / 1e9:,.4g} Gb/s a {counted(spec)[:-1]}" if cut else ""
    across = [("bisection", rate(cut.bytes_per_s), f"one direction; {gbit}")] if cut else []
    if made.topology == "torus":
        shape = " x ".join(map(str, plan.shape))
        open_axes = [s for s, w in zip(plan.shape, plan.wrapped, strict=True) if s > 1 and not w]
        note = "all axes closed" if not open_axes else f"{len(open_axes)} axes open"
        rows = [("torus", shape, note)]
        if made.n_extra_switches:
            note = f"optical; one per pair of opposite face links of blocks of {plan.cube}"
            rows.append(("switches", str(made.n_extra_switches), note))
        return [*rows, *across]
    name = switch.name if switch else f"{plan.ports.up}-port switches"
    parts = [f"{made.n_tiers} tier{'s' * (made.n_tiers > 1)}"]
    for noun, n in (("plane", wish.planes), ("zone", wish.zones)):
        parts += [f"{n} {noun}s"] if n > 1 else []
    if made.topology == "rail-only":
        parts.append(f"{plan.hosts.nics_per_node} separate rails")
    parts += ["dual ToR"] if wish.dual_tor else []
    parts.append(f"{name}, {plan.ports.up} ports at {8 * plan.ports.up_bytes_per_s / 1e9:g} Gb/s")
    parts += [f"{k} {v}" for k, v in made.parameters]
    alone = r.n_switches_by_ports
    counted_only = (
        f"; {alone:,} by counting ports alone" if alone not in (None, r.n_switches) else ""
    )
    links = f"{r.n_links or 0:,} links, {r.n_cables:,} cables{counted_only}"
    return [
        ("design", made.topology, ", ".join(parts)),
        ("switches", f"{made.n_switches:,}", links),
        *across,
    ]


def _tiers(made: Design, spec: ClusterSpec) -> Table:
    cuts = {b.level: b for b in made.bisection}
    rows = []
    for t in made.tiers:
        cut = cuts.get(t.name)
        rows.append({"tier": t.name, "gpus_under": cut and cut.n_gpus, **asdict(t)})
        rows[-1]["bytes_per_s_per_gpu"] = cut and cut.bytes_per_s_per_gpu
    columns = {
        "tier": "tier",
        "n_switches": "switches",
        "ports_down": "ports down",
        "ports_up": "ports up",
        "oversubscription": Column("oversubscription", "down : up", lambda v: f"{v:.3g} : 1"),
        "gpus_under": f"{counted(spec)} under",
        "bytes_per_s_per_gpu": f"per {counted(spec)[:-1]}",
    }
    return Table.of(columns, rows, "tiers")


def _links(made: Design) -> Table:
    kind = Column("optical", "kind", lambda v: "optical" if v else "copper", right=False)
    columns = {
        "lower": "from",
        "upper": "to",
        "n_links": "links",
        "n_cables": "cables",
        "bytes_per_s": "each",
        "optical": kind,
    }
    return Table.of(columns, made.links, "links")


def _bill(bill: NetworkBill) -> Table:
    columns = {
        "item": "item",
        "n": "number",
        "unit_usd": Column("unit_usd", "USD each", lambda v: f"{v:,.0f}"),
        "usd": Column("usd", "USD", lambda v: f"{v:,.0f}"),
        "power_w": "power",
    }
    return Table.of(columns, bill.items, "bill of materials")


def _bill_rows(r: NetworkAnswer, switch: SwitchSpec | None) -> list[Row]:
    b = r.bill
    if b is None:
        return []
    price: Row = ("price", "not known", "no price of: " + ", ".join(b.unpriced))
    if b.usd is not None:
        when = f"; switch price of {switch.price_date}" if switch and switch.price_date else ""
        price = ("price", format_si(b.usd, "usd"), f"{b.usd / r.n_gpus:,.0f} USD per GPU{when}")
    power: Row = ("power", "not known", f"no figure of: {', '.join(b.unmeasured)}; --switch-power")
    if b.power_low_w is not None and b.power_high_w is not None:
        low, high = format_si(b.power_low_w, "w"), format_si(b.power_high_w, "w")
        note = switch.sources.get("chassis", "") if switch and low != high else ""
        power = ("power", low if low == high else f"{low} to {high}", note.partition(";")[0][:90])
    return [price, power]


def _losses(r: NetworkAnswer, spec: ClusterSpec) -> Table:
    columns = {
        "part": "one failed",
        "n_gpus": f"{counted(spec)} touched",
        "bandwidth_frac": "of their bandwidth",
        "bisection_frac": "of the network's",
        "n_gpus_cut": f"{counted(spec)} cut off",
        "note": "",
    }
    return Table.of(columns, r.losses, "what one failure takes")


def cable_table(cables: Sequence[Cable]) -> Table:
    """Cable list, end by end."""
    return Table.of({name: name for name in COLUMNS}, cables, "cables")


def warnings(r: NetworkAnswer, p: Planned) -> list[str]:
    """Tell what a person must know beside the answer."""
    found, spec = [], p.spec
    if spec.n_gpus is not None and r.n_gpus > spec.n_gpus:
        found.append(f"{spec.name} has {spec.n_gpus} GPUs, fewer than {r.n_gpus}")
    if spec.node_egress_bytes_per_s is None:
        found.append(f"{spec.name}: the bandwidth out of a node is not known")
    if spec.scaleup_class == "ici" and r.design is None:
        found.append("torus links (ICI) are shown as one level; their topology is not known")
    if r.design is not None and not r.design.even:
        found.append("the top tiers do not spread evenly: whole pods would; see `ports down`")
    module = p.switch.module_limit_w if p.switch is not None else None
    if module is not None and r.bill is not None:
        for item in r.bill.items:
            each = (item.power_w or 0.0) / item.n
            if item.item.startswith("switch module") and each > module:
                found.append(f"{item.item} draws {each:g} W, the cage allows {module:g} W")
    return found


def pictures(r: NetworkAnswer, spec: ClusterSpec) -> list[Chart]:
    """Picture of the topology."""
    from gpuscale.render.chart import TierRow, Tiers

    made = r.design
    if made is None or not made.tiers:
        return []
    rows = [
        TierRow(t.name, t.n_switches, f"{t.n_switches:,} x {t.ports_down} down, {t.ports_up} up")
        for t in reversed(made.tiers)
    ]
    rows.append(TierRow("nodes", made.n_nodes, f"{made.n_nodes:,} nodes, {made.n_gpus:,} GPUs"))
    between = [f"{g.n_links:,} links of {8 * g.bytes_per_s / 1e9:g} Gb/s" for g in made.links]
    count_text = f"{made.topology}: {made.n_switches:,} switches, {made.n_cables:,} cables"
    where = f"{spec.name}, {made.n_gpus:,} GPUs"
    return [Tiers("network", count_text, rows, list(reversed(between)), where)]


class Planned(NamedTuple):
    """What a network is designed from; without a plan one scale-up domain is enough."""

    spec: ClusterSpec
    switch: SwitchSpec | None
    plan: NetworkPlan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAnswer(NetworkReport):
    """Levels of a cluster and the design of its network."""

    scaleup: Design | None  # of one NVLink domain
    design: Design | None
    n_switches: int | None
    n_switches_by_ports: int | None  # least that have ports enough, as cost sheets count
    n_leaf_switches: int | None
    n_spine_switches: int | None
    n_core_switches: int | None
    n_links: int | None
    n_cables: int | None
    bill: NetworkBill | None
    losses: tuple[Loss, ...]
    failure_s: float | None  # mean time between failures of a link or switch
    all_reduce: ExpectedCollective | None  # of 1 GB per GPU
    cables: tuple[Cable, ...] = ()


@dataclass(frozen=True, slots=True)
class CableCheck:
    """A cable list held against what a network must be."""

    ok: bool
    report: CableReport
