"""Features that logs say: transports, engine metrics, memory messages, clocks, parts of a step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.answers.diagnose.case import Case

Features = dict[str, str | float]


def add_logged(case: Case, f: Features) -> None:
    """Put what logs say to what is known."""
    _lines(case, f)
    _engine(case, f)
    _card(case, f)
    _step(case, f)


def _lines(case: Case, f: Features) -> None:
    for log in case.logs:
        for name in (
            "transport_gdr",
            "transport_ib",
            "transport_socket",
            "transport_shm",
            "transport_p2p",
        ):
            if name in log.counts:
                f[name] = "used"
        if "cuda_graph" in log.counts:
            seen = {v.lower() for (k, v) in log.firsts if k == "cuda_graph"}
            if seen == {"true", "false"}:
                f["cuda_graph_mixed"] = "yes"
                f.pop("cuda_graph", None)
        if rows := log.tables.get("nccl_tests"):
            f["message_bytes"] = max(float(r["size"].value) for r in rows if "size" in r)
    if f.get("transport_ib") and not f.get("transport_gdr"):
        f["ib_without_gdr"] = "yes"
    if nics := case.log_text("nics"):
        f["nics_used"] = float(nics.count("["))


def _engine(case: Case, f: Features) -> None:
    n = case.log_number
    _demand(case, f)
    layers, on = n("layers"), n("gpu_layers")
    if layers and on is not None:
        f["gpu_layer_share"] = on / layers
    kv, waiting = n("kv_usage"), n("waiting")
    if kv is not None and waiting is not None and waiting > 0:
        f["waiting_full" if kv > 0.85 else "waiting_free"] = "yes"
    prompt, made = n("prompt_tokens_per_s"), n("generation_tokens_per_s")
    if prompt is not None and made:
        f["prompt_over_generated"] = prompt / made
        if prompt / made > 50:
            f.pop("waiting_free", None)
    for key, over, under in (
        ("itl_p99_over_median", "itl_p99", "itl_median"),
        ("tpot_over_itl", "tpot_mean", "itl_median"),
        ("input_over_output", "input_tokens", "output_tokens"),
    ):
        a, b = n(over), n(under)
        if a is not None and b:
            f[key] = a / b


LEAST_LENGTH = 128.0
"""Tokens of a request where nobody says them."""


def _demand(case: Case, f: Features) -> None:
    """Tokens that all requests at once hold, over those that the cache has room for."""
    clients = case.number("clients") or case.number("max_num_seqs")
    room = case.log_number("kv_tokens") or case.number("kv_tokens") or case.number("kv_cache")
    if room is None and case.model is not None and case.gpu is not None:
        room = _cache_tokens(case)
    if clients and room and case.kind in ("serving", "rl"):
        said = [case.number(k) for k in ("in", "input_len", "out", "output_len")]
        f["kv_demand"] = clients * (sum(v for v in said if v) or LEAST_LENGTH) / room


def _cache_tokens(case: Case) -> float | None:
    """Room for the cache in tokens: what the weights leave of the share that the engine takes."""
    from gpuscale.core.model.kv_cache import kv_bytes_per_token
    from gpuscale.core.model.params import count_params

    assert case.model is not None and case.gpu is not None
    each = kv_bytes_per_token(case.model)
    bytes_each = next((b for b, words in WEIGHTS if re.search(words, case.said)), 2.0)
    share = case.number("gpu_memory_utilization") or ENGINE_SHARE
    total = share * case.gpu.hbm_bytes * (case.gpus or 1)
    left = total - bytes_each * count_params(case.model).total_params
    return left / each if left > 0 and each > 0 else None


WEIGHTS = ((0.56, r"awq|gptq|q4|int4|nvfp4|mxfp4|4-?bit"), (1.0, r"fp8|int8|q8|8-?bit"))
"""Bytes a weight, by the words for its format."""
ENGINE_SHARE = 0.9
"""Share of the card that vLLM takes unless told otherwise (gpu_memory_utilization)."""


def _card(case: Case, f: Features) -> None:
    n = case.log_number
    total, asked = n("gpu_memory"), n("oom_request")
    spare = n("oom_reserved_unallocated")
    if spare is None and n("oom_reserved") and n("oom_allocated"):
        spare = (n("oom_reserved") or 0) - (n("oom_allocated") or 0)
    if spare is not None and asked:
        f["unallocated_over_request"] = spare / asked
    if spare is not None and total:
        f["unallocated_share"] = spare / total
    if asked and total:
        f["oom_request_share"] = asked / total
    limit, usual = n("power_limit"), n("power_limit_default")
    if limit and usual:
        f["power_limit_share"] = limit / usual


def _step(case: Case, f: Features) -> None:
    n = case.log_number
    parts = [n(k) for k in ("forward", "backward", "optimizer")]
    if parts[2] and any(parts[:2]):
        share = parts[2] / sum(p for p in parts if p)
        f["optimizer_share"] = share
        if share > 0.5:
            f["cpu_optimizer"] = "yes"
    said = {x.name: x.value for x in case.figures}
    peak = case.gpu.flop_per_s("bf16") if case.gpu else None
    tokens = n("tokens_per_s_per_gpu") or said.get("tokens_per_s_per_gpu")
    whole = n("tokens_per_s") or said.get("tokens_per_s")
    if tokens is None and whole and case.gpus:
        tokens = whole / case.gpus
    mfu = n("mfu") or said.get("mfu")
    params = n("params") or f.get("model_params")
    if tokens and peak and mfu and params and f.get("moe") != "yes":
        f["printed_over_own_mfu"] = mfu / (6 * float(params) * tokens / peak)
    if mfu is not None and mfu > 1:
        f["mfu"] = mfu
