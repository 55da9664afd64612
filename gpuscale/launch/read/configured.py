"""Commands of frameworks whose job is a file: the file says it, their options override it."""

from __future__ import annotations

import re
from typing import Any

from gpuscale.launch.dialects.data import dialect as framework
from gpuscale.launch.dialects.rows import put
from gpuscale.launch.read.found import UNSET, Found
from gpuscale.launch.read.kinds import KINDS
from gpuscale.launch.read.nested import Nested, nest

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


def overrides(words: list[str]) -> dict[str, Any]:
    """`--a.b=c`, `--a.b c` and `a.b=c` of a command, by their dotted keys.

    >>> overrides(["train.py", "x.yaml", "--train.lr", "1", "--model.n=2", "max_seq_len=8"])
    {'train.lr': '1', 'model.n': '2', 'max_seq_len': '8'}
    """
    found: dict[str, Any] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        key, equals, value = word.lstrip("-").partition("=")
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", key):
            continue
        if equals:
            found[key.replace("-", "_")] = value.strip("'\"")
        elif word.startswith("--"):
            found[key.replace("-", "_")] = True if after.startswith("--") else after
    return found


LITGPT = {"lora": "finetune_lora", "full": "finetune_full", "adapter": "", "adapter_v2": ""}


def _litgpt(words: list[str]) -> Found | None:
    """Read `litgpt finetune_lora CHECKPOINT --train.micro_batch_size 4`, with its defaults."""
    task = words[0] if words else ""
    if task in ("finetune", "finetune_lora", "finetune_full", "pretrain"):
        rest = words[1:]
        if task == "finetune":
            way = rest[0] if rest and rest[0] in LITGPT else "lora"
            rest = rest[1:] if rest and rest[0] in LITGPT else rest
            task = LITGPT[way]
        table = nest(overrides(rest))
        first = rest[0] if rest and not rest[0].startswith("-") else ""
        train = table.setdefault("train", {})
        if not isinstance(train, dict):
            return None
        named = table.pop("config", None)
        if not named:
            train.setdefault("micro_batch_size", "4" if task == "pretrain" else "1")
            train.setdefault("global_batch_size", "512" if task == "pretrain" else "16")
        if task == "pretrain":
            table.setdefault("model_name", first)
        else:
            if not named:
                table.setdefault("checkpoint_dir", first)
                table.setdefault("devices", "1")
        if task == "finetune_lora" and not named:
            table.setdefault("lora_r", "8")
        found = KINDS["litgpt"].found(table)
        found.beside += [str(named)] if named else []
        return found if task else None
    return None
