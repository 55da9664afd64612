"""Families of layouts by the kinds of parallelism that they use."""

from __future__ import annotations


def family(tp: int, pp: int, cp: int, ep: int, zero_stage: int, shard_group: int | None) -> str:
    """Name the family of a layout.

    >>> family(8, 16, 1, 1, 1, None), family(1, 1, 1, 1, 3, 64), family(1, 1, 1, 8, 0, None)
    ('TP + PP + DP', 'HSDP', 'EP + DP')
    """
    if cp > 1:
        name = "with CP"
    elif tp == 1 and pp == 1:
        name = data_parallel(zero_stage, shard_group)
    elif pp == 1:
        name = "TP + " + data_parallel(zero_stage, shard_group)
    elif tp == 1:
        name = "PP + DP"
    else:
        name = "TP + PP + DP"
    return f"EP + {name}" if ep > 1 else name


def data_parallel(zero_stage: int, shard_group: int | None) -> str:
    """DP (states replicated or sharded once a step), FSDP (ZeRO-3) or HSDP."""
    if zero_stage < 3:
        return "DP"
    return "FSDP" if shard_group is None else "HSDP"
