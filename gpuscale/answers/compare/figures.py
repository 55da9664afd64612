"""Key figures of a GPU, a cluster or a model, for `gpuscale compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.io.inputs import load_inputs

if TYPE_CHECKING:
    from gpuscale.answers.ask import WhatIf
    from gpuscale.specs.cluster import ClusterSpec

GPU = {
    "architecture": ("architecture", ""),
    "bf16_flop_per_s": ("bf16, dense", "flop_per_s"),
    "fp16_flop_per_s": ("fp16, dense", "flop_per_s"),
    "fp8_flop_per_s": ("fp8, dense", "flop_per_s"),
    "fp4_flop_per_s": ("fp4, dense", "flop_per_s"),
    "int8_flop_per_s": ("int8, dense, OP/s", "flop_per_s"),
    "tf32_flop_per_s": ("tf32, dense", "flop_per_s"),
    "fp32_flop_per_s": ("fp32, vector units", "flop_per_s"),
    "n_compute_units": ("compute units", ""),
    "boost_clock_hz": ("boost clock", "hz"),
    "hbm_bytes": ("memory", "bytes"),
    "hbm_bytes_per_s": ("memory bandwidth", "bytes_per_s"),
    "memory_kind": ("memory kind", ""),
    "l2_bytes": ("L2 cache", "bytes"),
    "scaleup_link": ("scale-up link", ""),
    "scaleup_bytes_per_s": ("scale-up, one direction", "bytes_per_s"),
    "scaleup_p2p_bytes_per_s": ("scale-up to one peer", "bytes_per_s"),
    "scaleup_domain_gpus": ("scale-up domain, GPUs", ""),
    "pcie_bytes_per_s": ("PCIe, one direction", "bytes_per_s"),
    "tdp_w": ("power", "w"),
}
"""Field of a GPU -> what it is called, dimension."""

CLUSTER = {
    "gpu": ("GPU", ""),
    "gpu.bf16_flop_per_s": ("bf16, dense, per GPU", "flop_per_s"),
    "gpu.fp8_flop_per_s": ("fp8, dense, per GPU", "flop_per_s"),
    "gpu.hbm_bytes": ("memory per GPU", "bytes"),
    "gpu.hbm_bytes_per_s": ("memory bandwidth per GPU", "bytes_per_s"),
    "gpus_per_node": ("GPUs of a node", ""),
    "scaleup_domain_gpus": ("scale-up domain, GPUs", ""),
    "scaleup_bytes_per_s": ("scale-up per GPU, one direction", "bytes_per_s"),
    "scaleup_class": ("scale-up kind", ""),
    "node_egress_bytes_per_s": ("out of a node, one direction", "bytes_per_s"),
    "egress_bytes_per_s_per_gpu": ("  its share per GPU", "bytes_per_s"),
    "nics_per_node": ("NICs of a node", ""),
    "fabric": ("network", ""),
    "levels": ("network levels", ""),
    "switch_radix": ("ports of a switch", ""),
    "network_planes": ("network planes", ""),
    "in_switch_reduction_scaleup": ("reduction in scale-up switches", ""),
    "in_switch_reduction_scaleout": ("reduction in network switches", ""),
    "n_gpus": ("GPUs there are", ""),
    "node_power_w": ("power of a node", "w"),
    "price_usd_per_gpu_hour": ("price of a GPU", "usd_per_hour"),
}
"""Key of a cluster -> what it is called, dimension."""

MODEL = {
    "n_layers": ("layers", ""),
    "hidden_size": ("hidden size", ""),
    "vocab_size": ("vocabulary", ""),
    "mixers": ("mixers", ""),
    "ffns": ("FFNs", ""),
    "params": ("parameters", "count"),
    "active_params": ("active parameters", "count"),
    "embedding_params": ("  input embedding", "count"),
    "head_params": ("  output head", "count"),
    "mixer_params": ("  mixers", "count"),
    "ffn_params": ("  FFNs", "count"),
    "training_flop_per_token": ("training FLOP per token", "flop"),
    "forward_flop_per_token": ("forward FLOP per token", "flop"),
    "attention_flop_per_token": ("  of which attention", "flop"),
    "kv_bytes_per_token": ("KV cache per token", "bytes"),
    "kv_cache_bytes": ("KV cache of 8,192 tokens", "bytes"),
    "state_bytes": ("  of which state", "bytes"),
}
"""Key of the answer of `gpuscale model` -> what it is called, dimension."""

LABELS = {"gpu": GPU, "cluster": CLUSTER, "model": MODEL}


def figures(asked: WhatIf, kind: str, arg: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Name, key figures and warnings of a preset or a file, what-if changes applied."""
    if kind == "model":
        return _model(asked, arg)
    loaded = load_inputs(asked, **{kind: arg})  # type: ignore[arg-type]
    if kind == "gpu":
        return loaded.gpu.name, {k: getattr(loaded.gpu, k) for k in GPU}, loaded.warnings
    return loaded.cluster.name, _cluster(loaded.cluster), loaded.warnings


def _cluster(spec: ClusterSpec) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in CLUSTER:
        owner = spec.gpu if key.startswith("gpu.") else spec
        found[key] = getattr(owner, key.removeprefix("gpu."))
    levels = [
        f"{v.name}" + (f" {v.oversubscription:g}:1" if v.oversubscription != 1 else "")
        for v in spec.levels
    ]
    return found | {"gpu": spec.gpu.name, "levels": ", ".join(levels) or "one, flat"}


def _model(asked: WhatIf, arg: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Take the figures from the answer of `gpuscale model`, at its default of 8,192 tokens."""
    from gpuscale.answers.model import Model
    from gpuscale.render.data import plain

    document = Model(arg, seq_len=8192, set=asked.set, calibration=asked.calibration).answer()
    result = plain(document.result)
    groups = result["groups"]
    result["mixers"] = "; ".join(dict.fromkeys(g["mixer"] for g in groups))
    result["ffns"] = "; ".join(dict.fromkeys(g["ffn"] for g in groups))
    return result["name"], {k: result[k] for k in MODEL}, tuple(document.warnings)
