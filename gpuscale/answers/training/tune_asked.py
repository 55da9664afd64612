"""Options of fine-tuning, said once for `memory` and `plan`."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import RL as RL_TASKS
from gpuscale.answers.ask import TRAIN, TUNE, Asked, amount, flag, text, whole
from gpuscale.answers.job_options import KernelOptions
from gpuscale.core.finetune.rl import ALL_METHODS
from gpuscale.core.records import dataclass

METHODS = ("full", "lora", "dora", "qlora")
RL = ALL_METHODS
DEFAULT_RANK = 16
DEFAULT_SEQ_LEN = 4096
ROLLS, PPO = ("rl", "ppo"), ("ppo",)
COMPILED = (
    "pre-training with --software pytorch or torchtitan is compiled; --set software.compiled=false "
    "is not"
)
"""Hint where `--compiled` is asked of pre-training."""


def _tokens(help: str, most: float = 2**24) -> Asked[float | None]:
    return amount(help, "positions", least=1.0, most=most)


@dataclass(kw_only=True)
class Tuning(KernelOptions):
    """What is fine-tuned, and how; nothing of it has a meaning without a method."""

    GROUP: ClassVar[str] = "fine-tuning"
    OF_TASKS: ClassVar[tuple[str, ...]] = TUNE
    method: Asked[str | None] = text(
        "Fine-tuning: full, lora, dora, qlora; RL: dpo, ppo, grpo, rloo. Or a relative of these: "
        "orpo, simpo, dapo, gspo, ...; RL with --rank trains adapters.",
        known=METHODS + RL,
        common=1,
        tasks=TRAIN,
    )
    rank: Asked[int | None] = whole(
        f"Rank of the adapters. [default: {DEFAULT_RANK}]", most=1e6, common=1
    )
    targets: options.Names = options.names(
        "Maps with an adapter: all-linear, attention, mlp, q,v, ... [default: all-linear]"
    )
    base: Asked[str | None] = text(
        "Frozen weights in nf4, nf4-nodq, int8, int4-g128, fp8, mxfp4, bf16, fp32; all weights of "
        "full training in bf16 or fp32. [default: nf4 for qlora, else the software's]",
        known=("nf4", "nf4-nodq", "int8", "int4-g128", "fp8", "mxfp4", "bf16", "fp16", "fp32"),
        same={
            **dict.fromkeys(("gptq", "awq", "int4", "w4a16"), "int4-g128"),
            **dict.fromkeys(("4bit", "4-bit", "fp4", "bnb", "nf4-dq"), "nf4"),
            **dict.fromkeys(("8bit", "8-bit"), "int8"),
        },
    )
    train_embeddings: Asked[bool] = flag("Train embedding and head in full beside the adapters.")
    freeze: Asked[str | None] = text(
        "Layers from the lowest on that are not trained: N; or embeddings, in full training."
    )
    optimizer: Asked[str | None] = text(
        "adamw, adamw-8bit, paged-adamw-8bit, adafactor, lion, muon, galore, sgd, ...; "
        "+in-backward behind it. [default: the software's]"
    )
    accumulation: Asked[int | None] = whole(
        "Micro-batches that each rank adds up for a step, instead of --global-batch.",
        most=1e6,
        flags=("--gradient-accumulation-steps",),
        group="batch",
    )
    compiled: Asked[bool] = flag("With torch.compile.", instead=COMPILED)
    packing: Asked[bool] = flag(
        "Rows packed to the full length: no padding, attention within examples of --mean-len."
    )
    group_by_length: Asked[bool] = flag(
        "Batches are of rows of like length: hardly any padding. With --mean-len.", tasks=("tune",)
    )
    eval_batch: Asked[int | None] = whole(
        "Sequences of a micro-batch of the evaluation, where it runs between the steps.",
        most=1e6,
        tasks=("tune",),
    )
    mean_len: Asked[float | None] = _tokens(
        "Mean tokens of an example, where rows are padded or packed.", 2**30
    )
    max_len: Asked[int | None] = whole(
        "Tokens of the longest example: the sequence length.", dim="positions", most=2**30
    )
    host_memory: Asked[float | None] = amount(
        "Memory of a host, e.g. '256 GB': offload must fit it.", "bytes", most=1e15
    )


@dataclass(kw_only=True)
class Rollouts(Tuning):
    """What a step of RL does; nothing of it has a meaning without such a method."""

    GROUP: ClassVar[str] = "rl"
    OF_TASKS: ClassVar[tuple[str, ...]] = RL_TASKS
    prompts: Asked[int | None] = whole("RL: prompts (dpo: pairs) of a step. [default: 128]")
    group: Asked[int | None] = whole(
        "RL: responses to a prompt. [default: 8 for grpo, 4 rloo]", tasks=ROLLS
    )
    prompt: Asked[float | None] = _tokens("RL: mean tokens of a prompt. [default: 256; dpo 512]")
    response: Asked[float | None] = _tokens(
        "RL: mean tokens of a response. [default: half the longest, or 512]"
    )
    max_response: Asked[float | None] = _tokens(
        "RL: tokens of the longest response. [default: twice the mean]"
    )
    engine: Asked[str | None] = text(
        "RL: rollouts colocated (in turn), split (on GPUs of their own), async, or hf (none: the "
        "training model generates). [default: the software's]",
        known=("colocated", "split", "async", "hf", "none", "vllm", "sglang"),
        tasks=ROLLS,
    )
    rollout_gpus: Asked[int | None] = whole(
        "RL: GPUs of --gpus that only roll out. [default: the best split]", most=1e6, tasks=ROLLS
    )
    lag: Asked[int | None] = whole(
        "RL: steps that async rollouts may be ahead. [default: 1]", most=1000, tasks=ROLLS
    )
    rollout_tp: Asked[int | None] = whole(
        "RL: GPUs of one replica of the engine.", most=64, tasks=ROLLS
    )
    rollout_weights: Asked[str | None] = text(
        "RL: format of the engine's weights: bf16, fp8, ... [default: that of training]",
        tasks=ROLLS,
    )
    engine_share: Asked[float | None] = amount(
        "RL: share of a GPU's memory that a colocated engine takes. [default: the software's]",
        "frac",
        least=0.01,
        most=1.0,
        tasks=ROLLS,
    )
    kl: Asked[bool] = flag("RL: a KL term, where the software has none by itself.", tasks=ROLLS)
    no_kl: Asked[bool] = flag("RL: no KL term, so no reference model.")
    rule_reward: Asked[bool] = flag("PPO: rewards by a rule, so no reward model.", tasks=PPO)
    critic: Asked[str | None] = text(
        "PPO: model of critic and reward. [default: the policy's]", tasks=PPO
    )
    critic_gpus: Asked[int | None] = whole(
        "PPO: GPUs of --gpus that hold critic and reward, beside the policy's.", most=1e6, tasks=PPO
    )
    steps: Asked[int | None] = whole(
        "Steps of the run, for hours and dollars.", most=1e9, group="batch"
    )


def task_of(asked: Tuning) -> str:
    """Say which of `TASKS` a method asks for."""
    from gpuscale.answers.training.rl_asked import method_of

    if asked.method is None or asked.method in METHODS:
        return "pretrain" if asked.method is None else "tune"
    kind = method_of(asked.method, no_kl=False)[0]
    return kind if kind in ("dpo", "ppo") else "rl"
