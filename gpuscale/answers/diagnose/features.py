"""What is known of a run, and what its logs say, as features: left-hand sides of the signs."""

from __future__ import annotations

import re

from gpuscale.answers.diagnose.case import RunCase, named_params
from gpuscale.core.diagnosis.series import COUNTS
from gpuscale.core.model.layer_shape import kv_bytes_per_token
from gpuscale.io.run import first_of, load_table, told

TRANSPORTS = ("gdr", "ib", "socket", "shm", "p2p")
FULL, PREFILL = 0.85, 50.0
"""Use of the cache that is full; prompt tokens a generated one from which prefill is all."""


def add_logged(case: RunCase, f: Features) -> None:
    """Put what logs say to what is known."""
    for log in case.logs:
        names = [f"transport_{name}" for name in TRANSPORTS]
        f |= {name: "used" for name in names if log.fact(name)}
        if {v.lower() for k, v in log.firsts if k == "cuda_graph"} == {"true", "false"}:
            f["cuda_graph_mixed"] = "yes"
            f.pop("cuda_graph", None)
        if rows := log.tables.get("nccl_tests"):
            f["message_bytes"] = max(float(r["size"].value) for r in rows if "size" in r)
        last, _, line = log.events[-1] if log.events else ("", 0.0, 0)
        if (oom := log.fact("oom")) and last == "evaluation" and line < oom.line:
            f["oom_after_eval"] = "yes"
    if f.get("transport_ib") and not f.get("transport_gdr"):
        f["ib_without_gdr"] = "yes"
    if nics := case.log_text("nics"):
        f["nics_used"] = float(nics.count("["))
    _shares(case, f)
    _demand(case, f)
    _step(case, f)


def _shares(case: RunCase, f: Features) -> None:
    n = case.log_number
    spare = n("oom_reserved_unallocated")
    if spare is None and n("oom_reserved") and n("oom_allocated"):
        spare = (n("oom_reserved") or 0) - (n("oom_allocated") or 0)
    for name, pair in load_table("_known")["shares"].items():
        part, whole = (spare if key == "spare" else n(key) for key in pair.split())
        if part is not None and whole:
            f[name] = part / whole
    kv, waiting = n("kv_usage"), n("waiting")
    if kv is not None and waiting:
        if kv > FULL:
            f["waiting_full"] = "yes"
        elif float(f.get("prompt_over_generated", 0.0)) <= PREFILL:
            f["waiting_free"] = "yes"


LEAST_LENGTH = 128.0
"""Tokens of a request where nobody says them."""


def _demand(case: RunCase, f: Features) -> None:
    """Bytes of weights and context over the cards', and tokens of all requests over the room."""
    if (size := _weights(case)) and case.gpu is not None:
        cards = size / case.gpu.hbm_bytes
        if told("offloading", case.software):
            f["weights_share"] = cards / (case.gpus or 1)
        if f.get("oom") == "yes" and not told("filling", case.software):
            f["oom_weights"] = cards / (case.gpus or 1)
        if case.kind == "serving" and (tp := case.number("tp")):
            f["tp_over_need"] = tp / max(1.0, cards)
    clients = case.number("clients") or case.number("max_num_seqs")
    if not clients or case.kind not in ("serving", "rl"):
        return
    room = case.log_number("kv_tokens") or case.number("kv_tokens") or case.number("kv_cache")
    if room := room or _cache_tokens(case):
        said = [case.number(k) for k in ("in", "input_len", "out", "output_len")]
        f["kv_demand"] = clients * (sum(v for v in said if v) or LEAST_LENGTH) / room


def _cache_tokens(case: RunCase) -> float | None:
    """Room for the cache in tokens: what the weights leave of the share that the engine takes."""
    if case.model is None or case.gpu is None:
        return None
    each = kv_bytes_per_token(case.model)
    share = case.number("gpu_memory_utilization") or ENGINE_SHARE
    left = share * case.gpu.hbm_bytes * (case.gpus or 1) - _weights(case)
    return left / each if left > 0 and each > 0 else None


def _weights(case: RunCase) -> float:
    """Bytes of the weights in the format that is named; 0 where the model is not known."""
    if bits := re.search(r"(\d(?:\.\d+)?) ?bpw", case.said):
        return case.params * float(bits[1]) / 8
    return case.params * float(first_of(load_table("_words")["weights"], case.said) or 2.0)


