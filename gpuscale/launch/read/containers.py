"""Commands and machines inside SkyPilot, dstack, Kubernetes and Slurm-like YAML files."""

from __future__ import annotations

import re
import shlex
from typing import Any

from gpuscale.core.records import dataclass, replace
from gpuscale.io.text import Table
from gpuscale.launch.dialects.rows import whole
from gpuscale.launch.found import UNSET, Found, launch_table
from gpuscale.launch.named import ENGINES, gpu_named, program_of
from gpuscale.launch.read.bash.words import Script, read_text
from gpuscale.launch.read.maxtext import TWO_DEVICES, put_topology
from gpuscale.launch.read.serving import ranks
from gpuscale.launch.read.together import tables_in

SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/env")
GPU_KEYS = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu")
PRODUCT_KEYS = (
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "nvidia.com/gpu.product",
)
TOPOLOGIES = ("cloud.google.com/gke-tpu-topology", "cloud.google.com/gke-tpu-slice-topology")
NODE_KEYS = ("num_nodes", "nodes", "numNodes", "nnodes", "num_hosts")


@dataclass(frozen=True, slots=True)
class HeldCommand:
    """A command inside a table, and what stands around it."""

    text: str
    role: str = ""  # prefill or decode, of pools
    workers: int = 1  # copies of it
    gpus: int | None = None  # of each
    version: str = ""  # `vllm:0.9.0`, as its image says


def held_in(
    value: Any, around: HeldCommand | None = None, name: str = "", depth: int = 0
) -> list[HeldCommand]:
    """Commands of a YAML, with the replicas, the GPUs and the pool that are said around them.

    A container's `command` and `args` are one line, unless they hand a script to a shell.
    """
    around = around or HeldCommand("")
    found: list[HeldCommand] = []
    if depth > 20:
        return found
    if isinstance(value, list):
        for one in value:
            found += held_in(one, around, name, depth + 1)
    if isinstance(value, dict):
        around = _around(value, around, name)
        found += [replace(around, text=text) for text in _texts(value)]
        for key, one in value.items():
            found += held_in(one, around, str(key), depth + 1)
    return list({one.text: one for one in reversed(found)}.values())[::-1]


def _around(table: Table, around: HeldCommand, name: str) -> HeldCommand:
    """Note what a table says of the commands inside it."""
    metadata = table.get("metadata")
    own = metadata.get("name") if isinstance(metadata, dict) else None
    names = (name, str(table.get("name", "")), str(own or ""))
    role = next((r for r in ("prefill", "decode") for n in names if r in n.lower()), "")
    image = str(table.get("image", ""))
    version = re.search(r"(vllm|sglang)[\w./-]*:v?(\d+\.\d+\.\d+)", image)
    copies = next((v for k in ("replicas", "replicaCount") if (v := whole(table.get(k)))), 1)
    return replace(
        around,
        role=role or around.role,
        workers=around.workers * max(1, copies),
        gpus=_gpus_of(table) or around.gpus,
        version=":".join(version.groups()) if version else "" if image else around.version,
    )


def _gpus_of(table: Table) -> int | None:
    """GPUs that a container or a service is given."""
    resources = table.get("resources") or table.get("deploy")
    for one in tables_in(resources) if isinstance(resources, dict) else ():
        for key in (*GPU_KEYS, "gpu"):
            if (number := whole(one.get(key))) is not None:
                return number
        if isinstance(ids := one.get("device_ids"), list):
            return sum(len(str(one).split(",")) for one in ids)
    return None


def _texts(one: Table) -> list[str]:
    """Commands that one table has itself."""
    texts: list[str] = []
    line = [*_words(one.get("command")), *_words(one.get("args") or one.get("arguments"))]
    entry = _words(one.get("entrypoint"))
    line = [*entry, *line] if line or len(" ".join(entry).split()) > 1 else line
    handed = [w for w in line if "\n" in w or (" " in w and line[0] in SHELLS)]
    composed = isinstance(one.get("command"), str) or isinstance(one.get("entrypoint"), str)
    program = _entrypoint(one, line)
    if line and composed and line[0] not in SHELLS:  # a composition's
        texts.append(f"{program} {' '.join(' '.join(line).split())}".strip())
    elif handed:
        texts += handed
    elif line:
        texts.append(f"{program} {' '.join(map(_word, line))}".strip())
    elif program:
        texts.append(program)
    texts += [v for v in one.values() if isinstance(v, str) and "\n" in v]
    for key in ("run", "commands", "script", "cmd"):
        value = one.get(key)
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            texts.append("\n".join(str(v) for v in value))
    return texts


