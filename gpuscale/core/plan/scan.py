"""Cases of a scan: which sizes to try, the one to choose, and what is worth looking at."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from enum import IntEnum

from gpuscale.core.limits.board import LimitRow
from gpuscale.core.plan.records import Estimate, ScanRow
from gpuscale.core.quantity import format_si
from gpuscale.core.records import dataclass, replace
from gpuscale.core.run.time import SECONDS_PER_DAY
from gpuscale.core.words import STEP_PARTS, gb


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a plan must meet; None: no matter."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    mfu_at_least: float | None = None
    max_step_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self != Conditions()


def _held(row: ScanRow, c: Conditions) -> list[tuple[float | None, str]]:
    """List (times over it, in words) of each condition; None: the figure is not known."""
    found: list[tuple[float | None, str]] = []
    if c.deadline_s is not None:
        have = "no token budget" if row.days is None else f"{row.days:,.1f} days"
        over = None if row.days is None else row.days * SECONDS_PER_DAY / c.deadline_s
        found.append((over, f"{have} > {c.deadline_s / SECONDS_PER_DAY:,.4g} days"))
    if c.budget_usd is not None:
        have = "no price" if row.usd is None else format_si(row.usd, "usd", 3)
        over = None if row.usd is None else row.usd / c.budget_usd
        found.append((over, f"{have} > {format_si(c.budget_usd, 'usd', 3)}"))
    if (least := c.mfu_at_least) is not None:
        found.append((least / row.mfu, f"MFU {100 * row.mfu:.1f} % < {100 * least:.4g} %"))
    if (most_s := c.max_step_s) is not None:
        found.append((row.step_s / most_s, f"step {row.step_s:.3g} s > {most_s:.4g} s"))
    return found


def shortfalls(row: ScanRow, c: Conditions) -> list[str]:
    """Conditions that a case does not meet, in words; one of a figure not known is not met."""
    over = row.peak_bytes - row.capacity_bytes
    unsafe = "the upper end of its memory does not fit"
    unfit = f"does not fit by {over / 1e9:,.1f} GB" if over > 0.0 else unsafe
    found = [] if row.fits else [unfit]
    return found + [words for times, words in _held(row, c) if times is None or times > 1.0]


def excess(row: ScanRow, c: Conditions) -> float:
    """How many times over the condition that it misses by most; infinite where it does not fit."""
    known = [times for times, _ in _held(row, c) if times is not None]
    return max([1.0, *known]) if row.fits else math.inf


def least_gpus(
    tokens: float, flop_per_token: float, peak_flop_per_s: float, deadline_s: float
) -> float:
    """GPUs below which a run cannot meet a deadline even at the peak rate. [1].

    >>> round(least_gpus(15e12, 4.2e11, 989.4e12, 30 * 86400), 2)
    2456.6
    """
    return tokens * flop_per_token / (peak_flop_per_s * deadline_s)


def cost_of(row: ScanRow) -> float:
    """Price of a token in USD, or in GPU-seconds where no price is known."""
    if row.tokens_per_usd:
        return 1.0 / row.tokens_per_usd
    return row.n_gpus / row.tokens_per_s


def with_pareto(rows: Sequence[ScanRow]) -> list[ScanRow]:
    """Mark the rows that no other beats in both speed and cost."""
    fitting = [r for r in rows if r.fits]
    return [
        replace(
            r,
            pareto=r.fits
            and not any(
                (o.tokens_per_s > r.tokens_per_s and cost_of(o) <= cost_of(r))
                or (o.tokens_per_s >= r.tokens_per_s and cost_of(o) < cost_of(r))
                for o in fitting
            ),
        )
        for r in rows
    ]


def with_efficiency(rows: Sequence[ScanRow]) -> list[ScanRow]:
    """Throughput of a GPU relative to the smallest fitting row, by cluster."""
    first: dict[str, float] = {}
    for row in sorted(rows, key=lambda r: r.n_gpus):
        if row.fits:
            first.setdefault(row.cluster, row.tokens_per_s_per_gpu)
    return [
        replace(
            r,
            scaling_efficiency=(
                r.tokens_per_s_per_gpu / first[r.cluster] if r.cluster in first and r.fits else None
            ),
        )
        for r in rows
    ]


def choose(rows: Sequence[ScanRow], objective: str, size: str = "") -> ScanRow | None:
    """Pick the row that answers: of those that fit and meet the conditions, the best.

    Where a size is looked for, `step-time` means the "fewest" or the "most" GPUs, or the "fastest".
    """
    able = [r for r in rows if r.fits and r.meets]
    if not able:
        return None
    if objective == "tokens-per-dollar":
        return min(able, key=lambda r: (cost_of(r), -r.tokens_per_s))
    if objective == "memory-headroom":
        return max(able, key=lambda r: (r.capacity_bytes - r.peak_bytes, r.tokens_per_s))
    if size == "fewest":
        return min(able, key=lambda r: (r.n_gpus, -r.tokens_per_s))
    if size == "most":
        return max(able, key=lambda r: (r.n_gpus, r.tokens_per_s))
    return max(able, key=lambda r: r.tokens_per_s)


MOST_SIZES = 64
"""Most sizes tried between those that are doubled; where there are more, some are left out."""


class SizeVerdict(IntEnum):
    """What trying a size said: more GPUs are needed, it meets the conditions, fewer are needed."""

    MORE = -1
    MEETS = 0
    FEWER = 1


Seek = Generator[tuple[int, bool], SizeVerdict, bool]
Pass = Generator[tuple[int, bool], SizeVerdict, tuple[bool, bool]]


def doubled_sizes(node: int, most: int) -> Iterator[int]:
    """Parts of a node, then nodes, doubled; the last is `most`.

    >>> list(doubled_sizes(8, 80)), list(doubled_sizes(8, 3))
    ([1, 2, 4, 8, 16, 32, 64, 80], [1, 2, 3])
    """
    n = 1
    while n < min(node, most):
        yield n
        n *= 2
    n = min(node, most)
    while n < most:
        yield n
        n *= 2
    yield most


def _between(node: int, low: float, high: int) -> list[int]:
    """Multiples of a node above `low` (or at it) and below `high` that are not doubled."""
    first = max(1, -(-int(low) // node))
    return [k * node for k in range(first, -(-high // node)) if k & (k - 1)]


def _first(sizes: Sequence[int]) -> Pass:
    """First of some sizes that meets, a coarse pass first where there are many: (found, gaps)."""
    stride = -(-len(sizes) // MOST_SIZES) or 1
    for i in range(0, len(sizes), stride):
        if (yield sizes[i], False) == SizeVerdict.MEETS:
            missed = sizes[max(0, i - stride + 1) : i] if stride > 1 else ()
            yield from _first(missed)
            return True, stride > 1
    return False, stride > 1


def smallest(node: int, most: int, least: float = 0.0) -> Seek:
    """Smallest size that meets: doubled sizes until one is not too small, then those below it.

    `node`: GPUs of a node [1]. `most`: largest size [1]. `least`: sizes below it cannot meet [1].
    """
    tried, gaps = least, False
    for n in doubled_sizes(node, most):
        if n < least and n != most:
            continue
        verdict = yield n, True
        if verdict == SizeVerdict.MORE and n != most:
            continue
        below = _between(node, tried, n)
        if len(below) > MOST_SIZES and n // 2 > tried:
            below, gaps = _between(node, n // 2, n), True
        found, strided = yield from _first(below)
        gaps |= strided
        if found or verdict == SizeVerdict.MEETS:
            break
        tried = n
    return gaps


def largest(node: int, most: int, *, fastest: bool = False) -> Seek:
    """Largest size that meets: doubled sizes, then those above the last that meets, downwards.

    `node, most`: GPUs of a node, and the largest size [1]. `fastest`: whether a smaller size could
    be the answer too, because it is faster.
    """
    met = 0
    for n in doubled_sizes(node, most):
        if (yield n, False) == SizeVerdict.MEETS:
            met = n
    few = most <= MOST_SIZES * node
    top = most if few else min(most, 4 * max(met, MOST_SIZES // 4 * node))
    rest = _between(node, 0 if few and fastest else met + 1, top)[::-1]
    if few and fastest:
        for n in rest:
            yield n, False
        return False
    _, gaps = yield from _first(rest)
    return gaps or top < most or fastest


AXES = {
    "dp_comm_s": ("dp", "fsdp", "moe-dp"),
    "tp_comm_s": ("tp",),
    "cp_comm_s": ("cp",),
    "ep_comm_s": ("ep",),
    "pp_comm_s": ("pp",),
}
"""Part of a step -> axes of the limits board that explain it."""

TIE_FRAC = 0.05
"""The order of layouts closer than this is right in little more than half of the pairs of measured
grids (docs/accuracy.md)."""

LEAST_SHARE = 0.04
"""Share of the step below which a part alone is no reason."""


def grown_part(worse: Estimate, best: Estimate) -> str:
    """Name the part of the expected step that grew most against the best layout's."""
    mine, theirs = worse.step.expected.parts(), best.step.expected.parts()
    parts = [name for name in mine if name not in ("straggler_s", "untuned_s")]
    return max(parts, key=lambda name: mine[name] - theirs[name])


