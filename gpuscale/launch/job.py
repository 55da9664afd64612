"""What a launch file is written from, and launches started: trainings, servers; by hand or not."""

from __future__ import annotations

import re
import shlex
from typing import Any, ClassVar

from gpuscale.core.bounds import STRICT, NonNegativeInt
from gpuscale.core.layout import Layout
from gpuscale.core.records import dataclass, field
from gpuscale.core.settings import NO_SETTINGS, JobSettings
from gpuscale.errors import GpuscaleError
from gpuscale.foreign import comment, here_document
from gpuscale.launch.found import DATA
from gpuscale.specs.hardware import ClusterSpec
from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class TrainingLaunch:
    """A training job as planned, with everything that a launcher must be told."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT
    model: ModelSpec
    cluster: ClusterSpec
    software: str
    layout: Layout
    stage_layers: tuple[NonNegativeInt, ...]  # of each chunk in model order: pp * vpp numbers
    settings: JobSettings = NO_SETTINGS
    tuning: dict[str, Any] = field(default_factory=dict)  # of fine-tuning and RL, by `told`
    command: str = ""  # the command that gives this file again
    estimate: tuple[str, ...] = ()  # lines on expected time and memory, written as comments

    @property
    def n_gpus(self) -> int:
        """GPUs that train, and those that only roll out or hold a critic."""
        apart = (self.tuning.get(f"rl.{name}_gpus") or 0 for name in ("rollout", "critic"))
        return self.layout.n_gpus + sum(apart)

    @property
    def n_nodes(self) -> int:
        """Machines, the last one perhaps not full."""
        return -(-self.n_gpus // self.cluster.gpus_per_node)

    @property
    def gpus_a_node(self) -> int:
        """Processes that each machine starts."""
        return min(self.n_gpus, self.cluster.gpus_per_node)

    @property
    def even_stages(self) -> bool:
        """Whether every chunk of every stage holds the same number of layers."""
        return len(set(self.stage_layers)) <= 1


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """One file of a launch."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Written:
    """Files of a launch, the version they are for, and what the framework cannot express."""

    framework: str
    version: str
    files: tuple[LaunchFile, ...]
    train: tuple[str, ...]  # what each process runs: a script and its arguments
    unsaid: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    unsaid_fields: tuple[str, ...] = ()  # the same by the names of the fields
    launcher: str = "torchrun"  # what starts the processes of a machine


SERVING_PORT = 8000
VERSIONS = {
    "vllm": "vLLM 0.33.0",
    "sglang": "SGLang 0.5.23",
    "trtllm": "TensorRT-LLM 1.2 (trtllm-serve, as its documentation has it)",
}
"""Engine -> what its options are of (`tests/data/launch`)."""
IMAGES = {
    "vllm": "vllm/vllm-openai",
    "sglang": "lmsysorg/sglang",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release",
}
OVER_NODES = {
    "vllm": "--nnodes {n} --node-rank {rank} --master-addr {head}"
    ' $([ "{rank}" = 0 ] || echo --headless)',
    "sglang": "--nnodes {n} --node-rank {rank} --dist-init-addr {head}:5000",
}
"""Engine -> words of each machine of a replica that spans several."""


