"""Pictures of `gpuscale roofline MODEL`: operators on the chip, limits over the number of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuscale.core.kernel.expected import expected_matmul_time_s
from gpuscale.core.limits.board import limits_board
from gpuscale.core.model.operators import Operator, operators
from gpuscale.core.quantity import format_count
from gpuscale.core.records import made_of
from gpuscale.errors import GpuscaleError
from gpuscale.io.calibration import load_arch
from gpuscale.render.pictures.roofline import limits_over_gpus, operator_roofline

if TYPE_CHECKING:
    from gpuscale.answers.roofline import Roofline
    from gpuscale.core.layout import Layout
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec

LayoutOf = Callable[["ModelSpec", "ClusterSpec", "Roofline", str], "Layout"]
DECODED = 64
"""Sequences of the decoding pass that is drawn."""


def board_pictures(
    loaded: Loaded, x: Roofline, layout: Layout, tokens: float, layout_of: LayoutOf
) -> list[Any]:
    """Operators of the model under the roof of its GPU, and the board over the number of GPUs."""
    limits = _limits(loaded, x, layout, tokens, layout_of)
    return [c for c in (_operators(loaded, layout), limits) if c]


def _operators(loaded: Loaded, layout: Layout) -> Any:
    model, gpu, dtype = loaded.model, loaded.gpu, layout.precision
    peak, hbm = gpu.flop_per_s(dtype) or 0.0, gpu.hbm_bytes_per_s
    arch = load_arch(gpu)

    def rate(op: Operator) -> float:
        """Rate that is expected of a product; of an attention core, its roofline."""
        roof = min(peak, op.intensity * hbm)
        if not op.m:
            return roof
        more = {"dtype": dtype, "arch": arch, "peak_flop_per_s": peak}
        units = gpu.n_compute_units
        time_s = made_of(expected_matmul_time_s, op, gpu, n_units=units, **more)
        return min(roof, op.flop / time_s)

    groups: dict[str, list[tuple[str, float, float]]] = {}
    n = layout.seq_len
    for name, decoding in (("training", False), ("decoding", True)):
        for op in operators(model, float(DECODED if decoding else n), float(n), decoding):
            kind = f"{name}, expected" if op.m else f"{name}, ideal"
            groups.setdefault(kind, []).append((op.name, op.intensity, rate(op)))
    return operator_roofline(
        peak,
        hbm,
        groups,
        f"Operators of {model.name} on one {gpu.name}",
        f"{dtype}; training on {n:,} tokens, decoding {DECODED} sequences of {n:,}; products "
        "at their expected rate, attention cores at their roofline",
    )


def _limits(loaded: Loaded, x: Roofline, layout: Layout, tokens: float, layout_of: LayoutOf) -> Any:
    boards: dict[int, dict[str, float]] = {}
    width = layout.tp * layout.cp * layout.pp
    sizes = [width * 2**k for k in range(24) if width * 2**k <= 4 * layout.n_gpus]
    for n_gpus in [n for n in sizes if 16 * n >= layout.n_gpus]:
        given = replace(x, gpus=n_gpus, tp=layout.tp, cp=layout.cp, pp=layout.pp, ep=layout.ep)
        try:
            here = layout_of(loaded.model, loaded.cluster, given, layout.precision)
            rows = limits_board(loaded.model, loaded.cluster, here, tokens)
        except (ValueError, GpuscaleError):
            continue
        boards[n_gpus] = {r.axis: r.ratio for r in rows if r.ratio and r.ratio < 1e6}
    return limits_over_gpus(
        boards,
        f"{loaded.model.name} on {loaded.cluster.name}, {format_count(tokens)} tokens a "
        f"batch, tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, ep {layout.ep}; more GPUs are "
        "more data parallelism",
    )
