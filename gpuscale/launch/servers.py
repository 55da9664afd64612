"""Servers as planned: the engine's line started once a replica, by hand or by a cluster."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError
from gpuscale.foreign import comment, here_document
from gpuscale.launch.wrap import accelerator, block, label

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 8000
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

    def server(self, rank: str, head: str, port: str = str(PORT)) -> str:
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
    """(file name, text) of the file that a person submits or runs."""
    name, made = WRAPPERS[wrapper]
    return name, made(job) + "\n"


def _shell(job: ServingLaunch) -> str:
    lines = ["#!/usr/bin/env bash", *job.head_lines]
    if job.n_nodes > 1:
        lines += [
            f"# {job.replicas} replicas of {job.n_nodes} machines: on each machine of one,",
            "# bash run.sh RANK HEAD_NODE, the first with rank 0",
            "set -euo pipefail",
            *job.beside,
        ]
        return "\n".join([*lines, job.server("$1", "$2")])
    here = min(job.replicas, max(1, job.gpus_per_node // job.gpus))
    machines = -(-job.replicas // here)
    if machines > 1:
        lines.append(f"# {job.replicas} replicas: run on each of {machines} machines")
    lines += ["set -euo pipefail", *job.beside]
    for one in range(here):
        gpus = ",".join(str(one * job.gpus + i) for i in range(job.gpus))
        lines.append(f"CUDA_VISIBLE_DEVICES={gpus} {job.server('0', '', str(PORT + one))} &")
    return "\n".join([*lines, "wait -n  # a balancer of yours stands before the ports"])


def _slurm(job: ServingLaunch) -> str:
    line = job.server("$SLURM_NODEID", "$HEAD", "$PORT")
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name=serve-{label(job.model)}",
        f"#SBATCH --array=0-{job.replicas - 1}",
        f"#SBATCH --nodes={job.n_nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={job.gpus_a_node}",
        *job.head_lines,
        "set -euo pipefail",
        *job.beside,
        f"export PORT=$(({PORT} + SLURM_ARRAY_TASK_ID))",
        "export HEAD=$(scontrol show hostnames | head -n 1)",
    ]
    line = f"bash -c {shlex.quote(line)}" if job.n_nodes > 1 else line
    return "\n".join([*lines, f"srun {line}"])


def _skypilot(job: ServingLaunch) -> str:
    gpu = accelerator(job.gpu_name)
    head = "$(echo $SKYPILOT_NODE_IPS | cut -d' ' -f1)"
    return "\n".join(
        [
            *job.head_lines,
            f"name: {label(job.model)}",
            "service:",
            "  readiness_probe: /health",
            f"  replicas: {job.replicas}",
            f"num_nodes: {job.n_nodes}",
            "resources:",
            f"  accelerators: {gpu}:{job.gpus_a_node}",
            f"  ports: {PORT}",
            "run: |",
            block("\n".join([*job.beside, job.server("$SKYPILOT_NODE_RANK", head)]), 2),
        ]
    )


def _dstack(job: ServingLaunch) -> str:
    if job.n_nodes > 1:
        raise GpuscaleError(
            "dstack's services run a replica on one machine", "--wrap slurm or kubernetes"
        )
    gpu = accelerator(job.gpu_name)
    return "\n".join(
        [
            *job.head_lines,
            "type: service",
            f"name: {label(job.model)}",
            f"image: {IMAGES[job.engine]}",
            f"port: {PORT}",
            f"replicas: {job.replicas}",
            "commands:",
            "  - |",
            block("\n".join([*job.beside, job.server("0", "")]), 4),
            "resources:",
            f"  gpu: {gpu}:{job.gpus}",
            "  shm_size: 16GB",
        ]
    )


def _kubernetes(job: ServingLaunch) -> str:
    """Deployment, or a LeaderWorkerSet where a replica spans machines."""
    name, spread = label(job.model), job.n_nodes > 1
    line = job.server("$LWS_WORKER_INDEX", "$LWS_LEADER_ADDRESS")
    pod = [
        "spec:",
        "  containers:",
        f"    - name: {job.engine}",
        f"      image: {IMAGES[job.engine]}",
        "      command:",
        "        - bash",
        "        - -c",
        "        - |",
        block("\n".join([*job.beside, line]), 10),
        f"      ports: [{{containerPort: {PORT}}}]",
        "      resources:",
        f"        limits: {{nvidia.com/gpu: {job.gpus_a_node}}}",
        "      volumeMounts:",
        "        - {name: shm, mountPath: /dev/shm}",
        "  volumes:",
        "    - {name: shm, emptyDir: {medium: Memory}}",
    ]
    kind = "LeaderWorkerSet" if spread else "Deployment"
    head = [
        *job.head_lines,
        f"apiVersion: {'leaderworkerset.x-k8s.io/v1' if spread else 'apps/v1'}",
        f"kind: {kind}",
        f"metadata: {{name: {name}}}",
        "spec:",
        f"  replicas: {job.replicas}",
    ]
    if spread:
        head += ["  leaderWorkerTemplate:", f"    size: {job.n_nodes}", "    workerTemplate:"]
        return "\n".join([*head, block("\n".join(pod), 6)])
    head += [f"  selector: {{matchLabels: {{app: {name}}}}}", "  template:"]
    head.append(f"    metadata: {{labels: {{app: {name}}}}}")
    return "\n".join([*head, block("\n".join(pod), 4)])


WRAPPERS: dict[str, tuple[str, Callable[[ServingLaunch], str]]] = {
    "torchrun": ("run.sh", _shell),  # engines start their processes themselves
    "slurm": ("run.sbatch", _slurm),
    "skypilot": ("sky.yaml", _skypilot),
    "dstack": (".dstack.yml", _dstack),
    "kubernetes": ("serve.yaml", _kubernetes),
}
"""Wrapper -> usual name of its file, and what writes it."""
