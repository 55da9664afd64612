"""A person's own benchmarks to an overlay over the shipped constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpuscale.core.kernel.calibration import LogAxis, MatmulCalibration, PlaneTable
from gpuscale.core.network.calibration import (
    KIND,
    FabricCalibration,
    LinkCalibration,
    OpCalibration,
)
from gpuscale.core.records import replace
from gpuscale.errors import GpuscaleError
from gpuscale.evidence import fit_collectives as collective_fit
from gpuscale.evidence.fit_collectives import CollectiveFit, smooth
from gpuscale.evidence.records import FitLine, ScoredRow, quantile
from gpuscale.evidence.score_parts import CollectiveRow, GemmRow
from gpuscale.io.calibration import load_arch, load_link
from gpuscale.io.text import read_toml

PRIORS: dict[str, tuple[str, float]] = read_toml(Path(__file__).with_name("priors.toml"))
"""Weakly informative priors: what a few measurements cannot tell stays near the general value."""

LENGTH, SPREAD, NOISE = 2.5, 0.12, 0.03  # of the smoothing, in natural logarithms
AXES = (LogAxis(0, 2, 9), LogAxis(7, 2, 6), LogAxis(8, 2, 5))
"""m 1 to 65536, n 128 to 131072, k 256 to 65536."""


SHRINK = 3.0
"""Measurements that the shipped constants count as, against an offset of all rows."""

MIN_INTERVAL_ROWS = 10

SITE_RANGE = (0.5, 10.0)
"""Factors of a site beyond this are a mistake in the rows."""

N_FOLDS = 5
MAX_ROWS = 250
"""Rows of one group that a fit uses; of more, evenly spaced ones."""

Overlay = dict[str, Any]


def correction(
    points: Sequence[tuple[float, ...]],
    left: Sequence[float],
    length: float,
    spread: float,
    noise: float,
) -> Callable[..., float]:
    """Offset of all rows plus what is left smoothed; log(measured / expected) by place."""
    n = len(left)
    offset = quantile(left, 0.5) * n / (n + SHRINK)
    mean = smooth(points, [v - offset for v in left], length, spread, noise)
    return lambda *at: offset + mean(*at)


Row = TypeVar("Row")


def thinned(rows: Sequence[Row]) -> list[Row]:
    """At most `MAX_ROWS` rows, evenly spaced.

    >>> len(thinned(range(1000)))
    250
    """
    step = max(1.0, len(rows) / MAX_ROWS)
    return [rows[int(i * step)] for i in range(min(len(rows), MAX_ROWS))]


def site_overlay(rows: Sequence[ScoredRow], source: str) -> tuple[Overlay, list[FitLine]]:
    """Overlay with one factor on every expected step time: the median of measured / expected."""
    left = [-math.log(row.ratio) for row in rows if row.ratio]
    shift = quantile(left, 0.5)
    if not SITE_RANGE[0] <= math.exp(shift) <= SITE_RANGE[1]:
        raise GpuscaleError(
            f"measured steps take {math.exp(shift):.3g} times the expected time",
            "that is no matter of a site: check GPU, layout and units of the rows",
        )
    after = [v - shift for v in left]
    line = FitLine("site.step_time_factor", len(left), _median_error(left), _median_error(after))
    site = {"step_time_factor": float(f"{math.exp(shift):.4g}"), "n_rows": len(left)}
    return {"site": {**site, "source": source}}, [line]


def _interval(left: Sequence[float]) -> dict[str, float]:
    """80 % interval from what a fit leaves; {} where too few rows tell."""
    if len(left) < MIN_INTERVAL_ROWS:
        return {}
    low, high = math.exp(quantile(left, 0.1)), math.exp(quantile(left, 0.9))
    return {"low_frac": round(min(1.0, low), 3), "high_frac": round(max(1.0, high), 3)}


def _held_out(
    points: Sequence[tuple[float, ...]], left: Sequence[float], settings: tuple[float, ...]
) -> list[float]:
    """List what remains of each row when it is predicted from the others, in five folds."""
    out = []
    for fold in range(min(N_FOLDS, len(left))):
        train = [j for j in range(len(left)) if j % N_FOLDS != fold] or [0]
        mean = correction([points[j] for j in train], [left[j] for j in train], *settings)
        out += [left[j] - mean(*points[j]) for j in range(fold, len(left), N_FOLDS)]
    return out


def _median_error(left: Sequence[float]) -> float:
    return quantile([abs(math.exp(-v) - 1.0) for v in left], 0.5)


def _axis_toml(axis: LogAxis) -> dict[str, float | int]:
    return {"start": axis.start, "step": axis.step, "n": axis.n}


def _thousandths(values: Sequence[float]) -> str:
    return " ".join(str(round(1000.0 * v)) for v in values)


def gemm_overlay(
    rows: Sequence[GemmRow], base: str | Path | None = None, source: str = "own measurements"
) -> tuple[Overlay, list[FitLine]]:
    """Overlay of matmul constants and tables from measured products.

    The shipped (or `base`'s) constants stay; the table takes what the rows show on top.
    """
    groups: dict[tuple[str, str, str], list[GemmRow]] = {}
    for row in rows:
        if row.time_s:
            groups.setdefault((row.architecture, row.dtype, row.kernels), []).append(row)
    groups = {key: thinned(group) for key, group in groups.items()}
    overlay: Overlay = {}
    lines = []
    settings = (LENGTH, SPREAD, NOISE)
    for (arch_name, dtype, kernels), group in sorted(groups.items()):
        arch = load_arch(arch_name, base)
        c = arch.for_dtype(dtype, kernels)
        points = [(math.log(r.m), math.log(r.n), math.log(r.k)) for r in group]
        left = [math.log((r.time_s or 1.0) / r.expected_s(arch)) for r in group]
        mean = correction(points, left, *settings)
        after = [v - mean(*p) for v, p in zip(left, points, strict=True)]
        key = f"{dtype}-{kernels}" if kernels else dtype
        overlay.setdefault(arch_name, {})[key] = {
            **{name: getattr(c, name) for name in PRIORS},
            **_interval(_held_out(points, left, settings)),
            "n_rows": len(group),
            "source": source,
            "table": _gemm_table(c, mean),
        }
        name = f"arch.{arch_name}.matmul.{key}"
        lines.append(FitLine(name, len(group), _median_error(left), _median_error(after)))
    return {"arch": {a: {"matmul": t} for a, t in overlay.items()}}, lines


def _gemm_table(c: MatmulCalibration, mean: Callable[..., float]) -> Overlay:
    axes = (c.table.m, c.table.n, c.table.k) if c.table else AXES
    values = [
        (c.table.at(m, n, k) if c.table else 0.0) + mean(math.log(m), math.log(n), math.log(k))
        for m in axes[0].points()
        for n in axes[1].points()
        for k in axes[2].points()
    ]
    return {
        **{name: _axis_toml(axis) for name, axis in zip("mnk", axes, strict=True)},
        "values": _thousandths(values),
    }


def collectives_overlay(
    rows: Sequence[CollectiveRow], base: str | Path | None = None, source: str = "own measurements"
) -> tuple[Overlay, list[FitLine]]:
    """Overlay of link constants from measured collectives.

    Inside one domain the table takes what the rows show; networks get new constants, held near
    the shipped ones where the rows do not tell.
    """
    groups: dict[tuple[bool, str, str], list[CollectiveRow]] = {}
    for row in rows:
        inside = row.n_in_domain >= row.n_ranks
        kind = "custom" if row.algorithm == "custom" else KIND.get(row.op, row.op)
        link = row.inner if inside else row.outer
        if row.time_s:
            groups.setdefault((inside, link, kind), []).append(row)
    groups = {key: thinned(group) for key, group in groups.items()}
    links = {n: load_link(n, base) for r in rows for n in (r.inner, r.outer)}
    overlay: Overlay = {}
    lines = []
    for (inside, link, kind), group in sorted(groups.items(), key=lambda g: (not g[0][0], g[0])):
        before = _left(group, links)
        fit = _domain_op if inside else _network_op
        c, table = fit(group, links, link, kind)
        links[link] = LinkCalibration(link, {**links[link].ops, kind: c})
        after = _left(group, links)
        overlay.setdefault(link, {})[kind] = {
            **{name: getattr(c, name) for name in collective_fit.PRIORS},
            **_interval(after),
            "n_rows": len(group),
            "source": source,
            **({"table": table} if table else {}),
        }
        name = f"fabric.{link}.ops.{kind}"
        lines.append(FitLine(name, len(group), _median_error(before), _median_error(after)))
    return {"fabric": {n: {"ops": t} for n, t in overlay.items()}}, lines


def _left(rows: Sequence[CollectiveRow], links: dict[str, LinkCalibration]) -> list[float]:
    return [
        math.log(r.time_s / r.expected_s(FabricCalibration(links[r.inner], links[r.outer])))
        for r in rows
        if r.time_s
    ]


def _domain_op(
    rows: Sequence[CollectiveRow], links: dict[str, LinkCalibration], link: str, kind: str
) -> tuple[OpCalibration, Overlay]:
    old = links[link].op(kind)
    scale = collective_fit.RANK_SCALE
    points = [(math.log(r.size_bytes), scale * math.log(r.n_ranks)) for r in rows]
    settings = (collective_fit.LENGTH, collective_fit.SPREAD, collective_fit.NOISE)
    mean = correction(points, _left(rows, links), *settings)
    axes = (collective_fit.SIZE_AXIS, collective_fit.RANK_AXIS)
    values = tuple(
        (old.table.at(s, n) if old.table else 0.0) + mean(math.log(s), scale * math.log(n))
        for s in axes[0].points()
        for n in axes[1].points()
    )
    table = {
        "size_bytes": _axis_toml(axes[0]),
        "n_ranks": _axis_toml(axes[1]),
        "values": _thousandths(values),
    }
    return replace(old, table=PlaneTable(*axes, values)), table


def _network_op(
    rows: Sequence[CollectiveRow], links: dict[str, LinkCalibration], link: str, kind: str
) -> tuple[OpCalibration, Overlay]:
    job = CollectiveFit(link, (kind,), inner=False)
    return collective_fit.fit_ops(rows, links, job, links[link].op(kind))[kind], {}
