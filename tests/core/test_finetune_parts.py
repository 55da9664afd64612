"""Parts of fine-tuning alone: the bench on known memory, what is searched, remedies, times."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuscale.core.finetune import bench as benches
from gpuscale.core.finetune.bench import (
    Bench,
    BenchSpace,
    Trial,
    candidates,
    changed,
    closest,
    counts_of_gpus,
    fastest,
    fewest_gpus,
    largest_micro_batch,
    longest_seq_len,
    remedies,
    sharded,
    with_micro_batch,
)
from gpuscale.core.finetune.method import Job, Method, counts
from gpuscale.core.finetune.parameters import IDEAL
from gpuscale.core.finetune.states import held, layer_params, optimizer, stage_states
from gpuscale.core.finetune.step import (
    _adapter_s,
    _as_routed,
    _merged_s,
    _trained,
    host_update_s,
    loss_time,
)
from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.stages import layout_stages
from gpuscale.core.step.moe import FfnTime
from gpuscale.core.step.operators import stream_s
from gpuscale.core.step.step import shape_of
from gpuscale.io.finetune import finetune_site
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software

LLAMA, MIXTRAL = load_model("llama3-8b").spec, load_model("mixtral-8x7b").spec
LAYER = 218_103_808  # linear maps of a layer of Llama 3 8B
EXPERTS = 8 * 176_160_768  # of a layer of Mixtral
LAYER_OF_MIXTRAL = EXPERTS + 2 * (4096 + 1024) * 4096


def job(method="full", loss="eager", optim="adamw", offload=(), **layout):
    given = {"seq_len": 1000, "global_batch_size": 1, "recompute": "full"} | layout
    return Job(Method(method), optimizer(optim), Layout(**given), loss, frozenset(offload))


# --- a machine on which known jobs fit -----------------------------------------------------------


def fitting(fits, gpus_per_node=8):
    return SimpleNamespace(fits=fits, legal=lambda _: True, gpus_per_node=gpus_per_node)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8, 100, 65_536, 70_000])
def test_the_largest_micro_batch_is_found(most):
    fake = fitting(lambda j: j.layout.micro_batch_size <= most)
    assert largest_micro_batch(fake, job()) == min(most, 65_536)


@pytest.mark.parametrize("most", [64, 128, 192, 6400, 2**24, 2**25])
def test_the_longest_sequence_is_found(most):
    fake = fitting(lambda j: j.layout.seq_len <= most)
    assert longest_seq_len(fake, job()) == min(most, 2**24)
    assert longest_seq_len(fitting(lambda j: j.layout.seq_len <= 100), job(), 10) == 100
    assert longest_seq_len(fitting(lambda j: False), job()) == 0


def shape(j):
    lay = j.layout
    return lay.dp, lay.zero_stage, lay.micro_batch_size, lay.global_batch_size


def test_batches_of_more_gpus_or_larger_micro_batches():
    four = job(dp=4, global_batch_size=8)
    assert shape(with_micro_batch(four, 1)) == (4, 1, 1, 8)
    assert shape(with_micro_batch(four, 4)) == (4, 1, 4, 16)
    wide = job(tp=2, micro_batch_size=2, global_batch_size=10)
    assert shape(sharded(wide, 8)) == (4, 1, 2, 16)  # 10 are two rounds of 8
    assert shape(sharded(wide, 1, 3)) == (1, 3, 2, 10)
    deep = replace(wide, layout=replace(wide.layout, pp=2, cp=2))
    assert shape(sharded(deep, 16, 0)) == (2, 0, 2, 12)
    assert shape(sharded(job(), 8)) == (8, 1, 1, 8)


def test_the_fewest_gpus():
    assert list(counts_of_gpus(2, 7)) == [1, 2, 4, 6] == list(counts_of_gpus(2, 6))
    assert list(counts_of_gpus(8, 3)) == [1, 2, 3]
    three = fitting(lambda j: j.layout.dp >= 3 and j.layout.zero_stage == 3, 4)
    assert shape(fewest_gpus(three, job())) == (3, 3, 1, 3)
    assert shape(fewest_gpus(three, job(tp=2))) == (4, 3, 1, 4)  # eight of them
    assert fewest_gpus(three, job(tp=2), most=4) is None
    assert fewest_gpus(three, job(pp=3, cp=2)).layout.n_gpus == 24  # whole machines of four
    assert shape(fewest_gpus(fitting(lambda j: True), job())) == (1, 1, 1, 1)


@pytest.fixture
def known(monkeypatch):
    """Memory of 10 bytes, intervals a quarter wide; the step asked for is returned."""
    monkeypatch.setattr(
        benches, "finetune_memory", lambda *a: SimpleNamespace(total_bytes=10e9, host_bytes=1e9)
    )
    monkeypatch.setattr(
        benches,
        "finetune_step",
        lambda model, j, *site, useful_frac=1.0: (j.layout.seq_len, useful_frac),
    )

    def made(usable_gb=10.0, mean=None, **other):
        p = replace(IDEAL, interval_factor_80=1.25)
        return Bench(LLAMA, None, lambda j: (None, None, p), 1e9 * usable_gb, 8, mean, **other)

    return made


def test_the_end_of_the_interval_must_fit(known):
    for usable, ends in ((12.5, (-1, 0, 1)), (12.4, (-1, 0)), (10.0, (-1, 0)), (8.0, (-1,))):
        assert tuple(e for e in (-1, 0, 1) if known(usable, end=e).fits(job())) == ends
    trial = known(10.0).trial(job(dp=4))
    assert trial.fits and trial.interval_factor_80 == 1.25
    assert not known(9.9).trial(job()).fits
    for has, fits in ((22e9, True), (21.9e9, False)):  # of a node, four GPUs
        at = known(host_bytes=has)
        assert at.fits(job(dp=4)) == at.trial(job(dp=4)).fits == fits
    for dp, local in ((4, 4), (16, 8)):
        bench = known(10.0)
        assert bench.host_bytes_per_node(job(dp=dp), trial.memory) == local * (1.5e9 + 4e9)
        assert bench.host_room_bytes(job(dp=dp)) == local * 256e9


def test_rows_are_padded_to_the_longest_of_a_micro_batch(known):
    """Of two rows of a mean of 100: 150 tokens, two thirds of them used."""
    two = job(micro_batch_size=2, global_batch_size=2)
    assert known(mean=100.0).step(two) == (150, pytest.approx(2 / 3))
    assert known(mean=100.0).step(job()) == (100, 1.0)
    assert known(mean=1000.0).step(two) == (1000, 1.0) == known().step(two)
    assert known(mean=999.0).step(two) == (1000, pytest.approx(0.999))
    assert known(mean=0.3).step(job()) == (1, pytest.approx(0.3))


# --- search --------------------------------------------------------------------------------------


def test_candidates_of_a_small_space():
    """A batch of two: twice two rows of two ranks are more, one GPU has nothing to shard."""
    space = BenchSpace((0, 3), (1, 2), ("none",))
    found = [shape(j) for n in (1, 2, 3) for j in candidates(job(global_batch_size=2, dp=n), space)]
    assert found == [
        (1, 0, 1, 2), (1, 0, 2, 2), (2, 0, 1, 2), (2, 3, 1, 2), (3, 0, 1, 3), (3, 3, 1, 3),
    ]  # fmt: skip
    four = job(global_batch_size=4, dp=2)
    large = [shape(j) for j in candidates(four, BenchSpace((0,), (1, 2, 4)))]
    assert large == [(2, 0, 1, 4), (2, 0, 2, 4)] * 2  # none recomputed and all
    assert [j.layout.recompute for j in candidates(job(), BenchSpace((0,), (1,)))] == [
        "none", "full",
    ]  # fmt: skip
    deep = candidates(job(pp=2, cp=3), BenchSpace((0,), (1,), ("none",)))
    assert [j.layout.n_gpus for j in deep] == [6]
    for moved in (frozenset({"optimizer"}), frozenset({"activations"})):
        away = list(candidates(job(), BenchSpace((0, 3), (1,), ("none",), moved)))
        assert [j.layout.zero_stage for j in away] == [0, 3]
        assert all(j.offload == moved for j in away)
        assert all(j.layout.offload_optimizer == ("optimizer" in moved) for j in away)


def test_the_fastest_that_fits():
    def trial(j):
        return SimpleNamespace(
            job=j, step=SimpleNamespace(tokens_per_s=10 - abs(j.layout.micro_batch_size - 2))
        )

    fake = SimpleNamespace(
        fits=lambda j: j.layout.dp != 2, legal=lambda _: True, likely=lambda _: True, trial=trial
    )
    found = [fastest(fake, job(global_batch_size=8, dp=n), BenchSpace((0,))) for n in (4, 2, 1)]
    assert [t and shape(t.job)[::2] for t in found] == [(4, 2), None, (1, 2)]
    fake.likely = lambda t: t.job.layout.micro_batch_size != 2  # what may not fit is passed over
    passed = fastest(fake, job(global_batch_size=8), BenchSpace((0,)))
    assert passed.job.layout.micro_batch_size == 1


# --- remedies ------------------------------------------------------------------------------------


def tried(j, usable=0.0):
    """100 bytes a row and thousand tokens at most; every way to save takes its own off."""
    total = 5.0 * (j.loss != "fused") + 10.0 * (j.layout.recompute == "none")
    total += 20.0 * (j.layout.micro_batch_size > 1) + 6.0 * (j.layout.zero_stage < 3)
    total += 7.0 * ("activations" not in j.offload) + 8.0 * (j.optimizer.name == "adamw")
    total += 30.0 * (j.method.kind == "full") + 9.0 * (not j.method.quantised)
    total += 4.0 * ("optimizer" not in j.offload) + 3.0 * ("parameters" not in j.offload)
    total += 40.0 * j.layout.seq_len / 1000 + 16.0 / j.layout.dp
    step = SimpleNamespace(step_s=1000.0 - total)
    memory = SimpleNamespace(total_bytes=total, host_bytes=0.0)
    return Trial(j, memory, step, usable, 1.25)


def site(_):
    return None, None, SimpleNamespace(offload_whole=False)


ALL = [  # what each takes off, of 158 bytes
    ("loss", 5.0), ("recompute", 10.0), ("micro-batch", 20.0), ("shard", 6.0),
    ("offload activations", 7.0), ("optimizer", 8.0), ("method", 30.0), ("offload optimizer", 4.0),
    ("offload parameters", 3.0), ("length", 20.0), ("gpus", 8.0),
    ("method", 9.0), ("length", 10.0), ("gpus", 4.0),
]  # fmt: skip


@pytest.mark.parametrize(("usable", "n"), [(158.0, 0), (153.0, 1), (152.9, 2), (0.0, 14)])
def test_remedies_follow_one_another_until_it_fits(usable, n):
    start = tried(job(recompute="none", micro_batch_size=2, global_batch_size=2), usable)
    bench = SimpleNamespace(
        moves=lambda _: True,
        gpus_per_node=8,
        trial=lambda j: tried(j, usable),
        usable_bytes=usable,
        legal=lambda _: True,
        site=site,
    )
    found = remedies(bench, start)
    assert [(r.name, r.saved_bytes) for r in found] == [
        (name, pytest.approx(saved)) for name, saved in ALL[:n]
    ]
    total = 158.0
    for r in found:
        assert r.total_bytes == pytest.approx(total - r.saved_bytes)
        assert r.lost_s == pytest.approx(r.saved_bytes)
        assert r.step_s == pytest.approx(1000 - r.total_bytes)
        assert r.fits == (r.total_bytes <= usable)
        total = r.total_bytes
    words = [r.words for r in found if r.name == "method"]
    assert not words or ("--method lora" in words[0] and "--method qlora" in words[1])


def test_adapters_train_beside_all_layers():
    bench = SimpleNamespace(legal=lambda _: True, moves=lambda _: True, gpus_per_node=8)
    full = replace(job(), method=Method("full", frozen_layers=3))
    assert changed(bench, full, "method").method == Method("lora", frozen_layers=0)
    lora = replace(job(), method=Method("lora"))
    assert changed(bench, lora, "method").method == Method("lora", base="nf4")
    assert changed(bench, replace(lora, method=Method("lora", base="nf4")), "method") is None


def test_a_sequence_is_split_over_the_ranks_of_a_node():
    """Of 12 ranks 4 share a node of 8: 12 = 4 x 3; one rank has nobody to share with."""
    bench = SimpleNamespace(legal=lambda _: True, moves=lambda _: True, gpus_per_node=8)
    at = changed(bench, job(dp=12, global_batch_size=12), "sequence").layout
    assert (at.cp, at.dp, at.n_gpus) == (4, 3, 12)
    assert changed(bench, job(), "sequence") is None


def test_what_saves_little_is_no_remedy():
    """Of 250 bytes a fiftieth is 5: the shares of 3 and 4 are left out, those of 5 are not."""
    start = tried(job(recompute="none", micro_batch_size=2, global_batch_size=2))
    found = remedies(
        SimpleNamespace(
            moves=lambda _: True,
            gpus_per_node=8,
            trial=tried,
            usable_bytes=250.0,
            legal=lambda _: True,
            site=site,
        ),
        start,
    )
    assert [r.name for r in found] == [name for name, saved in ALL[:-1] if saved >= 5.0]


def test_where_hosts_are_short_what_lies_there_must_go():
    short = replace(tried(job(), 200.0), host_short=True)
    less = SimpleNamespace(total_bytes=5.0, host_bytes=-1.0)

    def at(j):
        done = tried(j, 200.0)
        eight = j.optimizer.name != "adamw"
        return replace(done, memory=less) if eight else replace(done, host_short=True)

    bench = SimpleNamespace(
        moves=lambda _: True, gpus_per_node=8, trial=at, usable_bytes=200.0, legal=lambda _: True
    )
    assert [r.name for r in remedies(bench, short)] == ["optimizer"]


def test_the_closest_of_jobs_that_fit_nowhere_takes_the_least_memory():
    bench = SimpleNamespace(
        memory=lambda j: tried(j).memory,
        trial=tried,
        legal=lambda j: j.layout.zero_stage < 3,
        host_short=lambda j, _: False,
    )
    start = job(recompute="none", micro_batch_size=2, global_batch_size=4, dp=2)
    found = closest(bench, start, BenchSpace((1, 3))).job.layout
    assert (found.micro_batch_size, found.recompute, found.zero_stage) == (1, "full", 1)
    assert closest(bench, start, BenchSpace((3,))).job == start
    bench.host_short = lambda j, _: j.layout.micro_batch_size == 1
    assert closest(bench, start, BenchSpace((1,))).job.layout.micro_batch_size == 2


# --- what a GPU holds ----------------------------------------------------------------------------


def test_experts_are_split_by_their_own_degrees():
    """Mixtral over TP 2 and EP 2 x ETP 2: half of a layer's dense weights, a quarter of experts."""
    layout = Layout(seq_len=8, global_batch_size=8, tp=2, ep=2, etp=2, dp=4)
    whole = counts(MIXTRAL, Method())
    (kind,) = whole.kinds
    dense = kind.linear_params - EXPERTS
    assert dense == 41_943_040  # attention
    assert layer_params(kind, layout) == dense / 2 + EXPERTS / 4
    (stage,) = layout_stages(model_facts(MIXTRAL).weights, "even", layout)
    here = held(stage, 0, whole, layout)
    assert (here.dense, here.experts) == (32 * dense / 2, 32 * EXPERTS / 4)
    assert here.expert_adapters == 32 * kind.expert_adapter_params / 4
    assert here.adapters == 32 * (kind.adapter_params - kind.expert_adapter_params) / 2
    edge = 32_000 * 4096
    assert here.edges == (2 * edge + 4096) / 2 and here.head == edge / 2
    assert here.largest_matrix == 4096 * 14336 / 2
    assert here.total == here.dense + here.experts + here.other + here.edges
    assert here.other == 32 * (2 + 8) * 4096  # norms and the router


