"""Memory: what training or serving a model needs on each GPU, and whether it fits."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import PRETRAIN, SERVE, TRAIN, Asked, Swept, flag, refuse_others, text
from gpuscale.answers.layout_options import Degrees, help_of
from gpuscale.answers.training.tune_asked import Rollouts
from gpuscale.core.dataclasses import KW_ONLY, dataclass, replace
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
