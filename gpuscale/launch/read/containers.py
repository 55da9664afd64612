"""Commands and machines inside SkyPilot, dstack, Kubernetes and Slurm-like YAML files."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from gpuscale.launch.read.gpus import gpu_named
from gpuscale.launch.read.maxtext import put_topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuscale.launch.read.found import Found

SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")
GPU_KEYS = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu")
PRODUCT_KEYS = (
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "nvidia.com/gpu.product",
)
TOPOLOGY = "cloud.google.com/gke-tpu-topology"
NODE_KEYS = ("num_nodes", "nodes", "numNodes", "nnodes", "num_hosts")


def scripts_of(table: dict[str, Any]) -> list[str]:
    """Texts of a YAML that are commands, longest first.

    A container's `command` and `args` are one line, unless they hand a script to a shell.
    """
    texts: list[str] = []
    for one in _tables(table):
        line = [*_words(one.get("command")), *_words(one.get("args"))]
        handed = [w for w in line if "\n" in w or (" " in w and line[0] in SHELLS)]
        if (program := _entrypoint(one, line)) and isinstance(one.get("command"), str):
            texts.append(f"{program} {' '.join(' '.join(line).split())}")  # a composition's
        elif handed:
            texts += handed
        elif line:
            texts.append(f"{program} {' '.join(map(_word, line))}".strip())
        texts += [v for v in one.values() if isinstance(v, str) and "\n" in v]
        for key in ("run", "commands", "script"):
            value = one.get(key)
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, list):
                texts.append("\n".join(str(v) for v in value))
    return list(dict.fromkeys(texts))


IMAGES = {
    "vllm/vllm-openai": "vllm serve",
    "vllm-openai": "vllm serve",
    "rocm/vllm": "vllm serve",
    "text-generation-inference": "text-generation-launcher",
    "llama.cpp:server": "llama-server",
    "llama.cpp:full": "llama-server",
}
"""Part of an image's name -> the program that it starts with the arguments that it is given."""


def _entrypoint(one: dict[str, Any], line: list[str]) -> str:
    """Program of a container's image, where its arguments do not name one themselves."""
    image = str(one.get("image", ""))
    text = " ".join(line)
    program = next((p for part, p in IMAGES.items() if part in image), "")
    if not program and "vllm" in image and "--model" in text:
        program = "vllm serve"
    named = re.search(
        r"\b(vllm serve|python3?|bash|sh|sglang|[\w-]+-launcher|llama-server)\b", text
    )
    return "" if named or not line else program


def _word(word: str) -> str:
    """Quote a word; a variable of Kubernetes, `$(NAME)`, is a variable of the script."""
    if "$" not in word:
        return shlex.quote(word)
    plain = re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", word).replace("\\", "").replace('"', '\\"')
    return f'"{plain}"'


def variables_of(table: dict[str, Any]) -> dict[str, str]:
    """Variables that a YAML gives its commands: a table, `NAME=VALUE` texts, or name and value."""
    found: dict[str, str] = {}
    for one in _tables(table):
        for key in ("env", "envs", "environment"):
            given = one.get(key)
            if isinstance(given, dict):
                found |= {str(k): str(v) for k, v in given.items() if isinstance(v, (str, int))}
            for part in given if isinstance(given, list) else ():
                if isinstance(part, str) and "=" in part:
                    name, _, value = part.partition("=")
                    found[name.strip()] = value
                elif isinstance(part, dict) and isinstance(part.get("value"), (str, int)):
                    found[str(part.get("name"))] = str(part["value"])
    return _given(table) | found


def _given(table: dict[str, Any]) -> dict[str, str]:
    """Variables that dstack and SkyPilot themselves set, from the resources asked for."""
    asked = table.get("resources") if isinstance(table.get("resources"), dict) else None
    text = str((asked.get("gpu") or asked.get("accelerators") or "") if asked else "")
    gpus = re.search(r"(?:^|:)\s*(\d+)\b(?!\s*GB|\.\.)", text.strip("{}'\""), re.I)
    nodes = next((table[k] for k in ("nodes", "num_nodes") if isinstance(table.get(k), int)), 1)
    found = {"DSTACK_NODES_NUM": str(nodes), "SKYPILOT_NUM_NODES": str(nodes)}
    if gpus:
        names = ("DSTACK_GPUS_PER_NODE", "SKYPILOT_NUM_GPUS_PER_NODE")
        found |= dict.fromkeys(names, gpus[1])
        found["DSTACK_GPUS_NUM"] = str(int(gpus[1]) * nodes)
    return found


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(v) for v in value] if isinstance(value, list) else []


def _tables(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    if depth > 20:
        return
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value
    for one in inner if isinstance(value, (dict, list)) else ():
        yield from _tables(one, depth + 1)


def put_machines(table: dict[str, Any], found: Found) -> None:
    """Put nodes and GPUs of a container file on the record, where the command has none."""
    nodes, gpus, replicas = None, None, 0
    chips: tuple[str, str] | None = None
    for one in _tables(table):
        for key in NODE_KEYS:
            if isinstance(one.get(key), int) and not isinstance(one[key], bool):
                nodes = nodes or one[key]
        for key in GPU_KEYS:
            if str(one.get(key, "")).isdigit():
                gpus = int(str(one[key]))
        text = str(one.get("accelerators") or one.get("gpu") or "")
        if match := re.search(r":(\d+)", text):
            gpus = gpus or int(match[1])
        if isinstance(one.get("replicas"), int) and "template" in one:
            replicas += one["replicas"]
        named = next((str(one[key]) for key in PRODUCT_KEYS if key in one), text)
        found.gpu = found.gpu or gpu_named(named)
        chips = chips or (named, str(one[TOPOLOGY])) if TOPOLOGY in one else chips
    if chips and found.kind == "maxtext":
        put_topology(*chips, replicas or 1, found)
        return
    if found.method == "serve":
        return
    if nodes or replicas:
        found.n_nodes = nodes or replicas
    if gpus and not found.gpus_per_node:
        found.gpus_per_node = gpus
