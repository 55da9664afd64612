"""Whether a job fits, as a probability: its peak in each way that it may be set, and a width.

The peak of a job is taken as lognormal about its prediction; what the question leaves open is a
few cases with weights. How wide is fitted to public jobs that ran or ran out of memory
(`tools/fit_verdicts.py`), sources counted alike.

G. W. Brier, Monthly Weather Review 78(1), 1950: what the fit makes least. The jobs:
`tests/data/verdicts.csv`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

from gpuscale.core.numeric import Z80, below, reached
from gpuscale.core.records import dataclass
from gpuscale.core.words import gb

SURE = 0.95
"""From here on a verdict is said without doubt."""

CERTAIN = 0.995
"""From here on no percentage is shown: it would be 100."""

HELD = 0.9
"""Probability of a job whose 80 % interval ends at what is usable."""

EVEN = (0.45, 0.55)
"""Between these it is a coin's toss."""

SLIGHT = 0.02
"""Change of a peak, in ln, below which an open setting does not matter."""

MUCH = 1.25
"""Factor on the peak from which an open setting is asked for though the verdict stands."""

RARE = 0.1
"""Share of a setting below which it is asked for only where no other one matters."""

LENGTHS = ((0.55, "1"), (0.25, "0.5"), (0.2, "2"))
"""Weights of sequences as long as taken, half and twice as long, where none are said: prior."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far measured peaks lie from predicted ones, in ln; where from is in the preset."""

    bias: float = 0.0  # of ln(measured / predicted)
    floor: float = 0.07  # a job whose settings are all known, of a family that was measured
    distance: Mapping[str, float] | None = None  # what was measured less -> its width
    odd_open: float = 0.0  # chance that a job does otherwise than its question says: settings open
    odd_said: float = 0.0  # the same where all are said
    odd_served: float = 0.0  # of a server: its engine's version and settings are not asked
    odd_bias: float = 0.0  # of such jobs, in ln, as bias and floor
    odd_width: float = 1.0
    host_width: float = 1.0  # of the memory of hosts, where nothing was said of it

    def width(self, family_factor_80: float, far: Iterable[str] = ()) -> float:
        """Width of a job: of its family's interval and of what was measured less. [1]."""
        own = max(self.floor, math.log(max(1.0, family_factor_80)) / Z80)
        known = self.distance or {}
        return math.hypot(own, *(known.get(name, 0.0) for name in set(far)))

    def chance(
        self,
        cases: Sequence[tuple[float, float]],
        usable_bytes: float,
        width: float,
        *,
        settled: bool,
        served: bool = False,
    ) -> float:
        """Probability that a job fits: `probability`, and a share that does otherwise. [1].

        >>> how = Spread(odd_open=0.4, odd_bias=0.8)
        >>> round(how.chance([(1.0, 10e9)], 80e9, 0.1, settled=True), 2)
        1.0
        >>> round(how.chance([(1.0, 10e9)], 80e9, 0.1, settled=False), 2)
        0.96
        """
        odd = self.odd_served if served else self.odd_said if settled else self.odd_open
        wide = math.hypot(width, self.odd_width)
        own = probability(cases, usable_bytes, width, self.bias)
        # an engine sizes its own cache: the most that it says fits stays as likely as not
        other = probability(cases, usable_bytes, wide, self.bias if served else self.odd_bias)
        return (1.0 - odd) * own + odd * other

    def on_host(self, needed_bytes: float, room_bytes: float, *, told: bool) -> float:
        """Probability that the hosts hold what lies on them. [1].

        `room_bytes`: of a node, as it was told, else what is usual.

        >>> Spread(host_width=0.7).on_host(1e12, 1e12, told=False)
        0.5
        """
        width = self.floor if told else self.host_width
        return below(math.log(room_bytes / needed_bytes) / width)