ENGINE_SHARE = 0.9
"""Share of the card that vLLM takes unless told otherwise (gpu_memory_utilization)."""


def _step(case: RunCase, f: Features) -> None:
    n = case.log_number
    parts = [n(k) for k in ("forward", "backward", "optimizer")]
    if parts[2] and any(parts[:2]):
        share = parts[2] / sum(p for p in parts if p)
        f["optimizer_share"] = share
        if share > 0.5:
            f["cpu_optimizer"] = "yes"
    said = {x.name: x.value for x in case.figures}
    peaks = (case.gpu.flop_per_s(f) for f in ("bf16", "fp16")) if case.gpu else ()
    peak = next(filter(None, peaks), None)
    tokens, whole, mfu = (
        n(k) or said.get(k) for k in ("tokens_per_s_per_gpu", "tokens_per_s", "mfu")
    )
    if tokens is None and whole and case.gpus:
        tokens = whole / case.gpus
    params = n("params") or f.get("model_params")
    if tokens and peak and mfu and params and f.get("moe") != "yes":
        f["printed_over_own_mfu"] = mfu / (6 * float(params) * tokens / peak)
    if mfu is not None and mfu > 1:
        f["mfu"] = mfu
    if peak and (used := n("peak_flops")):
        f["peak_over_card"] = used / peak


Features = dict[str, str | float]

KNOWN = load_table("_known")
"""Facts and settings that are features under their own name."""
FAR = 1.3
"""Times off from which an MFU alone is doubted."""
IDLE = 0.4
"""Utilisation of a GPU that somebody calls low."""
FILLED = 0.6
"""Share of a card that an engine fills."""
SMALL, LARGE_VOCAB = 3e9, 100_000
"""Parameters below which a model is small, and entries from which a vocabulary is large."""


def features_of(case: RunCase, past: Features) -> Features:
    """Gather what is known; `past`: what the series show."""
    f: Features = {"kind": case.kind, "software": case.software, "said": case.said}
    if case.gpu_name:
        f["gpu"] = case.gpu_name.lower()
    for name in KNOWN["texts"].split():
        if text := case.log_text(name) or case.settings.get(name):
            f[name] = text.lower()
    logged = KNOWN["numbers"].split()
    for name in dict.fromkeys((*logged, *KNOWN["said"].split())):
        value = case.log_number(name) if name in logged else None
        if (value := case.number(name) if value is None else value) is not None:
            f[name] = value
    _figures(case, f)
    _machine(case, f)
    _model(case, f)
    _layout(case, f)
    places = {"said": case.said, "gpu": case.gpu_name.lower()}
    places["expected"] = str(f.get("expected_text", ""))
    ooms = " ".join(x.text.lower() for x in case.figures if x.name == "oom")
    places["oom"] = ooms + case.said if f.get("oom") == "yes" else ""
    places["symptom"] = " ".join(f"{x.name} {x.text.lower()}" for x in case.figures)
    places["util"] = " ".join(x.text.lower() for x in case.figures if x.name == "gpu_util")
    words = load_table("_words")["features"].items()
    found = ((name, v) for name, (at, regex, *v) in words if re.search(regex, places[at]))
    f |= {name: "".join(value) or "yes" for name, value in found}
    if f.get("low_util"):
        f.setdefault("gpu_util", IDLE)
    if old := _old(case):
        f["old_software"] = old
    add_logged(case, f)
    return {**past, **f}


OLD = 2
"""Years behind the newest release of the table from which software is old."""


def _old(case: RunCase) -> str:
    """Software of years ago, as the logs or a person name its version: ``nccl 2.14 is of 2022``."""
    for name, years in load_table("_released").items():
        logged = case.log_text(f"version_{name}") or ""
        hit = re.search(rf"{name}\D{{0,9}}(\d+\.\d+)", f"{case.said}; {name} {logged}")
        year = years.get(hit[1]) if hit else None
        if year and year <= max(years.values()) - OLD:
            return f"{name} {hit[1] if hit else ''} is of {year}"
    return ""


