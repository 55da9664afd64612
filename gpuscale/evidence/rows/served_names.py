"""Names in tables of served models: model, engine, GPU, number formats, drafts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from gpuscale.core.serving.layouts import cache_format
from gpuscale.core.serving.records import Drafts, drafts_of_mean
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.words import Row, meaning

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec

DECORATIONS = re.compile(
    r"(instruct|chat|base|it|hf|preview|thinking|reasoning|turbo|gguf|awq|gptq|fp8|fp4|nvfp4|mxfp4"
    r"|bf16|fp16|int4|int8|w8a8|w4a16|w4a4|dynamic|block|static|quantized|exl2|marlin|channel"
    r"|q\d(_?\w)*|i?q\d|k|m|s|kl|v\d(\.\d+)?|\d{4}|\d+(\.\d+)?bpw|mtp|eagle\d?)"
)
"""What may follow a model's name without changing its shape: variants, formats, dates."""


def framework_of(text: str) -> tuple[str, str]:
    """Engine family of a printed name, and what was assumed where it is not one of them.

    Examples
    --------
    >>> framework_of("vllm 0.15.1"), framework_of("TensorRT 10.11, CUDA 12.9")
    (('vllm', ''), ('trtllm', ''))
    >>> framework_of("atom (ROCm)")
    ('vllm', 'engine taken as vllm')
    """
    if own := meaning("engine", text):
        return own, ""
    if near := meaning("nearest_engine", text):
        return near, f"engine taken as {near}"
    return "trtllm", f"engine {text[:30]!r} taken as trtllm" if text else "engine not printed"


@lru_cache(maxsize=256)
def served_model(name: str) -> tuple[ModelSpec | None, str]:
    """(model, what was assumed) of a printed name, Hugging Face names included.

    A name is a known one and decorations (`DECORATIONS`); a dense model of unknown shape is
    assumed Llama-shaped by its size; a mixture of experts (`-A22B`) of unknown shape is not known.
    """
    from gpuscale.evidence.rows.models import model_of
    from gpuscale.io.models import load_model

    tail = name.split("/")[-1].lower().replace("_", "-").replace(" ", "-")
    tail = re.sub(r"^(meta-|nvidia-)", "", tail)
    distilled = re.search(r"distill-(qwen|llama)-[\d.]+b", tail)
    if distilled:
        return load_model(meaning("distilled", distilled[0][8:]) or tail).spec, ""
    words = tail.split("-")
    for n in range(len(words), 0, -1):
        try:
            found = load_model("-".join(words[:n])).spec
        except (GpuscaleError, OSError):
            continue
        other = [w for w in words[n:] if not DECORATIONS.fullmatch(w)]
        if not other:
            return found, ""
        return None, f"`{'-'.join(words[:n])}` is known, `-{'-'.join(other)}` is not"
    if re.search(r"a\d+(\.\d+)?b\b|\d+x\d+(\.\d+)?b|moe", tail):
        known, note = model_of({"model": name}) if "nemotron-3" in tail else (None, "")
        return known, note or "a mixture of experts of unknown shape"
    return model_of({"model": name})


@lru_cache(maxsize=64)
def served_cluster(gpu: str) -> ClusterSpec | None:
    """Usual node of a printed GPU; None for an unknown one."""
    from gpuscale.evidence.rows.hardware import gpu_preset
    from gpuscale.io.hardware import load_cluster

    try:
        return load_cluster(gpu.strip().lower().replace(" ", "-"))
    except (GpuscaleError, OSError):
        preset = gpu_preset(gpu)
    return load_cluster(preset) if preset else None


GGUF = re.compile(r"\bi?q(\d)_(k(_[sml])?|[01])\b")


