"""`gpuscale roofline network`: bandwidth of a node and of the network above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.io.inputs import Loaded
    from gpuscale.render.document import Document
    from gpuscale.specs.cluster import ClusterSpec

SOURCE = "How to Scale Your Model, GPU chapter, Networking, quizzes 2 and 3"


def network_figures(spec: ClusterSpec, n_gpus: int) -> dict[str, float | None]:
    """Bandwidths of the scale-up domain and switches of the network for `n_gpus`."""
    from gpuscale.core import network

    domain = spec.scaleup_domain_gpus
    egress = spec.scaleup_bytes_per_s or spec.gpu.scaleup_bytes_per_s
    share = spec.egress_bytes_per_s_per_gpu
    figures: dict[str, float | None] = {
        "domain_gpus": domain,
        "gpu_egress_bytes_per_s": egress,
        "domain_bytes_per_s": network.node_bytes_per_s(domain, egress) if egress else None,
        "bisection_bytes_per_s": (
            network.bisection_bytes_per_s(domain, egress) if egress else None
        ),
        "node_egress_bytes_per_s": spec.node_egress_bytes_per_s,
        "domain_egress_bytes_per_s": share * domain if share else None,
        "gpu_share_bytes_per_s": share,
        "n_gpus": n_gpus,
    }
    if share is None or n_gpus <= domain:
        return figures
    try:
        tree = network.fat_tree(n_gpus, spec.switch_radix, share)
    except ValueError as error:
        raise GpuscaleError(str(error)) from None
    return figures | {
        "tiers": tree.n_tiers,
        "leaf_switches": tree.n_leaf_switches,
        "spine_switches": tree.n_spine_switches,
        "core_switches": tree.n_core_switches,
        "uplinks_per_leaf": tree.uplinks_per_leaf,
        "leaf_down_bytes_per_s": tree.leaf_down_bytes_per_s,
        "spine_bytes_per_s": tree.spine_bytes_per_s or None,
    }


LABELS: dict[str, tuple[str, str, str]] = {
    "domain_gpus": ("GPUs per NVLink domain", "count", ""),
    "gpu_egress_bytes_per_s": ("egress of one GPU", "bytes_per_s", "into the domain"),
    "domain_bytes_per_s": ("domain", "bytes_per_s", "all GPUs sending"),
    "bisection_bytes_per_s": ("bisection of the domain", "bytes_per_s", "both directions added"),
    "node_egress_bytes_per_s": ("egress of one node", "bytes_per_s", "into the network"),
    "domain_egress_bytes_per_s": ("egress of the domain", "bytes_per_s", "into the network"),
    "gpu_share_bytes_per_s": ("share of one GPU", "bytes_per_s", "of the network"),
    "n_gpus": ("GPUs", "count", ""),
    "tiers": ("switch tiers", "count", "full bisection"),
    "leaf_switches": ("leaf switches", "count", ""),
    "spine_switches": ("spine switches", "count", ""),
    "core_switches": ("core switches", "count", ""),
    "uplinks_per_leaf": ("uplinks per leaf", "count", ""),
    "leaf_down_bytes_per_s": ("one leaf switch, down", "bytes_per_s", ""),
    "spine_bytes_per_s": ("all spine switches", "bytes_per_s", ""),
}
"""Figure -> label, dimension, remark; all bandwidths one direction unless said otherwise."""


def network_document(loaded: Loaded, n_gpus: int, catalogue: str) -> Document:
    """Bandwidths and switches of a cluster."""
    from gpuscale.core.hierarchy import level_times, network_levels
    from gpuscale.core.quantity import format_si
    from gpuscale.core.records import Term
    from gpuscale.io.inputs import changed_text
    from gpuscale.render.document import Column, Document, Facts, Table, Text

    spec = loaded.cluster
    figures = network_figures(spec, n_gpus)
    keys = [k for k in LABELS if figures.get(k) is not None]
    rows = [(LABELS[k][0], format_si(figures[k] or 0.0, LABELS[k][1]), LABELS[k][2]) for k in keys]
    blocks: list[Any] = [Text(f"{spec.title or spec.name}  ({catalogue} figures)"), Facts(rows)]
    levels = network_levels(spec)
    result: dict[str, Any] = {"cluster": spec.name, **figures}
    try:
        times = level_times("all-gather", 1.0, n_gpus, levels)
    except ValueError as error:
        raise GpuscaleError(f"{spec.name}: {error}") from None
    if times:
        table = [[t.name, t.n_children, t.bytes_per_s_per_gpu, t.bandwidth_bytes_per_s]
                 for t in times]  # fmt: skip
        columns = [
            Column("level", "level", right=False), Column("n_children", "children", str),
            Column("bytes_per_s_per_gpu", "link per GPU", lambda v: format_si(v, "bytes_per_s")),
            Column("gather_bytes_per_s", "all-gather bandwidth",
                   lambda v: format_si(v, "bytes_per_s")),
        ]  # fmt: skip
        blocks.append(Table(columns, table, "Levels: D W / (D - 1)"))
        result["levels"] = [dict(zip([c.key for c in columns], row, strict=True)) for row in table]
    changed = changed_text(loaded)
    if changed:
        blocks.append(Text(changed))
    term = Term(
        "domain_bytes_per_s", float(figures["domain_bytes_per_s"] or 0.0), "bytes_per_s",
        "domain_gpus * gpu_egress",
        {"domain_gpus": float(spec.scaleup_domain_gpus),
         "gpu_egress": float(figures["gpu_egress_bytes_per_s"] or 0.0)}, SOURCE,
    )  # fmt: skip
    key_value = Table(
        [Column("figure", "figure", right=False), Column("value", "value", repr)],
        [[k, figures[k]] for k in keys],
    )
    return Document(
        "roofline",
        {"target": "network", "cluster": spec.name, "n_gpus": n_gpus, "catalogue": catalogue,
         "changed": list(loaded.changes)},
        result, blocks, loaded.warnings, terms=(term,), csv_table=key_value,
    )  # fmt: skip
