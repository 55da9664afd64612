"""Complaints on stderr: one line of what is wrong and where, one of what to do next."""

from __future__ import annotations

import sys
from typing import Any

from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.errors import GpuscaleError, typo_of

ELSEWHERE = {
    "lora": "fine-tuning is `--method lora` of memory and plan",
    "qlora": "fine-tuning is `--method qlora` of memory and plan",
    "batch-size": "a training batch is --global-batch, of --micro-batch sequences at a time",
    "n-gpus": "the number of GPUs is --gpus",
    "num-gpus": "the number of GPUs is --gpus",
    "nodes": "the number of GPUs is --gpus; a node has those of its --cluster",
    "quantize": "formats: --precision of training, --weights and --kv of serving",
    "quantization": "formats: --precision of training, --weights and --kv of serving",
    "framework": "the framework is --software",
    "dtype": "formats: --precision of training, --weights and --kv of serving",
    "context-length": "tokens: --seq-len of training, --context of serving",
    "max-model-len": "tokens: --seq-len of training, --context of serving",
    "gradient-checkpointing": "recomputation is --recompute full",
    "activation-checkpointing": "recomputation is --recompute full",
    "fsdp": "sharded weights are --zero 3",
    "zero-stage": "the ZeRO stage is --zero",
    "batch": "a training batch is --global-batch, of --micro-batch sequences at a time",
    "checkpoint": "recomputation is --recompute full; what is saved is `gpuscale checkpoint`",
    "tensor-parallel": "tensor parallelism is --tp",
    "tensor-parallel-size": "tensor parallelism is --tp",
    "tensor-model-parallel-size": "tensor parallelism is --tp",
    "pipeline": "pipeline stages are --pp",
    "pipeline-parallel": "pipeline stages are --pp",
    "pipeline-parallel-size": "pipeline stages are --pp",
    "pipeline-model-parallel-size": "pipeline stages are --pp",
    "data-parallel": "data parallelism is --dp",
    "context-parallel": "context parallelism is --cp",
    "expert-parallel": "expert parallelism is --ep",
    "fp8": "formats: --precision of training, --weights and --kv of serving",
    "quant": "formats: --precision of training, --weights and --kv of serving",
    "int4": "formats: --weights of serving, --base of fine-tuning",
    "sla": "limits of serving are --ttft and --tpot",
    "slo": "limits of serving are --ttft and --tpot",
    "qps": "requests are --rate, as 5/s, or --concurrency",
    "rps": "requests are --rate, as 5/s, or --concurrency",
}
"""Options by the names that other tools give them, and what they are here."""

COMMANDS_ELSEWHERE = {
    "train": "a training job is planned by `gpuscale plan`",
    "training": "a training job is planned by `gpuscale plan`",
    "pretrain": "a training job is planned by `gpuscale plan`",
    "finetune": "fine-tuning is `gpuscale plan MODEL --method lora`, `full`, ...",
    "fine-tune": "fine-tuning is `gpuscale plan MODEL --method lora`, `full`, ...",
    "lora": "fine-tuning is `gpuscale plan MODEL --method lora`",
    "rl": "RL post-training is `gpuscale plan MODEL --method grpo`, `ppo`, ...",
    "inference": "serving is `gpuscale serve`",
    "serving": "serving is `gpuscale serve`",
    "cost": "`gpuscale plan` prices a run, `gpuscale serve` a service",
    "price": "`gpuscale plan` prices a run, `gpuscale serve` a service",
    "gemm": "a matrix product is `gpuscale matmul-time`",
    "matmul": "a matrix product is `gpuscale matmul-time`",
    "nccl": "a collective is `gpuscale collective`",
    "allreduce": "a collective is `gpuscale collective all-reduce CLUSTER --bytes 1GB`",
    "all-reduce": "a collective is `gpuscale collective all-reduce CLUSTER --bytes 1GB`",
    "fit": "`gpuscale memory` says whether a model fits",
    "gpus": "list the GPUs with `gpuscale presets --kind gpu`",
    "models": "list the models with `gpuscale presets --kind model`",
    "profile": "a step in time is `gpuscale timeline`",
}
"""Commands by the names that people try, and what they are here."""

_PLAINER = (
    ("Value error, ", ""),
    ("argument(s)", "arguments"),
    ("Input should be a valid integer, unable to parse string as an integer", "not a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "not a number"),
    ("Input should be", "must be"),
)


def usage_error(error: Any) -> GpuscaleError:
    """Turn a parser's own complaint (wrong option, missing argument) into ours."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "gpuscale"
    option = getattr(error, "option_name", "") or ""
    alike = list(getattr(error, "possibilities", None) or ())
    text = str(getattr(error, "message", "") if alike else error.format_message())
    close = typo_of(option, alike)
    text = " ".join(text.split()).rstrip(".").replace("'", "`")
    for theirs, ours in _PLAINER:
        text = text.replace(theirs, ours)
    if option[1:2].isdigit():
        text = f"`{option}` is not an option"
        hint = "a negative number is not accepted here"
    elif close:
        hint = f"did you mean `{close}`?"
    elif option.strip("-") in ELSEWHERE:
        hint = ELSEWHERE[option.strip("-")]
    else:
        hint = f"see `{path} --help`"
        name = path.removeprefix("gpuscale ")
        if "issing" in text[:10] and name in COMMANDS:
            hint = f"for example `{question_of(name).EXAMPLE}`"
    return GpuscaleError(text[:1].lower() + text[1:], hint)


def report_error(error: GpuscaleError) -> None:
    """Say on stderr what is wrong, where, and what to do next: one line each."""
    complain("error", one_line(error.message))
    if error.hint:
        print(file=sys.stderr)
        complain("hint", one_line(error.hint))


_TAGS = {"error": "1;31", "failed": "1;31", "warning": "33", "hint": "36"}


def complain(tag: str, text: str) -> None:
    """Write a line on stderr that begins with what it is, in colour on a terminal."""
    from gpuscale.render.output import coloured

    head = f"\x1b[{_TAGS[tag]}m{tag}:\x1b[0m" if coloured(sys.stderr) else f"{tag}:"
    print(f"{head} {text}", file=sys.stderr)


def one_line(text: str) -> str:
    """Text without line ends, control codes and beyond 600 characters."""
    from gpuscale.render.output import clean

    line = clean(" ".join(text[:20_000].split()))
    return line if len(line) <= 600 else line[:300] + " ... " + line[-200:]
