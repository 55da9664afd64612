"""The answer of `diagnose` as records: their field names are the JSON keys."""

from __future__ import annotations

from gpuscale.core.diagnosis.series import Fact
from gpuscale.core.records import dataclass


@dataclass(frozen=True, slots=True)
class SeriesRead:
    """A series of a log: its steady state without the warm-up."""

    name: str
    unit: str
    run: int
    rank: int | None
    n: int
    n_warm_up: int
    median: float
    low: float
    high: float
    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that the run's own past shows."""

    kind: str
    text: str
    step: float | None = None


@dataclass(frozen=True, slots=True)
class LogRead:
    """One log."""

    name: str
    programs: tuple[str, ...]
    n_lines: int
    n_bytes: int
    n_runs: int
    repeated_lines_read_1_in: int
    facts: tuple[Fact, ...]
    series: tuple[SeriesRead, ...]


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the planner says of this job."""

    quantity: str
    value: float
    low: float
    high: float
    unit: str
    measured: float
    ratio: float  # how many times worse the measured figure is
    by: str
    over_tuned: float = 1.0  # the predicted step over that of a tuned job
    better: str = ""  # what the best layout on the same GPUs is, and why

    @property
    def inside(self) -> bool:
        """Whether the measured figure is in the interval."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True)
class NamedCause:
    """A cause that is named."""

    cause: str
    title: str
    group: str
    verdict: str
    probability: float
    explains_factor: float
    low_factor: float
    high_factor: float
    gain_frac: float  # of the time or the memory
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    remedy: str
    test: str
    test_cost: str
    predicted: float | None  # the figure with this cause alone, in SI
    source: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a test shows under a cause."""

    cause: str
    shows: str


@dataclass(frozen=True, slots=True)
class Test:
    """The one test to run next."""

    test: str
    cost: str
    separates: float  # nats of what is not known that it takes away
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class PeakPart:
    """A part of the memory at the moment it ran out."""

    part: str
    value_bytes: float


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """What filled the card, and what was asked for."""

    parts: tuple[PeakPart, ...]
    asked_bytes: float | None
    short_bytes: float | None
    fragmented_bytes: float | None
    changes: tuple[str, ...]
    planned: str = ""  # what the planner says that the peak is made of


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole answer."""

    verdict: str  # "fault" | "normal" | "measurement" | "unknown"
    probability: float
    verdicts: dict[str, float]
    kind: str
    symptoms: tuple[str, ...]
    causes: tuple[NamedCause, ...]
    together: tuple[str, ...]
    next_test: Test | None
    asks: str
    ratio: float | None  # times worse than expected
    predicted: Predicted | None
    out_of_memory: OutOfMemory | None
    events: tuple[RunEvent, ...]
    logs: tuple[LogRead, ...]
    headline: str
