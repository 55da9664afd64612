"""Fits the constants of collectives to measured times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuscale.core.kernel.calibration import LogAxis
from gpuscale.core.network.calibration import (
    GENERAL_NETWORK_OP,
    GENERAL_OP,
    FabricCalibration,
    LinkCalibration,
    OpCalibration,
)
from gpuscale.core.records import dataclass, fields, replace
from gpuscale.evidence.score_parts import CollectiveRow

Vector = list[float]


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> Vector:
    """Solve a symmetric positive definite system by Cholesky decomposition.

    >>> [round(x, 9) for x in solve([[4.0, 0.0], [0.0, 2.0]], [8.0, 7.0])]
    [2.0, 3.5]
    """
    lower = cholesky(matrix)
    n = len(right)
    y: Vector = []
    for i in range(n):
        row = lower[i]
        y.append((right[i] - sum(map(_mul, row, y))) / row[i])
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = y[i] / lower[i][i]
        xi = x[i]
        row = lower[i]
        for j in range(i):
            y[j] -= row[j] * xi
    return x


def _mul(a: float, b: float) -> float:
    return a * b


def cholesky(matrix: Sequence[Sequence[float]]) -> list[Vector]:
    """Lower triangular factor, rows of growing length."""
    lower: list[Vector] = []
    for i, given in enumerate(matrix):
        row: Vector = []
        for j in range(i):
            other = lower[j]
            row.append((given[j] - sum(map(_mul, row, other))) / other[j])
        pivot = given[i] - sum(map(_mul, row, row))
        if not pivot > 0.0:
            raise ValueError("matrix is not positive definite")
        row.append(math.sqrt(pivot))
        lower.append(row)
    return lower


def fit(
    residuals: Callable[[Vector], Vector],
    start: Sequence[float],
    prior: Sequence[float],
    spread: Sequence[float],
    scale: float,
    n_iterations: int = 60,
) -> Vector:
    """Minimise ``sum soft_l1(r / scale) + sum ((x - prior) / spread)^2`` (Levenberg-Marquardt).

    `residuals`: residuals of the data at a parameter vector. `start, prior, spread`: where to
    start, and the Gaussian prior of each parameter. `scale`: residual beyond which errors count
    linearly. `n_iterations`: largest number of steps. Returns: the parameters.

    >>> x = fit(lambda p: [p[0] - 1.0, p[0] - 1.2], [0.0], [0.0], [100.0], 1.0)
    >>> round(x[0], 2)
    1.1
    """
    x = list(start)
    damping = 1e-3
    r = residuals(x)
    cost = _cost(r, x, prior, spread, scale)
    for _ in range(n_iterations):
        jacobian = []
        for j in range(len(x)):
            step = 1e-4 * max(1.0, abs(x[j]))
            moved = [*x[:j], x[j] + step, *x[j + 1 :]]
            jacobian.append([(b - a) / step for a, b in zip(r, residuals(moved), strict=True)])
        weight = [1.0 / (scale * scale * math.sqrt(1.0 + (v / scale) ** 2)) for v in r]
        weighted = [[w * v for w, v in zip(weight, column, strict=True)] for column in jacobian]
        normal = [[sum(map(_mul, a, b)) for b in jacobian] for a in weighted]
        gradient = [-sum(map(_mul, a, r)) for a in weighted]
        for j, (p, s) in enumerate(zip(prior, spread, strict=True)):
            normal[j][j] += 1.0 / s**2
            gradient[j] -= (x[j] - p) / s**2
        improved = False
        while damping < 1e8:
            damped = [
                [v * (1.0 + damping * (i == j)) for j, v in enumerate(row)]
                for i, row in enumerate(normal)
            ]
            trial = [a + b for a, b in zip(x, solve(damped, gradient), strict=True)]
            trial_r = residuals(trial)
            trial_cost = _cost(trial_r, trial, prior, spread, scale)
            if trial_cost < cost:
                improved = cost - trial_cost > 1e-7 * cost
                x, r, cost = trial, trial_r, trial_cost
                damping = max(damping / 5.0, 1e-7)
                break
            damping *= 4.0
        if not improved:
            break
    return x


def _cost(
    r: Vector, x: Vector, prior: Sequence[float], spread: Sequence[float], scale: float
) -> float:
    data = sum(2.0 * (math.sqrt(1.0 + (v / scale) ** 2) - 1.0) for v in r)
    return data + sum(((a - b) / c) ** 2 for a, b, c in zip(x, prior, spread, strict=True))


def matern(distance: float) -> float:
    """Matern-3/2 correlation at a distance in units of the length scale."""
    d = 1.7320508075688772 * distance
    return (1.0 + d) * math.exp(-d)


def smooth(
    points: Sequence[Sequence[float]],
    values: Sequence[float],
    length: float,
    spread: float,
    noise: float,
) -> Callable[..., float]:
    """Posterior mean of a Gaussian process through noisy values; zero far from the points.

    `points`: places of the values. `values`: what was found there. `length, spread, noise`:
    correlation length, and standard deviations of the process and of the noise. Returns: function
    of the coordinates.
    """
    n = len(points)
    kernel = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            kernel[i][j] = spread**2 * matern(math.dist(points[i], points[j]) / length)
            kernel[j][i] = kernel[i][j]
        kernel[i][i] = spread**2 + noise**2
    weights = solve(kernel, values) if n else []

    def mean(*at: float) -> float:
        total = 0.0
        for point, weight in zip(points, weights, strict=True):
            total += weight * matern(math.dist(point, at) / length)
        return spread**2 * total

    return mean


PRIORS: dict[str, tuple[str, float]] = {  # field -> (scale, standard deviation)
    "base_s": ("log", 0.7),
    "hop_s": ("log", 0.9),
    "eff_frac": ("frac", 0.2),
    "small_group_loss": ("positive", 0.25),
    "ll_eff_frac": ("frac", 0.6),
    "bulk_factor": ("log-1", 0.8),
    "ramp_s": ("log", 1.2),
}
"""Weakly informative priors around `GENERAL_OP` or `GENERAL_NETWORK_OP`."""

ERROR_SCALE = 0.1
LENGTH, SPREAD, NOISE = 2.0, 0.2, 0.08  # natural logarithms of size; of the correction
RANK_SCALE = 2.0  # a factor e in ranks counts as this many in size
SIZE_AXIS, RANK_AXIS = LogAxis(8, 2, 14), LogAxis(1, 1, 3)  # 256 B .. 16 GiB, 2 .. 8 ranks

Fitted = Mapping[str, OpCalibration]


@dataclass(frozen=True, slots=True)
class CollectiveFit:
    """One fit: the kinds of collective on one link that share rows."""

    link: str
    kinds: tuple[str, ...]
    inner: bool  # inside the domain, or on the network

    @property
    def one_port(self) -> bool:
        """Whether all ranks share a port, whatever the group."""
        return not self.inner or self.link.startswith("pcie")


SCALES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "log": (math.log, math.exp),
    "log-1": (lambda v: math.log(v - 1.0), lambda v: 1.0 + math.exp(min(v, 5.0))),
    "frac": (math.log, lambda v: min(1.0, math.exp(v))),
    "positive": (float, lambda v: max(0.0, v)),
}
"""Scale of a parameter -> what a fit moves in its place, and the way back into its range."""


def to_vector(c: OpCalibration) -> Vector:
    """Free parameters on the scales of `PRIORS`."""
    return [SCALES[scale][0](float(getattr(c, name))) for name, (scale, _) in PRIORS.items()]


def from_vector(x: Sequence[float]) -> OpCalibration:
    """Inverse of `to_vector`, held to the ranges."""
    parameters = zip(PRIORS.items(), x, strict=True)
    values: dict[str, Any] = {name: SCALES[scale][1](v) for (name, (scale, _)), v in parameters}
    return OpCalibration(**values)


def fabric_with(
    inner: LinkCalibration, outer: LinkCalibration, job: CollectiveFit, ops: Fitted
) -> FabricCalibration:
    """Fabric whose job's ops are replaced."""
    if job.inner:
        return FabricCalibration(replace(inner, ops={**inner.ops, **ops}), outer)
    return FabricCalibration(inner, replace(outer, ops={**outer.ops, **ops}))


