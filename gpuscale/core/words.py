"""What is said of a plan in the same words everywhere: parts of a step, parts of memory, GB."""

from __future__ import annotations

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
    "bubble_s": "pipeline bubble",
    "pp_comm_s": "PP communication",
    "dp_comm_s": "DP communication",
    "optimizer_s": "optimizer",
    "straggler_s": "stragglers",
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


def gb(value: float) -> str:
    """Bytes in GB: two digits behind the point below 10 GB, one from there on.

    Examples
    --------
    >>> gb(4.5389e9), gb(84.95e9), gb(1541.84e9), gb(-0.004e9)
    ('4.54 GB', '85.0 GB', '1,541.8 GB', '0.00 GB')
    """
    digits = 2 if abs(value) < 9.995e9 else 1
    text = f"{value / 1e9:,.{digits}f} GB"
    return "0.00 GB" if text == "-0.00 GB" else text
