"""Commands of frameworks whose job is a file: the file says it, their options override it."""

from __future__ import annotations

import re

from gpuscale.io.toml import Table
from gpuscale.launch.dialects.data import dialect as framework
from gpuscale.launch.dialects.rows import put
from gpuscale.launch.read.found import UNSET, Found
from gpuscale.launch.read.kinds import KINDS
from gpuscale.launch.read.nested import Nested, nest
from gpuscale.launch.read.program import options_in
from gpuscale.launch.read.tables import key_values

PROGRAMS = {
    "nanotron": r"(^|/)(run_train|train_mamba|train_doremi)\.py$",
    "levanter": r"levanter[\w./-]*[./](train_lm|sft|lora_lm|main)(\.py)?$",
    "llm-foundry": r"(^|/)composer$",
    "lingua": r"apps[./]\w+[./]train(\.py)?$|lingua[./]stool(\.py)?$",
    "olmo": r"(^|/)scripts/train\.py$",
}
"""Kind -> a word of the command that starts its program."""


def read_configured(words: list[str]) -> Found | None:
    """Read a command that starts such a program; None for any other."""
    if "litgpt" in words[:6]:
        return _litgpt(words[words.index("litgpt") + 1 :])
    kind = next((k for k, p in PROGRAMS.items() if any(re.search(p, w) for w in words)), "")
    named = [w.partition("=")[2] or w for w in words if w.endswith((".yaml", ".yml"))]
    if not named or (table := KINDS.get(kind)) is None:
        return None
    found = Found(kind, software=table.software, method=table.method)
    put(framework(kind), Nested(found, nest(overrides(words))), whole=False)
    name = re.split("[/}]", named[0])[-1]
    found.beside.append(named[0] if UNSET not in name else "its YAML")
    return found


def overrides(words: list[str]) -> Table:
    """`--a.b=c`, `--a.b c` and `a.b=c` of a command, by their dotted keys.

    >>> overrides(["train.py", "x.yaml", "--train.lr", "1", "--model.n=2", "max_seq_len=8"])
    {'max_seq_len': '8', 'train.lr': '1', 'model.n': '2'}
    """
    return key_values(words) | options_in(words)


LITGPT = {"lora": "finetune_lora", "full": "finetune_full", "adapter": "", "adapter_v2": ""}
"""Word behind `litgpt finetune`, as the first releases have it -> command."""
TUNED = {"train.micro_batch_size": "1", "train.global_batch_size": "16", "devices": "1"}
USUAL = {
    "finetune_lora": {**TUNED, "lora_r": "8"},
    "finetune_full": TUNED,
    "pretrain": {"train.micro_batch_size": "4", "train.global_batch_size": "512"},
}
"""Command of LitGPT -> what its options are by themselves."""


def _litgpt(words: list[str]) -> Found | None:
    """Read `litgpt finetune_lora CHECKPOINT --train.micro_batch_size 4`, with its defaults."""
    task, *rest = words or [""]
    if task == "finetune":
        task = LITGPT[rest.pop(0) if rest and rest[0] in LITGPT else "lora"]
    if task not in USUAL:
        return None
    said = overrides(rest)
    named = said.pop("config", None)
    first = rest[0] if rest and not rest[0].startswith("-") else ""
    model = {"model_name" if task == "pretrain" else "checkpoint_dir": first}
    usual = {} if named else USUAL[task]
    found = KINDS["litgpt"].found(nest(usual | (model if first else {}) | said))
    found.beside += [str(named)] if named else []
    return found