# --- time ----------------------------------------------------------------------------------------

HW, SW, _ = finetune_site(load_cluster("a100-sxm-80gb"), load_software("hf-peft"), job("lora"))
P = replace(IDEAL, adapter_passes=3.0)


def test_time_of_adapters_by_hand():
    """Rank 16: 38,912 inputs and 43,008 outputs of a layer, 2 bytes each, three passes."""
    (kind,) = counts(LLAMA, Method()).kinds
    width, tokens = 38_912 + 43_008, 1000.0
    for tp in (1, 2):
        flop = 2 * tokens * 16 * width / tp
        rate = HW.bf16_flop_per_s * HW.product_bf16_frac * HW.form.adapter_eff_frac
        plain = flop / rate + 3 * stream_s(HW, 2 * tokens * width / tp)
        assert _adapter_s(kind, job("lora", tp=tp), HW, P, tokens) == pytest.approx(plain)
        (magnitudes,) = counts(LLAMA, Method("dora")).kinds
        norm = 2 * 16 * LAYER / tp / (HW.bf16_flop_per_s * HW.form.adapter_eff_frac)
        found = _adapter_s(magnitudes, job("dora", tp=tp), HW, P, tokens)
        assert found == pytest.approx(plain + norm + stream_s(HW, 6 * LAYER / tp))
    assert _adapter_s(kind, job("full"), HW, P, tokens) == 0.0
    assert _adapter_s(replace(kind, n_adapted=0), job("lora"), HW, P, tokens) == 0.0


