"""Texts of a row of measurements to settings: framework, format, sharding, recompute, schedule."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuscale.evidence.rows.words import Row, meaning


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


def precision_of(text: str) -> str:
    """Read the number format of the linear layers: a member of `core.layout.PRECISIONS`."""
    return meaning("linears", text) or "bf16"


def zero_stage_of(text: str, family: str) -> int:
    """ZeRO stage of a `dp_sharding` or `zero_stage` cell; the family's habit when blank."""
    if (stage := meaning("sharding", text.strip())) is not None:
        return int(stage)
    if family in ("fsdp", "torchtitan", "jax", "deepspeed-zero3"):
        return 3
    return 0 if family == "megatron-lm-2021" else 1


def recompute_of(text: str, n_layers: int, pp: int) -> tuple[str, int | None, tuple[str, ...]]:
    """(recompute, recompute_layers per stage, modules) of a `recompute` cell."""
    text = text.lower()
    if "full" in text:
        return "full", None, ()
    if "every other" in text:
        return "full", max(1, n_layers // (2 * pp)), ()
    if "per op" in text or "per-op" in text:
        return "per-op", None, ()
    if "selective" in text:
        names = {
            "mla_up_proj": r"mla.?up",
            "layernorm": r"norm",
            "moe_act": r"moe_act",
            "mlp": r"\bmlp\b",
            "moe": r"\bmoe\b",
            "core_attn": r"core_attn|attention",
        }
        modules = tuple(name for name, pattern in names.items() if re.search(pattern, text))
        return "selective", None, modules or ("core_attn",)
    return "none", None, ()


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


TOLD = re.compile(r"cuda graphs \w+|moe all-to-all overlap", re.IGNORECASE)
"""Settings in the notes of a row whose recipe was read."""

_ALIKE = (
    "source",
    "dup_group",
    "precision",
    "n_gpus",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "micro_batch",
)


SHARDED = {"nemotron-3-ultra": 64}
"""Recipes whose page has no column for the sharding that they set: Megatron-FSDP over so many GPUs
of an NVLink domain (Megatron-Bridge @067f987, perf_recipes/nemotronh/common.py)."""


def _release(notes: str) -> tuple[int, ...]:
    """Container that a row names; () if none."""
    match = re.search(r"container (\d\d)\.(\d\d)(?:\.(\d+))?", notes)
    return tuple(int(n or 0) for n in match.groups()) if match else ()


def with_recipes(rows: Sequence[Row]) -> list[Row]:
    """Give rows whose recipe was not read the settings of the last one that was.

    Performance pages print layouts; what else a recipe sets is noted where its file was read. The
    same layout of the same job in a newer container has the recipe of the last one before it.
    """
    read: dict[tuple[str, ...], list[tuple[tuple[int, ...], Row]]] = {}
    for row in rows:
        if "/configs@" in row.get("notes", "") and _release(row["notes"]):
            key = tuple(row.get(name, "") for name in _ALIKE)
            read.setdefault(key, []).append((_release(row["notes"]), row))
    return [_sharded(_like_before(row, read)) for row in rows]


def _sharded(row: Row) -> Row:
    """Give a row the sharding that its page leaves out."""
    if "no FSDP column" in row.get("derived", ""):
        gpus = SHARDED.get(row.get("model", "").lower(), 0)
        return {**row, "dp_sharding": f"HSDP {gpus // int(row['tp'])}"} if gpus else row
    return row


def _like_before(row: Row, read: dict[tuple[str, ...], list[tuple[tuple[int, ...], Row]]]) -> Row:
    notes = row.get("notes", "")
    own = _release(notes)
    if not own or "/configs@" in notes:
        return row
    before = [x for x in read.get(tuple(row.get(n, "") for n in _ALIKE), []) if x[0] <= own]
    if not before:
        return row
    last = max(before, key=lambda x: x[0])[1]
    told = TOLD.findall(last["notes"])
    again = row.get("recompute") or last.get("recompute", "")
    return {**row, "notes": "; ".join([notes, *told]), "recompute": again}


def schedule_of(row: Row) -> str:
    """Read the pipeline schedule: a member of `core.schedules.SCHEDULES`."""
    return meaning("schedule", row.get("pp_schedule", "")) or "1f1b"


def shard_group_of(row: Row, n_ranks: int) -> int | None:
    """Read the ranks of one ZeRO-3 shard group; None: all data-parallel ranks."""
    text = row.get("dp_sharding", "").lower()
    match = re.search(r"then fsdp=(\d+) x dp", text)
    if match and n_ranks > 256:
        return min(n_ranks, int(match[1]))
    match = re.search(r"(?:hsdp|shard)\D{0,12}(\d+)", text)
    return min(n_ranks, max(1, int(match[1]))) if match else None
