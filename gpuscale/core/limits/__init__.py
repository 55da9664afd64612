"""Parallelism limits of "How to Scale Your Model": when communication outlasts the arithmetic.

Per transformer layer and for its MLP, 2-byte elements unless said otherwise; `batch_tokens` is the
global batch. `collective_bytes_per_s` is the bandwidth of the collective: egress of one GPU inside
a node, egress of one node across nodes. Pipeline transfers are in `core.pipeline_ideal`.
"""

from gpuscale.core.limits.cp import ring_attention_min_tokens_per_gpu, ring_attention_times
from gpuscale.core.limits.dp import dp_comm_s, dp_limit_levels, dp_math_s, dp_min_tokens_per_gpu
from gpuscale.core.limits.ep import (
    ep_comm_s,
    ep_large_min_ffn,
    ep_math_s,
    ep_max_scaleout,
    ep_min_ffn,
)
from gpuscale.core.limits.tp import tp_comm_s, tp_limit, tp_math_s, tp_max, tp_max_spanning
from gpuscale.core.limits.verdict import Limit

__all__ = [
    "Limit",
    "dp_comm_s",
    "dp_limit_levels",
    "dp_math_s",
    "dp_min_tokens_per_gpu",
    "ep_comm_s",
    "ep_large_min_ffn",
    "ep_math_s",
    "ep_max_scaleout",
    "ep_min_ffn",
    "ring_attention_min_tokens_per_gpu",
    "ring_attention_times",
    "tp_comm_s",
    "tp_limit",
    "tp_math_s",
    "tp_max",
    "tp_max_spanning",
]