def test_experts_wait_for_the_busiest_rank_or_are_launched_alone():
    p = replace(IDEAL, expert_imbalance=1.5, expert_launch_s=0.25, expert_gather_s=0.5)
    mlp = FfnTime(*(2.0 for _ in FfnTime._fields))
    busy, same = _as_routed(mlp, SW, 8, job(ep=2, dp=2), p)
    assert same == SW
    slow = {"linear_fwd_s", "linear_bwd_s", "dispatch_fwd_s", "dispatch_bwd_s", "dispatched_bytes"}
    assert {name for name, value in busy._asdict().items() if value == 3.0} == slow
    assert {value for name, value in busy._asdict().items() if name not in slow} == {2.0}
    for layout, each in (
        ({}, 0.25), ({"zero_stage": 3, "dp": 2}, 0.75), ({"zero_stage": 3}, 0.25), ({"dp": 2}, 0.25)
    ):  # fmt: skip
        kept, late = _as_routed(mlp, SW, 8, job(**layout), p)
        assert kept == mlp and late.host_layer_s == SW.host_layer_s + 8 * each


def head(method, loss, **more):
    made = job(method, loss)
    made = replace(made, method=replace(made.method, **more))
    return loss_time(LLAMA, made, HW, SW, shape_of(made.layout, HW, SW))


