"""Lines that start an engine as planned, and the benchmark that checks the plan."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.answers.serve.measured import kv_tokens
from gpuscale.answers.serve.reading import TITLES
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.forward import overlap_frac
from gpuscale.core.serving.memory import state_blocks
from gpuscale.core.serving.service import Service

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.answers.serve.case import ServeCase
    from gpuscale.core.serving.choose import FoundReplica
    from gpuscale.specs.model import ModelSpec

QUANTISED = {"fp8": "fp8", "int4-g128": "awq", "int4-g32": "compressed-tensors"}
"""Format -> `--quantization` of engines that quantise or check on loading."""

ON_LOADING = ("bf16", "fp16", "fp8")
"""Formats that an engine makes of 16 bits while it loads; others are stored by a tool before."""


def launch_lines(asked: Serve, case: ServeCase, found: FoundReplica) -> tuple[str, ...]:
    """Lines of each engine asked for; without any, of the engine that was chosen."""
    from gpuscale.io.serving import load_words

    what, table = found.candidate.what, load_words("lines")
    services = (what.prefill, what.decode) if isinstance(what, PooledService) else (what,)
    lines = []
    for name in asked.launch or (_own(asked, found),):
        for service in services:
            facts = facts_of(asked, case, found, service)
            if name == "k8s":
                _, _, model, *args = shlex.split(_written(table["vllm"], facts))
                words = (word.replace("'", "''") for word in (f"--model={model}", *args))
                facts["arguments"] = "\n".join(f"            - '{word}'" for word in words)
            lines.append(_written(table[name], facts).strip())
    return tuple(lines)


def _own(asked: Serve, found: FoundReplica) -> str:
    """Engine that starts: the one asked for, where another's figures serve for it."""
    return "mlx" if set(asked.engine) & {"mlx", "mlx-lm"} else found.candidate.engine