@dataclass(frozen=True, slots=True)
class ServingLaunch:
    """One engine's line, and how often and where it is started."""

    model: str
    engine: str  # a key of `VERSIONS`
    line: str
    replicas: int
    gpus: int  # of a replica
    gpus_per_node: int
    gpu_name: str
    command: str  # that gives this file again
    estimate: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()  # name and text of what the line reads

    @property
    def n_nodes(self) -> int:
        """Machines of a replica."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def gpus_a_node(self) -> int:
        """GPUs that a replica takes of each machine."""
        return min(self.gpus, self.gpus_per_node)

    def server(self, rank: str, head: str, port: str = str(SERVING_PORT)) -> str:
        """Command of one machine of a replica; `rank` and `head` as its launcher says them."""
        line = f"{self.line} --host 0.0.0.0 --port {port}"
        if self.n_nodes == 1:
            return line
        if self.engine not in OVER_NODES or "--data-parallel-size" in line:
            raise GpuscaleError(
                f"no file is written for a replica of {self.n_nodes} machines with this line",
                f"the engine's own guide says how its ranks are spread: {self.line}",
            )
        return f"{line} {OVER_NODES[self.engine].format(n=self.n_nodes, rank=rank, head=head)}"

    @property
    def head_lines(self) -> list[str]:
        """Comments of the file: version, command, what to expect."""
        lines = [f"for {VERSIONS[self.engine]}", f"made by: {self.command}", *self.estimate]
        return list(map(comment, lines))

    @property
    def beside(self) -> list[str]:
        """Shell lines that write what the line reads."""
        return [line for name, text in self.files for line in here_document(name, text)]


def serving_script(job: ServingLaunch, wrapper: str) -> tuple[str, str]:
    """(file name, text) of the file that a person submits or runs.

    Raises GpuscaleError for a replica of several machines that the wrapper does not start.
    """
    file, rank, head = SERVING_WRAPPERS[wrapper]
    spread = job.n_nodes > 1
    if wrapper == "dstack" and spread:
        raise GpuscaleError(
            "dstack's services run a replica on one machine", "--wrap slurm or kubernetes"
        )
    line = job.server(rank, head, "$PORT" if wrapper == "slurm" else str(SERVING_PORT))
    values: dict[str, object] = {
        "comments": job.head_lines,
        "files": job.beside,
        "command": f"bash -c {shlex.quote(line)}" if wrapper == "slurm" and spread else line,
        "name": label(job.model),
        "engine": job.engine,
        "image": IMAGES[job.engine],
        "gpu": accelerator(job.gpu_name),
        "gpus": job.gpus_a_node,
        "nodes": job.n_nodes,
        "replicas": job.replicas,
        "last": job.replicas - 1,
    }
    if wrapper == "torchrun":  # engines start their processes themselves
        values |= _by_hand(job)
    if wrapper == "kubernetes":  # a LeaderWorkerSet where a replica spans machines
        values["pod"] = filled("serve-pod", **values)
        wrapper += "-spread" if spread else ""
    return file, filled(f"serve-{wrapper}", **values)


def _by_hand(job: ServingLaunch) -> dict[str, object]:
    """Lines that start as many replicas as a machine holds, and what is said of the others."""
    if job.n_nodes > 1:
        said = [f"# {job.replicas} replicas of {job.n_nodes} machines: on each machine of one,"]
        return {"machines": [*said, "# bash run.sh RANK HEAD_NODE, the first with rank 0"]}
    here = min(job.replicas, max(1, job.gpus_per_node // job.gpus))
    machines = -(-job.replicas // here)
    said = [f"# {job.replicas} replicas: run on each of {machines} machines"]
    lines = []
    for one in range(here):
        gpus = ",".join(str(one * job.gpus + i) for i in range(job.gpus))
        lines.append(
            f"CUDA_VISIBLE_DEVICES={gpus} {job.server('0', '', str(SERVING_PORT + one))} &"
        )
    lines.append("wait -n  # a balancer of yours stands before the ports")
    return {"machines": said if machines > 1 else [], "command": lines}


SERVING_WRAPPERS = {
    "torchrun": ("run.sh", "$1", "$2"),
    "slurm": ("run.sbatch", "$SLURM_NODEID", "$HEAD"),
    "skypilot": ("sky.yaml", "$SKYPILOT_NODE_RANK", "$(echo $SKYPILOT_NODE_IPS | cut -d' ' -f1)"),
    "dstack": (".dstack.yml", "0", ""),
    "kubernetes": ("serve.yaml", "$LWS_WORKER_INDEX", "$LWS_LEADER_ADDRESS"),
}
"""Wrapper -> usual name of its file, its words for the rank of a machine and for the first one."""


PORT = 29500
HEAD = "@first-machine@"
"""Stands for the words that a launcher has for the first machine until all others are quoted."""


def script(job: TrainingLaunch, written: Written, wrapper: str) -> tuple[str, str]:
    """(file name, text) of the file that a person submits or runs.

    `job`: machines and processes. `written`: what each process runs. `wrapper`: a key of
    `WRAPPERS`.
    """
    file, head = WRAPPERS[wrapper]
    name, comments = label(job.model.name), list(map(comment, comment_lines(job, written)))
    if wrapper == "torchrun" and job.n_nodes > 1:
        several = f"run on each of the {job.n_nodes} machines; HEAD_NODE: name of one of them"
        comments.append(f"# {several}")
        head = "HEAD_NODE"
    return file, filled(
        f"train-{wrapper}",
        comments=comments,
        exports=[f"export {k}={shlex.quote(value)}" for k, value in written.environment],
        files=[line for one in written.files for line in here_document(one.name, one.text)],
        command=command(job, written, head.format(name=name)),
        name=name,
        nodes=job.n_nodes,
        gpu=accelerator(job.cluster.gpu.name),
        gpus=job.gpus_a_node,
    )


def filled(template: str, **values: object) -> str:
    """Text of a template of `launch/data/wrap` with its `@key@` put in.

    A key alone on its line is lines, each as far in as the key; none where it has none.
    """
    made: list[str] = []
    for line in (DATA / "wrap" / f"{template}.txt").read_text("utf-8").splitlines():
        if alone := re.fullmatch(r"( *)@(\w+)@", line):
            value = values[alone[2]]
            inner = value if isinstance(value, list) else str(value).splitlines()
            made += [alone[1] + part for one in inner for part in str(one).splitlines() or [""]]
        else:
            made.append(re.sub(r"@(\w+)@", lambda key: str(values[key[1]]), line))
    return "\n".join(made) + "\n"


def comment_lines(job: TrainingLaunch, written: Written) -> list[str]:
    """Say what a person should know who finds the file in a year."""
    lines = [f"for {written.version}"]
    if job.command:
        lines.append(f"made by: {job.command}")
    lines += job.estimate
    lines += [f"not expressed here: {text}" for text in written.unsaid]
    return lines


def launcher(job: TrainingLaunch, written: Written, head: str) -> list[str]:
    """Give the words that start the processes of one machine."""
    if written.launcher == "accelerate":
        words = ["accelerate", "launch", "--config_file", written.files[0].name]
        if job.n_nodes > 1:
            words += ["--main_process_ip", head]
        return words
    if written.launcher == "own":
        return []
    if written.launcher == "python":
        return ["python"]
    if written.launcher == "ray":
        lone = ["ray", "symmetric-run", "--address", f"{head}:6379", "--min-nodes"]
        return [*lone, str(job.n_nodes), "--", "python"] if job.n_nodes > 1 else ["python"]
    starts = ["tune", "run"] if written.launcher == "tune" else ["torchrun"]
    if written.launcher == "tune" and job.layout.n_gpus == 1:
        return starts
    words = [*starts, f"--nproc-per-node={job.gpus_a_node}"]
    if job.n_nodes == 1:
        return [*words, "--standalone"]
    return [
        *words,
        f"--nnodes={job.n_nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={head}:{PORT}",
    ]


def command(job: TrainingLaunch, written: Written, head: str) -> str:
    """Shell command of one machine, one option a line; `head` is put in as it is."""
    words = [*launcher(job, written, HEAD), *written.train]
    lines = [shlex.quote(words[0])]
    for word in words[1:]:
        quoted = shlex.quote(word)
        starts = word.startswith("-") or word.endswith(".py") or "=" in word or ":" in word
        lines.append(("\\\n  " if starts else "") + quoted)
    return " ".join(lines).replace(HEAD, head)


def accelerator(gpu_name: str) -> str:
    """Name of a GPU as SkyPilot and dstack have it.

    >>> accelerator("h100-sxm")
    'H100'
    """
    return label(gpu_name.split("-")[0]).upper()


def label(name: str) -> str:
    """Name that Kubernetes, dstack and SkyPilot take: letters, digits and hyphens.

    >>> label("qwen2.5-7b")
    'qwen2-5-7b'
    """
    return re.sub(r"[^a-z0-9]", "-", name.lower()).strip("-") or "job"


WRAPPERS = {
    "torchrun": ("run.sh", "localhost"),
    # scontrol reads the node list of the job itself: the file needs no variable of the shell
    "slurm": ("run.sbatch", "$(scontrol show hostnames | head -n 1)"),
    "skypilot": ("sky.yaml", "$(echo $SKYPILOT_NODE_IPS | cut -d' ' -f1)"),
    "dstack": (".dstack.yml", "$DSTACK_MASTER_NODE_IP"),
    "kubernetes": ("jobset.yaml", "{name}-node-0-0.{name}"),
}
"""Wrapper -> usual name of its file, and the words for its first machine."""