def test_a_frozen_head_has_no_weight_gradient_and_a_fused_loss_a_second_product():
    """Three equal products: forward, of the input, of the weights."""
    for loss in ("eager", "chunked", "fused"):
        full, frozen = head("full", loss), head("lora", loss)
        product = full.matmul_s / 3
        assert frozen.matmul_s == pytest.approx(2 * product)
        assert full.bwd_s - frozen.bwd_s == pytest.approx(product)
        assert frozen.fwd_s == full.fwd_s
        assert head("lora", loss, train_embeddings=True) == full
    chunked, fused = head("full", "chunked"), head("full", "fused")
    assert fused.bwd_s - chunked.bwd_s == pytest.approx(fused.matmul_s / 3)
    assert fused.recompute_s - chunked.recompute_s == pytest.approx(fused.matmul_s / 3)
    assert fused.matmul_s == chunked.matmul_s


def test_bytes_that_are_updated_and_exchanged():
    """Read and written: weights, master, two moments; gradients are read. Adapters: their share."""
    p = replace(IDEAL, full_master_bytes=4.0, full_moment_bytes=4.0, adapter_moment_bytes=4.0,
                adapter_weights_bytes=4.0, adapter_gradients_bytes=3.0)  # fmt: skip
    whole = counts(LLAMA, Method("full"))
    share = whole.trained_params / whole.total_params
    hw, sw = _trained(HW, SW, job("full"), whole, p)
    assert hw.optimizer_bytes_per_param == pytest.approx(share * (2 * (2 + 4 + 8) + 2))
    assert sw.gradient_bytes == SW.gradient_bytes * share
    adapted = counts(LLAMA, Method())
    part = adapted.trained_params / adapted.total_params
    hw, sw = _trained(HW, SW, job("lora"), adapted, p)
    assert hw.optimizer_bytes_per_param == pytest.approx(part * (2 * (4 + 8) + 3))
    assert sw.gradient_bytes == pytest.approx(part * 3)
    assert sw.parameter_gather_bytes == pytest.approx(part * 2)
    _, three = _trained(HW, SW, job("lora", zero_stage=3), adapted, p)
    assert three.parameter_gather_bytes == 2.0
    packed = replace(job("lora", zero_stage=3), method=Method(base="int8"))
    assert _trained(HW, SW, packed, adapted, p)[1].parameter_gather_bytes == pytest.approx(
        1, rel=0.1
    )
    assert not three.low_precision_gather and not three.quantised_tp_gather


