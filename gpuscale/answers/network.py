"""Networks: bandwidth of every level of a cluster, and its switches."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Swept, text, whole
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.core.network.levels import NetworkReport
    from gpuscale.core.records import Term
    from gpuscale.render.document import Block, Document, Facts, Table
    from gpuscale.specs.cluster import ClusterSpec

MOST_GPUS = 10_000_000
SOURCE = "How to Scale Your Model, GPU chapter, networking"


@dataclass
class Network(Swept):
    """Bandwidth of every network level, bisection, and the switches for a number of GPUs.

    One direction, except the bisection, which adds both.
    """

    NAME: ClassVar[str] = "network"
    EXAMPLE: ClassVar[str] = "gpuscale network h100-superpod --gpus 1024"
    HEADLINES: ClassVar[tuple[str, ...]] = (
        "collective_bytes_per_s",
        "slowest_level",
        "switches.n_leaf_switches",
        "switches.n_spine_switches",
        "switches.n_core_switches",
    )
    cluster: Asked[str] = text(options.CLUSTER, ...)
    _: KW_ONLY
    gpus: Asked[int | None] = whole("GPUs in use; default: all, or 1024.", most=MOST_GPUS)
    radix: Asked[int | None] = whole("Ports of a switch, instead of its own.", least=2, most=10_000)
    catalogue: Asked[str] = options.catalogue()

    def answer(self) -> Document:
        """Report on the levels and the switches."""
        return _answer(self)


def _answer(asked: Network) -> Document:
    from gpuscale.core.network.levels import network_report
    from gpuscale.io.inputs import changed_text, load_inputs
    from gpuscale.render.document import Document, Text

    loaded = load_inputs(asked, cluster=asked.cluster, catalogue=asked.catalogue)
    spec = loaded.cluster
    if asked.radix is not None:
        spec = spec.model_copy(update={"switch_radix": asked.radix})
    alone = spec.node_egress_bytes_per_s is None  # no network known: the scale-up domain only
    n_gpus = asked.gpus or spec.n_gpus or (spec.scaleup_domain_gpus if alone else 1024)
    try:
        report = network_report(spec, n_gpus)
    except ValueError as error:
        raise GpuscaleError(f"{spec.name}: {error}", "give fewer with --gpus") from None
    blocks: list[Block] = [
        Text(
            f"{spec.name}  {n_gpus} GPUs in {report.n_nodes} nodes  "
            f"{spec.fabric or 'no network named'}  catalogue {asked.catalogue}"
        )
    ]
    changed = changed_text(loaded)
    if changed:
        blocks.append(Text(changed))
    if report.levels:
        blocks.append(_level_table(report))
    blocks.append(_switch_facts(report, spec))
    return Document(
        command="network",
        inputs={
            "cluster": spec.name,
            "n_gpus": n_gpus,
            "switch_radix": spec.switch_radix,
            "catalogue": asked.catalogue,
            "changes": list(loaded.changes),
        },
        result=report,
        blocks=blocks,
        warnings=[*loaded.warnings, *_warnings(spec, n_gpus)],
        terms=_terms(report, spec),
    )


def _level_table(report: NetworkReport) -> Table:
    from gpuscale.core.quantity import format_si
    from gpuscale.render.document import Column, Table

    def rate(value: Any) -> str:
        return format_si(value, "bytes_per_s")

    columns = [
        Column("level", "level", right=False),
        Column("n_children", "children"),
        Column("gpus_under", "GPUs under it"),
        Column("bytes_per_s_per_gpu", "per GPU", rate),
        Column("bytes_per_s_per_node", "per node", rate),
        Column("child_bytes_per_s", "one child", rate),
        Column("total_bytes_per_s", "all children", rate),
        Column("bisection_bytes_per_s", "bisection, 2-way", rate),
        Column("collective_bytes_per_s", "collective", rate),
    ]
    rows = [
        (
            v.name,
            v.n_children,
            v.gpus_under,
            v.bytes_per_s_per_gpu,
            v.bytes_per_s_per_node,
            v.child_bytes_per_s,
            v.total_bytes_per_s,
            v.bisection_bytes_per_s,
            v.collective_bytes_per_s,
        )
        for v in report.levels
    ]
    return Table(columns, rows, "bandwidth per level (one direction)")


def _switch_facts(report: NetworkReport, spec: ClusterSpec) -> Facts:
    from gpuscale.core.network.fat_tree import fat_tree_reach as reach
    from gpuscale.core.quantity import format_si
    from gpuscale.render.document import Facts

    rows: list[tuple[str, str, str]] = []
    if report.collective_bytes_per_s is not None:
        text = format_si(report.collective_bytes_per_s, "bytes_per_s")
        rows.append(("all-gather over all GPUs", text, f"slowest level: {report.slowest_level}"))
    tree, planes = report.switches, report.n_planes
    if tree is not None:
        of = f", {planes} planes" if planes > 1 else ""
        rows += [
            (
                "full-bisection fat tree",
                f"{tree.n_tiers} tier{'s' if tree.n_tiers > 1 else ''}",
                f"{spec.switch_radix}-port switches{of}",
            ),
            (
                "leaf switches",
                str(planes * tree.n_leaf_switches),
                f"{format_si(tree.leaf_down_bytes_per_s, 'bytes_per_s')} down each",
            ),
            (
                "spine switches",
                str(planes * tree.n_spine_switches),
                f"{tree.links_per_leaf_spine_pair:g} links per leaf and spine",
            ),
            ("core switches", str(planes * tree.n_core_switches), ""),
            ("node-leaf links", str(planes * tree.n_gpus), ""),
            ("leaf-spine links", str(planes * tree.n_leaf_spine_links), ""),
            ("spine-core links", str(planes * tree.n_spine_core_links), ""),
        ]
    elif reach(spec.switch_radix) < report.n_gpus and spec.node_egress_bytes_per_s is not None:
        joined = reach(spec.switch_radix)
        text = f"three tiers of {spec.switch_radix} ports join {joined} GPUs; try --radix"
        rows.append(("full-bisection fat tree", "none", text))
    if report.n_scaleup_switches is not None:
        rows.append(("scale-up switches", str(report.n_scaleup_switches), "chips, all domains"))
    counts = (spec.n_leaf_switches, spec.n_spine_switches, spec.n_core_switches)
    if counts[0] is not None:
        text = " / ".join(str(c) for c in counts if c is not None)
        rows.append(("published switches", text, f"leaf / spine / core of {spec.name}"))
    return Facts(rows or [("network", "none", "no scale-out figures are known")], "switches")


def _warnings(spec: ClusterSpec, n_gpus: int) -> list[str]:
    warnings = []
    if spec.n_gpus is not None and n_gpus > spec.n_gpus:
        warnings.append(f"{spec.name} has {spec.n_gpus} GPUs, fewer than {n_gpus}")
    if spec.node_egress_bytes_per_s is None:
        warnings.append(f"{spec.name}: the bandwidth out of a node is not known")
    if spec.scaleup_class == "ici":
        warnings.append("torus links (ICI) are shown as one level; their topology is not modelled")
    return warnings


def _terms(report: NetworkReport, spec: ClusterSpec) -> tuple[Term, ...]:
    from gpuscale.core.records import Term

    terms = []
    for level in report.levels:
        if level.collective_bytes_per_s is None:
            continue
        rate = "scaleup_bytes_per_s" if level.name == "node" else "node_egress_bytes_per_s"
        own = Term(
            f"{level.name}: share of one GPU",
            level.bytes_per_s_per_gpu,
            "bytes_per_s",
            source=spec.sources.get(rate, f"{spec.name}: {rate}"),
        )
        terms.append(
            Term(
                f"collective bandwidth, {level.name}",
                level.collective_bytes_per_s,
                "bytes_per_s",
                "n_children * gpus_below * bytes_per_s_per_gpu / (n_children - 1)",
                {
                    "n_children": level.n_children,
                    "gpus_below": level.gpus_below,
                    "bytes_per_s_per_gpu": level.bytes_per_s_per_gpu,
                },
                SOURCE,
                (own,),
            )
        )
    tree = report.switches
    if tree is not None and tree.n_tiers > 1:
        down = spec.switch_radix // 2
        terms.append(
            Term(
                "leaf switches of a plane",
                tree.n_leaf_switches,
                "count",
                "ceil(n_gpus / ports_down)",
                {"n_gpus": tree.n_gpus, "ports_down": down},
                "fat tree: half of a leaf's ports go down",
            )
        )
    return tuple(terms)
