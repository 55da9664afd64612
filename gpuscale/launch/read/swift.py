"""ms-swift: `swift sft`, `swift pt`, `swift rlhf`, and `megatron ...` over Megatron-Core."""

from __future__ import annotations

import re

from gpuscale.io.toml import Table
from gpuscale.launch.dialects.data import dialect
from gpuscale.launch.dialects.heard import known_keys
from gpuscale.launch.dialects.nested import Nested
from gpuscale.launch.dialects.rows import put
from gpuscale.launch.found import Found
from gpuscale.launch.read import megatron
from gpuscale.launch.read.rl import put_trainer
from gpuscale.launch.read.tables import as_flags
from gpuscale.launch.read.trainer import read_arguments

TASKS = ("sft", "pt", "rlhf")
PROGRAM = re.compile(r"(^|/)swift[/.]cli[/.](_megatron[/.])?(sft|pt|rlhf)(\.py)?$")


def is_swift(words: list[str]) -> bool:
    """Whether a command trains with ms-swift."""
    return any(
        (w.rsplit("/", 1)[-1] in ("swift", "megatron") and after in TASKS) or PROGRAM.search(w)
        for w, after in zip(words, [*words[1:], ""], strict=True)
    )


def read(words: list[str], table: Table) -> Found:
    """Read a training command of ms-swift.

    `words`: the command. `table`: its options.
    """
    before = words[: words.index("--model") if "--model" in words else 4]
    if any(re.search(r"(^|/)megatron$|_megatron[/.]", word) for word in before):
        before = [re.sub(r".*[/.](pt)(\.py)?$", r"\1", word) for word in before]
        return _over_megatron(table, "pt" in before)
    kind = str(
        table.get("tuner_type") or table.get("train_type") or table.get("sft_type") or "lora"
    )
    kind = "lora" if "lora" in kind and kind != "dora" else kind
    bits = {"quantization_bit": table["quant_bits"]} if "quant_bits" in table else {}
    renamed = {"model_name_or_path": table.get("model"), "finetuning_type": kind, **bits}
    found = read_arguments(table | renamed, "ms-swift", "")
    found.beside += [config] if isinstance(config := table.get("config"), str) else []
    found.version = "ms-swift"
    found.not_understood = [k for k in found.not_understood if k not in ("train_type", "sft_type")]
    if str(table.get("torch_dtype", "bfloat16")) == "bfloat16":
        found.precision = found.precision or "bf16"
    found.recompute = found.recompute or "full"
    if found.method == "lora" and found.lora_rank is None:
        found.lora_rank = 8
    zero = str(table.get("deepspeed", ""))
    if stage := re.match(r"(?:default-)?zero([0-3])", zero):
        found.zero_stage = int(stage[1])
        found.offload_optimizer = found.offload_parameters = "offload" in zero
    return found


def read_yaml(table: Table) -> Found:
    """Read a YAML of `--config`: the options of a command as keys."""
    named = {key: value for key, value in table.items() if value is not None}
    degrees = ("tensor_model_parallel_size", "expert_model_parallel_size", "global_batch_size")
    start = ["megatron" if any(key in named for key in degrees) else "swift", "sft"]
    return read(start, {k: str(v).lower() if v in (True, False) else v for k, v in named.items()})


USUAL = {"use_distributed_optimizer": True, "recompute_granularity": "selective"}
"""What Megatron-SWIFT does where nobody says (swift/megatron/arguments/megatron_args.py)."""


def _over_megatron(table: Table, pretrains: bool) -> Found:
    """Read flags of Megatron with underscores and values: `--sequence_parallel true`."""
    truths = {"true": True, "false": False}
    said = {key: truths.get(str(v).lower(), v) for key, v in table.items()}
    words = as_flags(USUAL | said)
    found = megatron.read(["pretrain_gpt.py", *words], str(table.get("model", "model")))
    found.kind = "ms-swift"
    found.version = "ms-swift over Megatron-Core"
    found.not_understood.clear()  # ms-swift's own options are no list of ours
    own = known_keys("ms-swift")
    found.asked = {key: value for key, value in found.asked.items() if key not in own}
    named = table.get("model") or re.sub(r"[-_]mcore\b.*$", "", str(table.get("load") or ""))
    found.model, found.model_name = None, None
    found.precision = None if found.precision == "fp32" else found.precision
    found.seq_len, found.method = None, "pretrain" if pretrains else "full"
    put(dialect("megatron-swift"), Nested(found, said | {"model": named or None}))
    found.precision = found.precision or "bf16"
    found.lora_rank = found.lora_rank or 8 if found.method == "lora" else None
    found.beside += [config] if isinstance(config := table.get("config"), str) else []
    put_trainer(table, found)
    return found
