"""What is calibrated: constants of products by architecture and format; tables of log corrections.

A table is a regular grid in log2 space, interpolated linearly: Press et al. 2007, Numerical
Recipes, section 3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log2
from typing import Annotated, Any, ClassVar

from gpuscale.core import bounds
from gpuscale.core.bounds import STRICT, Within, before
from gpuscale.core.formats import number_format
from gpuscale.core.records import NamedTuple, dataclass, field, replace

THOUSANDTH = 1e-3
"""Unit of the corrections in files."""
MOST_THOUSANDTHS = 3000
"""Largest correction of a table, a factor of 20."""


class Thousandths(NamedTuple):
    """Numbers that a file writes as one text of whole thousandths."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema; core itself imports no pydantic."""
        return before(self.read, handler(source))

    def read(self, value: Any) -> Any:
        """Read whole numbers as thousandths."""
        return read_thousandths(value)


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


Positive = Annotated[float, bounds.Within(0, 1e6, above=True)]
Efficiency = Annotated[float, bounds.Within(0, 1.5, above=True)]
"""Of a data-sheet rate, which clocks can exceed."""


@dataclass(frozen=True, slots=True)
class MatmulCalibration:
    """Constants of matrix products in one number format on one architecture.

    The defaults are the medians over the measured architectures.
    """

    __pydantic_config__: ClassVar[dict[str, str | bool]] = bounds.STRICT

    floor_s: bounds.Seconds = 2.3e-6  # launch, prologue and epilogue of one kernel
    latency_s: bounds.Seconds = 1.5e-6  # the K loop of one block at k = 1024
    latency_exponent: Annotated[float, bounds.Within(0, 2)] = 0.55  # 1: no split-K; of k
    compute_eff_frac: Efficiency = 0.74  # of the data-sheet peak, at an ideal time of 0.1 ms
    clock_frac: float = 1.0  # of the data-sheet clock that the board's power sustains
    ramp_k: Annotated[float, bounds.Within(0, 1e5)] = (
        100.0  # filling the pipeline costs as much as this many more k
    )
    memory_eff_frac: Efficiency = 0.86  # of the data-sheet memory bandwidth
    blend: Annotated[float, bounds.Within(1, 100)] = 2.0  # exponent of compute, memory, latency
    wave_exponent: bounds.Share = 0.35  # 1: a partial last wave costs a whole one; 0: nothing
    tile_area: Annotated[float, bounds.Within(0, 1e6)] = 1200.0  # elements of half efficiency
    l2_gain: Positive = 0.85  # memory speed of operands that stay in the L2 cache, over HBM
    sustained_slope: Annotated[float, bounds.Within(-0.5, 0.9)] = 0.13  # per e**3 of time (clocks)
    quant_floor_s: bounds.Seconds = 1.5e-6  # the kernel that quantises the activations
    quant_eff_frac: Efficiency = 0.6  # of memory bandwidth, in that kernel
    table: ResidualTable | None = None  # log corrections
    low_frac: bounds.Fraction = 0.7  # 80 % interval: measured / expected
    high_frac: bounds.Spread = 1.4
    borrowed: bool = False  # measured on another architecture
    n_rows: bounds.NonNegativeInt = 0  # measurements behind it
    error_median_frac: float | None = None  # leave-shape-out
    error_p90_frac: float | None = None
    source: str = ""

    __hash__ = object.__hash__  # by identity: the table is large, and keys of memos are records


