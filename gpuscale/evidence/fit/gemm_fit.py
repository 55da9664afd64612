"""Fits the constants and the correction table of matrix products to measured times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from gpuscale.core.kernel.calibration import GENERAL, ArchCalibration, MatmulCalibration
from gpuscale.core.kernel.residual_table import Axis, ResidualTable, tabulate
from gpuscale.evidence.fit.least_squares import Vector, fit, smooth
from gpuscale.evidence.score.gemm import GemmRow

PRIORS: dict[str, tuple[str, float]] = {  # field -> (scale, standard deviation around `GENERAL`)
    "floor_s": ("log", 0.4),
    "latency_s": ("log", 0.5),
    "latency_exponent": ("linear", 0.3),
    "compute_eff_frac": ("log", 0.25),
    "ramp_k": ("log", 1.0),
    "memory_eff_frac": ("log", 0.15),
    "blend": ("log-1", 0.5),
    "wave_exponent": ("unit", 0.3),
    "tile_area": ("log", 1.0),
    "l2_gain": ("log", 1.0),
    "sustained_slope": ("linear", 0.15),
    "quant_floor_s": ("log", 0.4),
    "quant_eff_frac": ("log", 0.4),
}
"""Weakly informative priors: what a few measurements cannot tell stays near the general value."""

ERROR_SCALE = 0.08  # log error beyond which a row counts linearly
LENGTH, SPREAD, NOISE = 2.5, 0.12, 0.03  # of the smoothing, in natural logarithms
CLIP = 0.5  # largest log residual that the table follows
AXES = (Axis(0, 2, 9), Axis(7, 2, 6), Axis(8, 2, 5))  # m 1..65536, n 128..131072, k 256..65536


def to_vector(c: MatmulCalibration) -> Vector:
    """Free parameters of a calibration, on the scales of `PRIORS`."""
    out = []
    for name, (scale, _) in PRIORS.items():
        value = float(getattr(c, name))
        if scale == "log":
            value = math.log(value)
        elif scale == "log-1":
            value = math.log(value - 1.0)
        out.append(value)
    return out


def from_vector(x: Sequence[float]) -> MatmulCalibration:
    """Inverse of `to_vector`; exponents are held to their range."""
    values: dict[str, Any] = {}
    for (name, (scale, _)), v in zip(PRIORS.items(), x, strict=True):
        if scale == "log":
            v = math.exp(v)
        elif scale == "log-1":
            v = 1.0 + math.exp(min(v, 4.0))
        elif scale == "unit":
            v = min(1.0, max(0.0, v))
        values[name] = v
    return MatmulCalibration(**values)


def log_errors(rows: Sequence[GemmRow], c: MatmulCalibration) -> Vector:
    """log(expected / measured) of each row."""
    archs: dict[tuple[str, str], ArchCalibration] = {}
    for row in rows:
        archs.setdefault((row.dtype, row.kernels), ArchCalibration("fit", {row.dtype: c}))
    return [
        math.log(row.expected_s(archs[row.dtype, row.kernels]) / row.time_s)
        for row in rows
        if row.time_s
    ]


def fit_constants(rows: Sequence[GemmRow], start: MatmulCalibration = GENERAL) -> MatmulCalibration:
    """Physical constants by robust least squares on log times, with the priors of `PRIORS`."""
    x = fit(
        lambda x: log_errors(rows, from_vector(x)),
        to_vector(start),
        to_vector(GENERAL),
        [spread for _, spread in PRIORS.values()],
        ERROR_SCALE,
    )
    return from_vector(x)


def fit_table(rows: Sequence[GemmRow], c: MatmulCalibration) -> ResidualTable:
    """Smooth what the constants leave over the log space of (m, n, k)."""
    points = [(math.log(r.m), math.log(r.n), math.log(r.k)) for r in rows]
    left = [min(CLIP, max(-CLIP, -e)) for e in log_errors(rows, replace(c, table=None))]
    mean = smooth(points, left, LENGTH, SPREAD, NOISE)
    return tabulate(AXES, lambda m, n, k: mean(math.log(m), math.log(n), math.log(k)))


def fit_rows(rows: Sequence[GemmRow], start: MatmulCalibration = GENERAL) -> MatmulCalibration:
    """Constants and table from measured rows of one format and architecture."""
    constants = rounded(fit_constants(rows, start))
    return replace(constants, table=fit_table(rows, constants))


def rounded(c: MatmulCalibration, digits: int = 4) -> MatmulCalibration:
    """Constants to a few digits, as they are written to TOML."""
    values = {
        f.name: float(f"{getattr(c, f.name):.{digits}g}") for f in fields(c) if f.name in PRIORS
    }
    return replace(c, **values)  # type: ignore[arg-type]
