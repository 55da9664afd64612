"""The declared space of layouts: candidate values of every dimension, and its exact size.

Dimensions of Narayanan et al. 2021 (arXiv:2104.04473) and Rajbhandari et al. 2019
(arXiv:1910.02054).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuscale.core import rules
from gpuscale.core.layout import DEFAULT_CONTEXT, ORDERS, RECOMPUTE
from gpuscale.core.model.params import ModelWeights
from gpuscale.core.records import NamedTuple, dataclass
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.stages import stage_kinds

MOST_TP, MOST_CP, MOST_PP = 64, 64, 128
"""Largest degrees that are searched: twice what published runs use."""

LEAST_TOKENS = 1024
"""A sequence is not cut below so many tokens a rank, where its batch alone can fill the GPUs."""

MOST_TOKENS = 1 << 17
"""Largest micro-batch that is searched, where it is more than 16 sequences."""

VPP = (2, 3, 4, 5, 6, 7, 8, 10, 12)
SHARD_GROUPS = (8, 16, 32, 64, 128, 256)


WIDE_EXPERT = 4096
"""Experts narrower than this have products too small to be split over TP, or to be beside much."""

AS_TP = 0
"""Value of `Space.etp` that means: as the dense layers' TP."""


@dataclass(frozen=True, slots=True)
class Space:
    """Candidate values of each dimension; what does not go together is left out when walking."""

    tp: tuple[int, ...]
    cp: tuple[int, ...]
    cp_kind: tuple[str, ...]
    pp: tuple[int, ...]
    ep: tuple[int, ...]
    etp: tuple[int, ...]
    micro_batch_size: tuple[int, ...]
    sequence_parallel: tuple[bool, ...]
    precision: tuple[str, ...]
    recompute: tuple[str, ...]
    recompute_layers: tuple[int, ...] | None  # None: quarters of a stage; (): whole stages only
    schedule: tuple[str, ...]
    vpp: tuple[int, ...]
    zero_stage: tuple[int, ...]
    shard_group_size: tuple[int, ...]  # HSDP; empty: never
    overlap_tp: tuple[bool, ...] = (True, False)
    overlap_dp: tuple[bool, ...] = (True, False)
    overlap_pp: tuple[bool, ...] = (True, False)
    offload_optimizer: tuple[bool, ...] = (False,)  # asked for, or where nothing else fits
    offload_activations: tuple[bool, ...] = (False,)
    order: tuple[str, ...] = ORDERS  # left out where they place no group differently
    domain_gpus: int = 8  # of the scale-up domain, for `order`
    dp: tuple[int, ...] = ()  # empty: whatever the others leave
    sharded: bool = False  # a ZeRO stage was asked for: some ranks share states
    fsdp: bool = True  # ZeRO-3 over all ranks too, beside the shard groups
    whole_recompute: bool = True  # full recompute of all layers too, beside the parts
    even_chunks: bool = False  # interleave in equal chunks where some number of them is equal


class ProcessGrid(NamedTuple):
    """Degrees that fix the process groups of a layout."""

    tp: int
    cp: int
    cp_kind: str
    pp: int
    dp: int


class Tail(NamedTuple):
    """The dimensions that only the assembly of a step depends on."""

    schedule: str = "1f1b"
    vpp: int = 1
    zero_stage: int = 0
    shard_group_size: int | None = None
    overlap_dp: bool = True
    overlap_pp: bool = True
    offload_optimizer: bool = False
    offload_activations: bool = False