def why_worse(worse: Estimate, best: Estimate, board: Sequence[LimitRow] = ()) -> str:
    """Say in one line why `worse` is worse than `best`, another layout of the same job.

    `board`: limits of the worse layout; an exceeded one of the part that grew is named. A part is
    named where it is a share of the step worth naming, else what grew together.
    """
    if not worse.fits:
        return f"does not fit by {gb(-worse.headroom_bytes)}"
    if worse.peak_bytes > worse.room_bytes:
        over = worse.peak_bytes / worse.room_bytes * worse.capacity_bytes - worse.capacity_bytes
        return f"may not fit: the upper end of its memory is {gb(over)} too much"
    name = grown_part(worse, best)
    mine, theirs = worse.step.expected, best.step.expected
    share, other = getattr(mine, name) / mine.total_s, getattr(theirs, name) / theirs.total_s
    slower = mine.total_s / theirs.total_s - 1.0
    grown = (getattr(mine, name) - getattr(theirs, name)) / mine.total_s
    if slower <= 0.0 or (grown < LEAST_SHARE and slower <= TIE_FRAC):
        return _as_fast(worse, best)
    if share < LEAST_SHARE:
        return _together(worse, best)
    for row in board:
        if row.axis in AXES.get(name, ()) and row.exceeded:
            return f"communication-bound {row.ratio:.1f}x: {_against(row)}"
    text = f"{STEP_PARTS[name]} {100 * share:.0f} % of the step, best {100 * other:.0f} %"
    if round(100 * share) <= round(100 * other):
        text = f"{STEP_PARTS[name]} {getattr(mine, name):.3g} s, best {getattr(theirs, name):.3g} s"
    return text


