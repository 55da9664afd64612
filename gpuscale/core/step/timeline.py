"""A step of the step model as events: the same seconds, laid out in time.

Order of work as in `core.schedules` (Narayanan et al. 2021, arXiv:2104.04473, and others).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.memory.peak import stage_memories
from gpuscale.core.schedules import SCHEDULES, Pass, orders
from gpuscale.core.step.data_parallel import exchanges_s, shards_of
from gpuscale.core.step.moe import dispatched
from gpuscale.core.step.replay import (
    DeviceTime,
    Event,
    MemoryCurve,
    Placing,
    Replay,
    StepTimeline,
    placed,
    replay,
    stretched,
)
from gpuscale.core.step.step import Stage, breakdown, model_stages, shape_of, stage_times

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.memory.facts import ModelFacts, StageMemory
    from gpuscale.core.memory.parameters import MemoryParameters
    from gpuscale.core.step.records import Breakdown, Hardware, LayerTime, Software
    from gpuscale.specs.model import ModelSpec

MOST_PASSES = 10_000
"""Most visits of a micro-batch to a stage that are laid out one by one."""

WEIGHT_SHARE = 1.0 / 3.0
"""Share of the matrix products of a layer that are weight gradients: one of fprop, dgrad, wgrad."""


class Times(NamedTuple):
    """Parts of one micro-batch on one stage of the model. [s]."""

    forward_s: float
    recompute_s: float
    backward_s: float
    weights_s: float
    gather_s: float  # exposed exchange of ZeRO-3, both directions
    comm: tuple[tuple[str, float], ...]  # exposed tp, cp, ep of both directions, inside the rest

    @property
    def seconds(self) -> float:
        """Forward and backward, with the exposed exchange of ZeRO-3. [s]."""
        return self.forward_s + self.recompute_s + self.backward_s + self.weights_s + self.gather_s

    def gather_of(self, kind: str) -> float:
        """Exposed exchange before a pass of a kind. [s]."""
        if kind == "W" or not self.gather_s:
            return 0.0
        return self.gather_s * (self.forward_frac if kind == "F" else 1.0 - self.forward_frac)

    def of(self, kind: str, split: bool) -> float:
        """Time of a pass; `split`: the weights' gradients have passes of their own. [s]."""
        if kind == "F":
            return self.forward_s
        weights = 0.0 if split else self.weights_s
        return self.recompute_s + self.backward_s + weights if kind == "B" else self.weights_s

    @property
    def forward_frac(self) -> float:
        """Share of the forward pass in what is not recomputed. [1]."""
        whole = self.forward_s + self.backward_s + self.weights_s
        return self.forward_s / whole if whole else 0.0


class Replayed(NamedTuple):
    """Passes of a schedule in a window: with transfers that fill it, or shortened to fit."""

    run: Replay
    wait_s: float  # of one transfer
    alone_s: float  # length where transfers take no time
    scale: float


def _replayed(
    layout: Layout, times: Sequence[Times], drawn: int, split: bool, window_s: float
) -> Replayed:
    pp, vpp = layout.pp, layout.vpp
    order = orders(layout.schedule, pp, vpp, drawn)

    def duration(op: Pass) -> float:
        return times[op.stage % pp].of(op.kind, split) / vpp

    def lead(op: Pass) -> float:
        return times[op.stage % pp].gather_of(op.kind) / vpp

    run, wait = stretched(order, duration, window_s, lead)
    alone = run.length_s if wait == 0.0 else replay(order, duration, 0.0, lead).length_s
    over = run.length_s > window_s * (1.0 + 1e-9)
    return Replayed(run, wait, alone, window_s / run.length_s if over else 1.0)


