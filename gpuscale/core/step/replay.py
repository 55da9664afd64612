"""When each pass of a pipeline starts: a replay of the schedule with its dependencies, as events.

Dependencies of the passes: Narayanan et al. 2021 (arXiv:2104.04473), figure 4; Qi et al. 2023
(arXiv:2401.10241), figure 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpuscale.core.records import NamedTuple, dataclass
from gpuscale.core.schedules import Pass

Duration = Callable[[Pass], float]


MOST_STEPS = 60
"""Most steps of Newton's method; it ends in a few."""


class Replay(NamedTuple):
    """Start and end of every pass, and what the last one waited for."""

    times: list[list[tuple[Pass, float, float]]]  # per device: pass, start, end [s]
    length_s: float
    hops: int  # transfers between devices on the way to the end


def replay(
    order: Sequence[Sequence[Pass]],
    duration: Duration,
    hop_s: float = 0.0,
    lead: Duration | None = None,
) -> Replay:
    """Earliest start of every pass, each device working its list in order.

    A forward pass needs that of the stage before it; a backward pass that of the stage after it,
    or on the last stage its own forward pass; weight gradients follow their input gradients.

    `order`: work of each device, of `orders`. `duration`: time of a pass [s]. `hop_s`: time from
    the end of a pass on one device to its use on another [s]. `lead`: time that the device needs
    before a pass, whether or not its input is there [s]. Raises ValueError if the lists wait for
    each other.

    >>> from gpuscale.core.schedules import orders
    >>> replay(orders("1f1b", 4, 1, 8), lambda op: 1.0 if op.kind == "F" else 2.0).length_s
    33.0
    """
    last = max(op.stage for ops in order for op in ops)
    ready: dict[Pass, tuple[float, int, int]] = {}  # end, hops so far, device
    times: list[list[tuple[Pass, float, float]]] = [[] for _ in order]
    now = [(0.0, 0)] * len(order)
    left = sum(map(len, order))
    while left:
        before = left
        for d, ops in enumerate(order):
            done = times[d]
            while len(done) < len(ops):
                op = ops[len(done)]
                need = _needs(op, last)
                start, hops = now[d]
                start += lead(op) if lead else 0.0
                if need is not None:
                    if need not in ready:
                        break
                    at, n, device = ready[need]
                    if device != d:
                        at, n = at + hop_s, n + 1
                    if at > start or (at == start and n > hops):
                        start, hops = at, n
                end = start + duration(op)
                done.append((op, start, end))
                ready[op] = (end, hops, d)
                now[d] = (end, hops)
                left -= 1
        if left == before:
            raise ValueError("the schedule waits for itself")
    length, hops = max(now)
    return Replay(times, length, hops)


def _needs(op: Pass, last: int) -> Pass | None:
    if op.kind == "F":
        return Pass("F", op.micro_batch, op.stage - 1) if op.stage else None
    if op.kind == "W":
        return Pass("B", op.micro_batch, op.stage)
    if op.stage == last:
        return Pass("F", op.micro_batch, last)
    return Pass("B", op.micro_batch, op.stage + 1)


def stretched(
    order: Sequence[Sequence[Pass]],
    duration: Duration,
    length_s: float,
    lead: Duration | None = None,
) -> tuple[Replay, float]:
    """Replay with transfers of such a time that the whole takes `length_s`; and that time.

    The length grows with the time of a transfer, in straight pieces that only get steeper, so
    Newton's method ends in a few steps. A schedule that is longer already is returned as it is.

    >>> from gpuscale.core.schedules import orders
    >>> run, hop = stretched(orders("1f1b", 4, 1, 8), lambda op: 1.0, 25.0)
    >>> round(run.length_s, 9), round(hop, 9)
    (25.0, 0.1875)
    """
    hop = 0.0
    run = replay(order, duration, 0.0, lead)
    for _ in range(MOST_STEPS):
        gap = length_s - run.length_s
        if abs(gap) <= 1e-12 * length_s or (gap < 0.0 and hop == 0.0) or len(order) == 1:
            break
        hop = max(0.0, hop + gap / max(1, run.hops))
        run = replay(order, duration, hop, lead)
    return run, hop


class Placing(NamedTuple):
    """How the replay is put into the step."""

    offset_s: float
    window_s: float
    scale: float
    split: bool
    hop_s: float
    n_drawn: int
    n_micro_batches: int
    left_out_s: float
    pp: int
    vpp: int

    @property
    def cut(self) -> int:
        """Backward passes of a device after which the middle is left out; 0: nothing is."""
        return self.n_drawn * self.vpp // 2 if self.left_out_s > 0.0 else 0


def placed(
    passes: Sequence[tuple[Pass, float, float]], laid: Placing
) -> Iterator[tuple[Pass, float, float]]:
    """Yield (pass, start, end) in the step; the second half comes after the middle left out."""
    done = 0
    for op, start, end in passes:
        late = laid.left_out_s if laid.cut and done >= laid.cut else 0.0
        number = op.micro_batch + (laid.n_micro_batches - laid.n_drawn if late else 0)
        at, to = (laid.offset_s + late + laid.scale * t for t in (start, end))
        yield op._replace(micro_batch=number), at, to
        done += op.kind == "B"


class Event(NamedTuple):
    """Something that occupies a track of a stage for a while."""

    kind: str  # key of `EVENT_KINDS`
    device: int  # pipeline stage as a device, from 0
    track: str  # key of `TRACKS`
    start_s: float
    duration_s: float
    micro_batch: int = -1  # from 0; -1 where it belongs to none
    chunk: int = 0  # piece of the model on this device, from 0


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Memory of one GPU of a stage over the step: each value holds until the next time."""

    device: int
    start_s: tuple[float, ...]
    held_bytes: tuple[float, ...]

    @property
    def peak_bytes(self) -> float:
        """Largest value. [byte]."""
        return max(self.held_bytes)


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """What one pipeline device does with a step; the parts add to its length. [s]."""

    device: int
    forward_s: float
    recompute_s: float
    backward_s: float
    weights_s: float
    bubble_s: float
    skipped_s: float  # micro-batches that are not drawn one by one
    other_s: float  # host, exchanges, stragglers, optimizer
    peak_bytes: float | None


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """One training step, event by event; `total_s` is the expected time of the step."""

    total_s: float
    schedule: str
    n_devices: int
    n_micro_batches: int
    n_drawn_micro_batches: int
    window_s: float  # from the first forward pass to the last backward pass
    schedule_s: float  # the same by the schedule alone, transfers taking no time
    wait_s: float  # time of a transfer with which the schedule fills the window
    scale: float  # factor on all passes where the schedule alone is longer than the window
    events: tuple[Event, ...]
    memory: tuple[MemoryCurve, ...]
    devices: tuple[DeviceTime, ...]

    def of(self, device: int, track: str = "compute") -> list[Event]:
        """Events of one track, in order of time."""
        found = [e for e in self.events if e.device == device and e.track == track]
        return sorted(found, key=lambda e: e.start_s)
