"""Robust least squares with priors, and Gaussian-process smoothing; standard library only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Vector = list[float]


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> Vector:
    """Solve a symmetric positive definite system by Cholesky decomposition.

    Examples
    --------
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

    Examples
    --------
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