def test_the_host_updates_what_a_rank_has():
    """Bytes of the link, and those of the optimizer at the host's rate."""
    whole = counts(LLAMA, Method("full"))
    form = replace(HW.form, host_optimizer_bytes=4.0, host_memory_bytes_per_s=1e11)
    hw = replace(HW, form=form, host_link_bytes_per_s=1e10, optimizer_bytes_per_param=20.0)
    each = 4 / 1e10 + 20 * whole.total_params / whole.trained_params / 1e11
    for layout, shards in (
        ({}, 1), ({"tp": 2, "pp": 2}, 4), ({"dp": 4, "cp": 2, "zero_stage": 1}, 8),
        ({"dp": 4, "zero_stage": 0}, 1),
    ):  # fmt: skip
        found = host_update_s(whole, job(**layout), hw, IDEAL)
        assert found == pytest.approx(whole.trained_params / shards * each)


REACHED = [  # model, its layers, how adapters meet experts, parameters that PEFT 0.21.2 trains
    # of qwen3_moe PEFT adapts the router too: 16 (2,048 + 128) a layer, which is no map here
    ("qwen3-30b-a3b", "4 x full+moe", "merged", 83_042_304 - 4 * 16 * (2048 + 128)),
    ("gpt-oss-20b", "2 x (sliding+moe, full+moe)", "none", 1_327_104),
]


