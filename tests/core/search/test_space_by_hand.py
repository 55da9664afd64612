"""The declared space by hand: what each dimension may be, for a job of 64 GPUs."""

from dataclasses import replace

import pytest

from gpuscale.core.habits import ANY
from gpuscale.core.model.params import KindWeights, ModelWeights
from gpuscale.core.plan.pins import MAX_VALUES, select_ints, select_names
from gpuscale.core.rules import RuleFacts
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.search.bounds import least_fill, pipeline_floor_s
from gpuscale.core.search.problem import without_cp
from gpuscale.core.search.results import family, grid_of, make_layout
from gpuscale.core.search.space import (
    AS_TP,
    ProcessGrid,
    Tail,
    _even_first,
    dealings,
    default_space,
    divisors,
    expert_degrees,
    grids,
    least_states,
    micro_batches,
    orders,
    overlap_tps,
    powers_of_two,
    recomputes,
    schedules,
    sequence_parallels,
    shardings,
    tails,
)
from gpuscale.core.settings import JobSettings
from gpuscale.core.step.records import Shape

FACTS = RuleFacts(32, (32,), (8,), (14336,), (4608,), 8, 8192, 512, 64)
DENSE = replace(FACTS, n_experts=0, expert_widths=())
SPACE = default_space(FACTS, 8)
GRID = ProcessGrid(tp=4, cp=2, cp_kind="ring", pp=2, dp=4)


def on(facts=FACTS, **soft):
    return replace(facts, runs_on=replace(ANY, name="X", **soft))


@pytest.mark.parametrize(
    ("n", "want"), [(1, (1,)), (12, (1, 2, 3, 4, 6, 12)), (16, (1, 2, 4, 8, 16)), (7, (1, 7))]
)
def test_divisors(n, want):
    assert divisors(n) == want
    assert powers_of_two(1) == (1,) == powers_of_two(0) and powers_of_two(9) == (1, 2, 4, 8)


def test_a_space_where_nothing_is_pinned():
    assert SPACE.tp == (1, 2, 4, 8, 16) and SPACE.cp == (1, 2, 4, 8)  # 1,024 of 8,192 tokens
    assert SPACE.pp == (1, 2, 4, 8, 16, 32)  # as deep as the 32 layers
    assert default_space(replace(FACTS, seq_len=512), 8).cp == (1,)
    assert default_space(replace(FACTS, seq_len=1 << 20), 8).cp[-1] == 64
    many = replace(FACTS, global_batch_size=512)
    for seq_len, most in ((8192, 16), (1024, 128), (4096, 32), (131072, 16)):
        assert default_space(replace(many, seq_len=seq_len), 8).micro_batch_size[-1] == most
    few = replace(FACTS, global_batch_size=3)  # 64 GPUs, more than TP 16 of each sequence
    assert default_space(few, 8).cp == (1, 2, 4, 8, 16, 32, 64)
    assert default_space(replace(few, global_batch_size=4), 8).cp == (1, 2, 4, 8)
    assert SPACE.pp == (1, 2, 4, 8, 16, 32) and SPACE.ep == (1, 2, 4, 8)
    assert SPACE.etp == (1, AS_TP) and SPACE.micro_batch_size == (1, 2, 4, 8, 16)
    assert SPACE.schedule == tuple(s.name for s in SCHEDULES.values() if s.searched)
    assert SPACE.recompute_layers is None and SPACE.shard_group_size[:2] == (8, 16)
    assert SPACE.even_chunks and SPACE.domain_gpus == 8
    wide = replace(FACTS, head_counts=(64,), kv_head_counts=(), n_gpus=256, global_batch_size=256)
    assert default_space(wide, 72).tp[-1] == 64 and default_space(wide, 2).tp[-1] == 8
    assert default_space(replace(wide, n_layers=300, n_gpus=512), 8).pp[-1] == 128
    dense = default_space(DENSE, 8)
    assert (dense.ep, dense.etp) == ((1,), (1,))
    bare = default_space(
        on(
            cp_kinds=(),
            schedules=("gpipe",),
            hybrid_shards=False,
            recompute_layers=False,
            expert_parallel=False,
            selective_per_op=True,
            recompute=("none", "selective", "per-op"),
        ),
        8,
    )
    assert (bare.cp, bare.cp_kind, bare.schedule) == ((1,), ("ring",), ("1f1b",))
    assert (bare.shard_group_size, bare.recompute_layers, bare.ep) == ((), (), (1,))
    assert bare.recompute == ("none", "selective")
    own = default_space(on(recompute=("none", "per-op")), 8)
    assert own.recompute == ("none", "per-op")


