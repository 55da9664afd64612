"""Rows of a table of served models: names and formats to specs, blanks filled and named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from gpuscale.core.serving.records import Replica, Requests
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.measurements import number, whole

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec

Row = Mapping[str, str]

MLPERF_LIMITS = {  # model -> scenario -> (TTFT, TPOT) of the 99th percentile [s]
    "llama2-70b": {"server": (2.0, 0.2), "interactive": (0.45, 0.04)},
    "llama3.1-405b": {"server": (6.0, 0.175), "interactive": (4.5, 0.08)},
    "llama3.1-8b": {"server": (2.0, 0.1), "interactive": (0.5, 0.03)},
    "mixtral-8x7b": {"server": (2.0, 0.2)},
    "deepseek-v3": {"server": (2.0, 0.08)},
}
"""Latency limits of the benchmark's scenarios: MLPerf inference rules v5.1, datacenter."""

DATA_SETS = (  # words in the note -> (input, output) tokens
    (r"openorca/gsm8k|mbxp", 145.0, 145.0),  # MLCommons reference: output 145, prompts alike
    (r"openorca", 294.0, 294.0),
    (r"longbench|ruler", 9400.0, 680.0),
    (r"reasoning", 800.0, 3900.0),
    (r"cnn|dailymail|summaris", 778.0, 73.0),
)
"""Mean lengths of data sets where a row prints none, as printed in the rows' notes or by the
MLCommons reference implementations of the tasks (mean CNN/DailyMail article and summary)."""

RANDOM_LENGTHS = (1024, 8192)
"""Nominal maxima of the public benchmark that draws lengths from 0.8 to 1 times these."""

MEAN_OF_RANDOM = 0.9


@dataclass(frozen=True, slots=True)
class ServedRow:
    """One served model, ready to be predicted."""

    id: str
    gpu: str
    model: ModelSpec
    cluster: ClusterSpec
    framework: str
    replicas: tuple[Replica, ...]  # the layout, or those to choose from
    n_gpus: int
    requests: Requests
    nominal_output: float  # as printed
    kind: str  # "closed", "offline", "static"
    limits: tuple[float, float] | None  # TTFT, TPOT of the scenario
    classes: Mapping[str, str]
    assumed: tuple[str, ...] = ()


def framework_of(text: str) -> str:
    """Framework family of a printed name; `trtllm` where none is known.

    Examples
    --------
    >>> framework_of("vllm 0.15.1"), framework_of("TensorRT 10.11, CUDA 12.9")
    ('vllm', 'trtllm')
    """
    lowered = text.lower()
    return next((n for n in ("sglang", "vllm") if n in lowered), "trtllm")


@lru_cache(maxsize=256)
def served_model(name: str) -> tuple[ModelSpec | None, str]:
    """(model, what was assumed) of a printed name, Hugging Face names included."""
    from gpuscale.evidence.rows.models import model_of
    from gpuscale.io.models import load_model

    tail = name.split("/")[-1].lower().replace("_", "-")
    tail = re.sub(r"^(meta-|nvidia-)", "", tail)
    words = tail.split("-")
    for n in range(len(words), 0, -1):
        try:
            return load_model("-".join(words[:n])).spec, ""
        except (GpuscaleError, OSError):
            continue
    return model_of({"model": name})


def formats(row: Row, model: ModelSpec, framework: str) -> tuple[str, str, str]:
    """(format of FFN weights, of attention weights, of the cache) of a row.

    Checkpoints in fp4 of mixture-of-experts models keep attention in 16 bits (NVIDIA's model
    cards of DeepSeek-R1-FP4 and Kimi-K2 NVFP4; gpt-oss, section 2.1); models published in fp8
    (DeepSeek-V3, section 3.3; Qwen3 FP8) are scaled in blocks.
    """
    text = row.get("precision", "").lower()
    moe = any(f.kind == "moe" for f in model.ffns.values())
    mla = any(m.kind == "mla" for m in model.mixers.values())
    cache = "fp8" if framework == "trtllm" else "bf16"
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
    return "bf16", "bf16", "bf16"