def log_errors(
    rows: Sequence[CollectiveRow],
    links: Mapping[str, LinkCalibration],
    job: CollectiveFit,
    ops: Fitted,
) -> Vector:
    """log(expected / measured) of each row."""
    fabrics: dict[tuple[str, str], FabricCalibration] = {}
    out = []
    for row in rows:
        key = (row.inner, row.outer)
        if key not in fabrics:
            inner, outer = (links.get(k, LinkCalibration(k)) for k in key)
            fabrics[key] = fabric_with(inner, outer, job, ops)
        if row.time_s:
            out.append(math.log(row.expected_s(fabrics[key]) / row.time_s))
    return out


def fit_ops(
    rows: Sequence[CollectiveRow],
    links: Mapping[str, LinkCalibration],
    job: CollectiveFit,
    start: OpCalibration | None = None,
) -> dict[str, OpCalibration]:
    """Constants of the job's kinds, by robust least squares with priors.

    The priors lie around `start`, by default the general constants.
    """
    shared = job.one_port
    if start is None:
        start = GENERAL_OP if job.inner else GENERAL_NETWORK_OP
        start = replace(start, small_group_loss=0.0) if shared else start
    prior = to_vector(start)
    n = len(PRIORS)
    many = len(job.kinds)

    def split(x: Sequence[float]) -> dict[str, OpCalibration]:
        return {k: from_vector(x[i * n : i * n + n]) for i, k in enumerate(job.kinds)}

    spread = [s for _, s in PRIORS.values()]
    if shared:
        spread[list(PRIORS).index("small_group_loss")] = 0.01
    x = fit(
        lambda x: log_errors(rows, links, job, split(x)),
        prior * many,
        prior * many,
        spread * many,
        ERROR_SCALE,
        40,
    )
    return {k: rounded(c) for k, c in split(x).items()}


def rounded(c: OpCalibration, digits: int = 4) -> OpCalibration:
    """Constants to a few digits, as they are written to TOML."""
    values: dict[str, Any] = {
        f.name: float(f"{getattr(c, f.name):.{digits}g}") for f in fields(c) if f.name in PRIORS
    }
    return replace(c, **values)
