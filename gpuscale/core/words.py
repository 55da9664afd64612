"""What is said of a plan in the same words everywhere: parts and events of a step, memory, GB."""

from __future__ import annotations

DEGREES = {f: f.upper() for f in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")}
"""Degrees of a layout."""

STEP_PARTS = {
    "matmul_s": "matrix multiplies",
    "attention_s": "attention",
    "elementwise_s": "elementwise",
    "moe_s": "MoE dispatch",
    "tp_comm_s": "TP communication",
    "cp_comm_s": "CP communication",
    "ep_comm_s": "EP communication",
    "recompute_s": "recomputation",
    "host_s": "kernel launches",
    "offload_s": "activation offload",
    "bubble_s": "pipeline bubble",
    "pp_comm_s": "PP communication",
    "dp_comm_s": "DP communication",
    "optimizer_s": "optimizer",
    "straggler_s": "stragglers",
    "untuned_s": "not tuned",
}
"""Parts of a step; communication is what stays exposed after overlap."""

MEMORY_PARTS = {
    "weights_bytes": "weights",
    "gradients_bytes": "gradients",
    "master_bytes": "master weights",
    "optimizer_bytes": "optimizer",
    "activations_bytes": "activations",
    "logits_bytes": "logits",
    "working_bytes": "buffers",
    "fragmentation_bytes": "fragmentation",
    "context_bytes": "context, NCCL",
}
"""Parts of the memory of a GPU in training."""

STATE_PARTS = tuple(MEMORY_PARTS)[:4]
"""Those of them that hold the model's states."""

TRACKS = {
    "compute": "compute",
    "tp": "network: TP",
    "cp": "network: CP",
    "ep": "network: EP",
    "pp": "network: PP send",
    "pp-before": "network: PP receive from the stage before",
    "pp-after": "network: PP receive from the stage after",
    "dp": "network: DP",
}
"""Tracks of a stage and their names: what its GPUs compute, and one for each network use."""

EVENT_KINDS = {
    "forward": "forward",
    "recompute": "recompute",
    "backward": "backward, inputs",
    "weights": "backward, weights",
    "gather": "wait for weights",
    "bubble": "bubble",
    "host": "host",
    "straggler": "wait for slowest host, not tuned",
    "dp": "data-parallel exchange",
    "optimizer": "optimizer",
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "send": "send",
    "receive": "receive",
    "skipped": "micro-batches not drawn",
}
"""Kinds of event and their names."""

_KEYS = {
    "mfu": "MFU",
    "seq-len": "sequence length",
    "total_bytes": "memory",
    "per_gpu.total_bytes": "memory of a GPU",
    "per_gpu.max_concurrency": "sequences at once",
    "headroom_bytes": "memory left",
    "peak_bytes": "peak memory",
    "step_s": "time of a step",
    "roofline_s": "roofline of a step",
    "tokens_per_s": "tokens per second",
    "tokens_per_s_per_gpu": "tokens per second and GPU",
    "output_tokens_per_s": "output tokens per second",
    "at_most_per_s": "requests per second at most",
    "ttft_p95_s": "time to first token, p95",
    "tpot_p95_s": "time per token, p95",
    "busbw_bytes_per_s": "bus bandwidth",
    "algbw_bytes_per_s": "bandwidth of the algorithm",
    "usd_per_million_output_tokens": "USD per million output tokens",
}
"""Keys of answers that are said in words of their own."""

_ENDINGS = {
    "_bytes_per_s": " bandwidth",
    "_flop_per_s": " rate",
    "_bytes": " memory",
    "_frac": "",
    "_usd": " in USD",
    "_flop": " FLOP",
    "_time_s": " time",
    "_s": " time",
    "_w": " power",
    "_j": " energy",
}

_SHORT = frozenset("mfu hfu hbm tp pp cp ep dp etp gpu gpus kv bf16 fp8 nccl moe pue".split())


def key_words(key: str) -> str:
    """Key of a file or an answer in words, for titles and axes."""
    if key in _KEYS:
        return _KEYS[key]
    text = f"_{key.removeprefix('layout.').replace('-', '_').replace('.', '_')}"
    end = next((e for e in _ENDINGS if text.endswith(e)), "")
    text = text.removesuffix(end) + (_ENDINGS[end] if end else "")
    words = text.replace("_", " ").split()
    return " ".join(w.upper() if w in _SHORT else w for w in words)


def gb(value: float) -> str:
    """Bytes in GB: two digits behind the point below 10 GB, one from there on.

    >>> gb(4.5389e9), gb(84.95e9), gb(1541.84e9), gb(-0.004e9)
    ('4.54 GB', '85.0 GB', '1,541.8 GB', '0.00 GB')
    """
    digits = 2 if abs(value) < 9.995e9 else 1
    text = f"{value / 1e9:,.{digits}f} GB"
    return "0.00 GB" if text == "-0.00 GB" else text
