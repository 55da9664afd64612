"""Launch files: a saved answer as the script that starts it, or the file of its servers."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers.ask import Asked, Question, text
from gpuscale.core.records import KW_ONLY, dataclass, replace
from gpuscale.errors import GpuscaleError
from gpuscale.io.text import read_text, shown_name
from gpuscale.launch.found import written_frameworks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuscale.launch.job import ServingLaunch, TrainingLaunch
    from gpuscale.render.document import Document

SAID = "cluster engine weights kv input output rate_per_s concurrency ttft tpot n_gpus".split()
NAMED = {"output": "output_len", "rate_per_s": "rate", "n_gpus": "gpus"}
"""Inputs of a saved answer, and the options that say those of another name."""
STARTS = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python", "-m", "sglang.launch_server"),
    "trtllm": ("trtllm-serve",),
}
"""Engine -> the words that its line begins with; the others are quoted as its arguments."""


def servers_of(inputs: Mapping[str, Any], result: Mapping[str, Any]) -> ServingLaunch:
    """Build the servers of an answer of `serve`, as its JSON has it.

    Raises GpuscaleError if the answer has no line of one engine that a file is written for.
    """
    from gpuscale.io.hardware import load_cluster
    from gpuscale.launch.job import VERSIONS, ServingLaunch

    lines = [shlex.split(str(one)) for one in result.get("launch") or ()]
    engine = str(result.get("engine"))
    started = [words[: len(STARTS.get(engine, ()))] for words in lines]
    if len(lines) == 1 and engine in STARTS and started != [list(STARTS[engine])]:
        raise GpuscaleError(f"the line that starts {engine} is not one of its own: {lines[0][:2]}")
    if len(lines) != 1 or engine not in VERSIONS:
        what = "pools need a router of their own" if len(lines) > 1 else "nothing fits, or"
        raise GpuscaleError(
            f"no file is written for this answer of serve: {what}"
            + ("" if len(lines) > 1 else f" {engine} is not one of {', '.join(VERSIONS)}"),
            "the lines that start the servers are in the answer",
        )
    layout = result.get("layout") or {}
    own = {key: layout.get(key) for key in ("tp", "pp", "dp_attention", "ep")}
    own |= {key: result.get(key) for key in ("n_gpus", "weights")}
    asked = {**inputs, **own, "engine": engine}
    words = ["gpuscale", "serve", str(inputs["model"])]
    for key in (*SAID, "tp", "pp", "dp_attention", "ep"):
        if asked.get(key) is not None:
            value, option = asked[key], NAMED.get(key, key).replace("_", "-")
            words += [f"--{option}", ",".join(value) if isinstance(value, list) else str(value)]
    cluster = load_cluster(str(inputs["cluster"]))
    times = (result.get("ttft_mean_s"), result.get("tpot_mean_s"))
    expected = "".join(
        f", {name} {value * 1e3:.3g} ms"
        for name, value in zip(("TTFT", "TPOT"), times, strict=True)
        if value is not None
    )
    return ServingLaunch(
        model=str(inputs["model"]),
        engine=engine,
        line=shlex.join(lines[0]),
        replicas=int(result["replicas"]),
        gpus=int(result["n_gpus"]) // int(result["replicas"]),
        gpus_per_node=cluster.gpus_per_node,
        gpu_name=cluster.gpu.name,
        command=shlex.join(words),
        estimate=(
            f"expected: {result['label']}, replicas: {result['replicas']}{expected} on average",
        ),
        files=_files(lines[0], result),
    )


def _files(line: list[str], result: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Options that TensorRT-LLM takes from a file alone [1]_.

    .. [1] TensorRT-LLM, LLM API arguments: enable_attention_dp, attention_dp_config,
       kv_cache_config.dtype.
    """
    if "options.yaml" not in line:
        return ()
    ranks = (result.get("layout") or {}).get("dp_attention") or 1
    rows = ["enable_attention_dp: true"] if ranks > 1 else []
    if passes := int(result.get("gather_passes") or 0):
        rows += ["attention_dp_config:", "  enable_balance: true", f"  timeout_iters: {passes}"]
    if result.get("kv") not in (None, "bf16"):
        rows += ["kv_cache_config:", f"  dtype: {result['kv']}"]
    return (("options.yaml", "\n".join(rows or ["{}"])),)


WRAPPERS = ("torchrun", "slurm", "skypilot", "dstack", "kubernetes")