def _entrypoint(one: Table, line: list[str]) -> str:
    """Program of a container's image, where its arguments do not name one themselves."""
    image = str(one.get("image", ""))
    text = " ".join(line)
    program = program_of(image)
    if not program and "--model" in text:
        around = " ".join((text, *variables_of({key: one.get(key) for key in VARIABLES})))
        own = (name for option, name in ONLY.items() if option in around or name[:4] in image)
        program = next(own, "")
    named = re.search(
        r"\b(vllm serve|python3?|bash|sh|sglang|[\w-]+-launcher|llama-server)\b", text
    )
    said = _options_of(one, program)
    if named or not program or not (line or said or "gpu" in str(one.get("deploy"))):
        return ""
    return f"{program} {said}".strip()


_WORDS = launch_table("words")["containers"]
ONLY: dict[str, str] = _WORDS["only"]


def _options_of(one: Table, program: str) -> str:
    """Options that a container's variables say: `MODEL_ID` of TGI, `LLAMA_ARG_CTX_SIZE`."""
    prefix = {"text-generation-launcher": "", "llama-server": "LLAMA_ARG_"}.get(program)
    if prefix is None:
        return ""
    known = ENGINES["llamacpp" if prefix else "tgi"].options
    said = []
    own = {key: one.get(key) for key in VARIABLES}
    for name, value in variables_of(own).items():
        option = f"--{name.removeprefix(prefix).lower().replace('_', '-')}"
        option = OLDER.get(option, option)
        if name.startswith(prefix) and option in known:
            said.append(f"{option} {_word(value)}")
    return " ".join(said)


VARIABLES = ("env", "envs", "environment")
"""Keys of the variables that a YAML gives its commands."""
OLDER = {"--n-parallel": "--parallel", "--max-total-token": "--max-total-tokens"}
"""Options whose variable has another name."""


def _word(word: str) -> str:
    """Quote a word; a variable of Kubernetes, `$(NAME)`, is a variable of the script."""
    if "$" not in word:
        return shlex.quote(word)
    plain = re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", word).replace("\\", "").replace('"', '\\"')
    return f'"{plain}"'


def variables_of(table: Table) -> dict[str, str]:
    """Variables that a YAML gives its commands: a table, `NAME=VALUE` texts, or name and value."""
    found: dict[str, str] = {}
    for one in tables_in(table):
        for key in VARIABLES:
            given = one.get(key)
            if isinstance(given, dict):
                found |= {str(k): str(v) for k, v in given.items() if isinstance(v, (str, int))}
            for part in given if isinstance(given, list) else ():
                if isinstance(part, str) and "=" in part:
                    name, _, value = part.partition("=")
                    found[name.strip()] = value
                elif isinstance(part, dict) and isinstance(part.get("value"), (str, int)):
                    found[str(part.get("name"))] = str(part["value"])
    return _given(table) | _expanded(found)


def _expanded(found: dict[str, str]) -> dict[str, str]:
    """Put defaults and other variables into the values; those that stay unknown are left out."""
    plain = {name: value for name, value in found.items() if "$" not in value}
    for name, value in found.items():
        if "$" in value:
            braced = re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", value)
            text = read_text(braced, Script(variables=dict(plain)))
            plain |= {} if UNSET in text else {name: text}
    return plain


def _given(table: Table) -> dict[str, str]:
    """Variables that dstack and SkyPilot themselves set, from the resources asked for."""
    asked = table.get("resources") if isinstance(table.get("resources"), dict) else None
    text = str((asked.get("gpu") or asked.get("accelerators") or "") if asked else "")
    gpus = COUNTED.search(text.strip("{}'\""))
    nodes = next((table[k] for k in ("nodes", "num_nodes") if isinstance(table.get(k), int)), 1)
    found = {"DSTACK_NODES_NUM": str(nodes), "SKYPILOT_NUM_NODES": str(nodes)}
    if gpus:
        names = ("DSTACK_GPUS_PER_NODE", "SKYPILOT_NUM_GPUS_PER_NODE")
        found |= dict.fromkeys(names, gpus[1])
        found["DSTACK_GPUS_NUM"] = str(int(gpus[1]) * nodes)
    return found


