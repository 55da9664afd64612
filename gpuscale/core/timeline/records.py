"""Events of a step, and the memory that goes with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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
