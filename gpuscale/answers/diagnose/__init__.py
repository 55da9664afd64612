"""A run that looks wrong: whether it is normal, and if not, what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Converted, Question, text, texts, whole
from gpuscale.answers.layout_options import Pins
from gpuscale.core.finetune.rl import ALL_METHODS
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.render.document import Document

KINDS = ("pretrain", "finetune", "rl", "serving", "network")
METHODS = (*"sft full lora dora qlora kto".split(), *ALL_METHODS)


@dataclass
class Diagnose(Pins, Question):
    """Is this run normal, and if not, what is it? From its logs, or from what is said of it.

    Reads what training, serving and network programs print; names the likeliest causes with
    their size and remedy, and the one test that tells them apart. Nothing is executed.
    """

    NAME: ClassVar[str] = "diagnose"
    RESULTS: ClassVar[str] = "diagnose.records:Diagnosis"
    EXAMPLE: ClassVar[str] = (
        "gpuscale diagnose llama3-70b --gpus 128 --gpu h100 --measured 'mfu=30 %'"
    )
    run: Converted[tuple[str, ...], Sequence[str]] = texts(
        "Log files, - for standard input, or the model.", (), label="RUN"
    )
    _: KW_ONLY
    log: Converted[tuple[str, ...], Sequence[str]] = texts(
        "A log of the run, or -. Repeatable.", metavar="FILE"
    )
    nccl: Converted[tuple[str, ...], Sequence[str]] = texts(
        "Output of nccl-tests, or a log with NCCL_DEBUG=INFO. Repeatable.", metavar="FILE"
    )
    model: Asked[str | None] = text("Model, where the log does not say it.")
    kind: Asked[str | None] = text(
        f"{', '.join(KINDS)}. [default: as the log or the software says]",
        known=KINDS,
        same={
            "pretraining": "pretrain",
            "training": "pretrain",
            "train": "pretrain",
            "fine-tuning": "finetune",
            "sft": "finetune",
            "inference": "serving",
            "serve": "serving",
            "nccl": "network",
            "memory": "finetune",
        },
    )
    software: Asked[str | None] = text("Framework or engine, as NAME or NAME:VERSION.")
    gpu: Asked[str | None] = text("GPU, as people call it.")
    gpus: Asked[str | None] = text("Number of GPUs.")
    cluster: Asked[str | None] = text(
        "Cluster preset or machine, or in words: '2 nodes, one 100G IB'."
    )
    measured: Converted[tuple[str, ...], Sequence[str]] = texts(
        "What was measured: 'step_time=17.2 s; expected=1.8 s', 'tokens/s/gpu=3100', 'oom=step 3'. "
        "Repeatable.",
        metavar="WHAT=VALUE",
    )
    expected: Converted[tuple[str, ...], Sequence[str]] = texts(
        "What was expected, in the units of what was measured. Repeatable.", metavar="VALUE"
    )
    settings: Converted[tuple[str, ...], Sequence[str]] = texts(
        "Settings of the run: 'zero=3; compile=false', or options as typed. Repeatable.",
        metavar="KEY=VALUE",
    )
    version: Asked[str | None] = text("Version, and one that was fine: '2.27 (2.22 fine)'.")
    seq_len: Asked[int | None] = options.seq_len()
    global_batch: Asked[int | None] = whole("Sequences of a step.", most=1e9)
    precision: Asked[str | None] = text(
        f"{options.PRECISIONS}.", known=("bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4")
    )
    method: Asked[str | None] = text(
        "Fine-tuning or RL method: full, lora, qlora, dpo, grpo and others.", known=METHODS
    )
    save: Asked[str | None] = text(
        "Write what was measured as a calibration, for --calibration of plan.", metavar="FILE"
    )

    def answer(self) -> Document:
        """Read, judge, name."""
        from gpuscale.answers.diagnose.document import document_of
        from gpuscale.answers.diagnose.judged import diagnosed

        return document_of(diagnosed(self))
