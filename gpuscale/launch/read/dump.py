"""A log as a launch file: the arguments that a program prints resolved, as a command."""

from __future__ import annotations

import ast
import re
import shlex

_DUMPED = re.compile(r"^\W{0,40}([a-z][a-z0-9_]+) \.{2,}[ \t]?([^\n]*)$", re.MULTILINE)
_VLLM = re.compile(r"non-default args: (\{[^\n]{1,20000}\})")
_SGLANG = re.compile(r"server_args=ServerArgs\(([^\n]{1,40000})\)")
_PAIR = re.compile(r"(\w+)=('[^']*'|[^,()]+)")
LEAST = 8
"""Arguments that make a dump: a message may have a line of dots."""
OF_SGLANG = (
    "model_path tp_size pp_size dp_size ep_size mem_fraction_static max_running_requests "
    "context_length chunked_prefill_size quantization kv_cache_dtype dtype disable_cuda_graph"
).split()
PROGRAM = (
    "world_size rank local_rank data_parallel_size padded_vocab_size iteration params_dtype "
    "consumed_train_samples consumed_valid_samples num_floating_point_operations_so_far"
).split()
"""Keys that Megatron computes, and that no option sets."""
GPUS_OF_NODE = 8


def launch_of_log(text: str) -> str | None:
    """Make the command whose resolved arguments a log prints; None where it prints none.

    Examples
    --------
    >>> launch_of_log("x non-default args: {'model': 'a/b', 'tensor_parallel_size': 4}")
    'vllm serve a/b --tensor-parallel-size 4'
    >>> launch_of_log("step 1 loss 2")
    """
    pairs = dict(_DUMPED.findall(text))
    if len(pairs) >= LEAST:
        return _megatron({k: v.strip() for k, v in pairs.items()})
    if hit := _VLLM.search(text):
        try:
            given = ast.literal_eval(hit[1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        model = given.pop("model_tag", None) or given.pop("model", None) or ""
        given.pop("model", None)
        return " ".join(["vllm serve", shlex.quote(str(model)), *_options(given)])
    if hit := _SGLANG.search(text):
        found = {k: v.strip(" '") for k, v in _PAIR.findall(hit[1]) if k in OF_SGLANG}
        return " ".join(["python -m sglang.launch_server", *_options(found)])
    return None


def _megatron(given: dict[str, str]) -> str:
    world = given.get("world_size", "")
    n = int(world) if re.fullmatch(r"\d{1,7}", world) else 1
    each = GPUS_OF_NODE if n % GPUS_OF_NODE == 0 else n
    options = _options({k: v for k, v in given.items() if k not in PROGRAM})
    if "vocab_size" not in given or given["vocab_size"] == "None":
        options += _options({"vocab_size": given.get("padded_vocab_size", "None")})
    start = f"torchrun --nproc-per-node {each} --nnodes {max(1, n // each)} pretrain_gpt.py"
    return " ".join([start, *options])


def _options(given: dict[str, object]) -> list[str]:
    found = []
    for key, value in given.items():
        text = str(value)
        flag = f"--{key.replace('_', '-')}"
        if key == "add_bias_linear" and text == "False":
            found.append("--disable-bias-linear")
        elif text in ("None", "False", "", "[]", "{}"):
            continue
        elif text == "True":
            found.append(flag)
        else:
            found += [flag, shlex.quote(text)]
    return found
