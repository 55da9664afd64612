"""Servers that a Python program starts: an engine's constructor, or a command as a list.

vLLM's `LLM` and `EngineArgs`, SGLang's `Engine` and `ServerArgs`, TensorRT-LLM's `LLM` take the
options of their commands as arguments; Ray's `LLMConfig` is the table of its YAML.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuscale.launch.options import launch_table
from gpuscale.launch.read import serving
from gpuscale.launch.read.found import UNSET, Found, main_of
from gpuscale.launch.read.gpus import gpu_named
from gpuscale.launch.read.program_text import Program
from gpuscale.launch.read.served_tables import read_served
from gpuscale.launch.read.tables import as_flags

_WORDS = launch_table("words")["python_servers"]
CONSTRUCTORS: dict[str, list[str]] = _WORDS["constructors"]
COMMANDS: dict[str, list[str]] = _WORDS["commands"]


def read_servers(program: Program) -> Found | None:
    """Read the server that a program starts; None where it starts none."""
    found = main_of([*_constructed(program), *_commanded(program)])
    if not found:
        return None
    best = max(found, key=lambda f: len(f.places))
    for _, _, keys in program.calls:  # Modal's functions say their GPUs
        if isinstance(named := keys.get("gpu"), str) and UNSET not in named:
            best.gpu = best.gpu or gpu_named(named.partition(":")[0])
    return best


def _constructed(program: Program) -> Iterator[Found]:
    """Engines that a call makes."""
    roots = {module.split(".")[0] for module in program.imports}
    for name, words, keys in program.calls:
        last = name.rsplit(".", 1)[-1]
        if last == "LLMConfig" and (found := read_served(keys)) is not None:
            yield found
        package = next((p for p, calls in CONSTRUCTORS.items() if p in roots and last in calls), "")
        if not package:
            continue
        said = {key: value for key, value in keys.items() if key != "**"}
        if words and "model" not in said:
            said["model"] = words[0]
        line = [*COMMANDS[package], *as_flags(said)]
        found = serving.read(line, "trtllm" if package == "tensorrt_llm" else package)
        if "**" in keys:
            found.unread.setdefault("tp", str(keys["**"]).replace(UNSET, ""))
        found.not_understood = []
        if found.model_name or found.unread:
            yield found


def _commanded(program: Program) -> Iterator[Found]:
    """Commands that a program holds as a list of words."""
    lists = [value for value in program.names.values() if isinstance(value, list)]
    lists += [w for _, words, _ in program.calls for w in words if isinstance(w, list)]
    for one in lists:
        if len(one) < 3 or any(isinstance(word, (list, dict)) for word in one):
            continue
        words = [f"{UNSET}?" if word is None else str(word) for word in one]
        if engine := serving.engine_of(words):
            yield serving.read(words, engine)