COUNTED = re.compile(r"(?:^|:)\s*(\d+)\b(?!\s*GB|\.\.)", re.IGNORECASE)
"""Number of GPUs in a word for them: `A100:80GB:8`."""
DSTACK = ("task", "service", "dev-environment")
"""Types of dstack's configurations: one GPU where no number is said."""


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(v) for v in value] if isinstance(value, list) else []


def put_machines(table: Table, held: HeldCommand, found: Found) -> None:
    """Put nodes and GPUs of a container file on the record, where the command has none."""
    nodes, gpus, replicas = None, None, 0
    chips: tuple[str, str] | None = None
    for one in tables_in(table):
        for key in NODE_KEYS:
            if isinstance(one.get(key), int) and not isinstance(one[key], bool):
                nodes = nodes or one[key]
        for key in GPU_KEYS:
            if str(one.get(key, "")).isdigit():
                gpus = int(str(one[key]))
        text = str(one.get("accelerators") or one.get("gpu") or "")
        if match := COUNTED.search(text.strip("{}'\"")):
            gpus = gpus or int(match[1])
        if text and "type" in table and str(table["type"]) in DSTACK:
            gpus, nodes = gpus or 1, nodes or 1
        if isinstance(one.get("replicas"), int) and "template" in one:
            replicas += one["replicas"]
        named = next((str(one[key]) for key in PRODUCT_KEYS if key in one), text)
        found.gpu = found.gpu or gpu_named(named)
        sides = next((str(one[key]) for key in TOPOLOGIES if key in one), "")
        chips = chips or ((named, sides) if sides else None)
    if chips and found.kind == "maxtext":
        put_topology(*chips, replicas or 1, found)
        return
    if found.method == "serve":
        if chips and chips[0].startswith(TWO_DEVICES):
            found.beyond.append(f"{chips[0]}: a device of {found.kind} there is half of a chip")
        _put_server(held, found)
        return
    if nodes or replicas:
        found.n_nodes = nodes or replicas
    if gpus and not found.gpus_per_node:
        found.gpus_per_node = gpus


def _put_server(held: HeldCommand, found: Found) -> None:
    """Put the pool and the copies of a server on the record, and what its container has over."""
    found.role = found.role or held.role
    found.workers = held.workers
    engine, _, version = held.version.partition(":")
    if version and engine == found.kind:
        found.serves["version"] = version
    used = ranks(found)
    if "tp" not in found.unread and held.gpus and held.gpus > used:
        found.notes.append(f"of the {held.gpus} GPUs of its container the command uses {used}")
    together = used == held.workers * (held.gpus or used)  # nodes of one server
    if held.workers > 1 and not found.role and not (together and held.gpus):
        found.notes.append(f"{held.workers} replicas: one is answered")


RUNS = ("docker", "podman", "nerdctl")


def started_by(words: list[str]) -> list[str]:
    """Command inside a container that a command starts: what its image is given.

    >>> started_by("docker run --gpus all -p 80:80 ghcr.io/a/text-generation-inference:2 "
    ...            "--model-id a/b".split())
    ['text-generation-launcher', '--model-id', 'a/b']
    """
    program = words[0].rsplit("/", 1)[-1]
    at = next((i for i, w in enumerate(words[:6]) if w.rsplit("/", 1)[-1] in RUNS), None)
    if program not in (*RUNS, "sudo", "srun", "nohup") or at is None or "run" not in words[at:]:
        return words
    image = next(
        (i for i, w in enumerate(words) if i > at and program_of(w) and not w.startswith("-")), None
    )
    if image is None:
        return words
    before, inside = words[at:image], words[image + 1 :]
    entry = next((b for a, b in zip(before, before[1:], strict=False) if a == "--entrypoint"), "")
    pairs = zip(before, before[1:], strict=False)
    given = [b for a, b in pairs if a in ("-e", "--env")]
    said = _options_of({"env": given}, program_of(words[image])).split()
    if entry:
        return [*entry.split(), *inside]
    named = inside and not inside[0].startswith("-") and "/" not in inside[0]
    return inside if named else [*program_of(words[image]).split(), *said, *inside]