def _against(row: LimitRow) -> str:
    """Have against need, in words.

    >>> from gpuscale.core.limits.board import LimitRow
    >>> _against(LimitRow("tp", 16, True, 1.0, 2.0, "degree", 16, 8, "<=", None, "", 2.0, ""))
    'TP 16 against at most 8'
    """
    if row.axis in ("tp", "pp"):
        return f"{row.axis.upper()} {row.have:,.0f} against at most {row.need:,.3g}"
    if row.axis == "ep":
        return f"expert width {row.have:,.0f} against {row.need:,.0f}"
    return f"{row.have:,.0f} {row.quantity} against {row.need:,.0f}"


def _as_fast(worse: Estimate, best: Estimate) -> str:
    """No difference in time that the model could tell: memory, or what there is to the layout."""
    more = worse.peak_bytes - best.peak_bytes
    text = "as fast within the model's error"
    return f"{text}, {gb(more)} more memory" if more > 0.0 else text


def _together(worse: Estimate, best: Estimate) -> str:
    """Parts that grew, none of them much: those that make most of the difference."""
    mine, theirs = worse.step.expected, best.step.expected
    grown = {name: part - theirs.parts()[name] for name, part in mine.parts().items()}
    ranked = sorted((n for n in grown if grown[n] > 0.0), key=lambda n: -grown[n])[:3]
    more = math.fsum(grown[n] for n in ranked) / theirs.total_s
    return f"{', '.join(STEP_PARTS[n] for n in ranked)}: {100 * more:.0f} % more together"