def _figures(case: RunCase, f: Features) -> None:
    words = case.said
    for figure in case.figures:
        if figure.value is not None:
            f["ttft_s" if figure.name == "ttft" else figure.name] = figure.value
        if figure.expected_text:
            f["expected_text"] = figure.expected_text.lower()
    f["symptom_text"] = " ".join(x.name for x in case.figures)
    if case.main is not None and (ratio := case.main.ratio) is not None:
        if case.main.name == "memory":
            f["memory_over_expected"] = ratio
        if case.main.name != "memory" or ratio > 1:
            f["ratio"] = ratio
        if ratio > FAR and {x.quantity.symptom for x in case.figures} == {"mfu"}:
            f["only_mfu"] = "yes"
    if any(x.name == "oom" for x in case.figures) or re.search(r"\boom\b|out of memory", words):
        f["oom"] = "yes"
    total = case.gpu.hbm_bytes if case.gpu is not None else 80e9
    if hit := re.search(r"(\d+) *% unalloc|(\d+(?:\.\d+)?) *gi?b reserved but unalloc", words):
        f["unallocated_share"] = float(hit[1]) / 100 if hit[1] else float(hit[2]) * 1e9 / total
    if hit := re.search(r"(?:size|message|all_reduce|bytes)\D{0,12}(\d+) ?(k|m|g)i?b\b", words):
        f["message_bytes"] = float(hit[1]) * COUNTS[hit[2].upper()]
    seen = f.get("bandwidth") or f.get("busbw")
    if seen and case.gpu is not None and case.gpu.hbm_bytes_per_s:
        f["over_hbm"] = float(seen) / case.gpu.hbm_bytes_per_s
    if case.gpu is not None and (held := f.get("memory") or case.log_number("memory_reserved")):
        f["memory_share"] = float(held) / total
    if case.kind == "serving" and told("filling", case.software) and not f.get("oom"):
        share = float(f.get("memory_share", 1.0))
        if f["symptom_text"] and "memory" in case.symptoms and share > FILLED:
            f["engine_fills"] = "yes"
            f.pop("ratio", None)  # the wish is of what the model needs


def _machine(case: RunCase, f: Features) -> None:
    words = case.said
    for name, n in (("gpu", case.gpus), ("node", case.nodes)):
        if n is not None:
            f |= {f"{name}s": float(n), f"multi_{name}": "yes" if n > 1 else "no"}
    if f.get("multi_node") == "yes":
        f.setdefault("multi_gpu", "yes")
    if case.kind == "serving" and not told("several_nodes", words):
        f.setdefault("multi_node", "no")
    if "nodes" not in f and (
        told("several_nodes", words) or case.kind == "network" and told("fabrics", words)
    ):
        f["multi_node"] = "yes"
    several = f.get("multi_gpu") == "yes" or case.kind == "network"
    if told("consumer", words) and several and f.get("oom") != "yes":  # no memory is of the wires
        f["consumer_p2p"] = "yes"
    count, rate = case.nics
    if not count and (hit := told("ports", words)):
        count = float(hit[1] or 1)
    if count:
        f["nics"] = count
    usual = case.cluster.nics_per_node if case.cluster and case.kind == "network" else 0
    if (nics := float(f.get("nics") or usual or 0)) and case.gpus and (case.nodes or 1) > 1:
        over = nics / (case.gpus / (case.nodes or 1))
        f["nics_over_gpus"] = over
        if over > 1:
            f.pop("ratio", None)  # the wish is of links that no GPU reaches
    if case.kind == "serving" and (case.nodes or 1) > 1 and case.gpus:
        if (case.number("tp") or 1) > case.gpus / (case.nodes or 1):
            f["tp_over_nodes"] = "yes"
    c, busbw = case.cluster, float(f.get("busbw", 0.0))
    if c is not None and c.node_egress_bytes_per_s and not rate:
        count = c.nics_per_node or 1
        rate = c.node_egress_bytes_per_s / count
    if busbw and rate and f.get("multi_node") == "yes":
        f["nic_share"] = busbw / rate
        if (count or 1) > 1 and 0.6 <= busbw / rate <= 1.1:
            f["near_one_nic"] = "yes"


