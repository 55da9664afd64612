"""What an answer's expression may call: functions of `core`, and look-ups in the catalogues."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_MODULES = """
core.fabric.clos: tree
core.fabric.records: equal_ports
core.formats: element_bytes weight_bytes
core.kernel.chip: chip_total_bytes clock_from_vector_hz critical_intensity cuda_cores
    tensor_cores tensor_flop_per_cycle vector_flop_per_s
core.kernel.roofline: critical_batch elementwise_bytes elementwise_flop matmul_bytes matmul_flop
    roofline
core.limits.formulas: dp_comm_s dp_limit_levels dp_math_s dp_min_tokens_per_gpu ep_comm_s
    ep_large_min_ffn ep_math_s ep_max_scaleout ep_min_ffn ring_attention_min_tokens_per_gpu
    tp_comm_s tp_limit tp_math_s tp_max tp_max_spanning
core.limits.pp: bubble_frac bubble_over_ideal forward_transfer_time_s hop_time_s hops
    transfer_time_per_layer_s
core.memory.states: gpus_to_hold nodes_to_hold sharded_states
core.model.flops: six_p_flop_per_token
core.model.kv_cache: kv_bytes_per_token
core.network.all_to_all: approximate_all_to_all_s
core.network.collective: approximate_time_s bandwidths_bytes_per_s traffic_factor
core.network.levels: bisection_bytes_per_s
core.network.hierarchy: approximate_hierarchical_time_s hierarchical_time_s level_times
core.network.switch_traffic: all_gather_traffic in_switch_all_reduce_traffic
core.quantity: parse
core.run.energy: power_w
core.run.time: batch_tokens cluster_flop_per_s exposed_s job_time_s mfu share tokens_per_s
    training_flop training_time_s utilisation
core.serving.ideal: decode_flop decode_time_s instances prefill_flop serving_layout
textbook.formulas: all_to_all_time_s binding_level bound collective_time_s decode_float
    korthikanti_layer_bytes moe_strategy product_shape round_significant
"""

MODULE_OF = {
    name: line.split(":")[0]
    for line in _MODULES.replace("\n    ", " ").strip().splitlines()
    for name in line.split(":")[1].split()
}
"""Name of a function -> its module."""

LOOKUPS = frozenset(
    "attention gpu layout link model node nvlink pod rate recipe rule unit_layout "
    "vendor_gpu".split()
)
"""Functions of `quiz.catalogue`."""

BUILTINS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "log10": math.log10}


def is_lookup(name: str) -> bool:
    """Whether a name only looks up specifications."""
    return name in LOOKUPS


@lru_cache(maxsize=512)
def resolve(name: str) -> Any:
    """Find the function of a name; its module is imported when it is first used.

    Raises KeyError if expressions may not use it.

    Examples
    --------
    >>> resolve("critical_intensity")(990e12, 3.35e12) > 295
    True
    """
    if name in BUILTINS:
        return BUILTINS[name]
    if name in LOOKUPS:
        return getattr(importlib.import_module("gpuscale.textbook.quiz.catalogue"), name)
    return getattr(importlib.import_module(f"gpuscale.{MODULE_OF[name]}"), name)


def summary(name: str) -> tuple[str, str]:
    """Say where a registered function is, and the first line of its docstring.

    Examples
    --------
    >>> summary("critical_intensity")[0]
    'gpuscale.core.kernel.chip'
    """
    function = resolve(name)
    doc = (function.__doc__ or "").strip().split("\n")[0]
    return str(function.__module__), doc
