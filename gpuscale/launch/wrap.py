"""What starts the processes of a launch: torchrun by hand, Slurm, SkyPilot, dstack, Kubernetes."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from gpuscale.foreign import comment, here_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuscale.launch.job import TrainingLaunch, Written

PORT = 29500
HEAD = "@first-machine@"
"""Stands for the words that a launcher has for the first machine until all others are quoted."""


def script(job: TrainingLaunch, written: Written, wrapper: str) -> tuple[str, str]:
    """(file name, text) of the file that a person submits or runs.

    `job`: machines and processes. `written`: what each process runs. `wrapper`: a key of
    `WRAPPERS`.
    """
    name, made = WRAPPERS[wrapper]
    return name, made(job, written)


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


def _exports(written: Written) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in written.environment]


def _files(written: Written) -> list[str]:
    """Shell lines that write the files a launch needs, where only one file can travel."""
    return [line for file in written.files for line in here_document(file.name, file.text)]


def _comments(job: TrainingLaunch, written: Written) -> list[str]:
    return list(map(comment, comment_lines(job, written)))


def _torchrun(job: TrainingLaunch, written: Written) -> str:
    head = "localhost" if job.n_nodes == 1 else "HEAD_NODE"
    lines = ["#!/usr/bin/env bash", *_comments(job, written)]
    if job.n_nodes > 1:
        lines.append(f"# run on each of the {job.n_nodes} machines; HEAD_NODE: name of one of them")
    lines += ["set -euo pipefail", *_exports(written), *_files(written)]
    return "\n".join([*lines, command(job, written, head)]) + "\n"


def _slurm(job: TrainingLaunch, written: Written) -> str:
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={label(job.model.name)}",
        f"#SBATCH --nodes={job.n_nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={job.gpus_a_node}",
        "#SBATCH --exclusive",
        *_comments(job, written),
        "set -euo pipefail",
        *_exports(written),
        *_files(written),
    ]
    # scontrol reads the node list of the job itself: the file needs no variable of the shell
    head = "$(scontrol show hostnames | head -n 1)"
    return "\n".join([*lines, "srun " + command(job, written, head)]) + "\n"


def block(text: str, indent: int) -> str:
    """Lines of a YAML block."""
    return "\n".join(" " * indent + line for line in text.splitlines())


def _skypilot(job: TrainingLaunch, written: Written) -> str:
    gpu = accelerator(job.gpu_name)
    head = "$(echo $SKYPILOT_NODE_IPS | cut -d' ' -f1)"
    lines = [
        *_comments(job, written),
        f"name: {label(job.model.name)}",
        f"num_nodes: {job.n_nodes}",
        "resources:",
        f"  accelerators: {gpu}:{job.gpus_a_node}",
        "run: |",
        block("\n".join([*_exports(written), *_files(written)]), 2),
        block(command(job, written, head), 2),
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _dstack(job: TrainingLaunch, written: Written) -> str:
    gpu = accelerator(job.gpu_name)
    body = "\n".join(
        [*_exports(written), *_files(written), command(job, written, "$DSTACK_MASTER_NODE_IP")]
    )
    lines = [
        *_comments(job, written),
        "type: task",
        f"name: {label(job.model.name)}",
        f"nodes: {job.n_nodes}",
        "commands:",
        "  - |",
        block(body, 4),
        "resources:",
        f"  gpu: {gpu}:{job.gpus_a_node}",
        "  shm_size: 16GB",
    ]
    return "\n".join(lines) + "\n"


def _kubernetes(job: TrainingLaunch, written: Written) -> str:
    name = label(job.model.name)
    body = "\n".join(
        [*_exports(written), *_files(written), command(job, written, f"{name}-node-0-0.{name}")]
    )
    lines = [
        *_comments(job, written),
        "apiVersion: jobset.x-k8s.io/v1alpha2",
        "kind: JobSet",
        "metadata:",
        f"  name: {name}",
        "spec:",
        "  replicatedJobs:",
        "    - name: node",
        "      template:",
        "        spec:",
        f"          parallelism: {job.n_nodes}",
        f"          completions: {job.n_nodes}",
        "          completionMode: Indexed",
        "          backoffLimit: 0",
        "          template:",
        "            spec:",
        "              restartPolicy: Never",
        "              containers:",
        "                - name: train",
        "                  image: IMAGE  # with the framework and your training code",
        "                  command:",
        "                    - bash",
        "                    - -c",
        "                    - |",
        block(body, 22),
        "                  resources:",
        "                    limits:",
        f"                      nvidia.com/gpu: {job.gpus_a_node}",
        "                  volumeMounts:",
        "                    - {name: shm, mountPath: /dev/shm}",
        "              volumes:",
        "                - {name: shm, emptyDir: {medium: Memory}}",
    ]
    return "\n".join(lines) + "\n"


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


WRAPPERS: dict[str, tuple[str, Callable[[TrainingLaunch, Written], str]]] = {
    "torchrun": ("run.sh", _torchrun),
    "slurm": ("run.sbatch", _slurm),
    "skypilot": ("sky.yaml", _skypilot),
    "dstack": (".dstack.yml", _dstack),
    "kubernetes": ("jobset.yaml", _kubernetes),
}
"""Wrapper -> usual name of its file, and what writes it."""