def divisors(n: int) -> tuple[int, ...]:
    """All divisors, smallest first.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))


def powers_of_two(limit: int) -> tuple[int, ...]:
    """Return 1, 2, 4 ... up to `limit`.

    >>> powers_of_two(8)
    (1, 2, 4, 8)
    """
    return tuple(1 << i for i in range(max(1, limit).bit_length()))


def default_space(facts: rules.RuleFacts, domain_gpus: int, precision: str = "bf16") -> Space:
    """Space that is searched where nothing is pinned.

    Everything that the framework of `facts` offers: TP up to two scale-up domains, at most 64; CP
    up to 64 in parts of at least `LEAST_TOKENS`; PP every divisor of the GPUs up to the layers; EP
    every divisor of the experts; micro-batches every divisor of the batch; narrow experts are
    whole.
    """
    parts = divisors(facts.n_gpus)
    moe, soft = facts.n_experts > 0, facts.runs_on
    widest = min(MOST_TP, max(8, 2 * domain_gpus))
    parted = MOST_CP if soft.cp_kinds and not soft.cp_asked else 1
    if facts.n_gpus <= facts.global_batch_size * widest:
        parted = min(parted, max(1, facts.seq_len // LEAST_TOKENS))
    searched = [s for s in SCHEDULES.values() if s.searched]
    return Space(
        tp=tuple(d for d in parts if d <= widest and not rules.against_tp(d, facts)),
        cp=tuple(d for d in parts if d in powers_of_two(parted)),
        cp_kind=soft.cp_kinds or (DEFAULT_CONTEXT,),
        pp=tuple(
            d
            for d in parts
            if d <= min(facts.n_layers, MOST_PP) and not rules.against_pp(d, 1, facts)
        ),
        ep=divisors(facts.n_experts) if moe and soft.expert_parallel else (1,),
        etp=_splits_of_experts(facts),
        micro_batch_size=tuple(
            b
            for b in divisors(facts.global_batch_size)
            if b <= max(16, MOST_TOKENS // facts.seq_len)
        ),
        sequence_parallel=soft.sequence_parallel,
        precision=(precision,),
        recompute=tuple(
            r
            for r in RECOMPUTE
            if r in soft.recompute
            and r not in soft.recompute_asked
            and not (r == "per-op" and soft.selective_per_op)
        ),
        recompute_layers=None if soft.recompute_layers else (),
        schedule=tuple(s.name for s in searched if s.name in soft.schedules) or ("1f1b",),
        vpp=VPP,
        zero_stage=tuple(z for z in soft.zero_stages if z not in soft.zero_asked),
        shard_group_size=SHARD_GROUPS if soft.hybrid_shards else (),
        order=soft.orders,
        domain_gpus=domain_gpus,
        even_chunks=True,
    )


def _splits_of_experts(facts: rules.RuleFacts) -> tuple[int, ...]:
    """Degrees of TP that experts are split by: one of their own, or that of all the rest."""
    if facts.runs_on.experts_over_data:
        return (AS_TP,) if facts.n_experts else (1,)
    return (1, AS_TP) if max(facts.expert_widths, default=0) >= WIDE_EXPERT else (1,)


def grids(space: Space, facts: rules.RuleFacts) -> Iterator[ProcessGrid]:
    """Walk the allowed process grids."""
    for tp in space.tp:
        if facts.n_gpus % tp or rules.against_tp(tp, facts):
            continue
        for cp in space.cp:
            kinds = space.cp_kind if cp > 1 else space.cp_kind[:1]
            for kind in kinds:
                if (facts.n_gpus // tp) % cp or rules.against_cp(cp, kind, tp, facts):
                    continue
                for pp in space.pp:
                    dp, rest = divmod(facts.n_gpus // tp // cp, pp)
                    if rest or rules.against_pp(pp, 1, facts) or (space.dp and dp not in space.dp):
                        continue
                    if facts.global_batch_size % dp == 0:
                        yield ProcessGrid(tp, cp, kind, pp, dp)


def expert_degrees(
    space: Space, facts: rules.RuleFacts, grid: ProcessGrid
) -> list[tuple[int, int]]:
    """Return the allowed (ep, etp) of a grid."""
    return [
        (ep, etp)
        for ep in space.ep
        if not facts.settings.refused_by(1, 1, ep, "none")
        for etp in dict.fromkeys(e if e != AS_TP else grid.tp for e in space.etp)
        if not rules.against_ep(ep, etp, grid.tp, grid.cp, grid.dp, facts)
    ]


def micro_batches(space: Space, facts: rules.RuleFacts, grid: ProcessGrid) -> list[int]:
    """Return the allowed micro-batch sizes of a grid.

    A micro-batch that CP divides is left out where the space has it without CP: as many tokens on a
    rank, and nothing exchanged.
    """
    tried, cp = space.micro_batch_size, grid.cp
    if cp > 1 and 1 in space.cp and not space.dp:
        tried = tuple(b for b in tried if b % cp or b // cp not in tried)
    return [b for b in tried if not rules.against_batch(b, grid.dp, facts)]


def recomputes(space: Space, facts: rules.RuleFacts, pp: int) -> list[tuple[str, int | None]]:
    """(mode, layers per stage) choices: `full` also on a part of the layers of a stage."""
    stage = -(-facts.n_layers // pp)
    quarters = {max(1, stage * q // 4) for q in (1, 2, 3)} - {stage}
    parts = space.recompute_layers if space.recompute_layers is not None else sorted(quarters)
    chosen: list[tuple[str, int | None]] = []
    for mode in space.recompute:
        if rules.against_recompute(mode, None, facts) or facts.settings.refused_by(1, 1, 2, mode):
            continue
        whole = space.whole_recompute or any(n >= stage for n in parts)
        if mode != "full" or whole:
            chosen.append((mode, None))
        if mode == "full":
            chosen += [
                (mode, n)
                for n in parts
                if n < stage and not rules.against_recompute(mode, n, facts)
            ]
    return chosen


def sequence_parallels(space: Space, facts: rules.RuleFacts, grid: ProcessGrid) -> list[bool]:
    """Return the allowed choices of sequence parallelism, which means something with TP only."""
    tried = space.sequence_parallel if grid.tp > 1 else space.sequence_parallel[:1]
    return [on for on in tried if not rules.against_sequence_parallel(on, grid.tp, grid.cp, facts)]


def orders(space: Space, grid: ProcessGrid) -> tuple[str, ...]:
    """Return the orders of the dimensions that place some group of a grid differently.

    The pipeline inside DP only where TP, CP and it fit in one scale-up domain; a single order is
    kept as it is.
    """
    fits = grid.tp * grid.cp * grid.pp <= space.domain_gpus
    if len(space.order) == 1 or (grid.pp > 1 and grid.dp > 1 and fits):
        return space.order
    return space.order[:1]


def overlap_tps(space: Space, tp: int) -> tuple[bool, ...]:
    """Overlap of TP communication means something with TP only."""
    return space.overlap_tp if tp > 1 else space.overlap_tp[:1]


def tails(
    space: Space, facts: rules.RuleFacts, grid: ProcessGrid, micro_batch_size: int
) -> list[Tail]:
    """Return the allowed assemblies of a grid."""
    rest = shardings(space, facts, grid)
    pairs = schedules(space, facts, grid, micro_batch_size)
    return [t._replace(schedule=s, vpp=v) for s, v in pairs for t in rest]


def schedules(
    space: Space, facts: rules.RuleFacts, grid: ProcessGrid, micro_batch_size: int
) -> list[tuple[str, int]]:
    """Return the allowed (schedule, vpp) of a grid; each goes with any of `shardings`."""
    pp, m = grid.pp, facts.global_batch_size // (grid.dp * micro_batch_size)
    allowed = [
        (s, v)
        for s in space.schedule
        for v in (space.vpp if s == "interleaved" else (1,))
        if not rules.against_schedule(s, v, pp, m, facts)
        and not facts.settings.refused_by(pp, v, 2, "none")
    ]
    return _even_first(allowed, pp, facts.n_layers) if space.even_chunks else allowed


def shardings(space: Space, facts: rules.RuleFacts, grid: ProcessGrid) -> list[Tail]:
    """Return the allowed rest of an assembly of a grid, whatever its schedule."""
    _, cp, _, pp, dp = grid
    ranks = dp * cp
    asked = facts.runs_on.zero_pipeline_asked if pp > 1 else ()
    whole = (None,) if space.fsdp or ranks in space.shard_group_size else ()
    shards = [
        (z, g)
        for z in space.zero_stage
        for g in ((*whole, *space.shard_group_size) if z == 3 else (None,))
        if not rules.against_zero(z, g, pp, dp, cp, facts) and (g is None or 1 < g < ranks)
        if len(space.zero_stage) == 1 or z not in asked
        if ranks > 1 or (z == space.zero_stage[0] and not space.sharded)
    ]
    overlap_dp = space.overlap_dp if ranks > 1 else space.overlap_dp[:1]
    overlap_pp = space.overlap_pp if pp > 1 else space.overlap_pp[:1]
    return [
        Tail(
            zero_stage=z,
            shard_group_size=g,
            overlap_dp=odp,
            overlap_pp=opp,
            offload_optimizer=opt,
            offload_activations=act,
        )
        for z, g in shards
        for odp in overlap_dp
        for opp in overlap_pp
        for opt in space.offload_optimizer
        for act in space.offload_activations
        if not rules.against_offload(opt, act, facts)
    ]


def _even_first(schedules: list[tuple[str, int]], pp: int, n_layers: int) -> list[tuple[str, int]]:
    """Leave out unequal chunks where some number of chunks is equal, but for the two ends."""
    chunks = {pp * v: v for _, v in schedules if v > 1}
    even = {v for n, v in chunks.items() if 0 in (n_layers % n, (n_layers + 2) % n)}
    return [(s, v) for s, v in schedules if v == 1 or not even or v in even]


def dealings(
    weights: ModelWeights,
    rule: str,
    pp: int,
    schedules: Sequence[tuple[str, int]],
    facts: rules.RuleFacts,
) -> dict[int, list[tuple[str, int]]]:
    """(schedule, vpp) pairs by how they deal kinds of layer to stages: vpp of the first -> pairs.

    Where all layers are alike, chunks make no difference, and there is one way.
    """
    first: dict[object, int] = {}
    found: dict[int, list[tuple[str, int]]] = {}
    for schedule, vpp in schedules:
        kinds = stage_kinds(weights, rule, pp, vpp, facts.stages_given(pp, vpp))
        vpp_of = first.setdefault(kinds, vpp)
        found.setdefault(vpp_of, []).append((schedule, vpp))
    return found


def least_states(tails: Sequence[Tail]) -> list[Tail]:
    """Assemblies among which the one with the least model states is found.

    States shrink with the ZeRO stage up to 2, with the shard group of stage 3, and with offload;
    stage 3 also gathers, so both kinds are kept.
    """
    best: dict[bool, tuple[tuple[bool, int, float], Tail]] = {}
    for tail in tails:
        group = float("inf") if tail.shard_group_size is None else tail.shard_group_size
        rank = (tail.offload_optimizer, tail.zero_stage, group)
        sharded = tail.zero_stage == 3
        if sharded not in best or rank > best[sharded][0]:
            best[sharded] = (rank, tail)
    return [tail for _, tail in best.values()]