@pytest.mark.parametrize(("name", "layers", "how", "trained"), REACHED)
def test_adapters_of_stacked_experts_have_what_peft_makes(name, layers, how, trained):
    model = load_model(name).spec.model_copy(update={"layers": layers})
    assert counts(model, Method(on_experts=how)).trained_params == trained


def test_adapters_are_added_to_stacked_experts_in_each_pass():
    weights = 8 * 3 * 4096 * 14336.0

    def added(how, **layout):
        method = Method(on_experts=how)
        (kind,) = counts(MIXTRAL, method).kinds
        return _merged_s(kind, replace(job(**layout), method=method), HW)

    for split in ({}, {"ep": 2, "dp": 2}):
        share = weights / split.get("ep", 1)
        flop_s = 2.0 * 16 * share / (HW.bf16_flop_per_s * HW.form.adapter_eff_frac)
        for how, forward, backward in (("merged", 4, 6), ("delta", 14, 14)):
            found = added(how, **split)
            assert found[0] == pytest.approx(flop_s + stream_s(HW, forward * share))
            assert found[1] == pytest.approx(2 * flop_s + stream_s(HW, backward * share))
    assert added("each") == added("none") == (0.0, 0.0)


def test_grouped_experts_are_launched_together():
    mlp = FfnTime(*(2.0 for _ in FfnTime._fields))
    for how in ("grouped", "all"):
        _, sw = _as_routed(mlp, SW, 8, replace(job(), experts=how), IDEAL)
        assert sw == replace(SW, launches_experts=False)


def test_bitsandbytes_leaves_stacked_experts_as_they_are():
    """It replaces linear maps; since Transformers 5 experts are parameters, cast as norms are."""
    p, dense = replace(IDEAL, edge_bytes=4.0), 32 * (LAYER_OF_MIXTRAL - EXPERTS)
    edges = 2 * 32_000 * 4096 + 4096 + 32 * (2 + 8) * 4096
    for base, how, linear, experts, edge in (
        ("nf4", "each", 0.5158691, 0.5158691, 4.0), ("nf4", "merged", 0.5158691, 4.0, 4.0),
        ("int8", "none", 1.0, 4.0, 4.0), ("bf16", "none", 2.0, 2.0, 2.0),
        ("mxfp4", "none", 0.53125, 0.53125, 2.0),
    ):  # fmt: skip
        method = Method(base=base, on_experts=how)
        asked = replace(job(), method=method)
        (stage,) = layout_stages(model_facts(MIXTRAL).weights, "even", asked.layout)
        found = stage_states(stage, 0, counts(MIXTRAL, method), asked, p).base_bytes
        want = linear * dense + experts * 32 * EXPERTS + edge * edges
        assert found == pytest.approx(want, rel=1e-3), (base, how)
