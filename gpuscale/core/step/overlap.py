"""The one overlap form, what remains visible beside a compute window; and a pipeline's form."""

from __future__ import annotations

from gpuscale.core.schedules import SCHEDULES


def exposed_s(window_s: float, comm_s: float, exposed_frac: float) -> float:
    """Communication time left after overlap: ``max(A, B) + c min(A, B) - A``.

    `window_s`: compute that may hide the communication, A [s]. `comm_s`: communication, B [s].
    `exposed_frac`: c: 0 hides all that fits, 1 hides nothing; above 1, contention slows the compute
    [1]. Returns: exposed time, never below 0 [s].

    >>> exposed_s(3.0, 2.0, 0.0), exposed_s(3.0, 2.0, 1.0), exposed_s(2.0, 3.0, 0.0)
    (0.0, 2.0, 1.0)
    """
    if comm_s <= 0.0:
        return 0.0
    if comm_s > window_s:
        return comm_s - window_s + exposed_frac * window_s
    return exposed_frac * comm_s


def pipeline_s(
    heaviest_s: float, all_stages_s: float, n_micro_batches: int, vpp: int, schedule: str
) -> tuple[float, float]:
    """(steady, bubble) time of a pipeline.

    ``m t_max + (sum of stages - t_max) / v``: the heaviest stage works all micro-batches, and the
    first one must pass all other stages (Narayanan et al. 2021, section 2.2, for equal stages).

    `heaviest_s`: forward and backward of one micro-batch on the slowest stage [s]. `all_stages_s`:
    the same summed over stages [s]. `n_micro_batches, vpp`: m and v [1]. `schedule`: member of
    `core.schedules.SCHEDULES`.

    >>> pipeline_s(2.0, 8.0, 8, 1, "1f1b")  # equal stages: bubble (p-1)/m
    (16.0, 6.0)
    """
    fill = max(0.0, all_stages_s - heaviest_s) * SCHEDULES[schedule].bubble / vpp
    return n_micro_batches * heaviest_s, fill
