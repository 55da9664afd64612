"""What real frameworks allow: each rule returns the reason against a layout, or an empty string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout


@dataclass(frozen=True, slots=True)
class Facts:
    """The figures of a model and a job that the rules need."""

    n_layers: int
    head_counts: tuple[int, ...]  # query heads (or linear-attention heads) of each mixer
    kv_head_counts: tuple[int, ...]  # KV heads of each mixer that has fewer than query heads
    ffn_widths: tuple[int, ...]  # widths that TP splits: dense and shared FFNs
    expert_widths: tuple[int, ...]  # widths that expert TP splits
    n_experts: int  # 0 for a dense model; the smallest where layers differ
    seq_len: int
    global_batch_size: int
    n_gpus: int


def against_tp(tp: int, facts: Facts) -> str:
    """TP splits heads, KV heads (or repeats them evenly) and FFN columns."""
    for heads in facts.head_counts:
        if heads % tp:
            return f"tp={tp} does not divide {heads} heads"
    for kv_heads in facts.kv_head_counts:
        if kv_heads % tp and tp % kv_heads:
            return f"tp={tp} neither divides nor is a multiple of {kv_heads} KV heads"
    for width in facts.ffn_widths:
        if width % tp:
            return f"tp={tp} does not divide the FFN width {width}"
    return ""


def against_cp(cp: int, cp_kind: str, tp: int, facts: Facts) -> str:
    """Ring and all-gather split the sequence in 2*cp chunks; Ulysses splits heads."""
    if cp == 1:
        return ""
    if facts.seq_len % (2 * cp):
        return f"cp={cp} needs a sequence that 2*cp divides, not {facts.seq_len}"
    if cp_kind == "ulysses":
        for heads in facts.head_counts:
            if (heads // tp) % cp:
                return f"Ulysses cp={cp} does not divide {heads}/{tp} heads"
    return ""


def against_ep(ep: int, etp: int, tp: int, cp: int, dp: int, facts: Facts) -> str:
    """EP times expert-TP lies in the tp*cp*dp ranks of one stage; experts divide evenly."""
    if facts.n_experts == 0:
        return "" if ep == etp == 1 else "ep and etp need a model with experts"
    if facts.n_experts % ep:
        return f"ep={ep} does not divide {facts.n_experts} experts"
    if (tp * cp * dp) % (ep * etp):
        return f"ep*etp={ep * etp} does not divide tp*cp*dp={tp * cp * dp}"
    for width in facts.expert_widths:
        if width % etp:
            return f"etp={etp} does not divide the expert width {width}"
    return ""


def against_batch(micro_batch_size: int, dp: int, facts: Facts) -> str:
    """Split the global batch: it splits evenly into micro-batches of the data-parallel ranks."""
    if facts.global_batch_size % (dp * micro_batch_size):
        return (
            f"dp*micro_batch_size={dp * micro_batch_size} does not divide the global batch of "
            f"{facts.global_batch_size} sequences"
        )
    return ""


def against_schedule(schedule: str, vpp: int, pp: int, n_micro_batches: int, facts: Facts) -> str:
    """Interleaving needs even chunks and m % pp = 0; DualPipe an even pp and m >= 2*pp."""
    if pp == 1:
        return "" if schedule == "1f1b" and vpp == 1 else f"{schedule} needs pp > 1"
    if pp > facts.n_layers:
        return f"pp={pp} is more than {facts.n_layers} layers"
    if schedule == "interleaved":
        if vpp < 2:
            return "interleaved needs vpp of at least 2"
        if facts.n_layers % (pp * vpp) and (facts.n_layers + 2) % (pp * vpp):
            return f"pp*vpp={pp * vpp} divides neither {facts.n_layers} layers nor layers + 2"
        if n_micro_batches % pp:
            return f"interleaved needs micro-batches ({n_micro_batches}) that pp={pp} divides"
        return ""
    if vpp != 1:
        return f"vpp={vpp} needs the interleaved schedule"
    if schedule == "dualpipe" and (pp % 2 or n_micro_batches < 2 * pp or n_micro_batches % 2):
        return (
            f"DualPipe needs an even pp and an even number of at least 2*pp={2 * pp} micro-batches"
        )
    return ""


def against_zero(zero_stage: int, shard_group: int | None, pp: int, dp: int, cp: int) -> str:
    """Sharded gradients do not go with a pipeline's accumulation; HSDP groups divide dp*cp."""
    if zero_stage == 2 and pp > 1:
        return "zero 2 with a pipeline: gradients are accumulated over its micro-batches"
    if shard_group is not None:
        if zero_stage != 3:
            return "a shard group (HSDP) needs zero 3"
        if (dp * cp) % shard_group:
            return f"the shard group {shard_group} does not divide dp*cp={dp * cp}"
    return ""


def against(layout: Layout, facts: Facts) -> str:
    """Return the first rule that a layout breaks, in words; empty if it is allowed."""
    if layout.n_gpus != facts.n_gpus:
        return f"tp*cp*pp*dp={layout.n_gpus} is not the {facts.n_gpus} GPUs of the job"
    return (
        against_tp(layout.tp, facts)
        or against_cp(layout.cp, layout.cp_kind, layout.tp, facts)
        or against_ep(layout.ep, layout.etp, layout.tp, layout.cp, layout.dp, facts)
        or against_batch(layout.micro_batch_size, layout.dp, facts)
        or against_schedule(layout.schedule, layout.vpp, layout.pp, layout.n_micro_batches, facts)
        or against_zero(layout.zero_stage, layout.shard_group_size, layout.pp, layout.dp, layout.cp)
    )