def _written(table: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """Words of a table whose facts are so, in its order."""
    told = (text for name, text in table.items() if name == "start" or facts.get(name))
    return " ".join(told).format(**facts)


def facts_of(asked: Serve, case: ServeCase, found: FoundReplica, s: Service) -> dict[str, object]:
    """Find what the line of one replica says, by the names of its table; nothing where unsaid."""
    r, weights, most = s.replica, found.candidate.weights, found.load
    model = shlex.quote(checkpoint(asked.model, case.model, weights))
    ranks = r.dp_attention  # each takes as many
    wanted = asked.max_seqs or rounded_up(most.most_sequences / ranks if most else 0)
    holds = s.scheduler.max_sequences / ranks if case.own_sites else math.inf
    if s.site.software.counts_states:
        holds = min(holds, state_blocks(s.model, r, s.room.cache_bytes) / BLOCKS_ERROR)
    sequences = int(min(wanted, max(1.0, holds)))
    share = s.site.software.memory.utilisation_frac if asked.memory_frac or case.own_sites else 0
    kind, n = asked.draft.kind if asked.draft else "", r.drafts.n_tokens if r.drafts else 0
    offload = s.tuning.extras.offload if s.tuning.extras else None
    away = math.ceil(offload.frac * s.model.n_layers) if offload else 0
    slots = max(1, min(sequences, asked.concurrency or 1))
    each = asked.context or 1 << math.ceil(math.log2(max(512.0, s.demand.longest_request)))
    return {
        "model": model,
        "file": shlex.quote(gguf(asked.model, weights)),
        "n_gpus": r.n_gpus,
        "tp": r.tp,
        "group": r.group,
        "pp": r.pp if r.pp > 1 else 0,
        "dp": ranks if ranks > 1 else 0,
        "ep": r.ep if r.ep > 1 else 0,
        "sequences": sequences,
        "whole_sequences": sequences * ranks,
        "chunk": s.scheduler.token_budget // ranks,
        "whole_chunk": s.scheduler.token_budget,
        "plain": asked.no_deepgemm,
        "poll": asked.poll,
        "deepep": r.dp_attention > 1 and r.group > s.site.software.joint_gpus,
        "two_batches": overlap_frac(r, s.site) > 0.0,
        "context": asked.context or shorter_context(s),
        "share": share,
        "quantisation": "" if model.endswith("-FP8") else QUANTISED.get(weights, ""),
        "kv": "" if r.kv_format == "bf16" else r.kv_format,
        "eager": asked.eager,
        "drafts": n,
        "verified": n + 1,
        "method": {"mtp": "mtp", "eagle": "eagle3"}.get(kind, "ngram"),
        "lora": asked.lora,
        "embed": asked.only == "embed",
        "beside": ranks > 1 or asked.kv or n,
        "layers": 99 if not offload or offload.kind == "experts" else s.model.n_layers - away,
        "host_experts": away if offload and offload.kind == "experts" else 0,
        "slots": slots,
        "all_slots": each * slots,
    }


def shorter_context(s: Service) -> int:
    """Context that the cache holds for sure, where that of the model is longer; else 0. [token]."""
    own, holds = s.model.max_position or 0, kv_tokens(s)
    if own <= holds:
        return 0
    sure = 1 << int(math.log2(max(512.0, min(0.9 * holds, own))))
    return int(max(min(math.ceil(s.demand.longest_request), holds), sure))


BLOCKS_ERROR = 1.15
"""Of an estimate of blocks: vLLM prints 939 and 556 for Qwen3.8-27B on 96 GB (recipes pull request
831), 856 for Qwen3.6-27B-FP8 on H100 (551), 524 for Nemotron 3 Super on two; 1,054, 640, 808, 574
are said."""


def settings_of(asked: Serve, s: Service) -> str:
    """Options that give an engine what was taken on a tight card."""
    memory, few = s.site.software.memory, f" --max-seqs {s.scheduler.max_sequences:.0f}"
    chunk = f" --chunk {s.scheduler.token_budget // s.replica.dp_attention}"
    length = shorter_context(s) if s.site.software.name == "vllm" and not asked.context else 0
    return (
        f"--memory-frac {memory.utilisation_frac:g}{'' if asked.chunk else chunk}"
        f"{'' if asked.max_seqs else few}{f' --context {length}' if length else ''}"
    )


def as_it_comes(asked: Serve, case: ServeCase, found: FoundReplica) -> str:
    """Say where the engine refuses to start by itself, and with what it does; else nothing."""
    s = found.candidate.what
    if isinstance(s, PooledService):
        return ""
    site, name = case.own_sites.get(s.site.software.name), found.candidate.engine
    own = Service(s.model, s.replica, site, s.demand, s.tuning) if site else s
    told = tuple(_refusals(asked, own))
    ways = f"{settings_of(asked, s)}, as answered," if site else " ".join(way for _, way in told)
    why = f"{TITLES.get(name, name)} {' and '.join(why for why, _ in told)}"
    return f"{why}; with {ways} it starts." if told else ""


def _refusals(asked: Serve, s: Service) -> Iterator[tuple[str, str]]:
    """Why an engine does not start with the model's own length or its sequences; what starts it."""
    if not s.fits:
        yield "has by itself no room for its cache here", ""
        return
    vllm, own, holds = s.site.software.name == "vllm", s.model.max_position or 0, kv_tokens(s)
    if vllm and not asked.context and (length := shorter_context(s)):
        sure = "" if own > BLOCKS_ERROR * holds else "probably "
        why = f"{sure}refuses the model's own {own:,} tokens here (the cache holds {holds:,.0f})"
        yield why, f"--max-model-len {length}"
    most = asked.max_seqs or s.site.software.max_sequences
    blocks = state_blocks(s.model, s.replica, s.room.cache_bytes)
    if s.site.software.counts_states and not asked.draft and most > blocks / BLOCKS_ERROR:
        sure, least = "", ""
        if most <= BLOCKS_ERROR * blocks:
            sure, least = "probably ", f", perhaps {blocks / BLOCKS_ERROR:,.0f}"
        named = "the" if asked.max_seqs else "its own"
        why = f"{sure}refuses {named} {most:,.0f} sequences here (the cache has about "
        why += f"{blocks:,.0f} blocks{least}, and each state takes one)"
        yield why, f"--max-num-seqs {1 << int(math.log2(max(1.0, blocks / BLOCKS_ERROR)))}"


def checkpoint(asked: str, model: ModelSpec, weights: str) -> str:
    """Name on the hub that an engine loads; a folder where there is none in the format."""
    path = Path(asked)
    if path.is_file():
        return f"./{path.parent}".removesuffix("/.") if not path.is_absolute() else str(path.parent)
    from gpuscale.io.models import load_model
    from gpuscale.io.serving import load_checkpoints

    own = model.hub or f"./{asked}" * path.is_dir()
    on_hub = asked if "/" in asked else load_checkpoints().get(asked.strip().lower(), own)
    stored = (load_model(on_hub).spec if on_hub == model.hub != "" else model).published_format
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


def benchmark_line(asked: Serve, case: ServeCase, found: FoundReplica) -> str:
    """Benchmark that measures what was predicted, of one replica with its share of the load."""
    copies = max(1, found.copies)
    demand, engine = case.demand, found.candidate.engine
    n, o = round(demand.inputs.mean), round(demand.outputs.mean)
    model = shlex.quote(checkpoint(asked.model, case.model, found.candidate.weights))
    if _own(asked, found) == "mlx":
        return f"mlx_lm.benchmark --model {model} -p {n} -g {o}"
    if engine == "llama.cpp":
        return f"llama-bench -m {gguf(asked.model, found.candidate.weights)} -p {n} -n {o}"
    if n_users := asked.concurrency:
        n_prompts = math.ceil((asked.requests or 10 * n_users) / copies)
        load = f"--max-concurrency {math.ceil(n_users / copies)} --num-prompts {n_prompts}"
    elif asked.burst:
        load = f"--num-prompts {math.ceil(asked.burst / copies)}"
    else:
        rate = (asked.rate or found.at_most_per_s) / copies
        load = f"--request-rate {rate:.3g} --num-prompts {max(100, round(300 * rate))}"
    tool = "vllm bench serve" if engine != "sglang" else "python -m sglang.bench_serving"
    backend = {"vllm": "", "sglang": " --backend sglang"}.get(engine, " --backend openai")
    if asked.only == "embed" and engine != "sglang":
        backend = " --backend openai-embeddings --endpoint /v1/embeddings"
    names = f"--dataset-name random --random-input-len {n} --random-output-len {o}"
    return f"{tool}{backend} --model {model} {names} {load} --ignore-eos"