def served_row(row: Row, index: int) -> ServedRow | str:
    """Read one row; a text tells why it cannot be predicted."""
    model, note = served_model(row.get("model", ""))
    if model is None:
        return f"unknown model {row.get('model', '')[:40]!r}: {note}"
    cluster = served_cluster(row.get("gpu", ""))
    if cluster is None:
        return f"unknown GPU {row.get('gpu', '')[:40]!r}"
    n_gpus = whole(row.get("n_gpus"), 100_000) or whole(row.get("tp"), 4096) or 1
    framework = framework_of(row.get("framework", ""))
    assumed = [note] if note else []
    found = _requests(row)
    if isinstance(found, str):
        return found
    requests, nominal, kind, more = found
    replicas = _replicas(row, model, framework, cluster, n_gpus)
    if len(replicas) > 1:
        assumed.append("layout: the fastest that fits")
    scenario = row.get("scenario", "").lower()
    limits = MLPERF_LIMITS.get(model.name, {}).get(scenario)
    if scenario in ("server", "interactive") and limits is None:
        limits = (2.0, 0.2) if scenario == "server" else (0.5, 0.03)
    moe = any(f.kind == "moe" for f in model.ffns.values())
    return ServedRow(
        id=row.get("id") or f"row-{index}",
        gpu=row.get("gpu", ""),
        model=model,
        cluster=cluster,
        framework=framework,
        replicas=replicas,
        n_gpus=n_gpus,
        requests=requests,
        nominal_output=nominal,
        kind=kind,
        limits=limits,
        assumed=(*assumed, *more),
        classes={
            "model": row.get("model", ""),
            "framework": framework,
            "kind": kind,
            "source": row.get("source", "").split(":")[0],
            "dense_or_moe": "moe" if moe else "dense",
            "precision": row.get("precision", "") or "bf16 (blank)",
            "architecture": cluster.gpu.architecture,
        },
    )


@lru_cache(maxsize=64)
def served_cluster(gpu: str) -> ClusterSpec | None:
    """Usual node of a printed GPU; None for an unknown one."""
    from gpuscale.evidence.rows.hardware import gpu_preset
    from gpuscale.io.hardware import load_cluster

    try:
        return load_cluster(gpu)
    except (GpuscaleError, OSError):
        preset, _, known = gpu_preset(gpu)
    return load_cluster(preset) if known else None


def _requests(row: Row) -> tuple[Requests, float, str, list[str]] | str:
    n, o = number(row.get("input_len"), high=1e8), number(row.get("output_len"), high=1e8)
    concurrency = number(row.get("concurrency"), high=1e6)
    note, scenario = row.get("note", "").lower(), row.get("scenario", "").lower()
    assumed = []
    if n is None or o is None:
        known = next(((a, b) for words, a, b in DATA_SETS if re.search(words, note)), None)
        if known is None:
            return "no lengths, and the data set is unknown"
        n, o = n or known[0], o or known[1]
        assumed.append("mean lengths of the data set")
    if max(n, o) < 1:
        return "lengths below 1"
    nominal = o
    drawn = "nominal maxima" in note and {n, o} <= set(RANDOM_LENGTHS)
    if drawn:
        n, o = MEAN_OF_RANDOM * n, MEAN_OF_RANDOM * o
    if "static" in scenario:
        kind = "static"
    else:
        kind = "offline" if concurrency is None else "closed"
    if concurrency is not None:
        concurrency = max(1.0, concurrency)
    return Requests(max(1.0, n), max(1.0, o), concurrency), nominal, kind, assumed


def _replicas(
    row: Row, model: ModelSpec, framework: str, cluster: ClusterSpec, n_gpus: int
) -> tuple[Replica, ...]:
    tp, pp = whole(row.get("tp"), 4096), whole(row.get("pp"), 4096)
    dp, ep = whole(row.get("dp_attention"), 4096), whole(row.get("ep"), 4096)
    ffn, attention, cache = formats(row, model, framework)
    moe = any(f.kind == "moe" for f in model.ffns.values())
    dtypes = {"ffn_format": ffn, "attention_format": attention, "kv_format": cache}
    if tp is not None and dp is not None:
        return (Replica(tp, pp or 1, dp, ep or 1, **dtypes),)
    if tp is not None:
        one = Replica(tp, pp or 1, 1, ep or 1, **dtypes)
        return (one, Replica(1, pp or 1, tp, tp, **dtypes)) if moe and tp > 1 else (one,)
    sizes = [n for n in (1, 2, 4, 8, 16) if n <= min(n_gpus, max(8, cluster.gpus_per_node))]
    made = [Replica(n, 1, 1, 1, **dtypes) for n in sizes]
    if moe:
        made += [Replica(1, 1, n, n, **dtypes) for n in sizes if n > 1]
    return tuple(made)
