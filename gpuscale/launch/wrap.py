"""What starts the processes of a launch: torchrun by hand, Slurm, SkyPilot, dstack, Kubernetes."""

from __future__ import annotations

import re
import shlex
from importlib import resources

from gpuscale.foreign import comment, here_document
from gpuscale.launch.job import TrainingLaunch, Written

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
    text = resources.files("gpuscale.launch").joinpath("data", "wrap", f"{template}.txt")
    made: list[str] = []
    for line in text.read_text("utf-8").splitlines():
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