def _model(case: RunCase, f: Features) -> None:
    words = case.said
    if told("moe", words) or getattr(case.model, "is_moe", False):
        f["moe"] = "yes"
    elif case.model is not None:
        f["moe"] = "no"
    params = case.params
    if case.model is not None:
        if case.model.vocab_size > LARGE_VOCAB:
            f["large_vocab"] = "yes"
        counted = case.log_number("params")
        if counted and case.kind == "pretrain":
            f["params_ratio"] = counted / params
    if params:
        f |= {"model_params": params, "small_model": "yes" if params < SMALL else "no"}
        if held := f.get("memory"):
            f["bytes_per_param"] = float(held) / params
    _shape(case, f)
    if re.search(r"bf16|fp16|float16|fp32", words):
        f["fp8"] = "no"
    if told("quantised", words):
        f["quantised"] = "yes"
        wished = re.search(r"^(above|faster|more than)", str(f.get("expected_text", "")))
        if wished and not re.search(r"--quantization|quantization *=", words):
            f["unforced_quant"] = "yes"  # 4 bits save bytes, not FLOP: the wish is the mistake
    elif case.kind == "serving" and re.search(r"dtype *= *(bf16|fp16|fp32)|bfloat16", words):
        f["quantised"] = "no"


def _shape(case: RunCase, f: Features) -> None:
    """Parameters that width and layers mean, beside those that the name says."""
    width, layers = case.number("width"), case.number("layers")
    if width and layers and (said := named_params(case.model_name)):
        f["named_over_shaped"] = max(said) / (12 * layers * width**2)
    dims = [case.number(k) for k in ("vocab_size", "ffn_hidden_size", "width")]
    if any(dims):
        f["misaligned"] = "yes" if any(d % 64 for d in dims if d) else "no"


def _layout(case: RunCase, f: Features) -> None:
    words, zero = case.said, case.number("zero")
    if zero == 3 or told("sharded", words):
        f["sharded"] = "no" if told("hybrid", words) else "yes"
        if f.get("multi_node") == "no" and float(f.get("model_params", 1e12)) < 1e10:
            f["zero3_one_node"] = "yes"
    elif zero is not None or "ddp" in words:
        f["sharded"] = "no"
        if "oom" in f:
            f["oom_ddp"] = "yes"
    offload = case.settings.get("offload", "") + case.settings.get("zero", "")
    logged = case.log_text("offload_optimizer") or case.log_text("cpu_adam")
    if told("cpu_optimizer", f"{words} {offload}") or logged or "optimizer" in offload:
        f["cpu_optimizer"] = "yes"
    elif case.kind in ("pretrain", "finetune", "rl") and "oom" not in f:
        f["cpu_optimizer"] = "no"
    pp, batch, dp = case.number("pp"), case.number("global_batch"), _replicas(case)
    if pp is None and case.kind != "serving":
        f["pp"] = 1.0
    if pp is not None and pp > 1:
        each = case.number("micro_batch") or 1
        count = case.log_number("micro_batches") or (batch / each / dp if batch and dp else None)
        if count:
            f["micro_batches"] = count
            f["bubble"] = (pp - 1) / (count * (case.number("vpp") or 1) + pp - 1)
    if tokens := _tokens_per_replica(case, dp):
        f["tokens_per_replica"] = tokens
    off = [k for k in KNOWN["overlaps"].split() if case.settings.get(k, "").lower() == "false"]
    if off and f.get("multi_gpu") == "yes":
        f["overlap_off"] = off[0]
    if case.kind == "serving" and (case.number("tp") or case.gpus or 1) > 1:
        wish = f"{f.get('expected_text', '')} {words}"
        if told("against_one", wish) and float(f.get("model_params", 0)) < 8e10:
            f["tp_no_gain"] = "yes"  # the wish is of a split that no small model gives
            f.pop("ratio", None)


def _replicas(case: RunCase) -> float | None:
    """Return the copies of the model, each of which reads its weights for tokens of its own."""
    if (dp := case.number("dp")) is not None or not case.gpus:
        return dp
    tp, cp, pp = (case.number(k) or 1 for k in ("tp", "cp", "pp"))
    return max(1.0, case.gpus / (tp * cp * pp))


def _tokens_per_replica(case: RunCase, replicas: float | None) -> float | None:
    length, batch = case.number("seq_len"), case.number("global_batch")
    if length and batch and replicas:
        return length * batch / replicas
    each = case.number("micro_batch") or case.number("batch")
    return length * each * (case.number("accumulation") or 1) if length and each else None
