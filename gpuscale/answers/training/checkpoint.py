"""Checkpoints: size by part, time to save and load, the best interval, what failures cost."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Swept, amount, flag, text, whole
from gpuscale.answers.job_options import moments, recipe
from gpuscale.answers.lifetime import Failing
from gpuscale.answers.money import Priced
from gpuscale.core.dataclasses import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Document


@dataclass
class Checkpoint(options.Machine, Failing, Priced, Swept):
    """Checkpoint of a model: size by part, time to save and load, best interval, what is lost.

    Weights, fp32 master weights and optimizer states; gradients are not saved.
    """

    NAME: ClassVar[str] = "checkpoint"
    EXAMPLE: ClassVar[str] = "gpuscale checkpoint llama3.1-405b --gpus 16384 --time 54d"
    RESULTS: ClassVar[str] = "training.checkpoint_answer:CheckpointAnswer"
    HEADLINES: ClassVar[str] = (
        "checkpoint_bytes save.blocking_s save.write_s interval_s lost_frac n_interruptions"
    )
    model: Asked[str | None] = options.model()
    _: KW_ONLY
    params: Asked[float | None] = options.params()
    gpus: Asked[int | None] = whole("GPUs of the job. [default: one node]", most=1e7)
    recipe: Asked[str | None] = recipe("the software's, or mixed-adam")
    software: Asked[str | None] = text(
        "Framework whose states are saved, for their bytes. [default: 14 bytes a parameter]"
    )
    moments: Asked[str | None] = moments()
    trainable: Asked[float | None] = amount(
        "Trained parameters, where not all are (adapters).", "count", most=1e16
    )
    weights_only: Asked[bool] = flag("Weights alone, without states to go on from.")
    writers: Asked[int | None] = whole(
        "GPUs that hold distinct shards: all with ZeRO, TP x PP without. [default: all]", most=1e7
    )
    time: Asked[float] = amount(
        "Time that the job computes, for interruptions and money.", "s", 30 * 86400.0, most=1e12
    )

    def answer(self) -> Document:
        """Size it, time it, and place it in a run."""
        if (self.model is None) == (self.params is None):
            raise GpuscaleError(
                "give a model or --params, one of them",
                "for example `gpuscale checkpoint llama3.1-8b` or `--params 70e9`",
            )
        from gpuscale.answers.training.checkpoint_answer import checkpoint_document

        return checkpoint_document(self)