def formats(row: Row, model: ModelSpec, framework: str) -> tuple[str, str, str]:
    """(format of FFN weights, of attention weights, of the cache) of a row.

    Checkpoints in fp4 of mixture-of-experts models keep attention in 16 bits (NVIDIA's model
    cards of DeepSeek-R1-FP4 and Kimi-K2 NVFP4; gpt-oss, section 2.1); models published in fp8
    (DeepSeek-V3, section 3.3; Qwen3 FP8) are scaled in blocks.
    """
    text = row.get("precision", "").lower()
    note = row.get("note", "").lower()
    moe = any(f.kind == "moe" for f in model.ffns.values())
    mla = any(m.kind == "mla" for m in model.mixers.values())
    cache = cache_format(framework, "fp8")
    printed = re.search(r"kv[ -]cache (bf16|fp8|fp16)", note)
    if printed:
        cache = printed[1].replace("fp16", "bf16")
    gguf = GGUF.search(text)
    if gguf:
        return _gguf(gguf[0]), _gguf(gguf[0]), "bf16"
    if re.search(r"fp4|w4a4", text):
        if model.weight_bits is not None and model.weight_bits < 4.4:
            return "mxfp4", "bf16", cache
        return "nvfp4", "bf16" if moe else "nvfp4", cache
    if re.search(r"int4|w4a16|awq|gptq", text):
        return "int4-g32", "bf16" if moe else "int4-g32", "bf16"
    if re.search(r"mxfp8", text):
        return "mxfp8", "mxfp8", cache
    if re.search(r"fp8|int8|w8a8", text):
        block = mla or "fp8" in row.get("model", "").lower() or "block" in text
        one = "fp8-block" if block else "fp8"
        return one, one, cache
    if not text and model.weight_bits is not None and model.weight_bits < 4.4:
        return "mxfp4", "bf16", "bf16"
    return "bf16", "bf16", cache if printed else "bf16"


def _gguf(text: str) -> str:
    """Nearest listed format of llama.cpp: its bits decide."""
    bits = int(text.lstrip("i")[1])
    return {8: "q8_0", 6: "q6_k", 5: "q5_k_m"}.get(bits, "q4_k_m")


MTP_ACCEPTANCE = (0.85, 0.65, 0.5)
"""Of a model's own prediction layer used again and again: 85 to 90 % for the first draft
(DeepSeek-V3, section 5.4.3), less for those that it makes of its own drafts."""

EAGLE_ACCEPTANCE = (0.75, 0.65, 0.6)
"""Of an EAGLE-3 head on chat data: 3 to 4.5 tokens a pass of five or more drafts at batch 1
(arXiv:2503.01840, table 1), fewer where the head was trained on other data."""


def drafts_of(row: Row, model: ModelSpec, dp_attention: int) -> tuple[Drafts | None, bool]:
    """(drafts of a row, whether their acceptance is printed).

    `accepted` holds probabilities by position, or the mean tokens of a pass. Where a source prints
    neither, three drafts of the prediction layer are taken (one with data-parallel attention, whose
    batches are large), four of an EAGLE head.
    """
    spec, note = row.get("spec", "").lower(), row.get("note", "").lower()
    printed = re.search(r"([\d.]+) ?% accepted", note)
    if spec in ("", "none", "off", "no") and not printed:
        return None, True
    steps = re.search(r"num[-_](?:draft[-_]tokens|speculative[-_]tokens|steps)[ =:]+(\d+)", note)
    count = re.search(r"(?:mtp|drafts?)\D{0,3}(\d)\b", spec)
    usual = (1 if dp_attention > 1 else 3) if "mtp" in spec or model.n_mtp_layers else 4
    counted = steps or count
    n = int(counted[1]) if counted else (1 if printed else usual)
    if printed:
        return Drafts(n, (min(1.0, float(printed[1]) / 100.0),)), True
    values = [float(v) for v in re.findall(r"\d*\.?\d+", row.get("accepted") or "")]
    if len(values) > 1 or (values and values[0] <= 1.0):
        return Drafts(max(n, len(values)), tuple(min(1.0, v) for v in values)), True
    if values:
        return drafts_of_mean(max(n, int(values[0])), values[0] - 1.0), True
    own = "mtp" in spec or model.n_mtp_layers > 0
    return Drafts(n, MTP_ACCEPTANCE if own else EAGLE_ACCEPTANCE), False
