"""What an answer's expression may call: functions of `core`, and look-ups in the catalogues."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_MODULES = """
core.formats: element_bytes weight_bytes
core.kernel.chip: chip_total_bytes clock_from_vector_hz critical_intensity cuda_cores
    tensor_cores tensor_flop_per_cycle vector_flop_per_s
core.kernel.roofline: critical_batch elementwise_bytes elementwise_flop matmul_bytes matmul_flop
    roofline
core.limits: Limit dp_comm_s dp_limit_levels dp_math_s dp_min_tokens_per_gpu ep_comm_s
    ep_large_min_ffn ep_math_s ep_max_scaleout ep_min_ffn ring_attention_min_tokens_per_gpu
    tp_comm_s tp_limit tp_math_s tp_max tp_max_spanning
core.limits.pp: bubble_frac bubble_over_ideal forward_transfer_time_s hop_time_s hops
    transfer_time_per_layer_s
core.memory.states: gpus_to_hold nodes_to_hold sharded_states
core.model.flops: six_p_flop_per_token
core.model.kv_cache: kv_bytes_per_token
core.network.all_to_all: approximate_all_to_all_s
core.network.collective: approximate_time_s bandwidths_bytes_per_s
core.network.fat_tree: bisection_bytes_per_s fat_tree
core.network.hierarchy: approximate_hierarchical_time_s hierarchical_time_s level_times
core.network.switch_traffic: all_gather_traffic in_switch_all_reduce_traffic
core.quantity: parse
core.run.energy: power_w
core.run.time: batch_tokens cluster_flop_per_s exposed_s job_time_s mfu share tokens_per_s
    training_flop training_time_s utilisation
core.serving.ideal: decode_flop decode_time_s instances prefill_flop serving_layout
textbook.kernels: matmul_exact_operations practical_time_s register_file_bytes
    tensor_flop_per_cycle_from_fma vpu_alus
textbook.limits: layers_per_stage makespan max_mfu spanned_nodes_limit ulysses_max_cp
textbook.memory: activations_held forward_evaluations hsdp_traffic_bytes korthikanti_layer_bytes
    offload_time_s step_cost_ratio zero_saving_bytes zero_traffic_ratio
textbook.networks: all_to_all_time_s bits_to_bytes_per_s coded_bits_per_s collective_time_s
    in_switch_gain links_bytes_per_s nodes_all_to_all_time_s ring_sent_bytes torus_all_to_all_s
textbook.number_format: decode_float round_significant si_exponent
textbook.runs: break_even_usd_per_hour difference energy_usd part_s premium_frac run_time_s
    saved_frac speed_up strong_scaling_efficiency sync_frequency
textbook.serving: attention_crossover byte_ratio cards_at_equal_price quantised_speed_up
    static_batching_efficiency
textbook.shards: block_of_scales product_shape shard_width tensor_bytes tp_all_reduce_bytes
textbook.strategy: Requirement binding_level data_parallel_ranks moe_strategy tokens_each
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

BUILTINS: dict[str, Callable[..., Any]] = {"max": max, "min": min}


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
