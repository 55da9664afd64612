"""The time of a pipeline of micro-batches."""

from __future__ import annotations

from gpuscale.core.schedules import SCHEDULES


def pipeline_s(
    heaviest_s: float, all_stages_s: float, n_micro_batches: int, vpp: int, schedule: str
) -> tuple[float, float]:
    """(steady, bubble) time of a pipeline.

    ``m t_max + (sum of stages - t_max) / v``: the heaviest stage works all micro-batches, and the
    first one must pass all other stages (Narayanan et al. 2021, section 2.2, for equal stages).

    `heaviest_s`: forward and backward of one micro-batch on the slowest stage [s]. `all_stages_s`:
    the same summed over stages [s]. `n_micro_batches, vpp`: m and v [1]. `schedule`: member of
    `core.schedules.SCHEDULES`.

    Examples
    --------
    >>> pipeline_s(2.0, 8.0, 8, 1, "1f1b")  # equal stages: bubble (p-1)/m
    (16.0, 6.0)
    """
    fill = max(0.0, all_stages_s - heaviest_s) * SCHEDULES[schedule].bubble / vpp
    return n_micro_batches * heaviest_s, fill
