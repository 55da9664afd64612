"""Every rule of a legal layout, with the framework as an argument; one book for every command.

A rule is a name in `data/rules.toml` and its check in one of the `against_*` functions, each of
which looks at the few dimensions that it needs, so that a search can ask before a layout is
complete. `against` asks them all of a `Layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gpuscale.core.habits import ANY, Capabilities, holds
from gpuscale.core.layout import CONTEXT_KINDS, Layout
from gpuscale.core.records import NamedTuple, dataclass, field
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.settings import NO_SETTINGS, JobSettings
from gpuscale.core.stages import splits_by_length

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec


PRETRAINED = {"task": "pretrain", "method": "full"}
"""What a job that is not fine-tuned trains, as the conditions of `Refusal` name it."""


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """The figures of a model and a job that the rules need, and the framework that runs it."""

    n_layers: int
    head_counts: tuple[int, ...]  # query heads (or linear-attention heads) of each mixer
    kv_head_counts: tuple[int, ...]  # KV heads of each mixer that has fewer than query heads
    ffn_widths: tuple[int, ...]  # widths that TP splits: dense and shared FFNs
    expert_widths: tuple[int, ...]  # widths that expert TP splits
    n_experts: int  # 0 for a dense model; the smallest where layers differ
    seq_len: int
    global_batch_size: int
    n_gpus: int
    tied: bool = False  # embedding and head
    biased_experts: bool = False
    runs_on: Capabilities = ANY
    stage_layers: tuple[int, ...] | None = None  # of each stage or chunk, where a person says them
    settings: JobSettings = NO_SETTINGS
    trained: Mapping[str, Any] = field(default_factory=lambda: PRETRAINED, hash=False)

    def stages_given(self, pp: int, vpp: int) -> tuple[int, ...] | None:
        """Layers that are said for so many stages and chunks; None: as the software splits."""
        given = self.stage_layers
        return given if given and len(given) in (pp, pp * vpp) else None


class Broken(NamedTuple):
    """A rule that a layout breaks."""

    rule: str
    message: str
    source: str = ""  # of this one, where it is not the rule's


def _sizes(specs: Any, *names: str) -> tuple[int, ...]:
    """Different sizes, above 0, that the parts of a model have under these names."""
    found = (getattr(spec, name, None) for spec in specs for name in names)
    return tuple(dict.fromkeys(int(size) for size in found if size))


def facts_of(
    model: ModelSpec, seq_len: int, global_batch_size: int, n_gpus: int, runs_on: Capabilities = ANY
) -> RuleFacts:
    """Figures of a job that the rules of a layout need.

    `model`: the model. `seq_len, global_batch_size`: tokens of a sequence, sequences of a step [1].
    `n_gpus`: GPUs [1]. `runs_on`: what the framework offers.
    """
    mixers = list(model.mixers.values())
    ffns = list(model.ffns.values())
    return RuleFacts(
        n_layers=model.n_layers,
        head_counts=_sizes(mixers, "n_heads", "n_v_heads"),
        kv_head_counts=_sizes(mixers, "n_kv_heads", "n_k_heads", "n_groups"),
        ffn_widths=_sizes(
            ffns, "ffn_hidden_size", "shared_ffn_hidden_size", "dense_ffn_hidden_size"
        ),
        expert_widths=_sizes(ffns, "expert_ffn_hidden_size"),
        n_experts=min(_sizes(ffns, "n_experts"), default=0),
        seq_len=seq_len,
        global_batch_size=global_batch_size,
        n_gpus=n_gpus,
        tied=model.tie_embeddings,
        biased_experts=any(f.bias for f in model.expert_ffns),
        runs_on=runs_on,
    )


def against_tp(tp: int, facts: RuleFacts) -> Broken | None:
    """TP splits heads, KV heads (or repeats them evenly) and FFN columns."""
    if tp == 1:
        return None
    soft = facts.runs_on
    if not soft.tensor_parallel:
        return Broken("tp-offered", f"{soft.name} has no tensor parallelism: tp={tp}")
    for heads in facts.head_counts:
        if heads % tp:
            return Broken("tp-heads", f"tp={tp} does not divide {heads} heads")
    for kv_heads in facts.kv_head_counts:
        if kv_heads % tp and soft.kv_heads == "divide":
            why = f"tp={tp} does not divide {kv_heads} KV heads, which {soft.name} does not repeat"
            return Broken("tp-kv-heads", why)
        if kv_heads % tp and tp % kv_heads:
            why = f"tp={tp} neither divides nor is a multiple of {kv_heads} KV heads"
            return Broken("tp-kv-heads", why)
    for width in facts.ffn_widths:
        if width % tp:
            return Broken("tp-ffn", f"tp={tp} does not divide the FFN width {width}")
    return None


def against_sequence_parallel(on: bool, tp: int, cp: int, facts: RuleFacts) -> Broken | None:
    """Sequence parallelism splits the tokens of a rank over TP; some frameworks decide it."""
    if tp == 1:
        return None
    soft = facts.runs_on
    if on not in soft.sequence_parallel:
        has = "always has" if not on else "has no"
        why = f"{soft.name} {has} sequence parallelism with tensor parallelism"
        return Broken("sequence-parallel", why)
    if on and (tokens := facts.seq_len // cp) % tp:
        why = f"sequence parallelism: tp={tp} does not divide {tokens} tokens of a rank"
        return Broken("sequence-parallel", why)
    if not on and facts.n_experts and soft.experts_need_sequence_parallel:
        why = f"{soft.name} trains experts with tp={tp} with sequence parallelism only"
        return Broken("sequence-parallel-experts", why)
    return None


def against_cp(cp: int, cp_kind: str, tp: int, facts: RuleFacts) -> Broken | None:
    """Split the sequence in 2*cp chunks; a kind may need more, as Ulysses heads."""
    if cp == 1:
        return None
    soft = facts.runs_on
    if cp_kind not in soft.cp_kinds:
        have = (
            f" by {cp_kind}: it has {', '.join(soft.cp_kinds)}" if soft.cp_kinds else f": cp={cp}"
        )
        return Broken("cp-kind", f"{soft.name} has no context parallelism{have}")
    if facts.seq_len % (2 * cp):
        why = f"cp={cp} needs a sequence that 2*cp divides, not {facts.seq_len}"
        return Broken("cp-sequence", why)
    missing = CONTEXT_KINDS[cp_kind].needs(cp, tp, facts.head_counts, facts.kv_head_counts)
    return Broken("cp-heads", missing) if missing else None


def against_ep(ep: int, etp: int, tp: int, cp: int, dp: int, facts: RuleFacts) -> Broken | None:
    """EP times expert-TP lies in the tp*cp*dp ranks of one stage; experts divide evenly."""
    if facts.n_experts == 0:
        return None if ep == etp == 1 else Broken("experts", "ep and etp need a model with experts")
    soft = facts.runs_on
    if ep > 1 and not soft.expert_parallel:
        return Broken("experts", f"{soft.name} has no expert parallelism: ep={ep}")
    if etp not in (1, tp) and not soft.expert_tensor_parallel:
        return Broken("experts", f"{soft.name} has no expert TP of its own: etp={etp} with tp={tp}")
    if etp > 1 and facts.biased_experts and not soft.biased_experts_split:
        return Broken("experts", f"{soft.name} splits no experts that have a bias: etp={etp}")
    if facts.n_experts % ep:
        return Broken("ep-divides", f"ep={ep} does not divide {facts.n_experts} experts")
    if (tp * cp * dp) % (ep * etp):
        return Broken("ep-ranks", f"ep*etp={ep * etp} does not divide tp*cp*dp={tp * cp * dp}")
    if soft.experts_over_data and dp % ep:
        why = f"{soft.name} spreads experts over data-parallel ranks alone: ep={ep} with dp={dp}"
        return Broken("ep-ranks", why)
    for width in facts.expert_widths:
        if width % etp:
            return Broken("etp-width", f"etp={etp} does not divide the expert width {width}")
    return None


def against_batch(micro_batch_size: int, dp: int, facts: RuleFacts) -> Broken | None:
    """Split the global batch: it splits evenly into micro-batches of the data-parallel ranks."""
    if facts.global_batch_size % (dp * micro_batch_size):
        why = (
            f"dp*micro_batch_size={dp * micro_batch_size} does not divide the global batch of "
            f"{facts.global_batch_size} sequences"
        )
        return Broken("batch", why)
    return None


def against_pp(pp: int, vpp: int, facts: RuleFacts) -> Broken | None:
    """Every stage and chunk holds a layer; some frameworks want the same number in each.

    Where the framework counts embedding and head as a layer each, the first stage may hold the
    embedding alone and the last the head.
    """
    if pp == 1:
        return None
    soft, n = facts.runs_on, facts.n_layers
    if not soft.pipeline:
        return Broken("pp-offered", f"{soft.name} has no pipeline parallelism: pp={pp}")
    if facts.tied and not soft.tied_pipeline:
        return Broken(
            "pp-tied", f"{soft.name} has no pipeline for tied embedding and head: pp={pp}"
        )
    if pp > n + (2 if soft.lone_ends and vpp == 1 else 0):
        return Broken("pp-layers", f"pp={pp} is more than {n} layers")
    if n + 2 < pp * vpp:  # the first and the last chunk may hold embedding and head alone
        return Broken("pp-layers", f"pp*vpp={pp * vpp} chunks are more than {n} layers")
    if n % (pp * vpp) and pp <= n and not soft.uneven_stages:
        chunks = f"pp={pp}" if vpp == 1 else f"pp*vpp={pp * vpp}"
        return Broken("pp-even", f"{chunks} does not divide {n} layers, as {soft.name} needs")
    if soft.stages_by_length and not splits_by_length(n, pp * vpp):
        why = f"{soft.name} cannot split {n} layers into {pp * vpp} stages by the layers of one"
        return Broken("pp-even", why)
    return None


def against_schedule(
    schedule: str, vpp: int, pp: int, n_micro_batches: int, facts: RuleFacts
) -> Broken | None:
    """Interleaving needs m % pp = 0; DualPipe an even pp and m >= 2*pp; others vpp = 1."""
    if pp == 1:
        alone = schedule == "1f1b" and vpp == 1
        return None if alone else Broken("schedule", f"{schedule} needs pp > 1")
    soft = facts.runs_on
    if schedule not in soft.schedules:
        why = f"{soft.name} has no {schedule} schedule: it has {', '.join(soft.schedules)}"
        return Broken("schedule", why)
    broken = against_pp(pp, vpp, facts)
    if broken:
        return broken
    if schedule == "interleaved":
        if vpp < 2:
            return Broken("interleaved", "interleaved needs vpp of at least 2")
    elif vpp != 1:
        return Broken("interleaved", f"vpp={vpp} needs the interleaved schedule")
    missing = SCHEDULES[schedule].needs(pp, n_micro_batches)
    return Broken(schedule, missing) if missing else None


def against_zero(
    zero_stage: int, shard_group: int | None, pp: int, dp: int, cp: int, facts: RuleFacts
) -> Broken | None:
    """ZeRO stages as the framework has them, alone and with a pipeline; groups divide dp*cp."""
    soft = facts.runs_on
    if zero_stage not in soft.zero_stages:
        have = ", ".join(map(str, soft.zero_stages))
        return Broken("zero", f"{soft.name} has no ZeRO stage {zero_stage}: it has {have}")
    if pp > 1 and zero_stage not in (*soft.zero_pipeline, *soft.zero_pipeline_asked):
        why = f"zero {zero_stage} with a pipeline: not in {soft.name}, which accumulates gradients"
        return Broken("zero-pipeline", why)
    if why := facts.settings.unsharded(soft, zero_stage, dp * cp):
        return Broken("zero", why)
    if shard_group is not None:
        if zero_stage != 3:
            return Broken("shard-group", "a shard group (HSDP) needs zero 3")
        if not soft.hybrid_shards:
            return Broken("shard-group", f"{soft.name} has no shard groups (HSDP)")
        if (dp * cp) % shard_group:
            why = f"the shard group {shard_group} does not divide dp*cp={dp * cp}"
            return Broken("shard-group", why)
    return None


def against_recompute(recompute: str, layers: int | None, facts: RuleFacts) -> Broken | None:
    """Ways to recompute that the framework has."""
    soft = facts.runs_on
    if recompute not in soft.recompute:
        why = f"{soft.name} has no {recompute} recompute: it has {', '.join(soft.recompute)}"
        return Broken("recompute", why)
    if layers is not None and not soft.recompute_layers:
        return Broken("recompute", f"{soft.name} recomputes all layers or none")
    return None


def against_offload(optimizer: bool, activations: bool, facts: RuleFacts) -> Broken | None:
    """States and activations are kept on the host where the framework can."""
    soft = facts.runs_on
    if optimizer and not soft.offload_optimizer:
        return Broken("offload", f"{soft.name} does not offload the optimizer")
    if activations and not soft.offload_activations:
        return Broken("offload", f"{soft.name} does not offload activations")
    return None


def against_order(order: str, facts: RuleFacts) -> Broken | None:
    """Orders of the ranks that the framework has."""
    if order not in facts.runs_on.orders:
        return Broken("order", f"{facts.runs_on.name} does not order ranks as {order}")
    return None


def against(layout: Layout, facts: RuleFacts) -> Broken | None:
    """Return the first rule that a layout breaks; None if it is allowed.

    >>> from gpuscale.core.layout import Layout
    >>> phi4 = RuleFacts(40, (40,), (10,), (17920,), (), 0, 4096, 8, 8)
    >>> against(Layout(4096, 8, tp=4, dp=2), phi4).message
    'tp=4 neither divides nor is a multiple of 10 KV heads'
    """
    x = layout
    if x.n_gpus != facts.n_gpus:
        return Broken("gpus", f"tp*cp*pp*dp={x.n_gpus} is not the {facts.n_gpus} GPUs of the job")
    return (
        against_tp(x.tp, facts)
        or against_cp(x.cp, x.cp_kind, x.tp, facts)
        or against_sequence_parallel(x.sequence_parallel, x.tp, x.cp, facts)
        or against_ep(x.ep, x.etp, x.tp, x.cp, x.dp, facts)
        or against_batch(x.micro_batch_size, x.dp, facts)
        or against_schedule(x.schedule_name, x.vpp, x.pp, x.n_micro_batches, facts)
        or against_zero(x.zero_stage, x.shard_group_size, x.pp, x.dp, x.cp, facts)
        or against_recompute(x.recompute, x.recompute_layers, facts)
        or against_offload(x.offload_optimizer, x.offload_activations, facts)
        or against_order(x.order, facts)
        or against_stage_layers(x.stage_layers, x.pp, x.vpp, facts)
        or against_settings(x, facts)
        or against_refused(x, facts)
    )


def against_settings(layout: Layout, facts: RuleFacts) -> Broken | None:
    """Hold what a run sets against its layout."""
    why = facts.settings.refused_by(layout.pp, layout.vpp, layout.ep, layout.recompute)
    return Broken("settings", why) if why else None


FACTS: dict[str, Callable[[Layout, RuleFacts], Any]] = {
    "accumulation": lambda x, _: x.n_micro_batches,
    "n_gpus": lambda x, _: x.n_gpus,
    "experts": lambda _, facts: facts.n_experts > 0,
}
"""Facts of a job, as conditions of `Refusal` name them, that no field is."""


def _fact(name: str, layout: Layout, facts: RuleFacts) -> Any:
    """Find a fact of a job; None where nobody says it."""
    if name in facts.trained:
        return facts.trained[name]
    if name in FACTS:
        return FACTS[name](layout, facts)
    return getattr(layout, name, getattr(facts.settings, name, None))


def against_refused(layout: Layout, facts: RuleFacts) -> Broken | None:
    """Hold a layout, and what is trained with it, against what the framework refuses together."""
    for row in facts.runs_on.refused:
        if all(holds(wanted, _fact(name, layout, facts)) for name, wanted in row.when.items()):
            return Broken("refused", f"{facts.runs_on.name}: {row.why}", row.source)
    return None


def against_stage_layers(
    given: tuple[int, ...] | None, pp: int, vpp: int, facts: RuleFacts
) -> Broken | None:
    """Layers that a person names for stages or chunks: as many, all layers, none empty.

    The first chunk may hold the embedding alone, the last the head.
    """
    if given is None:
        return None
    chunks = vpp > 1 and len(given) == pp * vpp
    least = 1 if chunks else vpp
    inner = given[1:-1] if chunks or (facts.runs_on.lone_ends and vpp == 1) else given
    if (
        not chunks
        and len(given) != pp
        or sum(given) != facts.n_layers
        or (min(inner, default=1) < least)
    ):
        why = f"stages of {', '.join(map(str, given))} layers are not pp={pp} stages of "
        return Broken("pp-layers", f"{why}{facts.n_layers} layers")
    if len(set(given)) > 1 and not facts.runs_on.uneven_stages:
        return Broken("pp-even", f"{facts.runs_on.name} has stages of equal layers only")
    return None
