"""Lines that start an engine as planned, and the benchmark that checks the plan."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.core.serving.disaggregated import PooledService

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.answers.serve.case import Case
    from gpuscale.core.serving.choose import Found
    from gpuscale.core.serving.service import Service
    from gpuscale.specs.model import ModelSpec

QUANTISED = {"fp8": "fp8", "int4-g128": "awq", "int4-g32": "compressed-tensors"}
"""Format -> `--quantization` of engines that quantise or check on loading."""

ON_LOADING = ("bf16", "fp16", "fp8")
"""Formats that an engine makes of 16 bits while it loads; others are stored by a tool before."""


@dataclass(frozen=True, slots=True)
class Started:
    """One replica as an engine is told to start it."""

    model: str
    file: str  # the same as llama.cpp's file
    service: Service
    weights: str
    kv: str
    sequences: int
    context: int | None
    tight: bool = False  # more of the memory than the engine would take

    @property
    def chunk(self) -> int:
        """Tokens of a pass of one attention rank."""
        return self.service.scheduler.token_budget // self.service.replica.dp_attention


def launch_lines(asked: Serve, case: Case, found: Found) -> tuple[str, ...]:
    """Lines of each engine asked for; without any, of the engine that was chosen."""
    what = found.candidate.what
    names = asked.launch or (found.candidate.engine,)
    services = (what.prefill, what.decode) if isinstance(what, PooledService) else (what,)
    lines = []
    for name in names:
        for service in services:
            most = found.load.most_sequences if found.load else 0
            one = Started(
                model=shlex.quote(checkpoint(asked.model, case.model, found.candidate.weights)),
                file=shlex.quote(gguf(asked.model, found.candidate.weights)),
                service=service,
                weights=found.candidate.weights,
                kv=service.replica.kv_format,
                sequences=_sequences(service, most, tight=case.tight),
                context=asked.context,
                tight=case.tight,
            )
            lines.append(WRITERS[name](asked, one))
    return tuple(lines)


def _sequences(service: Service, most: float, *, tight: bool) -> int:
    """Sequences of a replica, no more than its settings were tightened to."""
    wanted = rounded_up(most)
    return min(wanted, int(service.scheduler.max_sequences)) if tight else wanted


def checkpoint(asked: str, model: ModelSpec, weights: str) -> str:
    """Name on the hub that an engine loads; a folder where there is none in the format."""
    path = Path(asked)
    if path.is_file():
        return f"./{path.parent}" if not path.is_absolute() else str(path.parent)
    from gpuscale.io.serving import load_checkpoints

    on_hub = asked if "/" in asked else load_checkpoints().get(asked.strip().lower(), model.hub)
    stored = model.published_format
    if on_hub and weights == "fp8" and model.fp8_keeps_attention:
        return f"{on_hub.removesuffix('-FP8')}-FP8"
    if on_hub and (weights == stored or (stored == "bf16" and weights in ON_LOADING)):
        return on_hub
    return f"./{path.name}-{weights}"


def gguf(asked: str, weights: str) -> str:
    """File of a model for llama.cpp, as its converter names it."""
    return f"{Path(asked).name.removesuffix('.json').removesuffix('.toml')}-{weights}.gguf"


def rounded_up(sequences: float) -> int:
    """Sequences with a tenth to spare, on a round number.

    >>> rounded_up(3), rounded_up(83), rounded_up(300)
    (8, 96, 352)
    """
    step = 8 if sequences < 64 else 32
    return max(8, step * math.ceil(1.1 * sequences / step))


def vllm_line(asked: Serve, one: Started) -> str:
    """``vllm serve`` [1]_.

    .. [1] vLLM, engine arguments (docs/configuration/engine_args).
    """
    r = one.service.replica
    words = [f"vllm serve {one.model}", f"--tensor-parallel-size {r.tp}"]
    if r.pp > 1:
        words.append(f"--pipeline-parallel-size {r.pp}")
    if r.dp_attention > 1:
        words.append(f"--data-parallel-size {r.dp_attention}")
    if r.ep > 1:
        words.append("--enable-expert-parallel")
    words += [f"--max-num-seqs {one.sequences}", f"--max-num-batched-tokens {one.chunk}"]
    if one.context:
        words.append(f"--max-model-len {one.context}")
    if asked.memory_frac or one.tight:
        share = one.service.site.software.memory.utilisation_frac
        words.append(f"--gpu-memory-utilization {share:g}")
    if one.weights in QUANTISED and not one.model.endswith("-FP8"):
        words.append(f"--quantization {QUANTISED[one.weights]}")
    if one.kv != "bf16":
        words.append(f"--kv-cache-dtype {one.kv}")
    if asked.eager:
        words.append("--enforce-eager")
    if r.drafts:
        method = {"mtp": "mtp", "eagle": "eagle3"}.get(asked.draft.kind if asked.draft else "", "")
        words.append(
            "--speculative-config '"
            + f'{{"method": "{method or "ngram"}", "num_speculative_tokens": {r.drafts.n_tokens}}}'
            + "'"
        )
    if asked.lora:
        words.append(f"--enable-lora --max-loras {asked.lora.n} --max-lora-rank {asked.lora.rank}")
    return " ".join(words)


def sglang_line(asked: Serve, one: Started) -> str:
    """``sglang.launch_server`` [1]_; attention ranks divide its tensor-parallel ones.

    .. [1] SGLang, server arguments (docs/advanced_features/server_arguments).
    """
    r = one.service.replica
    words = [f"python -m sglang.launch_server --model-path {one.model}", f"--tp-size {r.group}"]
    if r.pp > 1:
        words.append(f"--pp-size {r.pp}")
    if r.dp_attention > 1:
        words.append(f"--dp-size {r.dp_attention} --enable-dp-attention")
    if r.ep > 1:
        words.append(f"--ep-size {r.ep}")
    words += [f"--max-running-requests {one.sequences}", f"--chunked-prefill-size {one.chunk}"]
    if one.context:
        words.append(f"--context-length {one.context}")
    if asked.memory_frac or one.tight:
        share = one.service.site.software.memory.utilisation_frac
        words.append(f"--mem-fraction-static {share:g}")
    if one.weights in QUANTISED and not one.model.endswith("-FP8"):
        words.append(f"--quantization {QUANTISED[one.weights]}")
    if one.kv != "bf16":
        words.append("--kv-cache-dtype fp8_e4m3")
    if r.drafts:
        n = r.drafts.n_tokens
        words.append(
            f"--speculative-algorithm EAGLE --speculative-num-steps {n} "
            f"--speculative-eagle-topk 1 --speculative-num-draft-tokens {n + 1}"
        )
    return " ".join(words)


def trtllm_line(asked: Serve, one: Started) -> str:
    """``trtllm-serve`` [1]_.

    .. [1] TensorRT-LLM, trtllm-serve (docs/source/commands/trtllm-serve).
    """
    r = one.service.replica
    words = [f"trtllm-serve {one.model} --backend pytorch --tp_size {r.group}"]
    if r.pp > 1:
        words.append(f"--pp_size {r.pp}")
    if r.ep > 1:
        words.append(f"--ep_size {r.ep}")
    words += [f"--max_batch_size {one.sequences}", f"--max_num_tokens {one.chunk}"]
    if one.context:
        words.append(f"--max_seq_len {one.context}")
    if r.dp_attention > 1 or asked.kv or r.drafts:
        words.append("--extra_llm_api_options options.yaml")
    return " ".join(words)


def llama_cpp_line(asked: Serve, one: Started) -> str:
    """``llama-server`` [1]_.

    .. [1] llama.cpp, tools/server/README.md.
    """
    s = one.service
    slots = max(1, min(one.sequences, asked.concurrency or 1))
    context = one.context or 1 << math.ceil(math.log2(max(512.0, s.demand.contexts.high)))
    return (
        f"llama-server -m {one.file} {_placed(s)} -fa on "
        f"-c {context * slots} -np {slots} -ub {one.chunk}"
    )


def _placed(service: Service) -> str:
    """Layers on the GPUs, and layers whose experts the host keeps."""
    extras, n = service.tuning.extras, service.model.n_layers
    if extras is None or extras.offload is None:
        return "-ngl 99"
    away = extras.offload.frac * n
    if extras.offload.kind == "experts":
        return f"-ngl 99 --n-cpu-moe {math.ceil(away)}"
    return f"-ngl {n - math.ceil(away)}"


def _quoted(word: str) -> str:
    """Word as YAML quotes it."""
    return "'" + word.replace("'", "''") + "'"


def k8s_manifest(asked: Serve, one: Started) -> str:
    """Deployment of one replica with vLLM, for `kubectl apply`."""
    _, _, model, *args = shlex.split(vllm_line(asked, one))
    r = one.service.replica
    listed = "\n".join(f"            - {_quoted(arg)}" for arg in (f"--model={model}", *args))
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: serve}\nspec:\n  replicas: 1\n"
        "  selector: {matchLabels: {app: serve}}\n  template:\n"
        "    metadata: {labels: {app: serve}}\n    spec:\n      containers:\n"
        "        - name: vllm\n          image: vllm/vllm-openai:latest\n          args:\n"
        f"{listed}\n"
        f"          resources: {{limits: {{nvidia.com/gpu: {r.n_gpus}}}}}\n"
        "          ports: [{containerPort: 8000}]"
    )


WRITERS = {
    "vllm": vllm_line,
    "sglang": sglang_line,
    "trtllm": trtllm_line,
    "llama.cpp": llama_cpp_line,
    "k8s": k8s_manifest,
}


def benchmark_line(asked: Serve, case: Case, found: Found) -> str:
    """Benchmark that measures what was predicted, of the whole service."""
    demand, engine = case.demand, found.candidate.engine
    n, o = round(demand.inputs.mean), round(demand.outputs.mean)
    if engine == "llama.cpp":
        return f"llama-bench -m {gguf(asked.model, found.candidate.weights)} -p {n} -n {o}"
    if asked.concurrency:
        n_requests = asked.requests or 10 * asked.concurrency
        load = f"--max-concurrency {asked.concurrency} --num-prompts {n_requests}"
    elif asked.burst:
        load = f"--num-prompts {asked.burst}"
    else:
        rate = asked.rate or found.at_most_per_s
        load = f"--request-rate {rate:.3g} --num-prompts {max(100, round(300 * rate))}"
    tool = "vllm bench serve" if engine != "sglang" else "python -m sglang.bench_serving"
    backend = (
        ""
        if engine == "vllm"
        else " --backend sglang"
        if engine == "sglang"
        else " --backend openai"
    )
    names = f"--dataset-name random --random-input-len {n} --random-output-len {o}"
    model = checkpoint(asked.model, case.model, found.candidate.weights)
    return f"{tool}{backend} --model {model} {names} {load} --ignore-eos"
