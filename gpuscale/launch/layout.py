"""A `Found` record as a layout: what it leaves out is derived as its framework would."""

from __future__ import annotations

import math
from dataclasses import fields

from gpuscale.core.layout import Layout
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import ranks_of, settle
from gpuscale.launch.found import Found
from gpuscale.specs.model import ModelSpec
from gpuscale.specs.software import SoftwareSpec

MEGATRON = ("megatron", "megatron-bridge", "ms-swift")
DEFAULT_SEQ_LEN = {"trainer": 1024, "torchtitan": 2048}
"""Length that the front end takes where its file names none (its own default); that of others is
in their presets.
"""


def layout_of(
    found: Found, model: ModelSpec, software: SoftwareSpec, n_gpus: int, seq_len: int | None
) -> Layout:
    """Lay a launch out on its GPUs.

    `found`: what the files say; what is wrong by itself is added to `found.wrong`. `software`: the
    family, for what the framework does by habit. `n_gpus`: GPUs [1]. `seq_len`: tokens of a
    sequence, where a person says them [1]. Raises GpuscaleError if the degrees do not divide the
    GPUs, or no sequence length is known.
    """
    said = {f.name: getattr(found, f.name, None) for f in fields(Layout)}
    dp = ranks_of(said, n_gpus, "the launch on {n_gpus} GPUs")
    micro = found.micro_batch_size or 1
    batch = found.global_batch_size or micro * dp * (found.accumulation or 1)
    _check_batch(found, micro, dp, batch)
    length = seq_len or found.seq_len or DEFAULT_SEQ_LEN.get(found.kind)
    if not length:
        raise GpuscaleError("the files name no sequence length", "say it with --seq-len")
    usual = 0 if found.places.get("launcher") == "accelerate" else software.zero_stage
    zero = usual if found.zero_stage is None else found.zero_stage
    experts = any(f.kind == "moe" for f in model.ffns.values())
    etp = found.etp or (found.tp if experts and found.kind in (*MEGATRON[:2], "maxtext") else 1)
    replicas = max(1, found.dp_replicate or 1)
    if dp * found.cp % replicas:
        why = f"{replicas} replicas of the shards do not divide dp*cp = {dp * found.cp}"
        raise GpuscaleError(why)
    settled: dict[str, object] = {
        "seq_len": length,
        "global_batch_size": batch,
        "etp": etp,
        "vpp": _chunks(found, model),
        "dp": dp,
        "zero_stage": zero,
        "shard_group_size": dp * found.cp // replicas if replicas > 1 and zero == 3 else None,
        "recompute": found.recompute or "none",
        "recompute_layers": _recomputed(found, model),
        "schedule": found.schedule or ("interleaved" if found.vpp > 1 else "1f1b"),
        "precision": None if found.precision == "fp32" else found.precision,
        "cp_kind": found.cp_kind or "ring",
        "stage_layers": _stages(found),
    }
    return settle(said | settled, software)


def _chunks(found: Found, model: ModelSpec) -> int:
    """Virtual stages of a pipeline; torchtitan derives them (pipeline_parallel.py)."""
    if found.kind != "torchtitan" or found.pp == 1:
        return found.vpp
    if found.layers_per_chunk:
        each, more = found.layers_per_chunk
        return max(1, math.ceil((model.n_layers + more) / each) // found.pp)
    return 1 if found.schedule in ("1f1b", "gpipe") else 2


def _recomputed(found: Found, model: ModelSpec) -> int | None:
    """Layers of a stage that are computed again, where it is not all of them."""
    if not found.recompute_every or found.recompute_every == 1:
        return found.recompute_layers
    return max(1, model.n_layers // found.pp // found.recompute_every)


def _check_batch(found: Found, micro: int, dp: int, batch: int) -> None:
    """Say what a framework asserts of the three numbers of a batch."""
    if found.accumulation and found.global_batch_size and found.kind == "deepspeed":
        product = micro * found.accumulation * dp
        if product != batch:
            found.wrong.append(
                f"train_batch_size {batch} is not micro-batch {micro} x accumulation "
                f"{found.accumulation} x {dp} data-parallel ranks = {product}"
            )
    elif batch % (micro * dp):
        found.wrong.append(
            f"the global batch {batch} is no multiple of micro-batch {micro} x {dp} "
            "data-parallel ranks"
        )


def _stages(found: Found) -> tuple[int, ...] | None:
    """Layers of each stage, or of each chunk, where the file says them."""
    chunks = found.stage_layers
    if not chunks or found.pp == 1 or len(chunks) % found.pp:
        return None
    return chunks