@dataclass(frozen=True, slots=True)
class Open:
    """A setting that the question leaves open, and the ways that it may be set."""

    field: str
    option: str  # that says it
    ways: tuple[tuple[float, str], ...]  # weight, value; the first is what was taken


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job fits."""

    fits_probability: float
    peak_low_bytes: float  # 80 % interval, over what is open
    peak_high_bytes: float
    decides: str = ""  # the open setting that decides, in words
    beyond: str = ""  # why it is less likely than its interval says, in words

    @property
    def fits(self) -> bool:
        """More likely than not."""
        return self.fits_probability >= sum(EVEN) / 2


def probability(
    cases: Sequence[tuple[float, float]], usable_bytes: float, width: float, bias: float = 0.0
) -> float:
    """Probability that a peak is below what is usable. [1].

    `cases`: (weight, predicted peak) of each way that the job may be set. `usable_bytes`: of the
    GPU. `width`, `bias`: of ln(measured / predicted).

    >>> probability([(1.0, 50e9)], 50e9, 0.1)
    0.5
    >>> round(probability([(3.0, 40e9), (1.0, 90e9)], 80e9, 0.01), 2)
    0.75
    """
    total = math.fsum(w for w, _ in cases)
    logs = ((w, math.log(usable_bytes / max(b, 1.0))) for w, b in cases)
    return math.fsum(w * below((x - bias) / width) for w, x in logs) / total


def between(
    cases: Sequence[tuple[float, float]], width: float, share: float = 0.8
) -> tuple[float, float]:
    """Interval that holds `share` of the peaks of a job, as much on either side. [byte].

    `cases`, `width` as in `probability`.

    >>> low, high = between([(1.0, 50e9)], 0.1)
    >>> round(low / 1e9, 1), round(high / 1e9, 1)
    (44.0, 56.8)
    """

    def share_below(log_bytes: float) -> float:
        return probability(cases, math.exp(log_bytes), width)

    logs = [math.log(max(b, 1.0)) for _, b in cases]
    ends = min(logs) - 6.0 * width, max(logs) + 6.0 * width
    rest = (1.0 - share) / 2.0
    low, high = (reached(share_below, p, *ends) for p in (rest, 1.0 - rest))
    return math.exp(low), math.exp(high)


def ways(settings: Sequence[Open]) -> list[tuple[float, dict[str, str]]]:
    """(weight, field -> value) of every combination of open settings; what was taken is first."""
    found = []
    for combination in product(*(s.ways for s in settings)):
        weight = math.prod(w for w, _ in combination)
        found.append(
            (weight, {s.field: v for s, (_, v) in zip(settings, combination, strict=True)})
        )
    return found


def beyond(own: float, chance: float, p: float) -> str:
    """Say what most of the jobs that do not fit run out of; [1] each.

    `own`: probability that a job fits as computed, `chance`: of any job, `p`: with its hosts.

    >>> beyond(0.98, 0.77, 0.77), beyond(0.98, 0.77, 0.2)
    ('yet 21 % run out for what nobody said', "yet 57 % run out of the hosts' memory")
    """
    causes = {
        "as their like was measured less": 1.0 - own,
        "for what nobody said": own - chance,
        "of the hosts' memory": chance - p,
    }
    words = max(causes, key=causes.__getitem__)
    return f"yet {100 * causes[words]:.0f} % run out {words}"


Values = Mapping[str, str]
Peaks = Sequence[tuple[str, float]]


def moving(
    settings: Iterable[Open], peak_bytes: Callable[[Values], float]
) -> list[tuple[Open, Peaks]]:
    """Open settings that move a peak, each with its other values and the peaks with them. [byte].

    `peak_bytes`: of the job with some settings otherwise than taken.

    >>> loss = Open("loss", "--loss", ((0.8, "eager"), (0.2, "fused")))
    >>> batch = Open("micro_batch", "--micro-batch", ((0.5, "1"), (0.5, "2")))
    >>> found = moving([loss, batch], lambda v: 54e9 if v.get("loss", "eager") == "eager" else 31e9)
    >>> [(s.field, others) for s, others in found]
    [('loss', [('fused', 31000000000.0)])]
    """
    own = peak_bytes({})
    found = ((s, [(v, peak_bytes({s.field: v})) for _, v in s.ways[1:]]) for s in settings)
    return [(s, p) for s, p in found if any(abs(math.log(b / own)) > SLIGHT for _, b in p)]


def deciding(
    moves: Iterable[tuple[Open, Peaks]], own_bytes: float, usable_bytes: float, seq_len: int
) -> str:
    """Ask for the open setting that turns the verdict alone, or moves the peak most, and by what.

    `moves`: of `moving`. `own_bytes`: peak as taken. `seq_len`: tokens that a length is a multiple
    of. Empty where none matters.

    >>> loss = Open("loss", "--loss", ((0.8, "eager"), (0.2, "fused")))
    >>> deciding([(loss, [("fused", 31e9)])], 54e9, 40e9, 8192)
    '--loss: 54.0 GB with eager, 31.0 GB with fused'
    """

    def turns(other: float) -> bool:
        return (own_bytes <= usable_bytes) != (other <= usable_bytes)

    def matters(s: Open, value: str, other: float) -> tuple[bool, float]:
        share = dict((v, w) for w, v in s.ways)[value]
        return turns(other) and share > RARE, share * abs(math.log(other / own_bytes))

    ends = [
        (matters(s, value, b), s, value, b)
        for s, others in moves
        for value, b in others
        if turns(b) or (s.field != "seq_len" and abs(math.log(b / own_bytes)) > math.log(MUCH))
    ]
    if not ends:
        return ""
    _, s, value, other = max(ends, key=lambda end: end[0])
    taken = s.ways[0][1]
    if s.field == "seq_len":
        taken, value = (f"{float(v) * seq_len:,.0f} tokens" for v in (taken, value))
    return f"{s.option}: {gb(own_bytes)} with {taken}, {gb(other)} with {value}"


def said(p: float) -> str:
    """Say a probability as a verdict.

    >>> said(0.999), said(0.97), said(0.8), said(0.01)
    ('fits', 'fits, 97 %', 'probably fits, 80 %', 'does not fit')
    >>> said(0.52), said(0.3)
    ("is a coin's toss, 52 %", 'probably does not fit, 30 % that it does')
    """
    share = f"{100 * p:.0f} %"
    if p >= SURE:
        return "fits" if p >= CERTAIN else f"fits, {share}"
    if p > EVEN[1]:
        return f"probably fits, {share}"
    if p >= EVEN[0]:
        return f"is a coin's toss, {share}"
    if p <= 1.0 - SURE:
        return "does not fit"
    return f"probably does not fit, {share} that it does"