def timeline(
    model: ModelSpec,
    hw: Hardware,
    sw: Software,
    layout: Layout,
    facts: ModelFacts | None = None,
    memory: MemoryParameters | None = None,
    most_passes: int = MOST_PASSES,
) -> StepTimeline:
    """Lay the expected step out in time.

    The passes of the schedule are replayed with their dependencies and the stage times of the
    step model. Between the first forward and the last backward pass the step model has
    ``m t_max + bubble + transfers``; the replay fills just that window: transfers take the time
    with which it does. Where the schedule alone is longer, all passes are shortened by `scale`.

    `model, hw, sw, layout`: as in `core.step.step_time`. `facts, memory`: model facts and memory
    parameters; without them there is no memory over time. `most_passes`: beyond so many visits of
    micro-batches to stages, the middle of the step is left out: one event says how many
    micro-batches it stands for [1]. Raises ValueError for a schedule that cannot run with these
    degrees and micro-batches.
    """
    sw = dispatched(sw, layout, model.has_experts)
    parts, heaviest = breakdown(model, hw, sw, layout)
    stages = model_stages(model, hw, sw, layout, shape_of(layout, hw, sw))
    m, pp, vpp = layout.n_micro_batches, layout.pp, layout.vpp
    per_micro, once = _exchange(hw, sw, layout, stages)
    times = [_times(stage.time, per_micro) for stage in stages]
    tail = (("straggler", parts.late_s), ("dp", once), ("optimizer", parts.optimizer_s))
    window = parts.total_s - sw.step_host_s - math.fsum(s for _, s in tail)
    drawn = _drawn(m, pp * vpp, pp, most_passes)
    if layout.schedule == "gpipe" and drawn < m:
        raise ValueError(
            f"gpipe holds all {m:,} micro-batches at once; at most {most_passes // pp:,} of "
            f"{pp} stages can be laid out"
        )
    left_out = (m - drawn) * times[heaviest].seconds
    split = SCHEDULES[layout.schedule].splits_backward and pp > 1
    found = _replayed(layout, times, drawn, split, window - left_out)
    laid = Placing(
        offset_s=sw.step_host_s,
        window_s=window,
        scale=found.scale,
        split=split,
        hop_s=_hop(parts, layout, sw),
        n_drawn=drawn,
        n_micro_batches=m,
        left_out_s=left_out,
        pp=pp,
        vpp=vpp,
    )
    drawn_on = (_device(d, found.run.times[d], times, laid, tail) for d in range(pp))
    events = tuple(chain.from_iterable(drawn_on))
    memories = stage_memories(facts, layout, memory) if facts and memory else ()
    curves = tuple(
        _memory(d, found.run.times[d], held, laid, parts.total_s) for d, held in enumerate(memories)
    )
    return StepTimeline(
        total_s=parts.total_s,
        schedule=layout.schedule_name if pp > 1 else "no pipeline",
        n_devices=pp,
        n_micro_batches=m,
        n_drawn_micro_batches=drawn,
        window_s=window,
        schedule_s=found.alone_s + left_out,
        wait_s=found.wait_s,
        scale=found.scale,
        events=events,
        memory=curves,
        devices=_summaries(events, [c.peak_bytes for c in curves] or [None] * pp),
    )


def _exchange(
    hw: Hardware, sw: Software, layout: Layout, stages: Sequence[Stage]
) -> tuple[float, float]:
    """Exposed data-parallel exchange of one micro-batch (ZeRO-2 and 3), and once per step. [s]."""
    every, _ = stage_times(list(stages))
    shards = shards_of(layout, every, hw.scaleup_domain_gpus)
    return exchanges_s(hw, sw, layout, shards, every)


def _times(time: LayerTime, gather_s: float) -> Times:
    backward = time.bwd_s - time.recompute_s
    weights = min(backward, WEIGHT_SHARE * time.matmul_s)
    comm = (("tp", time.tp_comm_s), ("cp", time.cp_comm_s), ("ep", time.ep_comm_s))
    return Times(
        time.fwd_s,
        time.recompute_s,
        backward - weights,
        weights,
        gather_s,
        tuple((name, s) for name, s in comm if s > 0.0),
    )


