"""How the answer of `network` is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.network.wish import counted
from gpuscale.core.fabric.cables import COLUMNS
from gpuscale.core.quantity import format_si
from gpuscale.render.document import Column, Facts, Table, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscale.answers.network.records import NetworkAnswer
    from gpuscale.core.fabric.cables import Cable
    from gpuscale.core.fabric.of_cluster import Plan
    from gpuscale.core.fabric.records import Design
    from gpuscale.render.document import Block
    from gpuscale.render.pictures.chart import Chart
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.run import SwitchSpec


def rate(value: Any) -> str:
    """Bandwidth with its unit."""
    return format_si(value, "bytes_per_s")


def count(value: Any) -> str:
    """Whole number with thousands apart."""
    return f"{value:,}"


def blocks(
    r: NetworkAnswer, spec: ClusterSpec, switch: SwitchSpec | None, plan: Plan | None
) -> list[Block]:
    """Levels, design, links, bill, losses."""
    found: list[Block] = []
    if r.levels:
        found.append(level_table(r, spec))
    found.append(_facts(r, spec, switch, plan))
    if r.design is None:
        return found
    if r.design.tiers:
        found.append(_tiers(r.design, spec))
    found.append(_links(r.design))
    if r.bill is not None:
        found.append(_bill(r))
        found += _bill_text(r, switch)
    if r.losses:
        found.append(_losses(r, spec))
    if r.cables:
        lengths = {c.length: 0 for c in r.cables}
        for c in r.cables:
            lengths[c.length] += 1
        text = ", ".join(f"{n:,} {name}" for name, n in lengths.items())
        found.append(Text(f"{len(r.cables):,} cables ({text}); --format csv or -o FILE.csv lists"))
    return found


def level_table(r: NetworkAnswer, spec: ClusterSpec) -> Table:
    """Bandwidth of every level; the bisection of a torus stands in its design."""
    torus = spec.network.topology == "torus"
    columns = [
        Column("level", "level", right=False),
        Column("n_children", "children"),
        Column("gpus_under", f"{counted(spec)} under it"),
        Column("bytes_per_s_per_gpu", f"per {counted(spec)[:-1]}", rate),
        Column("bytes_per_s_per_node", "per node", rate),
        Column("child_bytes_per_s", "one child", rate),
        Column("total_bytes_per_s", "all children", rate),
        Column("bisection_bytes_per_s", "bisection, 2-way", rate),
        Column("collective_bytes_per_s", "collective", rate),
    ]
    keep = [c for c in columns if not (torus and c.key == "bisection_bytes_per_s")]
    names = [("name" if c.key == "level" else c.key) for c in keep]
    rows = [[getattr(v, name) for name in names] for v in r.levels]
    return Table(keep, rows, "bandwidth per level (one direction)")


def _facts(
    r: NetworkAnswer, spec: ClusterSpec, switch: SwitchSpec | None, plan: Plan | None
) -> Facts:
    rows: list[tuple[str, str, str]] = []
    if r.collective_bytes_per_s is not None:
        text = f"slowest level: {r.slowest_level}"
        rows.append((f"all-gather over all {counted(spec)}", rate(r.collective_bytes_per_s), text))
    if r.all_reduce is not None:
        e = r.all_reduce
        low_high = f"{format_si(e.low_s, 's', 3)} to {format_si(e.high_s, 's', 3)}"
        rows.append(
            (
                "all-reduce of 1 GB, expected",
                format_si(e.time_s, "s", 3),
                f"80 % interval {low_high}; bus bandwidth {rate(e.busbw_bytes_per_s)}",
            )
        )
    if r.n_scaleup_switches is not None:
        rows.append(("scale-up switches", str(r.n_scaleup_switches), "chips, all domains"))
    if r.scaleup is not None:
        one, cut = r.scaleup, r.scaleup.bisection[0]
        chips = f"{one.n_switches} chips, {one.links[0].n_links:,} links of "
        note = f"{chips}{rate(one.links[0].bytes_per_s)}, bisection {rate(cut.bytes_per_s)} one way"
        rows.append(("scale-up domain", f"{one.n_gpus} GPUs", note))
    if r.design is not None and plan is not None:
        rows += _design_facts(r, spec, switch, plan)
    counts = (spec.n_leaf_switches, spec.n_spine_switches, spec.n_core_switches)
    if counts[0] is not None:
        text = " / ".join(str(c) for c in counts if c is not None)
        rows.append(("published switches", text, f"leaf / spine / core of {spec.name}"))
    return Facts(rows or [("network", "none", "no scale-out figures are known")], "network")


def _design_facts(
    r: NetworkAnswer, spec: ClusterSpec, switch: SwitchSpec | None, plan: Plan
) -> list[tuple[str, str, str]]:
    made = r.design
    assert made is not None
    wish = plan.wish
    if made.topology == "torus":
        shape = " x ".join(map(str, plan.shape))
        open_axes = [s for s, w in zip(plan.shape, plan.wrapped, strict=True) if s > 1 and not w]
        note = "all axes closed" if not open_axes else f"{len(open_axes)} axes open"
        rows = [("torus", shape, note)]
        if made.n_extra_switches:
            note = f"one per pair of opposite face links of blocks of {plan.cube}"
            rows.append(("optical circuit switches", str(made.n_extra_switches), note))
        cut = made.bisection[0]
        note = f"one direction; {rate(cut.bytes_per_s_per_gpu)} a chip"
        return [*rows, ("bisection", rate(cut.bytes_per_s), note)]
    name = switch.name if switch else f"{plan.ports.up}-port switches"
    parts = [f"{made.n_tiers} tier{'s' * (made.n_tiers > 1)}"]
    for noun, n in (("plane", wish.planes), ("zone", wish.zones)):
        parts += [f"{n} {noun}s"] if n > 1 else []
    if made.topology == "rail-only":
        parts.append(f"{plan.hosts.nics_per_node} separate rails")
    parts += ["dual ToR"] if wish.dual_tor else []
    shape = ", ".join(f"{k} {v}" for k, v in made.parameters)
    rows = [
        (
            made.topology,
            ", ".join(parts),
            f"{name}, {plan.ports.up} ports at "
            f"{8 * plan.ports.up_bytes_per_s / 1e9:g} Gb/s" + (f"; {shape}" if shape else ""),
        ),
        ("switches", count(made.n_switches), _by_ports(r)),
        ("links", count(r.n_links or 0), f"{r.n_cables:,} cables"),
    ]
    if made.reach_gpus:
        rows.append(("reach", count(made.reach_gpus), f"{counted(spec)} with so many tiers"))
    for cut in made.bisection[-1:]:
        gbit = 8 * cut.bytes_per_s_per_gpu / 1e9
        note = f"one direction; {gbit:,.4g} Gb/s a {counted(spec)[:-1]}"
        rows.append(("bisection", rate(cut.bytes_per_s), note))
    if r.failure_s is not None:
        note = "a link or a switch, by the rates of Alibaba HPN (0.057 and 0.051 % a month)"
        rows.append(("one fails every", format_si(r.failure_s, "s", 3), note))
    if made.n_manager_links:
        rows.append(("management", str(made.n_manager_links), "host ports of the fabric manager"))
    return rows


def _by_ports(r: NetworkAnswer) -> str:
    n = r.n_switches_by_ports
    if n is None or n == r.n_switches:
        return ""
    return f"{n:,} by counting ports alone"


def _tiers(made: Design, spec: ClusterSpec) -> Table:
    columns = [
        Column("tier", "tier", right=False),
        Column("n_switches", "switches", count),
        Column("ports_down", "ports down", count),
        Column("ports_up", "ports up", count),
        Column("oversubscription", "down : up", lambda v: f"{v:.3g} : 1"),
        Column("gpus_under", f"{counted(spec)} under", count),
        Column("bytes_per_s_per_gpu", f"per {counted(spec)[:-1]}", rate),
    ]
    cuts = {b.level: b for b in made.bisection}
    rows = []
    for t in made.tiers:
        cut = cuts.get(t.name)
        more = [cut.n_gpus, cut.bytes_per_s_per_gpu] if cut else [None, None]
        rows.append([t.name, t.n_switches, t.ports_down, t.ports_up, t.oversubscription, *more])
    return Table(columns, rows, "tiers")


def _links(made: Design) -> Table:
    columns = [
        Column("lower", "from", right=False),
        Column("upper", "to", right=False),
        Column("n_links", "links", count),
        Column("n_cables", "cables", count),
        Column("bytes_per_s", "each", rate),
        Column("optical", "kind", lambda v: "optical" if v else "copper", right=False),
    ]
    return Table.of(columns, made.links, "links")


def _bill(r: NetworkAnswer) -> Table:
    assert r.bill is not None
    columns = [
        Column("item", "item", right=False),
        Column("n", "number", count),
        Column("unit_usd", "USD each", lambda v: f"{v:,.0f}"),
        Column("usd", "USD", lambda v: f"{v:,.0f}"),
        Column("power_w", "power", lambda v: format_si(v, "w")),
    ]
    return Table.of(columns, r.bill.items, "bill of materials")


def _bill_text(r: NetworkAnswer, switch: SwitchSpec | None) -> list[Block]:
    b = r.bill
    assert b is not None
    rows = []
    if b.usd is not None:
        each = f"{b.usd / r.n_gpus:,.0f} USD per GPU"
        when = f"; switch price of {switch.price_date}" if switch and switch.price_date else ""
        rows.append(("network price", format_si(b.usd, "usd"), each + when))
    else:
        rows.append(("network price", "not known", "no price of: " + ", ".join(b.unpriced)))
    if b.power_low_w is not None and b.power_high_w is not None:
        low, high = format_si(b.power_low_w, "w"), format_si(b.power_high_w, "w")
        text = low if low == high else f"{low} to {high}"
        note = switch.sources.get("chassis", "") if switch and low != high else ""
        rows.append(("network power", text, note[:90]))
    else:
        what = ", ".join(b.unmeasured)
        rows.append(("network power", "not known", f"no figure of: {what}; --switch-power"))
    return [Facts(rows)]


def _losses(r: NetworkAnswer, spec: ClusterSpec) -> Table:
    columns = [
        Column("part", "one failed", right=False),
        Column("n_gpus", f"{counted(spec)} touched", count),
        Column("bandwidth_frac", "of their bandwidth", lambda v: f"{100 * v:.3g} %"),
        Column("bisection_frac", "of the network's", lambda v: f"{100 * v:.3g} %"),
        Column("n_gpus_cut", f"{counted(spec)} cut off", count),
        Column("note", "", right=False),
    ]
    return Table.of(columns, r.losses, "what one failure takes")


def cable_table(cables: Sequence[Cable]) -> Table:
    """Cable list, end by end."""
    columns = [Column(name, name, right=False) for name in COLUMNS]
    return Table(columns, [[getattr(c, name) for name in COLUMNS] for c in cables], "cables")


def warnings(
    r: NetworkAnswer, spec: ClusterSpec, switch: SwitchSpec | None, plan: Plan | None
) -> list[str]:
    """Tell what a person must know beside the answer."""
    found = []
    if spec.n_gpus is not None and r.n_gpus > spec.n_gpus:
        found.append(f"{spec.name} has {spec.n_gpus} GPUs, fewer than {r.n_gpus}")
    if spec.node_egress_bytes_per_s is None:
        found.append(f"{spec.name}: the bandwidth out of a node is not known")
    if spec.scaleup_class == "ici" and r.design is None:
        found.append("torus links (ICI) are shown as one level; their topology is not known")
    if r.design is not None and not r.design.even:
        found.append("the top tiers do not spread evenly: whole pods would; see `ports down`")
    module = None if plan is None or r.bill is None or switch is None else switch.module_limit_w
    if module is not None and r.bill is not None:
        for item in r.bill.items:
            each = (item.power_w or 0.0) / item.n
            if item.item.startswith("switch module") and each > module:
                found.append(f"{item.item} draws {each:g} W, the cage allows {module:g} W")
    return found


def pictures(r: NetworkAnswer, spec: ClusterSpec) -> list[Chart]:
    """Picture of the topology."""
    from gpuscale.render.pictures.chart import TierRow, Tiers

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
