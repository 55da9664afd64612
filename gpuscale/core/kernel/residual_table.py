"""A compact table of log corrections on a regular grid in log2 space, interpolated linearly.

Multilinear interpolation: Press et al. 2007, Numerical Recipes, section 3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from typing import Annotated, Any, ClassVar, NamedTuple

from gpuscale.core.bounds import STRICT, Within

THOUSANDTH = 1e-3
"""Unit of the corrections in files."""
MOST_THOUSANDTHS = 3000
"""Largest correction of a table, a factor of 20."""


class Thousandths(NamedTuple):
    """Numbers that a file writes as one text of whole thousandths."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema; core itself imports no pydantic."""
        read = {"type": "no-info", "function": read_thousandths}
        return {"type": "function-before", "function": read, "schema": handler(source)}


def read_thousandths(text: Any) -> Any:
    """Read whole numbers as thousandths; numbers are given back as they are.

    Raises ValueError if one is no whole number or too large.
    """
    if not isinstance(text, str):
        return text
    try:
        found = [int(word) for word in text.split()]
    except ValueError:
        raise ValueError("whole numbers (thousandths) are wanted") from None
    if any(abs(v) > MOST_THOUSANDTHS for v in found):
        raise ValueError(f"corrections go up to {MOST_THOUSANDTHS} thousandths")
    return tuple(v * THOUSANDTH for v in found)


Corrections = Annotated[tuple[float, ...], Thousandths()]


@dataclass(frozen=True, slots=True)
class LogAxis:
    """Regular grid points `start, start + step, ...` in log2 of a dimension."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    start: Annotated[float, Within(-1, 40)]
    step: Annotated[float, Within(0, 10, above=True)]
    n: Annotated[int, Within(2, 40)]

    def place(self, value: float) -> tuple[int, float]:
        """Lower grid index and fraction towards the next; held at the edges."""
        at = (log2(value) - self.start) / self.step
        if at <= 0.0:
            return 0, 0.0
        if at >= self.n - 1:
            return self.n - 2, 1.0
        i = int(at)
        return i, at - i

    def points(self) -> list[float]:
        """Values of the dimension at the grid points."""
        return [2.0 ** (self.start + i * self.step) for i in range(self.n)]


@dataclass(frozen=True, slots=True)
class ResidualTable:
    """Natural-log corrections over (m, n, k); `values` run fastest in k, slowest in m."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    m: LogAxis
    n: LogAxis
    k: LogAxis
    values: Corrections

    def __post_init__(self) -> None:
        """Check that the values fill the grid."""
        if min(self.m.n, self.n.n, self.k.n) < 2:
            raise ValueError("each axis of a table needs at least two points")
        if len(self.values) != self.m.n * self.n.n * self.k.n:
            raise ValueError(f"a table of {self.m.n}x{self.n.n}x{self.k.n} values is wanted")

    def at(self, m: float, n: float, k: float) -> float:
        """Trilinear interpolation, constant beyond the grid."""
        i, x = self.m.place(m)
        j, y = self.n.place(n)
        h, z = self.k.place(k)
        v, nk = self.values, self.k.n
        a = (i * self.n.n + j) * nk + h
        b = a + self.n.n * nk
        v0 = (v[a] * (1 - z) + v[a + 1] * z) * (1 - y) + (
            v[a + nk] * (1 - z) + v[a + nk + 1] * z
        ) * y
        v1 = (v[b] * (1 - z) + v[b + 1] * z) * (1 - y) + (
            v[b + nk] * (1 - z) + v[b + nk + 1] * z
        ) * y
        return v0 * (1 - x) + v1 * x


def tabulate(
    axes: Sequence[LogAxis], function: Callable[[float, float, float], float]
) -> ResidualTable:
    """Table of `function(m, n, k)` at every grid point of the three axes."""
    m, n, k = axes
    values = tuple(function(a, b, c) for a in m.points() for b in n.points() for c in k.points())
    return ResidualTable(m, n, k, values)


@dataclass(frozen=True, slots=True)
class PlaneTable:
    """Natural-log corrections over (size, ranks); `values` run fastest in the ranks."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    size_bytes: LogAxis
    n_ranks: LogAxis
    values: Corrections

    def __post_init__(self) -> None:
        """Check that the values fill the grid."""
        if min(self.size_bytes.n, self.n_ranks.n) < 2:
            raise ValueError("each axis of a table needs at least two points")
        if len(self.values) != self.size_bytes.n * self.n_ranks.n:
            raise ValueError(f"a table of {self.size_bytes.n}x{self.n_ranks.n} values is wanted")

    def at(self, x: float, y: float) -> float:
        """Bilinear interpolation, constant beyond the grid."""
        i, p = self.size_bytes.place(x)
        j, q = self.n_ranks.place(y)
        v, n = self.values, self.n_ranks.n
        a = i * n + j
        low = v[a] * (1 - q) + v[a + 1] * q
        high = v[a + n] * (1 - q) + v[a + n + 1] * q
        return low * (1 - p) + high * p
