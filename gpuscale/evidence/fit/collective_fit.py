"""Fits the constants of collectives to measured times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gpuscale.core.kernel.residual_table import LogAxis
from gpuscale.core.network.calibration import (
    GENERAL_NETWORK_OP,
    GENERAL_OP,
    FabricCalibration,
    LinkCalibration,
    OpCalibration,
)
from gpuscale.evidence.fit.least_squares import Vector, fit
from gpuscale.evidence.score.collectives import CollectiveRow

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


def to_vector(c: OpCalibration) -> Vector:
    """Free parameters on the scales of `PRIORS`."""
    out = []
    for name, (scale, _) in PRIORS.items():
        v = float(getattr(c, name))
        if scale == "log":
            v = math.log(v)
        elif scale == "log-1":
            v = math.log(v - 1.0)
        elif scale == "frac":
            v = math.log(v)
        out.append(v)
    return out


def from_vector(x: Sequence[float]) -> OpCalibration:
    """Inverse of `to_vector`, held to the ranges."""
    values: dict[str, Any] = {}
    for (name, (scale, _)), v in zip(PRIORS.items(), x, strict=True):
        if scale == "log":
            v = math.exp(v)
        elif scale == "log-1":
            v = 1.0 + math.exp(min(v, 5.0))
        elif scale == "frac":
            v = min(1.0, math.exp(v))
        else:
            v = max(0.0, v)
        values[name] = v
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
