"""Jobs written as keys: Megatron-Bridge and NeMo YAML, MaxText `key=value`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpuscale.launch.read.found import Found

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BRIDGE = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "seq_length": "seq_len",
    "encoder_seq_length": "seq_len",
    "sequence_length": "seq_len",
    "num_nodes": "n_nodes",
    "devices": "gpus_per_node",
}
MAXTEXT = {
    "max_target_length": "seq_len",
    "ici_tensor_parallelism": "tp",
    "ici_pipeline_parallelism": "pp",
    "ici_context_parallelism": "cp",
    "ici_expert_parallelism": "ep",
    "num_pipeline_repeats": "vpp",
    "gradient_accumulation_steps": "accumulation",
}


def flat(table: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(key, value) of every leaf of a nested table, the key without its path."""
    if depth > 20:
        return
    if isinstance(table, list):
        for value in table:
            yield from flat(value if isinstance(value, (dict, list)) else {"": value}, depth + 1)
    elif isinstance(table, dict):
        for key, value in table.items():
            if isinstance(value, (dict, list)):
                yield from flat(value, depth + 1)
            else:
                yield str(key), value


def read_bridge(table: dict[str, Any]) -> Found:
    """Read a Megatron-Bridge or NeMo YAML by its leaves; paths differ between releases."""
    found = Found("megatron-bridge", software="megatron-bridge", version="Megatron-Bridge, NeMo")
    leaves = dict(flat(table))
    _numbers(leaves, BRIDGE, found)
    found.vpp = found.vpp or 1
    found.sequence_parallel = leaves.get("sequence_parallel") is True
    found.zero_stage = 1 if leaves.get("use_distributed_optimizer") is not False else 0
    optimizer = str(leaves.get("name", ""))
    if "distributed" in optimizer:
        found.zero_stage = 1
    granularity = leaves.get("recompute_granularity") or leaves.get(
        "activations_checkpoint_granularity"
    )
    found.recompute = str(granularity) if granularity else "none"
    if found.recompute == "full" and leaves.get("recompute_method") == "block":
        found.recompute_layers = _whole(leaves.get("recompute_num_layers"))
    precision = str(leaves.get("precision", leaves.get("mixed_precision", "bf16")))
    found.precision = "fp16" if precision.startswith(("16", "fp16")) else "bf16"
    if leaves.get("fp8") not in (None, False, "null") or "fp8" in precision:
        found.precision = "mxfp8" if "mx" in precision + str(leaves.get("fp8_recipe")) else "fp8"
    name = leaves.get("recipe") or leaves.get("model_name") or leaves.get("restore_from_path")
    found.model_name = str(name) if name else None
    return found


def read_maxtext(table: dict[str, Any]) -> Found:
    """Read MaxText keys (a YAML over `base.yml`, or the arguments of its train module)."""
    found = Found("maxtext", software="jax", version="MaxText 0.2.2")
    _numbers(table, MAXTEXT, found)
    found.model_name = str(table["model_name"]) if table.get("model_name") else None
    fsdp = _whole(table.get("ici_fsdp_parallelism"))
    found.zero_stage = 3 if fsdp is None or fsdp != 1 else 0
    remat = str(table.get("remat_policy", "full"))
    found.recompute = {"full": "full", "minimal": "none"}.get(remat, "per-op")
    found.precision = "fp8" if "fp8" in str(table.get("quantization", "")) else "bf16"
    batch = table.get("per_device_batch_size")
    try:
        per_device = float(str(batch)) if batch is not None else None
    except ValueError:
        per_device = None
    if per_device:
        found.micro_batch_size = max(1, round(per_device * found.tp * found.cp))
    return found


def arguments(words: Sequence[str]) -> dict[str, Any]:
    """`key=value` words of a command as a table."""
    pairs = (w.lstrip("+").partition("=") for w in words if re.match(r"\+{0,2}[a-z_.]+=", w))
    return {key: value for key, _, value in pairs}


def _numbers(table: dict[str, Any], fields: dict[str, str], found: Found) -> None:
    for key, field in fields.items():
        number = _whole(table.get(key))
        if number is not None and number > 0:
            setattr(found, field, number)
            found.places[field] = f"{key}: {number}"


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(str(value))
    except ValueError:
        return None
