"""Timelines: one training step of a layout, laid out in time."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Swept
from gpuscale.answers.layout_options import Degrees
from gpuscale.core.dataclasses import KW_ONLY, dataclass
from gpuscale.render.document import Document


@dataclass
class Timeline(Degrees, options.Machine, options.Wired, Swept):
    """One training step in time: passes, bubbles and exchanges of every pipeline stage.

    The expected step of `gpuscale plan`, for a layout that you give; `-o step.trace.json` writes
    it for ui.perfetto.dev.
    """

    NAME: ClassVar[str] = "timeline"
    RESULTS: ClassVar[str] = "training.timeline_drawn:TimelineResult"
    EXAMPLE: ClassVar[str] = (
        "gpuscale timeline llama3-70b --gpus 64 --tp 8 --pp 4 --global-batch 32"
    )
    HEADLINES: ClassVar[str] = "step_s window_s bubble_frac"
    model: Asked[str] = options.model(...)
    _: KW_ONLY
    seq_len: Asked[int | None] = options.seq_len()

    def answer(self) -> Document:
        """Lay the step out."""
        from gpuscale.answers.training.timeline_drawn import timeline_document

        return timeline_document(self)
