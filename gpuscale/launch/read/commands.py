"""Commands of ColossalAI's and oumi's trainers."""

from __future__ import annotations

from typing import Any

from gpuscale.launch.read.found import UNSET, Found
from gpuscale.launch.read.nested import Nested, precision_of
from gpuscale.launch.read.rl import put_rl
from gpuscale.launch.read.tuning import TUNING


def oumi_job(words: list[str]) -> Found | None:
    """Read a command `oumi train -c FILE`: the file says the rest."""
    if "oumi" not in [w.rsplit("/", 1)[-1] for w in words] or "train" not in words:
        return None
    found = next(d for d in TUNING if d.kind == "oumi").found({})
    named = next((a for w, a in zip(words, words[1:], strict=False) if w in ("-c", "--config")), "")
    found.beside = named.rsplit("/", 1)[-1] or None
    return found


COLOSSALAI = {
    "batch_size": "micro_batch_size",
    "accumulation_steps": "accumulation",
    "gradient_accumulation_steps": "accumulation",
    "max_length": "seq_len",
    "max_len": "seq_len",
    "tp": "tp",
    "tp_size": "tp",
    "pp": "pp",
    "sp": "cp",
    "lora_rank": "lora_rank",
}
"""Option of ColossalAI's training scripts -> field."""


def read_colossalai(words: list[str], table: dict[str, Any]) -> Found:
    """Read a command `colossalai run SCRIPT`: a plugin says how the model is sharded."""
    found = Found("colossalai", software="fsdp", method="full")
    at = Nested(found, table)
    at.put({field: key for key, field in COLOSSALAI.items()})
    names = ("pretrain", "model_path", "model_name_or_path", "model")
    said = [name for key in names if (name := at.text(key)) not in ("", "True")]
    found.model_name = next((name for name in said if UNSET not in name), None)
    plugin = at.text("plugin").strip("'\"")
    stages = {"ddp": 0, "zero1": 1, "zero2": 2, "gemini": 3, "fsdp": 3, "3d": at.number("zero")}
    found.zero_stage = stages.get(plugin.split("_")[0]) or 0
    found.offload_optimizer = plugin.endswith("_cpu")
    found.precision = precision_of(at.text("mixed_precision"))
    kept = any(at.true(key) for key in ("grad_checkpoint", "gradient_checkpointing"))
    found.recompute = "full" if kept else "none"
    found.method = "lora" if found.lora_rank else "full"
    program = next((w.rsplit("/", 1)[-1] for w in words if w.endswith(".py")), "")
    method = next((m for m in ("dpo", "orpo", "simpo", "grpo", "ppo", "kto") if m in program), "")
    if method in ("kto", "ppo"):
        found.beyond.append(f"{program}: its loss and further models are not predicted")
    elif method:
        put_rl(found, {"method": method})
    return found
