"""What a Megatron launch sets beside its layout, by the names that flags and YAML share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.settings import MODULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.launch.read.found import Found

NARROW = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "fp8": "fp8"}
BACKENDS = ("deepep", "hybridep")


def put_settings(given: Mapping[str, Any], found: Found) -> None:
    """Put the settings of a launch on its record.

    `given`: names of flags with underscores and without dashes before, to a text, a number, a list
    of texts, or True. `found`: the record.
    """

    def on(name: str) -> bool:
        return str(given.get(name, "")).lower() in ("true", "1")

    def text(name: str) -> str:
        value = given.get(name)
        if isinstance(value, list):
            value = value[-1] if value else None
        return "" if value is None else str(value).lower()

    settings = found.settings
    if graphs := _graphs(given, text, on):
        settings["cuda_graphs"] = graphs
    if dispatcher := _dispatcher(text, on) or _unsaid(given, found):
        settings["dispatcher"] = dispatcher
    if on("overlap_moe_expert_parallel_comm"):
        settings["overlap_ep"] = "on"
    if on("moe_permute_fusion"):
        settings["moe_kernels"] = "2025"
    _modules(given, found)
    moments = [NARROW.get(text(n), "fp32") for n in ("exp_avg_dtype", "exp_avg_sq_dtype")]
    if set(moments) != {"fp32"}:
        settings["moments"] = "bf16" if "bf16" in moments or "fp32" in moments else "fp8"
    if on("grad_reduce_in_bf16") or text("grad_reduce_in_fp32") == "false":
        settings["gradients"] = "bf16"
    elif on("accumulate_allreduce_grads_in_fp32") or text("grad_reduce_in_fp32") == "true":
        settings["gradients"] = "fp32"
    if (kept := text("fp8_param_gather") or text("fp4_param_gather")) in ("true", "false"):
        settings["fp8_param_gather"] = "on" if kept == "true" else "off"
    layers = text("cpu_offloading_num_layers")
    if layers.isdigit() and int(layers) and text("cpu_offloading") != "false":
        settings["offload_layers"] = int(layers)
    found.offload_activations = on("fine_grained_activation_offloading")


def _graphs(given: Mapping[str, Any], text: Any, on: Any) -> str | None:
    """CUDA graphs: `cuda_graph_impl`, and the words of older releases."""
    whole = "full_iteration" in (text("cuda_graph_impl"), text("cuda_graph_scope"))
    if whole:
        return "full"
    if text("cuda_graph_impl") in ("local", "transformer_engine"):
        return "layer"
    return "layer" if on("enable_cuda_graph") or on("external_cuda_graph") else None


def _dispatcher(text: Any, on: Any) -> str | None:
    """Exchange of the experts' tokens."""
    kind = text("moe_token_dispatcher_type")
    backend = text("moe_flex_dispatcher_backend")
    if on("moe_enable_deepep") or (kind == "flex" and not backend):
        return "deepep"
    if kind == "flex" and backend in BACKENDS:
        return str(backend)
    return "alltoall" if kind in ("alltoall", "allgather") else None


def _unsaid(given: Mapping[str, Any], found: Found) -> str | None:
    """Exchange of Megatron where no flag says one (`arguments.py`: allgather, never flex)."""
    return "alltoall" if found.kind == "megatron" and given.get("num_experts") else None


def _modules(given: Mapping[str, Any], found: Found) -> None:
    value = given.get("recompute_modules")
    names = value if isinstance(value, list) else [value] if value else []
    known = [str(n) for n in names if str(n) in MODULES]
    found.not_understood += [f"--recompute-modules {n}" for n in names if str(n) not in MODULES]
    if known and found.recompute == "selective":
        found.settings["recompute_modules"] = tuple(known)