def test_grids_are_all_that_divide():
    """64 GPUs = tp cp pp dp; a sequence of 8,192 takes every cp, 8 KV heads Ulysses up to 8."""
    plain = replace(SPACE, cp_kind=("ring",))
    found = list(grids(plain, FACTS))
    every = {
        (tp, cp, pp, 64 // (tp * cp * pp))
        for tp in SPACE.tp
        for cp in SPACE.cp
        for pp in SPACE.pp
        if 64 % (tp * cp * pp) == 0
    }
    assert {(g.tp, g.cp, g.pp, g.dp) for g in found} == every and len(found) == len(every)
    both = list(grids(replace(SPACE, cp_kind=("ring", "ulysses")), FACTS))
    ulysses = [g for g in both if g.cp_kind == "ulysses"]
    assert len(both) - len(ulysses) == len(found)
    assert {(g.tp, g.cp) for g in ulysses} == {
        (t, c) for t in (1, 2, 4) for c in (2, 4, 8) if t * c <= 8
    }
    assert {g.dp for g in grids(replace(plain, dp=(8,)), FACTS)} == {8}
    odd = {g.dp for g in grids(plain, replace(FACTS, global_batch_size=4))}
    assert odd == {1, 2, 4}
    some = list(grids(replace(plain, tp=(3, 4), pp=(3, 2), cp=(1, 3)), FACTS))
    assert [(g.tp, g.cp, g.pp, g.dp) for g in some] == [(4, 1, 2, 8)]


def test_degrees_of_experts():
    assert expert_degrees(SPACE, FACTS, GRID) == [
        (1, 1),
        (1, 4),
        (2, 1),
        (2, 4),
        (4, 1),
        (4, 4),
        (8, 1),
        (8, 4),
    ]
    assert expert_degrees(SPACE, FACTS, GRID._replace(tp=1)) == [(1, 1), (2, 1), (4, 1), (8, 1)]
    # MaxText: EP over data ranks, the tensor axis splits experts as the rest, wide or narrow
    rest = on(expert_parallel=True, experts_over_data=True)
    for facts in (rest, replace(rest, expert_widths=(1408,))):
        assert expert_degrees(default_space(facts, 8), facts, GRID) == [(1, 4), (2, 4), (4, 4)]
        assert default_space(replace(facts, n_experts=0, expert_widths=()), 8).etp == (1,)
    deep = replace(FACTS, settings=JobSettings(overlap_ep=True))
    assert (1, 1) not in expert_degrees(SPACE, deep, GRID)


def test_micro_batches_divide_the_batch_of_a_rank():
    """Of 512, 24 and 3,584 sequences; beside CP those that it does not divide."""
    plain, four = GRID._replace(cp=1), GRID._replace(cp=4)
    assert micro_batches(SPACE, FACTS, plain) == [1, 2, 4, 8, 16]
    assert micro_batches(SPACE, FACTS, GRID) == [1]
    assert micro_batches(replace(SPACE, cp=(2,)), FACTS, GRID) == [1, 2, 4, 8, 16]
    assert micro_batches(replace(SPACE, micro_batch_size=(2, 4)), FACTS, GRID) == [2]
    for batch, length, want, beside in (
        (24, 8192, [1, 2, 3, 6], [1, 3]),
        (3584, 1024, [1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128], [1, 7]),
        (12, 131072, [1, 3], [1, 3]),
    ):
        facts = replace(FACTS, global_batch_size=batch, seq_len=length)
        space = default_space(facts, 8)
        assert micro_batches(space, facts, plain) == want
        assert micro_batches(space, facts, GRID) == beside
        assert set(micro_batches(space, facts, four)) >= set(beside)


def test_ways_to_recompute():
    """Stages of 16 layers in quarters; of 11 layers 2, 5 and 8; of one layer whole."""
    modes = [(m, None) for m in ("none", "selective", "full", "per-op")]
    quarters = [("full", n) for n in (4, 8, 12)]
    assert recomputes(SPACE, FACTS, 2) == [*modes[:3], *quarters, modes[3]]
    assert [n for m, n in recomputes(SPACE, FACTS, 3) if n] == [2, 5, 8]
    assert [n for m, n in recomputes(SPACE, FACTS, 32) if n] == []
    assert [n for m, n in recomputes(SPACE, FACTS, 16) if n] == [1]
    some = replace(SPACE, recompute_layers=(4, 16, 99))
    assert [n for m, n in recomputes(some, FACTS, 2) if m == "full"] == [None, 4]
    parts = replace(some, whole_recompute=False, recompute_layers=(4,))
    assert [n for m, n in recomputes(parts, FACTS, 2) if m == "full"] == [4]
    whole = replace(parts, recompute_layers=(16,))
    assert [n for m, n in recomputes(whole, FACTS, 2) if m == "full"] == [None]
    bare = on(recompute=("none", "full"), recompute_layers=False)
    assert recomputes(SPACE, bare, 2) == [("none", None), ("full", None)]
    deep = replace(FACTS, settings=JobSettings(overlap_ep=True))
    assert "full" not in {m for m, _ in recomputes(SPACE, deep, 2)}


def test_what_needs_tensor_parallelism():
    alone = GRID._replace(tp=1)
    assert sequence_parallels(SPACE, FACTS, GRID) == [True, False]
    assert sequence_parallels(SPACE, FACTS, alone) == [True]
    assert sequence_parallels(SPACE, replace(FACTS, seq_len=4 * 3), GRID) == [False]
    assert overlap_tps(SPACE, 2) == (True, False) and overlap_tps(SPACE, 1) == (True,)


@pytest.mark.parametrize(
    ("changed", "n"),
    [
        ({"cp": 1}, 2),
        ({}, 1),  # 4 x 2 x 2 ranks are more than a domain of 8
        ({"cp": 1, "pp": 1}, 1),
        ({"cp": 1, "dp": 1}, 1),
        ({"tp": 2, "cp": 1, "pp": 2}, 2),
    ],
)
def test_orders_that_place_ranks_differently(changed, n):
    assert orders(SPACE, GRID._replace(**changed)) == SPACE.order[:n]
    one = replace(SPACE, order=SPACE.order[1:])
    assert orders(one, GRID._replace(**changed)) == SPACE.order[1:]


def shards(space=SPACE, facts=FACTS, **changed):
    rest = shardings(space, facts, GRID._replace(**changed))
    return list(dict.fromkeys((t.zero_stage, t.shard_group_size) for t in rest))


def test_ways_to_shard():
    """dp x cp = 8 ranks; groups must be smaller; stage 2 goes with no pipeline."""
    assert shards() == [(0, None), (1, None), (3, None)]
    assert shards(pp=1) == [(0, None), (1, None), (2, None), (3, None)]
    assert shards(dp=16) == [(0, None), (1, None), (3, None), (3, 8), (3, 16)]
    assert shards(dp=16, cp=1)[-1] == (3, 8)
    assert shards(dp=1, cp=1) == [(0, None)]
    groups = replace(SPACE, fsdp=False)
    assert shards(groups, dp=16) == [(0, None), (1, None), (3, None), (3, 8), (3, 16)]
    only = replace(groups, shard_group_size=(8,), zero_stage=(3,))
    assert shards(only, dp=16) == [(3, 8)] and shards(only) == [(3, None)]
    assert shards(only, dp=1) == []
    asked = on(zero_pipeline_asked=(2,))
    assert (2, None) not in shards(facts=asked) and (2, None) in shards(facts=asked, pp=1)
    assert shards(replace(SPACE, zero_stage=(2,)), asked) == [(2, None)]


def test_schedules_of_a_grid():
    def of(space=SPACE, facts=FACTS, b=1, **changed):
        return schedules(space, facts, GRID._replace(**changed), b)

    every = replace(SPACE, even_chunks=False)
    assert of(pp=1) == [("1f1b", 1)]
    assert ("dualpipe", 1) in of() and ("zb-h1", 1) in of() and ("gpipe", 1) not in of()
    assert [v for s, v in of() if s == "interleaved"] == [2, 4, 8]
    assert [v for s, v in of(every) if s == "interleaved"] == [2, 3, 4, 5, 6, 7, 8, 10, 12]
    few = replace(FACTS, global_batch_size=12)  # three micro-batches of a rank
    assert of(facts=few) == [("1f1b", 1), ("zb-h1", 1)]
    assert ("dualpipe", 1) not in of(facts=replace(FACTS, global_batch_size=16), b=2)
    deep = replace(FACTS, settings=JobSettings(overlap_ep=True))
    assert {s for s, _ in of(facts=deep)} == {"interleaved"}
    assert _even_first([("1f1b", 1), ("i", 2), ("i", 3)], 2, 9) == [("1f1b", 1), ("i", 2), ("i", 3)]
    assert _even_first([("1f1b", 1), ("i", 2), ("i", 3)], 2, 12) == [
        ("1f1b", 1),
        ("i", 2),
        ("i", 3),
    ]
    assert _even_first([("1f1b", 1), ("i", 2), ("i", 3)], 2, 10) == [
        ("1f1b", 1),
        ("i", 2),
        ("i", 3),
    ]
    assert _even_first([("i", 2), ("i", 3)], 2, 8) == [("i", 2)]
    assert _even_first([("i", 2), ("i", 3)], 2, 14) == [("i", 2)]  # 16 with both ends


def test_assemblies_are_every_pair():
    pairs, rest = schedules(SPACE, FACTS, GRID, 1), shardings(SPACE, FACTS, GRID)
    assert len(rest) == 3 * 2 * 2  # shards, overlap of DP and of PP
    assert len(tails(SPACE, FACTS, GRID, 1)) == len(pairs) * len(rest)
    assert {(t.schedule, t.vpp) for t in tails(SPACE, FACTS, GRID, 1)} == set(pairs)
    alone = shardings(SPACE, FACTS, GRID._replace(pp=1, dp=1, cp=1))
    assert [(t.overlap_dp, t.overlap_pp) for t in alone] == [(True, True)]
    away = replace(SPACE, offload_optimizer=(False, True), offload_activations=(False, True))
    assert len(shardings(away, FACTS, GRID)) == 4 * len(rest)
    cannot = on(offload_activations=False)
    assert len(shardings(away, cannot, GRID)) == 2 * len(rest)


def test_chunks_that_deal_layers_alike():
    """Of equal layers any number of chunks deals as one; of two kinds it matters."""
    kind = KindWeights(1.0, 0.0, 1.0)
    kinds = {"kinds": (kind, kind), "names": (("a", "b"),) * 2, "tied": False}
    edges = dict.fromkeys(("embedding_params", "head_params", "mtp_dense_params"), 0.0)
    edges |= {"mtp_expert_params": 0.0, "head_layers": 0.0}
    alike = ModelWeights(sequence=(0,) * 8, **kinds, **edges)
    pairs = [("1f1b", 1), ("interleaved", 2), ("interleaved", 4)]
    facts = replace(DENSE, n_layers=8)
    assert dealings(alike, "even", 2, pairs, facts) == {1: pairs}
    mixed = ModelWeights(sequence=(0, 0, 1, 1, 1, 1, 0, 0), **kinds, **edges)
    found = dealings(mixed, "even", 2, pairs, facts)
    assert found == {1: pairs}  # two of each kind on both stages, however they are dealt
    front = ModelWeights(sequence=(0, 0, 0, 0, 1, 1, 1, 1), **kinds, **edges)
    assert dealings(front, "even", 2, pairs, facts) == {1: pairs[:1], 2: pairs[1:]}


def test_assemblies_of_least_states():
    tail = Tail()._replace
    plain, two = tail(zero_stage=1), tail(zero_stage=2)
    away = tail(zero_stage=1, offload_optimizer=True)
    whole, group = tail(zero_stage=3), tail(zero_stage=3, shard_group_size=8)
    assert least_states([plain, two, group, whole]) == [two, whole]
    assert least_states([two, away, group]) == [away, group]
    assert least_states([]) == []


# --- bounds, records, texts ----------------------------------------------------------------------


def test_floor_of_a_pipeline():
    """Four equal stages of 2 s: 8 micro-batches and a bubble of three others, or half of it."""
    assert pipeline_floor_s(8.0, 4, 8, 1.0) == 22.0 and pipeline_floor_s(8.0, 4, 8, 0.5) == 19.0
    assert least_fill([("1f1b", 1), ("interleaved", 4), ("zb-h1", 1)]) == 0.25
    assert least_fill([]) == 0.0


def test_a_rank_without_context_parallelism_has_its_tokens():
    shape = Shape(2, 4, 1, 1, 2, 4096, "bf16", "none", True, "ring", True, cp_stride=2)
    found = without_cp(shape)
    assert (found.cp, found.cp_stride, found.micro_batch_size, found.seq_len) == (1, 1, 1, 2048)
    assert found.tp == 2


def test_a_layout_is_written_from_its_parts():
    tail = Tail()._replace(schedule="interleaved", vpp=2, zero_stage=3, shard_group_size=8)
    kept = {"ep": 2, "etp": 4, "micro_batch_size": 2, "sequence_parallel": True}
    kept |= {"precision": "fp8", "recompute": ("full", 3), "overlap_tp": False, "tail": tail}
    facts = replace(FACTS, stage_layers=(8, 8, 8, 8))
    found = make_layout(facts, GRID, order="tp-cp-pp-dp", **kept)
    assert (found.n_gpus, found.vpp, found.recompute_layers) == (64, 2, 3)
    assert found.stage_layers == (8, 8, 8, 8) and found.shard_group_size == 8
    assert grid_of(found) == (4, 2, 2, 2, 4, 1)
    assert grid_of(replace(found, zero_stage=2))[-1] == 0


@pytest.mark.parametrize(
    ("degrees", "name"),
    [
        ((8, 16, 1, 1, 1, None), "TP + PP + DP"),
        ((8, 1, 1, 1, 1, None), "TP + DP"),
        ((8, 1, 1, 1, 3, None), "TP + FSDP"),
        ((1, 2, 1, 1, 3, 8), "PP + DP"),
        ((1, 1, 1, 1, 3, 64), "HSDP"),
        ((1, 1, 1, 1, 2, None), "DP"),
        ((1, 1, 1, 8, 0, None), "EP + DP"),
        ((8, 2, 2, 2, 0, None), "EP + with CP"),
        ((1, 1, 2, 1, 3, None), "with CP"),
    ],
)
def test_families(degrees, name):
    assert family(*degrees) == name


def test_values_of_a_dimension_in_text():
    candidates = (1, 2, 4, 8, 16)
    assert select_ints("2..8", candidates) == (2, 4, 8) and select_ints("3, 1", ()) == (1, 3)
    assert select_ints("1,4..16, 4", candidates) == (1, 4, 8, 16)
    assert select_ints("4..4", candidates) == (4,)
    assert len(select_ints("1..9000", range(1, 9001))) == MAX_VALUES
    for text, word in (
        ("8..2", "is empty"),
        ("5..7", "leaves nothing; possible values here are 1, 2, 4, 8, 16"),
        ("x", "no whole number"),
        ("-1", "no whole number"),
        ("1" * 10, "no whole number"),
        ("", "no whole number"),
    ):
        with pytest.raises(ValueError, match=word):
            select_ints(text, candidates)
    assert select_ints("1" * 9, ()) == (111_111_111,)
    assert select_names("all", ("a", "b")) == ("a", "b") == select_names("a, b,a", ("a", "b"))
    with pytest.raises(ValueError, match="'c' is not one of a, b"):
        select_names("a,c", ("a", "b"))


@pytest.mark.parametrize(
    ("seq_len", "batch", "want"),
    [(131072, 34, (1, 2)), (512, 34, (1, 2, 17, 34)), (131072, 48, (1, 2, 3, 4, 6, 8, 12, 16))],
)
def test_micro_batches_are_divisors_up_to_16_or_as_many_tokens(seq_len, batch, want):
    facts = RuleFacts(8, (16,), (4,), (8192,), (), 0, seq_len, batch, 8)
    assert default_space(facts, 8).micro_batch_size == want
