"""Replay of a pipeline schedule, stage by stage: what the closed form leaves out.

`pipeline.pipeline_s` knows the heaviest stage and the sum; here every forward and backward pass
waits for its neighbour's, so that uneven stages and schedules with split backward passes come out
of the order of the work itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Work(NamedTuple):
    """One piece of work of a stage."""

    kind: str  # "F", "B" (input gradients; whole backward if not split), "W" (weight gradients)
    micro_batch: int


class StageWork(NamedTuple):
    """Seconds of one micro-batch on one stage."""

    forward_s: float
    backward_s: float  # of the input gradients; all of it where the schedule does not split
    weight_s: float = 0.0


def one_f_one_b(stage: int, pp: int, m: int) -> list[Work]:
    """Order of work of a stage in 1F1B: warm-up, one forward and one backward, drain.

    Examples
    --------
    >>> [w.kind for w in one_f_one_b(0, 2, 3)]
    ['F', 'F', 'B', 'F', 'B', 'B']
    """
    ahead = min(pp - stage, m)
    order = [Work("F", i) for i in range(ahead)]
    for i in range(m):
        order.append(Work("B", i))
        if ahead + i < m:
            order.append(Work("F", ahead + i))
    return order


def gpipe(stage: int, pp: int, m: int) -> list[Work]:
    """Order of work in GPipe: all forward passes, then all backward passes."""
    return [Work("F", i) for i in range(m)] + [Work("B", i) for i in range(m)]


def zero_bubble_h1(stage: int, pp: int, m: int) -> list[Work]:
    """Order of work in ZB-H1: 1F1B whose weight gradients wait to fill the drain [1]_.

    Stage i delays its weight gradients by i micro-batches, which keeps the memory of 1F1B.

    References
    ----------
    .. [1] P. Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 2.
    """
    order: list[Work] = []
    due = 0
    done = 0
    for work in one_f_one_b(stage, pp, m):
        order.append(work)
        if work.kind == "B":
            done += 1
            if done - due > stage:
                order.append(Work("W", due))
                due += 1
    return order + [Work("W", i) for i in range(due, m)]


ORDERS = {"1f1b": one_f_one_b, "gpipe": gpipe, "zb-h1": zero_bubble_h1}
"""Schedules that can be replayed with one chunk per stage."""


def replay_s(
    stages: Sequence[StageWork],
    n_micro_batches: int,
    schedule: str = "1f1b",
    transfer_s: float = 0.0,
) -> float:
    """Time of a pipeline until the last stage's last piece of work is done.

    Parameters
    ----------
    stages : sequence of StageWork
        Seconds per micro-batch of every stage, first to last.
    n_micro_batches : int
        m. [1]
    schedule : str
        Key of `ORDERS`.
    transfer_s : float
        Delay of an activation or gradient between neighbours. [s]

    Returns
    -------
    float
        Makespan. [s]

    Raises
    ------
    ValueError
        For a schedule that is not in `ORDERS`, or no stage or micro-batch.

    Examples
    --------
    >>> replay_s([StageWork(1.0, 2.0)] * 4, 8)  # m (F+B) + (p-1)(F+B)
    33.0
    >>> replay_s([StageWork(1.0, 1.0, 1.0)] * 4, 8, "zb-h1")  # (p-1)(F+B-W) of bubble
    27.0
    """
    if schedule not in ORDERS:
        raise ValueError(f"schedule must be one of {', '.join(ORDERS)}, got {schedule!r}")
    pp, m = len(stages), n_micro_batches
    if pp < 1 or m < 1:
        raise ValueError("a pipeline needs a stage and a micro-batch")
    orders = [ORDERS[schedule](i, pp, m) for i in range(pp)]
    done: dict[tuple[str, int, int], float] = {}
    at, free = [0] * pp, [0.0] * pp
    left = sum(len(order) for order in orders)
    while left:
        moved = 0
        for i in range(pp):
            while at[i] < len(orders[i]):
                ready = _ready(orders[i][at[i]], i, pp, done, transfer_s)
                if ready is None:
                    break
                work = orders[i][at[i]]
                free[i] = max(free[i], ready) + _seconds(stages[i], work.kind)
                done[work.kind, i, work.micro_batch] = free[i]
                at[i] += 1
                moved += 1
        if not moved:
            raise ValueError(f"the order of {schedule} waits for itself")
        left -= moved
    return max(free)


def _seconds(stage: StageWork, kind: str) -> float:
    return {"F": stage.forward_s, "B": stage.backward_s, "W": stage.weight_s}[kind]


def _ready(
    work: Work, stage: int, pp: int, done: dict[tuple[str, int, int], float], transfer_s: float
) -> float | None:
    """Earliest start of a piece of work; None if what it needs is not done yet."""
    i = work.micro_batch
    if work.kind == "F":
        return 0.0 if stage == 0 else _after(done.get(("F", stage - 1, i)), transfer_s)
    if work.kind == "B":
        if stage == pp - 1:
            return done.get(("F", stage, i))
        return _after(done.get(("B", stage + 1, i)), transfer_s)
    return done.get(("B", stage, i))


def _after(time_s: float | None, transfer_s: float) -> float | None:
    return None if time_s is None else time_s + transfer_s
