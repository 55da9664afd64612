"""Terms of an expected kernel: the formulas of `core.kernel.expected` with what they took.

Tiles and waves: NVIDIA, "Matrix Multiplication Background User's Guide"; compute against memory:
Williams et al. 2009 (doi:10.1145/1498765.1498785).
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp
from typing import NamedTuple

from gpuscale.core.kernel import expected
from gpuscale.core.kernel.calibration import (
    GENERAL,
    ArchCalibration,
    MatmulCalibration,
    measured_format,
)
from gpuscale.core.records import Term, term_of

WAVES = "tiles and waves: NVIDIA, Matrix Multiplication Background User's Guide"


class _Kernel(NamedTuple):
    """A product with the constants that time it."""

    p: expected.ProductRows
    c: MatmulCalibration
    source: str


def product_term(
    rows: float, p: expected.ProductRows, compute_dtype: str, arch: ArchCalibration, source: str
) -> Term:
    """Explain `expected.product_time_s` of the same arguments before the roofline bounds it."""
    c = arch.matmul.get(arch.format_used(compute_dtype), GENERAL)
    own = measured_format(arch.format_used(compute_dtype), compute_dtype)
    kernel = _Kernel(p, c, source)
    if p.products > 1.0 or not own or c.table is None:
        return _analytic("kernel_s", rows, kernel)
    return _corrected(rows, kernel)


def _corrected(m: float, x: _Kernel) -> Term:
    """Analytic form times the measured correction, between two rows of the grid."""
    value, i = expected.corrected_time_s(m, x.p, x.c), bisect_right(expected.ROWS, m) - 1
    if m >= expected.ROWS[-1]:
        parts = _largest("below_s", expected.ROWS, x), _row("own_s", m, x)
        text = "time never falls with the rows"
        return term_of("kernel_s", "s", "max(below_s, own_s)", text, *parts, kernel_s=value)
    below = _largest("below_s", expected.ROWS[: i + 1], x)
    if m == expected.ROWS[i]:
        text = f"at {m:g} rows the measured correction is held"
        return term_of("kernel_s", "s", "below_s", text, below, kernel_s=value)
    above = _largest("above_s", expected.ROWS[: i + 2], x)
    return term_of(
        "kernel_s",
        "s",
        "below_s + (m - rows_below) / (rows_above - rows_below) * (above_s - below_s)",
        "between two rows of the grid on which the measured correction is held",
        *((below,) if below.value == above.value else (below, above)),
        kernel_s=value,
        above_s=above.value,
        m=m,
        rows_below=expected.ROWS[i],
        rows_above=expected.ROWS[i + 1],
    )


def _largest(name: str, rows: tuple[float, ...], x: _Kernel) -> Term:
    """Time at the row that takes longest of those up to the last."""
    found = [_time(m, x) for m in rows]
    longest = max(range(len(rows)), key=lambda i: (found[i], i))
    return _row(name, rows[longest], x)


def _time(m: float, x: _Kernel) -> float:
    assert x.c.table is not None
    return expected.analytic_time_s(m, x.p, x.c) * exp(x.c.table.at(m, x.p.n, x.p.k))


def _row(name: str, m: float, x: _Kernel) -> Term:
    assert x.c.table is not None
    text = f"at {m:g} rows; correction of measured products, {x.source}"
    given = {name: _time(m, x), "correction": x.c.table.at(m, x.p.n, x.p.k)}
    part = _analytic("analytic_s", m, x)
    return term_of(name, "s", "analytic_s * exp(correction)", text, part, **given)


def _analytic(name: str, m: float, x: _Kernel) -> Term:
    """Floor of the kernel, and compute, memory and latency that add up with an exponent."""
    parts = (_compute(m, x), _memory(m, x), _latency(x))
    formula = (
        "floor_s + (compute_s ** blend + memory_s ** blend + k_loop_s ** blend) ** (1 / blend)"
    )
    value = {name: expected.analytic_time_s(m, x.p, x.c)}
    return term_of(name, "s", formula, x.source, *parts, x.c, **value)


def _latency(x: _Kernel) -> Term:
    formula = f"latency_s * (k / {expected.LATENCY_K:g}) ** latency_exponent"
    value = x.c.latency_s * (x.p.k / expected.LATENCY_K) ** x.c.latency_exponent
    return term_of("k_loop_s", "s", formula, x.source, x.c, x.p, k_loop_s=value)


def _memory(m: float, x: _Kernel) -> Term:
    p, c = x.p, x.c
    moved = term_of(
        "moved_bytes",
        "bytes",
        "products * (element_bytes * m * k + weight_bytes * n * k + out_bytes * m * n)",
        "each operand moved once",
        p,
        moved_bytes=p.products * p.moved_bytes(m),
        element_bytes=p.in_bytes,
        m=m,
        weight_bytes=p.in_bytes if p.weight_bytes is None else p.weight_bytes,
    )
    formula = "moved_bytes / (hbm_bytes_per_s * memory_eff_frac)"
    if p.l2_bytes > 0.0 and c.l2_gain < 1.0:
        held = (
            f"1 / (1 + (moved_bytes / ({expected.L2_SHARE:g} * l2_bytes)) ** {expected.L2_EDGE:g})"
        )
        formula += f" / (1 + (l2_gain - 1) * {held})"
    return term_of(
        "memory_s", "s", formula, x.source, moved, *(p, c), memory_s=expected.memory_time_s(m, p, c)
    )


def _compute(m: float, x: _Kernel) -> Term:
    p, c = x.p, x.c
    best = expected.best_tiling(m, p, c)
    rates = {"flop_per_s": p.peak_flop_per_s, "clock_frac": c.clock_frac}
    peak = term_of(
        "peak_s",
        "s",
        "2 * m * n * k * products / (flop_per_s * clock_frac)",
        "the product at its peak rate, at the clock that the power sustains",
        p,
        peak_s=2.0 * m * p.n * p.k * p.products / (p.peak_flop_per_s * c.clock_frac),
        m=m,
        **rates,
    )
    work = (
        f"waves * (tile_rows * tile_columns + tile_area) * {expected.LARGEST_TILE}"
        f" / ({expected.LARGEST_TILE} + tile_area) * units * 2 * (k + ramp_k)"
        " / (flop_per_s * clock_frac * compute_eff_frac)"
    )
    at, width = expected.SUSTAINED_REF_S, expected.SUSTAINED_WIDTH
    sag = f"1 + sustained_slope * tanh(log(peak_s / {at:g}) / {width:g})"
    tile = {"tile_rows": best.rows, "tile_columns": best.columns, "units": p.n_units}
    value = expected.compute_time_s(m, p, c)
    parts = _waves_term(m, x, best, tile), peak, p, c
    formula = f"{work} * ({sag})"
    return term_of("compute_s", "s", formula, x.source, *parts, compute_s=value, **tile, **rates)


def _waves_term(m: float, x: _Kernel, best: expected.Tiling, tile: dict[str, int]) -> Term:
    """Waves of tiles over the units; below one, K is split as far as it goes."""
    formula = "products * ceil(m / tile_rows) * ceil(n / tile_columns) / units"
    text, each = "the tile that takes least", best.per_unit
    own = term_of("tiles_per_unit", "", formula, text, x.p, tiles_per_unit=each, m=m, **tile)
    if each <= 1.0:
        formula = "1 / min(floor(1 / tiles_per_unit), most_split)"
    else:
        formula = "tiles_per_unit * (ceil(tiles_per_unit) / tiles_per_unit) ** wave_exponent"
    split = expected.most_split(x.p.k)
    return term_of("waves", "", formula, WAVES, own, x.c, waves=best.waves, most_split=split)


def elementwise_term(
    moved: float, compute_s: float, arch: ArchCalibration, hbm_bytes_per_s: float, source: str
) -> Term:
    """Explain `expected_elementwise_time_s` of the same arguments."""
    return term_of(
        "kernel_s",
        "s",
        "floor_s + max(compute_s, moved_bytes / (memory_eff_frac * hbm_bytes_per_s))",
        source,
        arch.for_dtype("bf16"),
        kernel_s=expected.expected_elementwise_time_s(moved, compute_s, arch, hbm_bytes_per_s),
        compute_s=compute_s,
        moved_bytes=moved,
        hbm_bytes_per_s=hbm_bytes_per_s,
    )
