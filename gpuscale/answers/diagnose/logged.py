"""Features that logs say: transports, engine metrics, memory messages, clocks, parts of a step."""

from __future__ import annotations

import re

from gpuscale.answers.diagnose.case import RunCase
from gpuscale.io.causes import first_of, load_table, told

Features = dict[str, str | float]

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
    from gpuscale.core.model.kv_cache import kv_bytes_per_token

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
