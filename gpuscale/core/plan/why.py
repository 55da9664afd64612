"""Why a layout is worse than the best: the term of its step that grew most, in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuscale.core.limits.board import LimitRow
from gpuscale.core.plan.records import Estimate
from gpuscale.core.words import STEP_PARTS, gb

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
