"""What each pipeline device works on, in order: one list of forward and backward passes per device.

A pass is (kind, micro-batch, stage): F forward, B backward (of inputs and weights together, or of
inputs alone), W backward of weights. A stage is a piece of the model: pp * vpp of them, in model
order. Two lists of the same schedule differ only in length, so a long step has a short prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Pass(NamedTuple):
    """One visit of a micro-batch to a stage of the model."""

    kind: str  # "F" | "B" | "W"
    micro_batch: int
    stage: int  # 0 to pp * vpp - 1, in model order


SPLIT = ("zb-h1", "dualpipe")
"""Schedules that move the weight gradients away from the input gradients."""


def orders(schedule: str, pp: int, vpp: int, n_micro_batches: int) -> list[list[Pass]]:
    """Work of every pipeline device, first to last [1]_ [2]_ [3]_.

    Parameters
    ----------
    schedule : str
        Member of `core.layout.SCHEDULES`; 1f1b with `vpp` above 1 is interleaved.
    pp, vpp, n_micro_batches : int
        Devices, chunks on each, micro-batches. [1]

    Raises
    ------
    ValueError
        For a DualPipe with odd `pp`, an odd number of micro-batches or fewer than 2 pp; for an
        interleaved schedule whose micro-batches `pp` does not divide.

    Examples
    --------
    >>> [op.kind + str(op.micro_batch) for op in orders("1f1b", 2, 1, 3)[0]]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    >>> [op.kind + str(op.micro_batch) for op in orders("zb-h1", 2, 1, 3)[1]]
    ['F0', 'B0', 'F1', 'B1', 'W0', 'F2', 'B2', 'W1', 'W2']

    References
    ----------
    .. [1] Narayanan et al. 2021, arXiv:2104.04473, figures 3 and 4.
    .. [2] Qi et al. 2023, arXiv:2401.10241, section 2.1 and figure 3.
    .. [3] DeepSeek-V3 Technical Report, arXiv:2412.19437, figure 5.
    """
    m = n_micro_batches
    if schedule == "gpipe":
        return [[Pass(k, b, i) for k in "FB" for b in range(m)] for i in range(pp)]
    if schedule == "dualpipe" and pp > 1:
        if pp % 2 or m % 2 or m < 2 * pp:
            raise ValueError(
                f"DualPipe needs an even pp and an even number of at least {2 * pp} micro-batches"
            )
        return [list(_dualpipe(i, pp, m)) for i in range(pp)]
    if schedule == "zb-h1" and pp > 1:
        return [list(_zero_bubble(i, pp, m)) for i in range(pp)]
    if vpp > 1:
        if m % pp:
            raise ValueError(f"interleaved needs micro-batches ({m}) that pp={pp} divides")
        return [list(_interleaved(i, pp, vpp, m)) for i in range(pp)]
    return [list(_one_forward_one_backward(i, pp, m)) for i in range(pp)]


def _one_forward_one_backward(device: int, pp: int, m: int) -> Iterator[Pass]:
    ahead = min(m, pp - device)
    yield from (Pass("F", b, device) for b in range(ahead))
    for b in range(m):
        yield Pass("B", b, device)
        if b + ahead < m:
            yield Pass("F", b + ahead, device)


def _zero_bubble(device: int, pp: int, m: int) -> Iterator[Pass]:
    """ZB-H1: weight gradients run `device` micro-batches late, so pp micro-batches are held."""
    ahead = min(m, pp - device)
    yield from (Pass("F", b, device) for b in range(ahead))
    for b in range(m):
        yield Pass("B", b, device)
        if b >= device:
            yield Pass("W", b - device, device)
        if b + ahead < m:
            yield Pass("F", b + ahead, device)
    yield from (Pass("W", b, device) for b in range(max(0, m - device), m))


def _interleaved(device: int, pp: int, vpp: int, m: int) -> Iterator[Pass]:
    """Chunks in turn, pp micro-batches each, ``2 (p - i - 1) + (v - 1) p + 1`` ahead."""
    groups = [range(a, a + pp) for a in range(0, m, pp)]
    forward = [(b, c) for g in groups for c in range(vpp) for b in g]
    backward = [(b, c) for g in groups for c in reversed(range(vpp)) for b in g]
    ahead = min(len(forward), 2 * (pp - device - 1) + (vpp - 1) * pp + 1)
    yield from (Pass("F", b, c * pp + device) for b, c in forward[:ahead])
    for n, (b, c) in enumerate(backward):
        yield Pass("B", b, c * pp + device)
        if n + ahead < len(forward):
            b, c = forward[n + ahead]
            yield Pass("F", b, c * pp + device)


def _dualpipe(device: int, pp: int, m: int) -> Iterator[Pass]:
    """Two pipelines in opposite directions; the first half of the micro-batches goes down.

    Device i holds stages i and p - 1 - i. Its near direction is the one that starts closer to it.
    """
    near = min(device, pp - 1 - device)
    inner = pp // 2 - near - 1
    first = 0 if device < pp // 2 else 1
    stage = (device, pp - 1 - device)
    count = {(k, d): 0 for k in "FBW" for d in (0, 1)}

    def op(kind: str, which: int) -> Pass:
        d = first if which == 0 else 1 - first
        number = count[kind, d]
        count[kind, d] += 1
        return Pass(kind, number + d * (m // 2), stage[d])

    late: list[int] = []  # directions whose weight gradients wait, oldest first

    def backward(which: int, wait: bool = False) -> Iterator[Pass]:
        yield op("B", which)
        if wait:
            late.append(which)
        else:
            yield op("W", which)

    yield from (op("F", 0) for _ in range(2 * inner))
    for _ in range(near + 1):
        yield op("F", 0)
        yield op("F", 1)
    for _ in range(inner):
        yield from backward(1)
        yield op("F", 1)
    for _ in range(m // 2 - pp + near + 1):
        yield op("F", 0)
        yield from backward(1)
        yield op("F", 1)
        yield from backward(0)
    for _ in range(inner):
        yield from backward(1)
        yield op("F", 1)
        yield from backward(0)
    for n in range(near + 1):
        wait = n >= (near + 1) // 2
        yield from backward(1, wait)
        yield from backward(0, wait)
    for _ in range(inner):
        if late:
            yield op("W", late.pop(0))
        yield from backward(0, wait=True)
    yield from (op("W", which) for which in late)
