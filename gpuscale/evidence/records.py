"""One scored row, and the summary of many: MAPE, median, p90, bias, interval coverage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from gpuscale.core.records import dataclass, field
from gpuscale.core.serving.percentiles import percentile

ROW_COLUMNS = ("id", "gpu", "quantity", "measured", "predicted", "ratio", "reason")
"""Columns that `validate --rows` writes for every row, before the extra ones."""


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One measured quantity and what the model says of it; construct with keywords.

    `predicted` is None and `reason` filled where no prediction was possible; a reason may also
    stand beside a prediction (`does not fit`). `low` and `high` bound the stated 80 % interval.
    """

    id: str
    gpu: str
    quantity: str  # "time_us", "step_time_s", ...
    measured: float | None
    predicted: float | None = None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    classes: Mapping[str, str] = field(default_factory=dict)  # "source", "op", "dtype" ...
    extra: Mapping[str, float | None] = field(default_factory=dict)  # further columns

    @property
    def ratio(self) -> float | None:
        """Predicted over measured; None where either is missing."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured

    @property
    def inside(self) -> bool | None:
        """Whether the measurement lies in the stated interval; None without an interval."""
        if self.low is None or self.high is None or self.measured is None or self.ratio is None:
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Errors of a set of rows; fractions, not percent. Field names are the JSON keys."""

    name: str
    n_rows: int
    n_scored: int
    mape_frac: float | None = None
    median_frac: float | None = None
    p90_frac: float | None = None
    bias_frac: float | None = None  # mean of predicted/measured - 1
    coverage_frac: float | None = None  # measurements inside the stated interval
    n_with_interval: int = 0


def quantile(values: Sequence[float], q: float) -> float:
    """Quantile by linear interpolation between order statistics.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    if not values:
        raise ValueError("quantile of nothing")
    return percentile(sorted(values), q)


def summarise(rows: Iterable[ScoredRow], name: str = "all") -> ErrorSummary:
    """Errors of `rows`: absolute relative error |predicted/measured - 1| and its statistics."""
    rows = list(rows)
    ratios = [r for row in rows if (r := row.ratio) is not None]
    inside = [i for row in rows if (i := row.inside) is not None]
    if not ratios:
        return ErrorSummary(name, len(rows), 0)
    errors = [abs(r - 1.0) for r in ratios]
    return ErrorSummary(
        name=name,
        n_rows=len(rows),
        n_scored=len(ratios),
        mape_frac=math.fsum(errors) / len(errors),
        median_frac=quantile(errors, 0.5),
        p90_frac=quantile(errors, 0.9),
        bias_frac=math.fsum(ratios) / len(ratios) - 1.0,
        coverage_frac=sum(inside) / len(inside) if inside else None,
        n_with_interval=len(inside),
    )


def summarise_by(rows: Iterable[ScoredRow], key: str) -> list[ErrorSummary]:
    """One summary for each value of `row.classes[key]` ("gpu" and "quantity" also work).

    Rows that lack the class are summarised under "?"; the order is that of first appearance.
    """
    groups: dict[str, list[ScoredRow]] = {}
    for row in rows:
        fixed = {"gpu": row.gpu, "quantity": row.quantity}.get(key)
        groups.setdefault(row.classes.get(key, fixed or "?") or "?", []).append(row)
    return [summarise(group, name) for name, group in groups.items()]


def unpredicted(rows: Iterable[ScoredRow]) -> dict[str, list[str]]:
    """Reason -> ids of the rows that could not be predicted or have no measurement."""
    left_out: dict[str, list[str]] = {}
    for row in rows:
        if row.ratio is None:
            left_out.setdefault(row.reason or "no reason given", []).append(row.id)
    return left_out


def worst(rows: Iterable[ScoredRow], n: int = 10) -> list[ScoredRow]:
    """List the `n` rows with the largest |log(predicted/measured)|, worst first."""
    scored = [(abs(math.log(r)), row) for row in rows if (r := row.ratio)]
    return [row for _, row in sorted(scored, key=lambda pair: -pair[0])[:n]]


def row_cells(row: ScoredRow) -> dict[str, str]:
    """Cells of one line of `validate --rows`: `ROW_COLUMNS`, then the extra columns."""
    cells = {**{name: getattr(row, name) for name in ROW_COLUMNS}, **row.extra}
    return {
        key: "" if value is None else value if isinstance(value, str) else f"{value:.8g}"
        for key, value in cells.items()
    }


@dataclass(frozen=True, slots=True)
class FitLine:
    """What one fit did; field names are the JSON keys."""

    name: str  # "arch.hopper.matmul.bf16"
    n_rows: int
    error_before_frac: float  # median |expected / measured - 1| with the constants as shipped
    error_after_frac: float
