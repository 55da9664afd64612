"""MaxText: `key=value` arguments of its train module, and YAML over `base.yml`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from gpuscale.launch.read.found import Found
from gpuscale.launch.read.gpus import gpu_named
from gpuscale.launch.read.keyed import put_numbers, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELDS = {"max_target_length": "seq_len", "gradient_accumulation_steps": "accumulation"}
AXES = {
    "tp": ("tensor", "tensor_transpose", "tensor_sequence"),
    "pp": ("pipeline",),
    "cp": ("context", "sequence"),
    "ep": ("expert",),
}
"""Degree -> axes of the mesh whose product it is: in a slice (`ici_`), over slices (`dcn_`)."""
BASE = {"max_target_length": 2048, "per_device_batch_size": 12.0}
"""What `base.yml` has where nothing else is said (MaxText 0.2.2)."""
MODELS = {
    "deepseek3-671b": "deepseek-v3",
    "deepseek2-16b": "deepseek-v2-lite",
    "deepseek2-236b": "deepseek-v2",
    "llama4-17b-16e": "llama4-scout",
    "llama4-17b-128e": "llama4-maverick",
    "kimi-k2-1t": "kimi-k2",
}
"""MaxText's name of a model -> preset, where they differ."""
WITHOUT_MLP = ("save_dot_except_mlp", "save_dot_except_mlpwi", "save_qkv_proj", "save_out_proj")
"""Policies that keep products of the attention and none of the MLP (layers/decoders.py)."""
TWO_DEVICES = ("tpu7x", "v2", "v3")
"""TPUs whose chips are two devices to JAX, so that a batch of a device counts twice."""


def is_maxtext(words: Sequence[str]) -> bool:
    """Whether a command trains with MaxText."""
    text = " ".join(w for w in words if " " not in w)
    module = re.search(
        r"maxtext[\w./]*\btrain\b|maxtext[\w./]*[./]train\.py|sft_trainer", text, re.I
    )
    return bool(module) or ("base.yml" in text and "per_device_batch_size=" in text)


def read(table: dict[str, Any], config: str = "base.yml") -> Found:
    """Read MaxText keys.

    `table`: keys of a YAML over `base.yml`, or of the arguments. `config`: configuration file that
    the command names; another than `base.yml` holds further keys.
    """
    found = Found("maxtext", software="jax", version="MaxText 0.2.2")
    put_numbers(table, FIELDS, found)
    name = table.get("model_name")
    stem = re.sub(r"^.*/|\.ya?ml$", "", config)
    if stem != "base":
        found.beside = f"{stem}.yml"
        name = name or stem.replace("_", "-")
    found.model_name = MODELS.get(str(name), str(name)) if name else None
    if stem == "base":
        found.seq_len = found.seq_len or int(BASE["max_target_length"])
    _degrees(table, found)
    remat = str(table.get("remat_policy", "full"))
    found.recompute = {"full": "full", "minimal": "none"}.get(remat, "per-op")
    if remat == "custom":
        found.beyond.append("remat_policy custom: what it keeps is not counted")
    if remat in WITHOUT_MLP:
        found.recompute = "selective"
        found.settings["recompute_modules"] = ("core_attn", "layernorm", "mlp")
    found.precision = "fp8" if "fp8" in str(table.get("quantization", "")) else "bf16"
    batch = table.get(
        "per_device_batch_size", BASE["per_device_batch_size"] if stem == "base" else ""
    )
    try:
        per_device = float(str(batch))
    except ValueError:
        return found
    found.micro_batch_size = max(1, round(per_device * found.tp * found.cp * found.pp))
    return found


def _degrees(table: dict[str, Any], found: Found) -> None:
    """Degrees of the mesh, and its devices where every axis has a number."""

    def axis(kind: str, name: str, default: int = 1) -> int:
        value = whole(table.get(f"{kind}_{name}_parallelism"))
        return default if value is None else value

    for degree, names in AXES.items():
        product = math.prod(max(1, axis(k, n)) for k in ("ici", "dcn") for n in names)
        setattr(found, degree, product)
        for kind in ("ici", "dcn"):
            for name in names:
                if axis(kind, name) > 1:
                    found.places[degree] = f"{kind}_{name}_parallelism: {axis(kind, name)}"
    found.vpp = max(1, whole(table.get("num_pipeline_repeats")) or 1)
    fsdp = axis("ici", "fsdp", -1), axis("ici", "fsdp_transpose"), axis("dcn", "fsdp")
    found.zero_stage = 0 if all(n == 1 for n in fsdp) else 3
    outer = axis("dcn", "data", -1)
    replicas = max(1, outer) * max(1, axis("ici", "data"))
    if found.zero_stage and replicas > 1:
        found.dp_replicate = replicas
    inner = (axis("ici", "data"), *fsdp[:2])
    if min(inner) > 0 and outer > 0:
        degrees = found.tp * found.pp * found.cp * (found.ep or 1)
        found.n_gpus = degrees * math.prod(inner) * outer * fsdp[2]


def read_command(words: Sequence[str]) -> Found:
    """Read a train command: its configuration and its `key=value` arguments."""
    config = next((w for w in words if re.search(r"\.ya?ml$", w)), "base.yml")
    return read(arguments(words), config)


def arguments(words: Sequence[str]) -> dict[str, Any]:
    """`key=value` words of a command as a table."""
    pairs = (w.lstrip("+").partition("=") for w in words if re.match(r"\+{0,2}[a-z_.]+=", w))
    return {key: value for key, _, value in pairs}


def slice_chips(device: str, slices: int) -> int | None:
    """Chips of TPU slices by the name of their type.

    Examples
    --------
    >>> slice_chips("tpu7x-4x8x8", 1), slice_chips("v5p-512", 2), slice_chips("v6e-256", 1)
    (256, 512, 256)
    """
    match = re.fullmatch(r"(tpu\w+|v\d+\w*)-(\d+(?:x\d+)*)", device.strip().lower())
    if not match:
        return None
    sides = [int(n) for n in match[2].split("x")]
    cores = match[1] in ("v2", "v3", "v4", "v5p") and len(sides) == 1  # two TensorCores a chip
    return math.prod(sides) * slices // (2 if cores else 1)


def put_slices(words: Sequence[str], found: Found) -> None:
    """Put the chips of a workload (`xpk --device-type ... --num-slices ...`) on the record."""
    given = {}
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        given[name] = value if equals else next(iter(words[i + 1 : i + 2]), "")
    device = given.get("--device-type") or given.get("--tpu-type") or ""
    slices = given.get("--num-slices", "1")
    chips = slice_chips(device, int(slices) if slices.isdigit() else 1)
    if chips is None:
        return
    _put_chips(chips, device, found)


def _put_chips(chips: int, device: str, found: Found) -> None:
    found.n_gpus = chips
    found.gpu = gpu_named(device)
    if device.startswith(TWO_DEVICES) and found.micro_batch_size:
        found.micro_batch_size *= 2


def put_topology(accelerator: str, topology: str, slices: int, found: Found) -> None:
    """Put the chips of a Kubernetes slice (`4x4x4`) on the record."""
    if chips := slice_chips(f"v5p-{topology}", slices):
        _put_chips(chips, accelerator, found)
