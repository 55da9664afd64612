"""MaxText: `key=value` arguments of its train module, and YAML over `base.yml`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress

from gpuscale.errors import GpuscaleError
from gpuscale.io.models import load_model
from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested, put_shape
from gpuscale.launch.dialects.rows import whole
from gpuscale.launch.found import UNSET, Found, launch_table
from gpuscale.launch.named import gpu_named
from gpuscale.launch.read.bash.launchers import pairs
from gpuscale.launch.read.together import key_values

FIELDS = {"seq_len": "max_target_length", "accumulation": "gradient_accumulation_steps"}
_WORDS = launch_table("words")["maxtext"]
AXES: dict[str, list[str]] = _WORDS["axes"]
BASE: Table = _WORDS["base"]
MODELS: dict[str, str] = _WORDS["models"]
QKV = ("query_proj", "key_proj", "value_proj")
DOTS = (*QKV, "out_proj", "mlpwi", "mlpwo")
KEPT: dict[str, list[str]] = _WORDS["kept"]
SHAPE: dict[str, str] = launch_table("words")["shapes"]["maxtext"]
BASE_SHAPE: dict[str, int] = _WORDS["base_shape"]
SHAPE_KEYS = tuple(k for keys in SHAPE.values() for k in keys.split() if k.startswith("base_"))
BLOCKS = ("", "default", "llama2", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gpt3")
"""Decoder blocks that its keys describe; others are models of their own."""
TWO_DEVICES = ("tpu7x", "v2", "v3")
"""TPUs whose chips are two devices to JAX, so that a batch of a device counts twice."""


def is_maxtext(words: Sequence[str]) -> bool:
    """Whether a command trains with MaxText."""
    text = " ".join(w for w in words if " " not in w)
    module = re.search(
        r"maxtext[\w./]*\btrain\b|maxtext[\w./]*[./]train\.py|sft_trainer", text, re.I
    )
    return bool(module) or ("base.yml" in text and "per_device_batch_size=" in text)


def read(table: Table, config: str = "base.yml") -> Found:
    """Read MaxText keys.

    `table`: keys of a YAML over `base.yml`, or of the arguments. `config`: configuration file that
    the command names; another than `base.yml` holds further keys.
    """
    found = Found("maxtext", software="jax", version="MaxText 0.2.2")
    stem = re.sub(r"^.*/|\.ya?ml$", "", config)
    at = Nested(found, table)
    at.put(FIELDS)
    name = at.text("model_name")
    if stem != "base":
        found.beside.append(f"{stem}.yml")
        name = name or stem.replace("_", "-")
    if UNSET in name:
        found.unread["model"] = name.replace(UNSET, "")
    elif name not in ("", "None", "default"):
        found.model_name = MODELS.get(name, name)
    elif stem == "base" or any(k in table for k in SHAPE_KEYS):
        _shape(at)
    found.mtp = at.has("mtp_num_layers") and at.true("mtp_num_layers")
    if stem == "base":
        at = Nested(found, BASE | table)
        found.seq_len = found.seq_len or at.number("max_target_length")
    _degrees(at)
    _remat(at)
    if (at.number("num_vocab_tiling") or 1) > 1:
        found.settings["loss"] = "chunked"
    if at.true("use_dpo"):
        found.rl = {"method": "dpo"}
    if at.text("weight_dtype") == "bfloat16":  # the moments have it too
        found.settings["recipe"] = "bf16-adam"
    elif at.text("grad_dtype") == "bfloat16":
        found.settings["gradients"] = "bf16"
    _formats(at)
    found.offload_optimizer = at.true("optimizer_memory_host_offload")
    try:
        per_device = float(at.text("per_device_batch_size"))
    except ValueError:
        return found
    batch = round(per_device * found.tp * found.cp * found.pp)
    if found.pp > 1:  # cut into the micro-batches of the pipeline, as many as stages by default
        found.accumulation = at.number("num_pipeline_microbatches") or found.pp
        batch //= found.accumulation
    found.micro_batch_size = max(1, batch)
    return found


def _formats(at: Nested) -> None:
    """Format of the products, and what the optimizer holds (configs/types.py, optimizers.py)."""
    found, said = at.found, at.text("quantization")
    found.precision = next((name for name in FORMATS if name in said), "bf16")
    if found.precision == "bf16" and said.lower() not in ("", "none", "null") and UNSET not in said:
        found.notes.append(f"quantization {said[:40]} is not predicted: products are taken in bf16")
    kind = at.text("opt_type") or "adamw"
    if kind == "sgd":  # optax.sgd without momentum
        found.held["optimizer"] = 0.0
    elif kind == "adamw":  # the second moment has the format of the weights
        weight = 2 if at.text("weight_dtype") == "bfloat16" else 4
        first = {"bfloat16": 2, "float32": 4}.get(at.text("mu_dtype"), weight)
        found.held |= {"optimizer": (first + weight) / (2 * weight)} if first != weight else {}
    elif kind != "adam_pax" and UNSET not in kind:
        found.notes.append(f"opt_type {kind[:40]} is counted as Adam, by its two moments")


FORMATS = ("mxfp8", "nvfp4", "fp8")
"""Formats in the names of its quantisations; those of integers are not predicted."""


def _shape(at: Nested) -> None:
    """Build the model of the keys over those of `base.yml`, scaled as a whole."""
    found, block = at.found, at.text("decoder_block")
    if at.has("base_num_heads") or at.has("scale"):
        found.beyond.append("keys of MaxText's first releases, of 2023")
    if block not in BLOCKS:
        found.model_name = block
        return
    times, said = _scales(at), at.dims("maxtext")
    dims: dict[str, int | None] = {
        key: n * times.get(key, 1) if (n := said[key] or BASE_SHAPE.get(key)) else None
        for key in said
    }
    if (dims["experts"] or 1) < 2:
        dims |= {"experts": None, "top_k": None, "expert_ffn": None}
    activations = at.get("mlp_activations")
    gated = activations is None or "," in str(activations)
    learned, tied = block == "gpt3", at.true("logits_via_embedding")
    name = at.known("run_name")[:40] or "model"
    put_shape(found, name, dims, gated=gated, tied=tied, bias=learned, learned=learned)


def _scales(at: Nested) -> dict[str, int]:
    """Dimension -> by how much the scale of the whole multiplies it (pyconfig.py)."""
    log2 = math.log2(at.number("global_parameter_scale") or 1)
    base, rest = divmod(int(log2), 3)  # get_individual_scales
    wider = dict.fromkeys(("heads", "kv", "ffn", "expert_ffn"), 2 ** (base + (rest > 0)))
    return {"layers": 2**base, "hidden": 2 ** (base + (rest > 1)), **wider}


def _remat(at: Nested) -> None:
    """Put what is computed again on the record: all but the products that the policy keeps."""
    found, policy = at.found, at.text("remat_policy") or "full"
    kept: Sequence[str] | None = KEPT.get(policy)
    if policy == "custom":  # each product by itself: remat, device or offload
        kept = tuple(n for n in (*DOTS, "mlpwi_0", "context") if at.text(n) == "device")
        found.offload_activations = at.text("decoder_layer_input") == "offload"
    if kept is None:
        found.beyond.append(f"remat_policy {policy[:40]}: what it keeps is not known here")
        return
    if not kept:
        found.recompute = "full"
        return
    again = ["layernorm"] if "context" in kept else ["core_attn", "layernorm"]
    again += [] if "out_proj" in kept else ["attn_proj"]
    again += ["mlp_act", "moe_act"] if {"mlpwi", "mlpwi_0"} & set(kept) else ["mlp", "moe"]
    found.recompute = "selective"
    found.settings["recompute_modules"] = tuple(again)


def _degrees(at: Nested) -> None:
    """Degrees of the mesh, and its devices where every axis has a number."""
    found = at.found

    def axis(kind: str, name: str, default: int = 1) -> int:
        value = whole(at.get(f"{kind}_{name}_parallelism"))
        return default if value is None else value

    for degree, names in AXES.items():
        sizes = {f"{k}_{n}_parallelism": axis(k, n) for k in ("ici", "dcn") for n in names}
        setattr(found, degree, math.prod(max(1, n) for n in sizes.values()))
        for key, n in sizes.items():
            if n > 1:
                found.places[degree] = f"{key}: {n}"
    found.sequence_parallel = found.tp > 1  # the axis of activation_embed is split (base.yml)
    if found.pp > 1:
        found.vpp = _repeats(at)
    fsdp = axis("ici", "fsdp", -1), axis("ici", "fsdp_transpose"), axis("dcn", "fsdp")
    whole_weights = all(n == 1 for n in fsdp) and found.ep == 1  # `embed` is split over experts
    found.zero_stage = int(at.true("shard_optimizer_over_data")) if whole_weights else 3
    outer = axis("dcn", "data", -1)
    replicas = max(1, outer) * max(1, axis("ici", "data"))
    if found.zero_stage == 3 and replicas > 1:
        found.dp_replicate = replicas
    inner = (axis("ici", "data"), *fsdp[:2])
    if min(inner) > 0 and outer > 0:
        degrees = found.tp * found.pp * found.cp * (found.ep or 1)
        found.n_gpus = degrees * math.prod(inner) * outer * fsdp[2]


NO_TRAINING = tuple(
    "to_huggingface to_maxtext decode ckpt benchmark checker engine convert quantize".split()
)
"""Parts of the names of MaxText's other programs."""
SERVED = {"max_prefill_predict_length", "ici_autoregressive_parallelism", "inference_server"}
"""Arguments that only a server or a decoding has."""
SHIPPED = ("sft", "dpo", "sft-vision-chartqa", "sft-vision-slidevqa", "gpu_smoke_test")
"""Configurations of its own over `base.yml` that say no layout."""


