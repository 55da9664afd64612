"""Pipeline schedules, one row each: bubble, what is held, what is needed, and the order of work.

A pass is (kind, micro-batch, stage): F forward, B backward (of inputs and weights together, or of
inputs alone), W backward of weights. A stage is a piece of the model: pp * vpp of them, in model
order. Two lists of the same schedule differ only in length, so a long step has a short prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gpuscale.core.records import NamedTuple, dataclass


class Pass(NamedTuple):
    """One visit of a micro-batch to a stage of the model."""

    kind: str  # "F" | "B" | "W"
    micro_batch: int
    stage: int  # 0 to pp * vpp - 1, in model order


@dataclass(frozen=True, slots=True)
class Schedule:
    """One schedule; a row with a column left out cannot be made. `m` are micro-batches."""

    name: str
    bubble: float  # of the time of the other stages; 1: 1F1B
    held: Callable[[int, int, int, int], float]  # (stage, pp, vpp, m): micro-batches at once
    passes: Callable[[int, int, int, int], Iterable[Pass]]  # (device, pp, vpp, m): its work
    needs: Callable[[int, int], str]  # (pp, m): what is missing, or ""
    splits_backward: bool  # weight gradients apart from input gradients
    weight_copies: float  # of the model's stages, on each device
    searched: bool  # by `plan`
    source: str


def _nothing(pp: int, m: int) -> str:
    return ""


def _chunks(pp: int, m: int) -> str:
    return f"interleaved needs micro-batches ({m}) that pp={pp} divides" if m % pp else ""


def _two_ways(pp: int, m: int) -> str:
    odd = pp % 2 or m % 2 or m < 2 * pp
    needs = f"an even pp and an even number of at least 2*pp={2 * pp} micro-batches"
    return f"DualPipe needs {needs}" if odd else ""


def _one_forward_one_backward(device: int, pp: int, m: int) -> Iterator[Pass]:
    ahead = min(m, pp - device)
    yield from (Pass("F", b, device) for b in range(ahead))
    for b in range(m):
        yield Pass("B", b, device)
        if b + ahead < m:
            yield Pass("F", b + ahead, device)


def _zero_bubble(device: int, ahead: int, late: int, m: int) -> Iterator[Pass]:
    """Weight gradients run `late` micro-batches late, so `ahead + late` micro-batches are held."""
    ahead = min(m, ahead)
    yield from (Pass("F", b, device) for b in range(ahead))
    for b in range(m):
        yield Pass("B", b, device)
        if b >= late:
            yield Pass("W", b - late, device)
        if b + ahead < m:
            yield Pass("F", b + ahead, device)
    yield from (Pass("W", b, device) for b in range(max(0, m - late), m))


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


_ROWS = (
    Schedule(
        name="1f1b",
        bubble=1.0,
        held=lambda i, pp, vpp, m: float(min(m, pp - i)),
        passes=lambda i, pp, vpp, m: _one_forward_one_backward(i, pp, m),
        needs=_nothing,
        splits_backward=False,
        weight_copies=1.0,
        searched=True,
        source="Narayanan et al. 2021, arXiv:2104.04473, section 2.2 and figure 4",
    ),
    Schedule(  # 2 (p - i - 1) + (v - 1) p + 1 chunks of 1/v stage
        name="interleaved",
        bubble=1.0,  # over vpp
        held=lambda i, pp, vpp, m: min(m * vpp, 2 * (pp - i - 1) + (vpp - 1) * pp + 1) / vpp,
        passes=lambda i, pp, vpp, m: _interleaved(i, pp, vpp, m),
        needs=_chunks,
        splits_backward=False,
        weight_copies=1.0,
        searched=True,
        source="Narayanan et al. 2021, section 2.2; Korthikanti et al. 2022, 4.2.3",
    ),
    Schedule(  # 1F1B (p-1)(F+B+W), H1 (p-1)(F+B-W): 3 to 1 with B = W = F. Only the input
        # gradients of the last micro-batches are on the path in practice, so half is taken.
        name="zb-h1",
        bubble=0.5,
        held=lambda i, pp, vpp, m: float(min(m, pp)),
        passes=lambda i, pp, vpp, m: _zero_bubble(i, pp - i, i, m),
        needs=_nothing,
        splits_backward=True,
        weight_copies=1.0,
        searched=True,
        source="Qi et al. 2023, arXiv:2401.10241, section 2.1, table 2 and figure 3",
    ),
    Schedule(  # (p-1)(F+B-2W), 0 with B = W = F, if devices go on to the next step apart; with one
        # optimizer step for all, as here, the way in remains: (p-1) F, a third of 1F1B.
        name="zb-h2",
        bubble=1.0 / 3.0,
        held=lambda i, pp, vpp, m: float(min(m, 2 * pp - 1)),
        passes=lambda i, pp, vpp, m: _zero_bubble(i, 2 * (pp - i) - 1, 2 * i, m),
        needs=_nothing,
        splits_backward=True,
        weight_copies=1.0,
        searched=False,
        source="Qi et al. 2023, arXiv:2401.10241, section 2.2 and table 2",
    ),
    Schedule(  # (p/2-1)(F&B+B-3W)
        name="dualpipe",
        bubble=0.5,
        held=lambda i, pp, vpp, m: float(min(m, pp + 1)),
        passes=lambda i, pp, vpp, m: _dualpipe(i, pp, m),
        needs=_two_ways,
        splits_backward=True,
        weight_copies=2.0,
        searched=True,
        source="DeepSeek-V3 Technical Report, arXiv:2412.19437, table 2 and figure 5",
    ),
    Schedule(
        name="gpipe",
        bubble=1.0,
        held=lambda i, pp, vpp, m: float(m),
        passes=lambda i, pp, vpp, m: (Pass(k, b, i) for k in "FB" for b in range(m)),
        needs=_nothing,
        splits_backward=False,
        weight_copies=1.0,
        searched=False,
        source="Huang et al. 2019, arXiv:1811.06965, section 2",
    ),
)

SCHEDULES = {row.name: row for row in _ROWS}
"""Name -> schedule."""


def schedule_of(name: str, pp: int, vpp: int) -> Schedule:
    """Schedule that really runs: 1f1b with chunks is interleaved, one stage needs none."""
    if pp == 1 and name != "gpipe":
        return SCHEDULES["1f1b"]
    return SCHEDULES["interleaved" if vpp > 1 and name == "1f1b" else name]


def in_flight(schedule: str, stage: int, pp: int, vpp: int, n_micro_batches: int) -> float:
    """Micro-batches whose activations a stage holds at once, in units of the whole stage.

    >>> [in_flight("1f1b", i, 4, 1, 8) for i in range(4)]
    [4.0, 3.0, 2.0, 1.0]
    >>> in_flight("interleaved", 0, 4, 2, 8), in_flight("gpipe", 0, 4, 1, 8)
    (5.5, 8.0)
    """
    return schedule_of(schedule, pp, vpp).held(stage, pp, vpp, n_micro_batches)


def orders(schedule: str, pp: int, vpp: int, n_micro_batches: int) -> list[list[Pass]]:
    """Work of every pipeline device, first to last.

    `schedule`: a name of `SCHEDULES`; 1f1b with `vpp` above 1 is interleaved. `pp, vpp,
    n_micro_batches`: devices, chunks on each, micro-batches [1]. Raises ValueError for what the
    schedule needs and does not have.

    >>> [op.kind + str(op.micro_batch) for op in orders("1f1b", 2, 1, 3)[0]]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    >>> [op.kind + str(op.micro_batch) for op in orders("zb-h1", 2, 1, 3)[1]]
    ['F0', 'B0', 'F1', 'B1', 'W0', 'F2', 'B2', 'W1', 'W2']
    """
    row = schedule_of(schedule, pp, vpp)
    if missing := row.needs(pp, n_micro_batches):
        raise ValueError(missing)
    return [list(row.passes(i, pp, vpp, n_micro_batches)) for i in range(pp)]