EDITED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
"""What comes of a saved answer with a value that none is saved with."""


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """A launch file and what it could not say."""

    framework: str
    version: str  # that the options are of
    wrapper: str
    file: str  # usual name
    text: str
    unsaid: tuple[str, ...]  # of the plan, by this framework


@dataclass
class Launch(Question):
    """Launch file of a plan: framework options, batch, stage split, machines; what it cannot say.

    Reads an answer of `plan --json`, or of `memory --json` for a layout of one's own, for
    pre-training (Megatron-LM, Megatron-Bridge, torchtitan, DeepSpeed, accelerate, MaxText,
    nanotron), fine-tuning and RL (LLaMA-Factory, Axolotl, TRL, ms-swift, torchtune, Unsloth,
    verl, OpenRLHF, NeMo-RL, ...); of `serve --json` for servers of vLLM, SGLang and
    TensorRT-LLM. Started by hand (torchrun), Slurm, SkyPilot, dstack or Kubernetes.
    """

    NAME: ClassVar[str] = "launch"
    EXAMPLE: ClassVar[str] = "gpuscale launch plan.json --wrap slurm"
    plan: Asked[str] = text(
        "Saved answer of `plan`, `memory` or `serve` (-o FILE.json), or - for standard input.", ...
    )
    _: KW_ONLY
    framework: Asked[str | None] = text(
        f"Framework: {', '.join(written_frameworks())}; default: the plan's software.",
        known=written_frameworks(),
    )
    wrap: Asked[str] = text(
        f"What starts the processes: {', '.join(WRAPPERS)}.", "torchrun", known=WRAPPERS
    )

    def answer(self) -> Document:
        """Write the file.

        Raises GpuscaleError for what no answer says: one may have been edited.
        """
        from gpuscale.io.models import parse_json

        saved = parse_json(read_text(self.plan), shown_name(self.plan))
        try:
            return self._written(saved)
        except EDITED as error:
            said = (
                f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else error
            )
            raise GpuscaleError(
                f"{self.plan}: not an answer as it was saved: {said}", "make it again with --json"
            ) from None

    def _written(self, saved: Mapping[str, Any]) -> Document:
        from gpuscale.answers.saved import launch_of

        result, inputs = saved.get("result"), saved.get("inputs")
        if saved.get("command") not in ("plan", "memory", "serve") or not isinstance(inputs, dict):
            raise GpuscaleError(
                f"{self.plan}: not a saved plan",
                "make one with `gpuscale plan MODEL --gpus N --json > plan.json`",
            )
        if saved["command"] == "serve" and isinstance(result, dict):
            return serving_document(saved, self.wrap)
        if "job" not in saved:
            raise GpuscaleError(
                f"{self.plan}: it holds no layout of a training job",
                "scans and answers for serving have none: plan one size of one training job "
                "(answers of earlier releases held a part of it: ask again)",
            )
        return launch_document(launch_of(saved["job"]), self.framework, self.wrap)


def launch_document(job: TrainingLaunch, framework: str | None, wrapper: str) -> Document:
    """Put the answer together."""
    from gpuscale.launch.dialects.write import framework_of, launch_script

    name = framework_of(job, framework)
    written, file, script = launch_script(job, name, wrapper)
    result = LaunchResult(name, written.version, wrapper, file, script, written.unsaid)
    asked = {"model": job.model.name, "n_gpus": job.layout.n_gpus, "software": job.software}
    document = _document(result, asked, lambda other: launch_script(job, name, other)[2])
    unsaid = (f"not expressed for {written.framework}: {text}" for text in written.unsaid)
    return replace(document, warnings=tuple(unsaid))


def serving_document(saved: Mapping[str, Any], wrapper: str) -> Document:
    """Put the answer together."""
    from gpuscale.launch.job import VERSIONS, serving_script

    job = servers_of(saved["inputs"], saved["result"])
    file, text = serving_script(job, wrapper)
    result = LaunchResult(job.engine, VERSIONS[job.engine], wrapper, file, text, ())
    asked = {"model": job.model, "n_gpus": job.gpus * job.replicas, "software": job.engine}
    return _document(result, asked, lambda other: serving_script(job, other)[1])


def _document(
    result: LaunchResult, asked: dict[str, object], again: Callable[[str], str]
) -> Document:
    from gpuscale.render.document import Document, Drawn

    return Document(
        command="launch",
        inputs={**asked, "framework": result.framework, "wrap": result.wrapper},
        result=result,
        blocks=[Drawn(result.text.rstrip("\n").split("\n"))],
        launch=again,
    )