def _repeats(at: Nested) -> int:
    """Chunks of a stage: as said, or as many as its layers make (configs/types.py)."""
    found, model = at.found, at.found.model
    if said := at.number("num_pipeline_repeats"):
        return said
    if model is None and found.model_name:
        with suppress(GpuscaleError):
            model = load_model(found.model_name).spec
    each = at.number("num_layers_per_pipeline_stage") or 1
    return max(1, model.n_layers // (found.pp * each)) if model else 1


def read_command(words: Sequence[str]) -> Found:
    """Read a train command: its configuration and its `key=value` arguments."""
    config = next((w for w in words if re.search(r"\.ya?ml$", w)), "base.yml")
    config = "base.yml" if re.sub(r"^.*/|\.ya?ml$", "", config) in SHIPPED else config
    given = key_values(words)
    found = read(given, config)
    named = [w for w in words[:4] if "=" not in w and any(n in w for n in NO_TRAINING)]
    found.beyond += [f"{named[0][:60]}: no training"] if named else []
    if not named and not any("train" in w for w in words[:4]) and SERVED & set(given):
        found.beyond.append("JetStream over MaxText: a server, not a training")
    topology, slices = (given.get(f"compile_topology{k}") for k in ("", "_num_slices"))
    put_slices(["--device-type", str(topology or ""), "--num-slices", str(slices or 1)], found)
    return found


def slice_chips(device: str, slices: int) -> int | None:
    """Chips of TPU slices by the name of their type.

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
    given = pairs(words)
    named = ("--device-type", "--tpu-type", "--tpu_type", "--accelerator-type", "-t")
    device = next((given[name] for name in named if given.get(name)), "")
    slices = given.get("--num-slices", "1")
    chips = slice_chips(device, int(slices) if slices.isdigit() else 1)
    if chips is None:
        return
    _put_chips(chips, device, found)


def _put_chips(chips: int, device: str, found: Found) -> None:
    found.n_gpus = chips
    found.gpu = gpu_named(device) or ("tpu-v4" if device.startswith("v4-") else None)
    if device.startswith(TWO_DEVICES) and found.micro_batch_size:
        found.micro_batch_size *= 2


def put_topology(accelerator: str, topology: str, slices: int, found: Found) -> None:
    """Put the chips of a Kubernetes slice (`4x4x4`) on the record."""
    if chips := slice_chips(f"v5p-{topology}", slices):
        _put_chips(chips, accelerator, found)
