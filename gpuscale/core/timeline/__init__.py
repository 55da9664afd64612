"""The expected step laid out in time: events per pipeline stage, and memory over time.

`orders` says what each device works on in which order, `replay` when; `build.timeline` fills in
the times of the step model, so that the whole is as long as the predicted step.
"""

from gpuscale.core.timeline.build import MOST_PASSES, timeline
from gpuscale.core.timeline.records import KINDS, TRACKS, Event, MemoryCurve, Timeline

__all__ = ["KINDS", "MOST_PASSES", "TRACKS", "Event", "MemoryCurve", "Timeline", "timeline"]
