"""Questions about a layout that is given in full: memory, timeline; and about checkpoints."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import (
    PRETRAIN,
    SERVE,
    TRAIN,
    Asked,
    Swept,
    amount,
    flag,
    refuse_others,
    text,
    whole,
)
from gpuscale.answers.job_options import moments, recipe
from gpuscale.answers.layout_options import Degrees, help_of
from gpuscale.answers.lifetime import Failing
from gpuscale.answers.money import Priced
from gpuscale.answers.training.tune_asked import Rollouts
from gpuscale.core.records import KW_ONLY, dataclass, replace
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Document

MAXIMA = ("seq-len", "micro-batch")


@dataclass
class Memory(Degrees, options.Machine, options.Wired, Rollouts, Swept):
    """Memory per GPU of training or serving a model, by part, and whether it fits.

    Two columns: ideal is the formulas alone; expected adds the framework's overheads. With
    --method it is fine-tuning, with what would make it fit.
    """

    NAME: ClassVar[str] = "memory"
    RESULTS: ClassVar[str] = (
        "training.memory_train:TrainingMemory training.memory_serve:ServingAnswer "
        "training.memory_params:StatesAnswer training.tune_memory:TuningMemory "
        "training.rl_blocks:RlAnswer"
    )
    EXAMPLE: ClassVar[str] = "gpuscale memory llama3-70b --cluster dgx-h100 --tp 8 --pp 8"
    HEADLINES: ClassVar[str] = "peak_bytes per_gpu.max_concurrency headroom_bytes fits"
    model: Asked[str | None] = options.model()
    _: KW_ONLY
    params: Asked[float | None] = options.params()
    seq_len: Asked[int | None] = options.seq_len()
    offload: Asked[str | None] = text(
        f"{help_of('offload')} Fine-tuning: also parameters, gradients, a list.",
        group="layout",
        tasks=TRAIN,
    )
    software: Asked[str | None] = options.software(fine_tuning="hf-peft")
    max: Asked[str | None] = text(
        "Fine-tuning: the largest that fits, seq-len or micro-batch.",
        known=MAXIMA,
        group="search",
        tasks=("tune",),
        instead="RL's lengths are --prompt and --max-response: try them with --sweep",
    )
    smallest_gpu: Asked[bool] = flag(
        "Fine-tuning: the smallest GPUs that hold it.",
        group="search",
        tasks=("tune",),
        instead="--min-gpus finds how many GPUs hold it",
    )
    stages: Asked[bool] = flag(
        "Show every pipeline stage.",
        group="show",
        tasks=PRETRAIN,
        instead="--json has the fullest stage",
    )
    min_gpus: Asked[bool] = flag(
        "Look for the smallest number of GPUs.", group="search", common=1, tasks=(*TRAIN, *SERVE)
    )
    serve: Asked[bool] = options.serve(common=1)
    weights: Asked[str | None] = options.weights()
    kv: Asked[str | None] = text("Format of the KV cache: bf16, fp8.", **options.SERVED)
    context: Asked[float | None] = options.context()
    concurrency: Asked[int | None] = options.concurrency()
    memory_frac: Asked[float | None] = options.memory_frac(**options.SERVED)
    dp_attention: Asked[bool] = flag("The cache splits over all GPUs.", **options.SERVED)

    def answer(self) -> Document:
        """Answer for training, serving, or a bare number of parameters."""
        if (self.model is None) == (self.params is None):
            raise GpuscaleError(
                "give a model or --params, one of them",
                "for example `gpuscale memory llama3-70b --tp 8 --pp 8` or `--params 70e9`",
            )
        if self.method is not None:
            from gpuscale.answers.training.tune_memory import tuning_memory

            return tuning_memory(self)
        if self.serve or self.params is not None:
            refuse_others(self, "serve" if self.serve else "params")
        if self.params is not None:
            from gpuscale.answers.training.memory_params import params_document

            return params_document(self)
        if self.serve:
            from gpuscale.answers.training.memory_serve import serving_document

            return serving_document(self)
        refuse_others(replace(self, accumulation=None), "pretrain")
        from gpuscale.answers.training.memory_train import training_document

        return training_document(self)


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
