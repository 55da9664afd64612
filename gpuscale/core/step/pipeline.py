"""The time of a pipeline of micro-batches."""

from __future__ import annotations

BUBBLE = {"1f1b": 1.0, "gpipe": 1.0, "interleaved": 1.0, "zb-h1": 0.5, "dualpipe": 0.5}
"""Bubble relative to 1F1B where the backward pass is split in halves of equal time.

1F1B (p-1)(F+B+W), ZB-H1 (p-1)(F+B-W) (Qi et al. 2023, table 2); with B = W = F: 3 to 1 units,
but only the dgrad of the last micro-batches is on the path in practice, so half is taken.
DualPipe: (p/2-1)(F&B+B-3W) (DeepSeek-V3 report, table 2).
"""


def pipeline_s(
    heaviest_s: float, all_stages_s: float, n_micro_batches: int, vpp: int, schedule: str
) -> tuple[float, float]:
    """(steady, bubble) time of a pipeline.

    ``m t_max + (sum of stages - t_max) / v``: the heaviest stage works all micro-batches, and the
    first one must pass all other stages (Narayanan et al. 2021, section 2.2, for equal stages).

    Parameters
    ----------
    heaviest_s : float
        Forward and backward of one micro-batch on the slowest stage. [s]
    all_stages_s : float
        The same summed over stages. [s]
    n_micro_batches, vpp : int
        m and v. [1]
    schedule : str
        Member of `core.layout.SCHEDULES`.

    Examples
    --------
    >>> pipeline_s(2.0, 8.0, 8, 1, "1f1b")  # equal stages: bubble (p-1)/m
    (16.0, 6.0)
    """
    fill = max(0.0, all_stages_s - heaviest_s) * BUBBLE.get(schedule, 1.0) / vpp
    return n_micro_batches * heaviest_s, fill
