"""A training program of one's own: its launcher says the machines, its options are not known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuscale.launch.read.found import UNSET, Found
from gpuscale.launch.read.launchers import LAUNCHERS

if TYPE_CHECKING:
    from gpuscale.launch.read.words import Script

STARTERS = tuple(name for name in LAUNCHERS if name not in ("srun", "mpirun"))
"""Launchers that start training and nothing else."""


def options_of(script: Script) -> list[str]:
    """Megatron's options in the variables of a file that only sets them, for another to start."""
    from gpuscale.launch.read.words import as_list

    words: list[str] = []
    for value in script.variables.values():
        text = value if isinstance(value, str) else " ".join(value)
        if "--" in text and any(option in text for option in MEGATRON):
            try:
                words += as_list(value)
            except ValueError:
                continue
    return words


MEGATRON = ("--num-layers", "--tensor-model-parallel-size", "--micro-batch-size", "--seq-length")


def _trains(words: list[str]) -> bool:
    """Whether the program that a plain `python` starts trains, by its name."""
    script = next((w.rsplit("/", 1)[-1] for w in words if w.endswith(".py")), "")
    return bool(re.search(r"train|finetun|fine_tun|sft|grpo|ppo|dpo", script)) and len(words) > 3


def of_script(script: Script) -> Found | None:
    """Job of the last command that a training launcher starts; None where there is none."""
    for words in reversed(script.commands):
        at = next((i for i, w in enumerate(words) if w.rsplit("/", 1)[-1] in STARTERS), None)
        if at is None and words[:1] == ["srun"]:
            at = next((i for i, w in enumerate(words) if re.search(r"(^|/)python3?$", w)), None)
        if at is None and re.search(r"(^|/)python3?$", words[0]) and _trains(words):
            at = 0
        if at is None:
            continue
        rest = words[at + 1 :]
        start = next((i for i, w in enumerate(rest) if w.endswith(".py")), None)
        if start is None and "-m" in rest[:-1]:
            start = rest.index("-m") + 1
        if start is None:
            continue
        found = Found("program", software="", version="")
        found.model_name = None
        found.places["script"] = rest[start].replace(UNSET, "")
        endings = (".yaml", ".yml", ".toml", ".json")
        named = next((w for w in rest[start + 1 :] if w.endswith(endings)), "")
        found.beside = re.split("[/=]", named)[-1] or None
        found.not_understood = [
            w.partition("=")[0] for w in rest[start + 1 :] if w.startswith("--")
        ]
        return found
    return None