@dataclass(frozen=True, slots=True)
class Board:
    """What decides the clock that a GPU sustains; see `core.kernel.power`."""

    tdp_w: Annotated[float, bounds.Measured("w")]
    n_units: Annotated[float, bounds.Within(0, 1e6, above=True)]
    flop_per_s: Annotated[float, bounds.Measured("flop_per_s")]  # data-sheet bf16 rate, dense


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReference(Board):
    """Board on which an architecture's products were measured."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = bounds.STRICT

    exponent: bounds.Fraction  # of the clock over the watts of a unit
    headroom: bounds.Spread  # times the clock from which on the limit is no longer felt less
    most_eff_frac: bounds.Fraction  # of the data-sheet rate that products reach at full clock
    source: str = ""


@dataclass(frozen=True, slots=True)
class ArchCalibration:
    """What is calibrated for one GPU architecture, as presets/arch/*.toml holds it."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = bounds.STRICT

    name: str
    matmul: Mapping[str, MatmulCalibration] = field(default_factory=dict)
    source: str = ""
    nearest: str = ""  # architecture that has what is absent here
    notes: str = ""
    power: PowerReference | None = None  # without it products are as fast on every board

    __hash__ = object.__hash__

    def format_used(self, dtype: str, kernels: str = "") -> str:
        """Key of `matmul` that serves a number format, "" for the general constants."""
        for name in (dtype, *number_format(dtype).measured_as):
            for key in (f"{name}-{kernels}", name) if kernels else (name,):
                if key in self.matmul:
                    return key
        return ""

    def for_dtype(self, dtype: str, kernels: str = "") -> MatmulCalibration:
        """Constants of a number format; of the nearest measured one where it has none."""
        return self.matmul.get(self.format_used(dtype, kernels), GENERAL)


GENERAL = MatmulCalibration()


def matmul_interval_s(
    time_s: float, dtype: str, arch: ArchCalibration, kernels: str = "", unseen: bool = False
) -> tuple[float, float]:
    """80 % interval of an expected matmul time, from the validation of its class. [s].

    `unseen`: a kind of kernel that was not measured, such as batched or grouped products.
    """
    c = arch.for_dtype(dtype, kernels)
    low, high = c.low_frac, c.high_frac
    own = measured_format(arch.format_used(dtype, kernels), dtype, kernels)
    if unseen or c.borrowed or not own:
        low, high = min(low, UNSEEN_LOW_FRAC), max(high, UNSEEN_HIGH_FRAC)
    return time_s * low, time_s * high


def measured_format(used: str, dtype: str, kernels: str = "") -> bool:
    """Whether the constants in use come from this format; fp16 runs as bf16 does."""
    return used in (dtype, f"{dtype}-{kernels}") or (used, dtype) == ("bf16", "fp16")


UNSEEN_LOW_FRAC, UNSEEN_HIGH_FRAC = 0.75, 1.4
"""Interval where another format or architecture serves: 10 and 90 % quantiles when the constants
of one architecture or format predict the measurements of another (medians of 9 to 15 %)."""


def clock_frac(board: Board, reference: PowerReference) -> float:
    """Sustained over data-sheet clock, against that of the reference. [1].

    ``(watts of a unit / reference's)^exponent / (rate of a unit / reference's)``

    >>> limit = dict(exponent=1 / 3, headroom=1.1, most_eff_frac=0.95)
    >>> sxm = PowerReference(400.0, 108, 312e12, **limit)
    >>> round(clock_frac(Board(300.0, 108, 312e12), sxm), 2)
    0.91
    >>> clock_frac(Board(450.0, 108, 312e12), sxm)
    1.0
    """
    watts = board.tdp_w / board.n_units / (reference.tdp_w / reference.n_units)
    clock = board.flop_per_s / board.n_units / (reference.flop_per_s / reference.n_units)
    frac = float(watts**reference.exponent / clock)
    return frac if frac <= 1.0 else max(1.0, frac / reference.headroom)


def at_power(arch: ArchCalibration, board: Board, reference: PowerReference) -> ArchCalibration:
    """Calibration of an architecture, as measured on the reference, for another board."""
    frac = clock_frac(board, reference)
    if frac == 1.0:
        return arch
    return replace(arch, matmul={k: _clocked(c, frac, reference) for k, c in arch.matmul.items()})


def _clocked(c: MatmulCalibration, frac: float, reference: PowerReference) -> MatmulCalibration:
    if frac < 1.0:
        return replace(c, clock_frac=frac)
    wanted = c.compute_eff_frac * frac
    eff = max(c.compute_eff_frac, min(wanted, reference.most_eff_frac))
    return replace(c, compute_eff_frac=eff, sustained_slope=c.sustained_slope * eff / wanted)
