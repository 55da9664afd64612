"""`gpuscale roofline chip`: what one chip is made of, and its ridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.summary import changed
from gpuscale.core.records import Term, term_of
from gpuscale.io.hardware import unit_layout
from gpuscale.meant import packaged
from gpuscale.render.document import Block, Column, Document, Facts, Table, Text, in_unit

if TYPE_CHECKING:
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.hardware import GpuSpec

Figures = dict[str, float | None]

DTYPES = ("bf16", "fp16", "fp8", "fp4", "int8", "tf32")


def chip_figures(spec: GpuSpec, clock_hz: float | None = None) -> Figures:
    """Figures of one chip; None where the data sheet or the architecture does not give them."""
    from gpuscale.core.kernel import chip

    units, layout = spec.n_compute_units, unit_layout(spec.architecture)
    lanes = chip.cuda_cores(units, 1, layout.lanes) if units and layout else None
    per_cycle = layout.flop_per_lane_cycle if layout else 2
    matrix = chip.tensor_cores(units, layout.matrix_units) if units and layout else None
    clock = clock_hz or spec.boost_clock_hz
    vector = spec.fp32_flop_per_s
    if lanes and clock and (clock_hz or vector is None):
        vector = chip.vector_flop_per_s(lanes, clock, per_cycle)
    peak = spec.bf16_flop_per_s or spec.fp16_flop_per_s
    registers = spec.register_file_bytes_per_unit
    smem = spec.l1_smem_combined_bytes_per_unit or spec.smem_bytes_per_unit
    if layout is not None:
        smem, registers = smem or layout.vmem_bytes, registers or layout.register_bytes
    figures: Figures = {
        "n_units": units,
        "vector_lanes": lanes,
        "matrix_units": matrix,
        "max_warps_per_unit": layout.max_warps if layout else None,
        "clock_hz": clock,
        "vector_flop_per_s": vector / per_cycle if vector else None,
        "vector_fma_flop_per_s": vector,
        "clock_from_vector_hz": (
            chip.clock_from_vector_hz(spec.fp32_flop_per_s, lanes, per_cycle)
            if lanes and spec.fp32_flop_per_s
            else None
        ),
        "matrix_flop_per_cycle": (
            chip.tensor_flop_per_cycle(peak, matrix, clock) if peak and matrix and clock else None
        ),
        "matrix_over_vector": peak / (vector / per_cycle) if peak and vector else None,
        "register_bytes": chip.chip_total_bytes(units, registers) if units and registers else None,
        "smem_bytes": chip.chip_total_bytes(units, smem) if units and smem else None,
        "l2_bytes": spec.l2_bytes,
        "fast_cache_bytes_per_s": layout.fast_cache_bytes_per_s if layout else None,
        "hbm_bytes": spec.hbm_bytes,
        "hbm_bytes_per_s": spec.hbm_bytes_per_s,
        "scaleup_bytes_per_s": spec.scaleup_bytes_per_s,
        "vector_ridge_flop_per_byte": (
            chip.critical_intensity(vector / per_cycle, spec.hbm_bytes_per_s) if vector else None
        ),
    }
    for dtype in DTYPES:
        rate = spec.flop_per_s(dtype)
        if rate:
            figures[f"{dtype}_flop_per_s"] = rate
            ridge = chip.critical_intensity(rate, spec.hbm_bytes_per_s)
            figures[f"{dtype}_ridge_flop_per_byte"] = ridge
    return figures


LABELS: dict[str, list[str]] = packaged("labels.toml")["chip"]
"""Figure -> label, remark; rates first, then what the chip is made of."""

FIRST = tuple(LABELS)[: 4 + len(DTYPES)]
"""Figures that most ask for."""


ChipAnswer = dict[str, str | float | None | dict[str, str | float | None]]
"""Figures of a chip by name; `compared_with` has those of another."""


def _shown(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    if key in ("register_bytes", "smem_bytes", "l2_bytes") and value % 2**10 == 0:
        return f"{value / 2**20:.4g} MiB"
    return in_unit(key, value)


def _compared(spec: GpuSpec, figures: Figures, other: GpuSpec, others: Figures) -> Table:
    """Figures of two chips, and their ratio."""
    columns = {"figure": "", spec.name: spec.name, other.name: other.name, "ratio": "ratio"}
    rows = []
    for k in _known(figures, others):
        a, b = figures.get(k), others.get(k)
        ratio = a / b if a and b else None
        rows.append([LABELS[k][0], _shown(k, a), _shown(k, b), ratio])
    return Table.of(columns, [dict(zip(columns, row, strict=True)) for row in rows])


def _known(*chips: Figures) -> list[str]:
    """Figures that one of the chips has."""
    return [k for k in LABELS if any(figures.get(k) is not None for figures in chips)]


def _ridge(figures: Figures, dtype: str, bytes_per_s: float) -> Term:
    name, source = f"{dtype}_ridge_flop_per_byte", "How to Scale Your Model, GPU chapter, quiz 1"
    values = {"flop_per_s": figures[f"{dtype}_flop_per_s"] or 0.0, name: figures[name] or 0.0}
    formula = "flop_per_s / bytes_per_s"
    return term_of(name, "", formula, source, bytes_per_s=bytes_per_s, **values)


def chip_document(
    loaded: Loaded, compare: GpuSpec | None, clock_hz: float | None, catalogue: str
) -> Document:
    """Figures of a chip, beside those of another one."""
    spec = loaded.gpu
    figures = chip_figures(spec, clock_hz)
    result: ChipAnswer = {"gpu": spec.name, **figures}
    keys = _known(figures)
    head = [Text(f"{spec.title or spec.name} ({spec.architecture}, {catalogue} figures)")]
    columns = [Column("figure", "figure", right=False), Column("value", "value", repr)]
    rows = [(LABELS[k][0], _shown(k, figures[k]), LABELS[k][1]) for k in keys]
    raw = [[k, figures[k]] for k in keys]
    n = len([k for k in keys if k in FIRST])
    details: dict[str, list[Block]] = {
        "rates": [*head, Facts(rows[:n])],
        "units": [Facts(rows[n:])],
    }
    if compare is not None:
        others = chip_figures(compare)
        details = {"rates": [*head, _compared(spec, figures, compare, others)]}
        result["compared_with"] = {"gpu": compare.name, **others}
        columns.append(Column("compared", compare.name, repr))
        raw = [[k, figures.get(k), others.get(k)] for k in _known(figures, others)]
    return Document.layered(
        "roofline",
        loaded.inputs(target="chip", catalogue=catalogue, clock_hz=clock_hz),
        result,
        (),
        {**details, "changes": changed(loaded)},
        warnings=loaded.warnings,
        terms=tuple(
            _ridge(figures, d, spec.hbm_bytes_per_s) for d in DTYPES if f"{d}_flop_per_s" in figures
        ),
        csv_table=Table(columns, raw),
    )
