"""A saved answer of `serve` as the file that starts its servers."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.launch.servers import ServingLaunch

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
    from gpuscale.launch.servers import VERSIONS, ServingLaunch

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