def _drawn(m: int, n_stages: int, pp: int, most: int) -> int:
    """Micro-batches that are laid out: all, or as many as `most` allows, in whole rounds."""
    if m * n_stages <= most:
        return m
    rounds = max(1, most // (n_stages * 2 * pp))
    return min(m, rounds * 2 * pp + m % (2 * pp))


def _hop(parts: Breakdown, layout: Layout, sw: Software) -> float:
    """Time of one transfer between stages, as the step model has it. [s]."""
    if layout.pp == 1 or parts.pp_comm_s <= 0.0:
        return 0.0
    n = 2 * (layout.n_micro_batches * layout.vpp + layout.pp - 1)
    return parts.pp_comm_s / n / (sw.pp_exposed_frac if layout.overlap_pp else 1.0)


def _device(
    device: int,
    passes: Sequence[tuple[Pass, float, float]],
    times: Sequence[Times],
    laid: Placing,
    tail: Sequence[tuple[str, float]],
) -> Iterator[Event]:
    """All events of one pipeline device, its tracks one after the other in time."""
    if laid.offset_s > 0.0:
        yield Event("host", device, "compute", 0.0, laid.offset_s)
    now, free = laid.offset_s, 0.0
    skipped = False
    done = 0
    for op, start, end in placed(passes, laid):
        if laid.cut and done >= laid.cut and not skipped:
            skipped = True
            length = min(laid.left_out_s, start - now)
            yield Event("skipped", device, "compute", now, length)
            now += length
        t, chunk = times[op.stage % laid.pp], op.stage // laid.pp
        gather = laid.scale * t.gather_of(op.kind) / laid.vpp
        if start - gather > now + 1e-12:
            yield Event("bubble", device, "compute", now, start - gather - now)
        if gather > 0.0:
            event = partial(Event, micro_batch=op.micro_batch, chunk=chunk)
            for kind, track in (("gather", "compute"), ("dp", "dp")):
                yield event(kind, device, track, start - gather, gather)
        now = max(start, end)
        done += op.kind == "B"
        yield from _parts(device, op, chunk=chunk, start=start, end=end, t=t, laid=laid)
        if laid.hop_s > 0.0 and _leaves(op, laid):
            at = max(end, free)
            free = at + laid.hop_s
            yield from _transfer(device, op, chunk, at, laid)
    close = laid.offset_s + laid.window_s
    if close > now + 1e-12:
        yield Event("bubble", device, "compute", now, close - now)
    for kind, length in tail:
        if length > 0.0:
            yield Event(kind, device, "compute", close, length)
            if kind == "dp":
                yield Event(kind, device, "dp", close, length)
        close += length


def _transfer(device: int, op: Pass, chunk: int, at: float, laid: Placing) -> Iterator[Event]:
    """Send and receive of one activation or gradient; each sender is a track of the receiver."""
    stage = op.stage + (1 if op.kind == "F" else -1)
    down = op.stage % laid.pp == device
    to = stage % laid.pp if down else laid.pp - 1 - stage
    took = min(laid.hop_s, laid.offset_s + laid.window_s - at)
    if took <= 0.0 or to == device:
        return
    send = partial(Event, start_s=at, duration_s=took, micro_batch=op.micro_batch)
    yield send("send", device, "pp", chunk=chunk)
    track = "pp-before" if (to - 1) % laid.pp == device else "pp-after"
    yield send("receive", to, track, chunk=stage // laid.pp)


def _leaves(op: Pass, laid: Placing) -> bool:
    """Whether the result of a pass goes to another stage."""
    last = laid.pp * laid.vpp - 1
    if op.kind == "F":
        return op.stage < last
    return op.stage > 0 and op.kind == "B"


def _parts(
    device: int, op: Pass, chunk: int, start: float, end: float, t: Times, laid: Placing
) -> Iterator[Event]:
    """One pass as events: forward, recompute, backward of inputs and of weights."""
    forward = t.forward_frac
    pieces = {
        "F": (("forward", t.forward_s),),
        "B": (("recompute", t.recompute_s), ("backward", t.backward_s))
        + (() if laid.split else (("weights", t.weights_s),)),
        "W": (("weights", t.weights_s),),
    }[op.kind]
    whole = math.fsum(length for _, length in pieces)
    per = (end - start) / whole if whole > 0.0 else 0.0
    event = partial(Event, micro_batch=op.micro_batch, chunk=chunk)
    at = start
    for kind, length in pieces:
        if length <= 0.0:
            continue
        yield event(kind, device, "compute", at, per * length)
        if kind in ("forward", "backward"):
            share = forward if kind == "forward" else 1.0 - forward
            here = at
            for name, seconds in t.comm:
                took = min(per * seconds * share, at + per * length - here)
                if took > 0.0:
                    yield event(name, device, name, here, took)
                here += took
        at += per * length


def _memory(
    device: int,
    passes: Sequence[tuple[Pass, float, float]],
    stage: StageMemory,
    laid: Placing,
    total_s: float,
) -> MemoryCurve:
    """Memory over the step: what is always held, and activations from forward to backward.

    What the memory model counts beside them (logits, live layer, gathers, workspaces,
    fragmentation) is held while any activation is.
    """
    per = stage.activations_bytes / stage.in_flight_micro_batches / laid.vpp
    always = stage.states_bytes + stage.context_bytes
    busy = stage.logits_bytes + stage.working_bytes + stage.fragmentation_bytes
    frees = "W" if laid.split else "B"
    changes = [(0.0, 0)]
    for op, start, end in placed(passes, laid):
        if op.kind == "F":
            changes.append((start, 1))
        if op.kind == frees:
            changes.append((end, -1))
    held = 0
    at: list[float] = []
    values: list[float] = []
    for time, change in sorted(changes, key=lambda c: (c[0], c[1])):
        held += change
        value = always + (busy + per * held if held else 0.0)
        if at and at[-1] == time:
            values[-1] = value
        else:
            at.append(min(time, total_s))
            values.append(value)
    return MemoryCurve(device, tuple(at), tuple(values))


def _summaries(events: Sequence[Event], peaks: Sequence[float | None]) -> tuple[DeviceTime, ...]:
    """Sum up what each device does; `peaks`: memory of each."""
    own = ("forward", "recompute", "backward", "weights", "bubble", "skipped")
    sums = [dict.fromkeys((*own, "other"), 0.0) for _ in peaks]
    for e in events:
        if e.track == "compute":
            sums[e.device][e.kind if e.kind in own else "other"] += e.duration_s
    return tuple(
        DeviceTime(device, **{f"{kind}_s": s for kind, s in each.items()}, peak_bytes=peak)
        for device, (each, peak) in enumerate(zip(sums, peaks, strict=True))
    )
