"""Layouts of a serving replica: which are legal, and those worth trying."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.core.records import replace
from gpuscale.core.rules import against_pp, against_tp, facts_of
from gpuscale.core.serving.records import Replica

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

TENSOR_ENGINES = ("vllm", "sglang", "trtllm")
"""Engines that split a layer over GPUs, with attention ranks around experts; llama.cpp gives whole
layers to each."""

TENSOR_OVER_NODES = ("sglang",)
"""Engines that are launched with TP over nodes, where others put stages: docs.sglang.io, Multi-Node
Deployment; sgl-project/sglang@0a9fc02a docs/basic_usage/deepseek.md."""

EIGHT_BIT_CACHE = "trtllm"
"""Engine whose checkpoints in fp8 and fp4 bring a cache in fp8: ModelOptimizer's `hf_quant_config`
(`kv_cache_quant_algo`), which TensorRT-LLM follows; vLLM and SGLang start with 16 bits."""


def cache_format(engine: str, weights: str) -> str:
    """Format of the cache that an engine takes by itself.

    >>> cache_format("trtllm", "fp8"), cache_format("vllm", "fp8")
    ('fp8', 'bf16')
    """
    narrow = weights.startswith(("fp8", "nvfp4"))
    return "fp8" if engine == EIGHT_BIT_CACHE and narrow else "bf16"


ATTENTION_KEPT = ("nvfp4", "mxfp4", "int4-g32")
"""Formats whose mixture-of-experts checkpoints keep attention in 16 bits: model cards of
DeepSeek-R1-FP4 and Kimi-K2 NVFP4; gpt-oss, section 2.1. AWQ and GPTQ narrow it too: Qwen3-235B in
GPTQ is 123.8 GB (conselara.dev/notes/dgx-spark-benchmarks: 57.64 GiB on each of two). So do most of
models with states: 27 GB of Qwen3.5-27B, 20 where it is narrowed (rdtand's model card)."""


def checkpoint_formats(model: ModelSpec, weights: str, kv: str) -> Replica:
    """Find the formats of a checkpoint: experts, attention, cache; a replica without degrees.

    Models published in fp8 with a latent cache are scaled in blocks (DeepSeek-V3, section 3.3).
    """
    states = any(m.cache().state_elements for m in model.mixers.values())
    if weights == "fp8" and latent(model):
        weights = "fp8-block"
    kept = ((n_experts(model) or states) and weights in ATTENTION_KEPT) or (
        weights == "fp8" and model.fp8_keeps_attention
    )
    attention = "bf16" if kept else weights
    return Replica(ffn_format=weights, attention_format=attention, kv_format=kv)


def n_experts(model: ModelSpec) -> int:
    """Routed experts of a layer; 0 for a dense model. [1]."""
    return max((f.n_experts for f in model.expert_ffns), default=0)


def latent(model: ModelSpec) -> bool:
    """Whether the cache is one latent per token, which tensor parallelism repeats."""
    return any(m.kind in ("mla", "compressed") for m in model.mixers.values())


def refusal(model: ModelSpec, replica: Replica, engine: str = "vllm") -> str:
    """Say why an engine cannot run a layout; empty where it can.

    >>> from gpuscale.io.models import load_model
    >>> llama = load_model("llama3-70b").spec
    >>> refusal(llama, Replica(tp=6)), refusal(llama, Replica(tp=8))
    ('tp=6 does not divide 64 heads', '')
    """
    experts = n_experts(model)
    if engine not in TENSOR_ENGINES and replica.group > 1:
        return f"{engine} gives whole layers to each GPU: pp, not tp"
    facts = facts_of(model, 1, 1, replica.n_gpus)
    broken = against_tp(replica.tp, facts) or against_pp(replica.pp, 1, facts)
    if broken is not None:
        return broken.message
    if replica.pp > model.n_layers:  # engines hand out layers; no stage holds the head alone
        return f"pp={replica.pp} is more than {model.n_layers} layers"
    if replica.ep > 1 and not experts:
        return f"ep {replica.ep}: {model.name} has no experts"
    if replica.ep > max(1, experts):
        return f"ep {replica.ep} is more than the {experts} experts"
    if replica.ep > 1 and replica.group % replica.ep:
        return f"ep {replica.ep} does not divide the {replica.group} GPUs that share a layer"
    if replica.dp_attention > 1 and not experts:
        return f"dp-attention {replica.dp_attention}: {model.name} has no experts to share"
    drafts = replica.drafts
    if drafts is not None and drafts.n_tokens < 1:
        return "a draft has at least one token"
    return ""


def degrees(most: int) -> tuple[int, ...]:
    """Powers of two up to `most`, and `most` itself.

    >>> degrees(8), degrees(6), degrees(72)
    ((1, 2, 4, 8), (1, 2, 4, 6), (1, 2, 4, 8, 16, 32, 64, 72))
    """
    found = []
    n = 1
    while n <= most:
        found.append(n)
        n *= 2
    return (*found, most) if found and found[-1] != most else tuple(found)


def replica_layouts(
    model: ModelSpec,
    formats: Replica,
    most_gpus: int,
    domain: tuple[int, int],
    engine: str = "vllm",
) -> list[Replica]:
    """Layouts of one replica worth trying on up to `most_gpus` GPUs.

    Tensor parallelism stays within a machine or the scale-up domain (but `TENSOR_OVER_NODES`).
    Stages are tried where a replica is larger than the part that fast links join; data-parallel
    attention where there are experts to share, whole experts on each GPU.

    `formats`: formats and drafts; its degrees are not looked at. `most_gpus`:
    GPUs that a replica may have. [1] `domain`: GPUs of a scale-up domain, and of the part of it
    within which stages are not worth trying: as many, or 1 where links are slow. [1] `engine`: one
    of `TENSOR_ENGINES`, or llamacpp.
    """
    found: list[Replica] = []
    experts = n_experts(model)
    across = engine in TENSOR_OVER_NODES and domain[1] > 1
    widest = most_gpus if across else min(domain[0], most_gpus)
    tensor = degrees(widest) if engine in TENSOR_ENGINES else (1,)
    for tp in tensor:
        for pp in degrees(min(model.n_layers, most_gpus // tp, 16)):
            one = across and not refusal(model, replace(formats, tp=tp * pp), engine)
            if pp > 1 and (one or tp * pp <= domain[1]):
                continue
            found.append(replace(formats, tp=tp, pp=pp, dp_attention=1, ep=1))
            if experts and tp > 1 and pp == 1 and experts % tp == 0:
                found.append(replace(formats, tp=tp, pp=1, dp_attention=1, ep=tp))
    if experts and engine in TENSOR_ENGINES:
        for n in degrees(most_gpus):
            for tp in (1, 2, 4):
                dp = n // tp
                if dp >= 2 and dp * tp == n and experts >= n:
                    found.append(replace(formats, tp=tp, pp=1, dp_attention=dp, ep=n))
    legal = {r for r in found if not refusal(model, r, engine)}
    return sorted(legal, key=lambda r: (r.n_gpus, r.pp, r.dp_attention, r.tp, r.ep))


def layout_text(replica: Replica) -> str:
    """Layout in words of the field: ``TP 4``, ``TP 8 x PP 2``, ``DPA 8 x EP 8``.

    >>> layout_text(Replica(tp=8, pp=2)), layout_text(Replica(dp_attention=8, ep=8))
    ('TP 8 x PP 2', 'DPA 8 x EP 8')
    """
    parts = []
    if replica.dp_attention > 1:
        parts.append(f"DPA {replica.dp_attention}")
    if replica.tp > 1 or replica.group * replica.pp == 1:
        parts.append(f"TP {replica.tp}")
    if replica.pp > 1:
        parts.append(f"PP {replica.pp}")
    if replica.ep > 1:
        parts.append(f"EP {replica.ep}")
    return " x ".join(parts)
