"""Texts of a row of measurements to settings: framework, format, sharding, recompute, schedule."""

from __future__ import annotations

import re

from gpuscale.core.layout import Layout
from gpuscale.core.settings import JobSettings
from gpuscale.evidence.rows.words import Row, meaning
from gpuscale.io.maturity import settled_for
from gpuscale.io.software import load_software
from gpuscale.specs.cluster import ClusterSpec
from gpuscale.specs.model import ModelSpec


def family_of(row: Row) -> str:
    """Software preset nearest to the framework named in a row; `megatron-core` if none is."""
    text = row.get("framework", "").lower()
    source = f"{row.get('source', '')} {row.get('citation', '')}".lower()
    notes = row.get("notes", "").lower()
    if "overlap off" in notes and ("megatron" in text or "nemo" in text):
        return "megatron-no-overlap"
    name = meaning("framework", text) or "megatron-core"
    if name == "megatron-core" and "mlperf" in source:
        return "mlperf-submission"
    old_gpu = re.search(r"a100|v100", row.get("gpu", "").lower())
    if name == "megatron-core" and old_gpu and re.fullmatch(r"megatron-lm", text.strip()):
        return "megatron-lm-2021"
    return name


def zero_stage_of(text: str, family: str) -> int:
    """ZeRO stage of a `dp_sharding` or `zero_stage` cell; the family's habit when blank."""
    if (stage := meaning("sharding", text.strip())) is not None:
        return int(stage)
    if family in ("fsdp", "torchtitan", "jax", "deepspeed-zero3"):
        return 3
    return 0 if family == "megatron-lm-2021" else 1


def recompute_of(text: str, n_layers: int, pp: int) -> tuple[str, int | None]:
    """(recompute, layers of a stage that are recomputed) of a `recompute` cell."""
    found = meaning("recomputed", text) or "none"
    every_other = "every other" in text.lower()
    return found, max(1, n_layers // (2 * pp)) if every_other else None


def modules_of(text: str) -> tuple[str, ...] | None:
    """Modules that a `recompute` cell of selective recomputation names.

    >>> modules_of("selective: layernorm, moe_act"), modules_of("full")
    (('layernorm', 'moe_act'), None)
    """
    if meaning("recomputed", text) != "selective":
        return None
    found = [m for m, words in MODULE_WORDS.items() if re.search(words, text.lower())]
    return tuple(found) or ("core_attn",)


MODULE_WORDS = {
    "mla_up_proj": r"mla.?up",
    "layernorm": r"norm",
    "moe_act": r"moe_act",
    "mlp": r"\bmlp\b",
    "moe": r"\bmoe\b",
    "core_attn": r"core_attn|attention",
}


def settings_of(
    row: Row, family: str, model: ModelSpec, cluster: ClusterSpec, layout: Layout
) -> JobSettings:
    """Read the settings that a row states; the others are those that `plan` takes.

    The job is one of those that the software's parameters are fitted to: tuned, for most.
    """
    notes, spec = row.get("notes", "").lower(), load_software(family)
    framework = row.get("framework", "").lower()
    graphs = meaning("graphs", notes)
    kernels = moe_kernel_generation(notes, framework)
    if kernels == "2026b" and graphs == "layer":
        kernels = "2026a"  # the newer ones come with graphs of the whole iteration
    attention = meaning("trained_attention", f"{framework}; {row.get('attention', '')}")
    if attention == "flash":  # the generation that the software has
        attention = "flash2" if spec.attention == "unfused" else None
    loss = meaning("trained_loss", notes)
    if family == "torchtitan" and not re.search(r"2026|0\.[3-9]", framework):
        loss = loss or "eager"
    offloaded = re.search(r"cpu activation offload of (\d+) layers", notes)
    said = JobSettings(
        maturity=spec.fitted_on,
        cuda_graphs=graphs,
        dispatcher=meaning("exchange", f"{notes}; {model.name}") if model.has_experts else None,
        overlap_ep="all-to-all overlap" in notes or None,
        moe_kernels=kernels or None if model.has_experts else None,
        recompute_modules=modules_of(row.get("recompute", "")),
        offload_layers=int(offloaded[1]) if offloaded else None,
        gradients=meaning("gradients", row.get("precision", "")),
        attention=attention,
        loss=loss,
    )
    return settled_for(layout, said, spec, model, cluster)


def changes_of(row: Row, family: str, layout: Layout) -> dict[str, object]:
    """Read what a row states of its software that no option says: `--set software.KEY=VALUE`."""
    notes, precision = row.get("notes", "").lower(), meaning("linears", row.get("precision", ""))
    plain = family == "torchtitan" and precision == "bf16"
    changes: dict[str, object] = {}
    if family == "megatron-bridge" and row.get("dp_sharding", "").startswith("HSDP"):
        changes["outer_shards"] = True  # perf_recipes/nemotronh/common.py: outer_dp_sharding
    if family == "megatron-deepspeed" and layout.zero_stage == 0:
        changes["scatter_gather"] = True  # Megatron's pipeline, not DeepSpeed's engine
    if "eager" in notes or (plain and "compile" not in notes):  # torchtitan's default is eager
        changes["compiled"] = False
    return changes


def blocks_again(row: Row, family: str, n_layers: int) -> int | None:
    """Blocks that are recomputed whole where FSDP's `selective` means every k-th of them.

    fms-fsdp prints model and hardware FLOP: a forward pass more is a third more (its
    docs/configurations.md, `selective_checkpointing`). None: not so, or not printed.

    Examples
    --------
    >>> row = {"recompute": "selective", "mfu": "0.38", "hfu": "0.47"}
    >>> blocks_again(row, "fsdp", 80), blocks_again(row, "megatron-core", 80)
    (57, None)
    """
    if family != "fsdp" or row.get("recompute", "").strip().lower() != "selective":
        return None
    try:
        more = float(row.get("hfu", "")) / float(row.get("mfu", "")) - 1.0
    except (ValueError, ZeroDivisionError):
        return None
    return min(n_layers, max(0, round(3.0 * more * n_layers)))


def moe_kernel_generation(notes: str, framework: str = "") -> str:
    """MoE kernel generation of the container or version that a row names; "" if none is."""
    match = re.search(r"container (\d\d)\.(\d\d)", notes)
    if match is None:
        year = re.search(r"nemo\D{0,3}(2\d)\b|nemo (dev)|core r?0\.([0-9]|10)\b", framework.lower())
        if year is None or year[1] and int(year[1]) > 25:
            return ""
        return "2025" if year[1] == "25" else "2024"
    release = int(match[1]) * 100 + int(match[2])
    return "2025" if release < 2600 else "2026a" if release < 2606 else "2026b"


def shard_group_of(row: Row, n_ranks: int) -> int | None:
    """Read the ranks of one ZeRO-3 shard group; None: all data-parallel ranks."""
    text = row.get("dp_sharding", "").lower()
    match = re.search(r"then fsdp=(\d+) x dp", text)
    if match and n_ranks > 256:
        return min(n_ranks, int(match[1]))
    match = re.search(r"(?:hsdp|shard)\D{0,12}(\d+)", text)
    return min(n_ranks, max(1, int(match[1]))) if match else None
