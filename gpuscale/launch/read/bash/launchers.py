"""Machines and GPUs of a launch: sbatch headers, srun, torchrun, deepspeed, accelerate."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuscale.launch.found import UNSET, Found, launch_table
from gpuscale.launch.named import gpu_named
from gpuscale.launch.read.bash.words import Script

_SBATCH = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
NODES = ("--nnodes", "--num_nodes", "--num-nodes", "--nodes", "-N", "--num_machines")
_WORDS = launch_table("words")["launchers"]
PER_NODE = tuple(_WORDS["per_node"])
TOTAL = ("--num_processes", "--ntasks", "-n", "-np", "--gpus", "-G")
LAUNCHERS = tuple(_WORDS["launchers"])
MOVES = re.compile(r"(?<!\S)(rsync|cp|rm|mkdir|sbcast|hostname|nvidia-smi|tar|df|ls)\s")
"""Programs of a step that moves files or asks the nodes."""
NODE_VARIABLES = tuple(_WORDS["node_variables"])
GPU_VARIABLES = tuple(_WORDS["gpu_variables"])
COUNTS = ("NUM_GPUS", "N_GPUS", "num_gpus", "n_gpus", "NGPUS", "NUM_PROCESSES", "WORLD_SIZE")
"""Variables that count the GPUs of a node in some scripts and those of the job in others."""
MOST_A_NODE = 8

OF_THE_MACHINE = frozenset(_WORDS["of_the_machine"])


def outside_variables(text: str) -> dict[str, str]:
    """Variables that a job's `#SBATCH` lines make known to its script."""
    known: dict[str, str] = {}
    nodes, per_node, tasks, _ = _sbatch(text)
    if nodes:
        known |= {"SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes)}
    if per_node:
        known["SLURM_GPUS_ON_NODE"] = known["SLURM_GPUS_PER_NODE"] = str(per_node)
    if nodes and (tasks or per_node):
        known["SLURM_NTASKS"] = str(nodes * (tasks or 1))
    return known


def _sbatch(text: str) -> tuple[int | None, ...]:
    """(nodes, GPUs a node, tasks a node, GPUs of the job) of the `#SBATCH` lines."""
    said: dict[str, int] = {}
    for line in _SBATCH.findall(text):
        for name, pattern in _SIZES:
            if match := re.search(pattern, line):
                said[name] = int(match[1])
    nodes, per_node, tasks, per_task = map(said.get, ("nodes", "node", "tasks", "task"))
    return (
        nodes,
        per_node or (per_task * (tasks or 1) if per_task else None),
        tasks,
        said.get("total"),
    )


_SIZES = (
    ("nodes", r"(?:--nodes[=\s]|-N\s*)(\d+)"),
    ("node", r"--gpus-per-node[=\s](?:\w+:)?(\d+)"),
    ("node", r"--gres[=\s]gpu(?::[\w.-]+)?:(\d+)"),
    ("tasks", r"--ntasks-per-node[=\s](\d+)"),
    ("total", r"(?:--gpus[=\s]|-G\s*)(?:[A-Za-z][\w.-]*:)?(\d+)"),
    ("task", r"--gpus-per-task[=\s](?:[\w.-]+:)?(\d+)"),
)
"""What an `#SBATCH` line counts: nodes, GPUs and tasks of a node, GPUs of the job, of a task."""


def put_machine(text: str, found: Found) -> None:
    """Put the kind of accelerator on the record that a job's headers and variables name."""
    if re.search(r"\b(NPUS_PER_NODE|ASCEND_RT_VISIBLE_DEVICES|PYTORCH_NPU_ALLOC_CONF)\b", text):
        found.other_machine = "Ascend NPUs"
    if re.search(r"\b(NEURON_RT_NUM_CORES|NEURON_CC_FLAGS|NEURON_FUSE_SOFTMAX)\b", text):
        found.other_machine = "AWS Trainium"
    for line in _SBATCH.findall(text):
        if re.match(r"--(gres|gpus[\w-]*|constraint|partition|account|qos)\b|-[CApqG]\b", line):
            found.gpu = found.gpu or gpu_named(line)
            if re.search(r"(?i)mi250", line):
                found.other_machine = "halves of MI250X (devices of 64 GB)"


def read_size(text: str, script: Script, found: Found) -> None:
    """Put machines and GPUs on the record, from launcher options first, then the headers."""
    told = bool(found.n_nodes and found.gpus_per_node)  # by the framework's own options
    nodes, per_node, tasks, asked = _sbatch(text)
    put_machine(text, found)
    total, unknown, told_all = None, False, False
    for words in script.commands:
        starts = any(w.endswith(launcher) for w in words for launcher in LAUNCHERS)
        if not starts and words[:2] != ["tune", "run"]:  # torchtune's own
            continue
        runs = any(w.endswith((".py", ".sh", "bash")) or " " in w or w == "-m" for w in words[1:])
        if words[0] in ("srun", "mpirun", "mpiexec") and not runs:
            continue
        if words[0] == "srun" and MOVES.search(line := " ".join(words)) and "python" not in line:
            continue
        end = next((i for i, w in enumerate(words) if w.endswith(".py")), len(words))
        given = pairs(words[:end])
        unset = any(UNSET in given.get(name, "") for name in NODES)
        unknown |= unset
        nodes = None if unset else _first(given, NODES) or nodes
        if given.get("--ntasks-per-node") == "1":  # one launcher a node, however many GPUs
            del given["--ntasks-per-node"]
        per_node = _first(given, PER_NODE) or _first(given, ("--gres",)) or per_node
        found.gpu = found.gpu or gpu_named(given.get("--gres", ""))
        if UNSET in given.get("--num_processes", ""):
            found.unread["n_gpus"] = given["--num_processes"].replace(UNSET, "")
        told_all |= given.get("--num_processes", "").isdigit()
        unknown |= any(UNSET in given.get(name, "") for name in (*TOTAL, *PER_NODE))
        total = (
            _first(given, TOTAL) or _included(given.get("--include", given.get("-i", ""))) or total
        )
    if told or {"n_gpus", "n_nodes"} & set(found.unread):
        return
    variables = script.variables
    nodes = nodes or _first(variables, NODE_VARIABLES)
    per_node = per_node or _first(variables, GPU_VARIABLES) or _tasks(script, tasks)
    devices = variables.get("CUDA_VISIBLE_DEVICES")
    if not per_node and not total and isinstance(devices, str):
        per_node = len(devices.split(",")) if re.fullmatch(r"\d+(,\d+)*", devices) else None
    total = total or (None if per_node else asked)
    if not per_node and not total and not unknown:
        total, per_node = _counted(script, nodes, found.tp * found.pp * found.cp)
    found.n_nodes = found.n_nodes or nodes
    found.gpus_per_node = found.gpus_per_node or per_node
    if total and (told_all or not (nodes and per_node)):
        found.n_gpus = found.n_gpus or total
    if found.gpus_per_node and not found.n_nodes and not found.n_gpus and not unknown:
        found.n_nodes = 1
    if found.places.get("ep") == "as DP" and found.world_size:
        found.ep = max(1, found.world_size // (found.tp * found.pp * found.cp))


def _tasks(script: Script, tasks: int | None) -> int | None:
    """GPUs a node by the tasks of a node: where each task is a rank, not a launcher of ranks."""
    launchers = (*TORCHRUN, "deepspeed", "accelerate")
    names = {w.rsplit("/", 1)[-1] for words in script.commands for w in words}
    return None if tasks == 1 or names & set(launchers) else tasks


def _counted(script: Script, nodes: int | None, apart: int) -> tuple[int | None, int | None]:
    """(GPUs of the job, GPUs a node) where only a variable counts them, or torchrun's default.

    `apart`: GPUs of one model [1]; torchrun's default of one process is not meant where it is more.
    """
    count = _first(script.variables, COUNTS)
    if count and nodes and nodes > 1:
        whole = count > MOST_A_NODE and count % nodes == 0
        return (count, None) if whole else (None, count)
    if count:
        return count, None
    launched = [w for words in script.commands for w in words]
    bare = any(w.rsplit("/", 1)[-1] in TORCHRUN for w in launched) and not any(
        w.startswith("--nproc") for w in launched
    )
    return None, 1 if bare and apart == 1 else None


TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""Launchers that start one process a node where nothing else is said."""


def _included(text: str) -> int | None:
    """GPUs of DeepSpeed's `--include host:0,1@other:0,1`; None where a host names no GPUs."""
    hosts = [host.partition(":")[2] for host in text.split("@")]
    if not all(re.fullmatch(r"\d+(,\d+)*", gpus) for gpus in hosts):
        return None
    return sum(len(gpus.split(",")) for gpus in hosts)


def pairs(words: Sequence[str]) -> dict[str, str]:
    """Options of a command, each with its value or the word after it."""
    given: dict[str, str] = {}
    for i, word in enumerate(words):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            given[name] = value if equals else (words[i + 1] if i + 1 < len(words) else "")
    return given


def _first(given: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = str(given.get(name, "")).split(":")[-1]
        if text.isdigit() and 0 < int(text) < 10**7:
            return int(text)
    return None
