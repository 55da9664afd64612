"""A training step held by hand on a toy GPU: 1 FLOP/s, HBM of 1 MB/s, so that FLOP read as seconds.

Without an architecture and a fabric the products are max(FLOP, bytes / 1e6) and the collectives
their bytes over the links: 100 B/s inside a domain of 8, 10 B/s out of it.
"""

import math
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
from products import expected_matmul_time_s

from gpuscale.core.layout import Layout
from gpuscale.core.model.mixers.kind import Scan, Softmax
from gpuscale.core.network.expected import RankGroup, group_time_s
from gpuscale.core.settings import Maturity
from gpuscale.core.step.attention import (
    MixerTime,
    _scan_s,
    flash_core_s,
    mean_context_tokens,
    mixer_s,
    softmax_s,
    unfused_core_s,
)
from gpuscale.core.step.data_parallel import (
    Shards,
    dp_overlap_helps,
    exchanges_s,
    exposed_frac,
    gather_bytes,
    hybrid_s,
    optimizer_s,
    reduced_s,
    replicated_s,
    sharded_s,
    shards_of,
)
from gpuscale.core.step.ideal import (
    beyond_measured,
    ideal_hardware,
    ideal_software,
    interval,
    interval_classes,
)
from gpuscale.core.step.layer import (
    LayerParts,
    _context_comm,
    bare_layer,
    elementwise_s,
    expert_launch_s,
    gathered_bytes,
    head_time,
    host_s,
    layer_comm,
    recompute_s,
    recomputing,
)
from gpuscale.core.step.moe import FfnTime, dense_ffn_s, dispatched, ffn_s, moe_ffn_s
from gpuscale.core.step.operators import (
    linear_s,
    matmul_s,
    multiplied_in,
    peak_flop_per_s,
    training_frac,
)
from gpuscale.core.step.parallel_comm import all_to_all_s, collective_s, gather_s, split_group
from gpuscale.core.step.records import (
    Hardware,
    LayerTime,
    Shape,
    Software,
    StageTimes,
    StepForm,
    pipeline_s,
)
from gpuscale.core.step.step import (
    Stage,
    add_times,
    breakdown,
    compose,
    model_stages,
    pipeline_transfers_s,
    recompute_flop_frac,
    recomputed,
    shape_of,
    stage_times,
    step_terms,
    step_time,
    transfer_bytes,
)
from gpuscale.core.step.terms import part_terms
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.step import step_hardware
from gpuscale.specs.model import DenseFfn, MoeFfn, NoFfn

HBM = 1e6
FORM = StepForm()
HW = Hardware("toy", "toy", 1.0, 2.0, 4.0, 1e9, HBM, 10, 8, 8, 100.0, 10.0)
SW = Software("toy")
SHAPE = Shape(1, 1, 1, 1, 1, 64, "bf16", "none", True, "ring", True)
LLAMA = load_model("llama3-8b").spec
H100 = step_hardware(load_cluster("dgx-h100"))


def close(value, want):
    return value == pytest.approx(want, rel=1e-9, abs=1e-12)


def formed(hw=HW, **changed):
    return replace(hw, form=replace(hw.form, **changed))


# --- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "fp8", "fp4", "used"),
    [
        ("bf16", 2.0, 4.0, "bf16"),
        ("fp16", 2.0, 4.0, "fp16"),
        ("fp8", 2.0, 4.0, "fp8"),
        ("mxfp8", 2.0, 0.0, "mxfp8"),
        ("nvfp4", 2.0, 4.0, "nvfp4"),
        ("nvfp4", 2.0, 0.0, "fp8"),
        ("nvfp4", 0.0, 4.0, "nvfp4"),
        ("nvfp4", 0.0, 0.0, "bf16"),
        ("fp8", 0.0, 4.0, "bf16"),
        ("mxfp8", 0.0, 0.0, "bf16"),
    ],
)
def test_format_and_rate_of_a_product(precision, fp8, fp4, used):
    hw = replace(HW, fp8_flop_per_s=fp8, fp4_flop_per_s=fp4)
    fracs = {"product_bf16_frac": 0.5, "product_fp8_frac": 0.6, "product_fp4_frac": 0.7}
    hw = replace(hw, **fracs, mxfp8_slowdown=1.25)
    assert multiplied_in(hw, precision) == used
    rates = {"bf16": 1.0, "fp16": 1.0, "fp8": 2.0, "mxfp8": 2.0, "nvfp4": 4.0}
    assert peak_flop_per_s(hw, precision) == rates[used]
    want = {"bf16": 0.5, "fp16": 0.5, "fp8": 0.6, "mxfp8": 0.6 / 1.25, "nvfp4": 0.7}
    assert close(training_frac(hw, precision), want[used])


def test_a_product_is_its_flop_or_its_bytes():
    assert matmul_s(HW, 10, 20, 30) == 2 * 10 * 20 * 30
    assert matmul_s(HW, 10, 20, 30, "fp8") == 10 * 20 * 30
    assert matmul_s(HW, 10, 20, 30, groups=3) == 3 * 2 * 10 * 20 * 30
    slow = replace(HW, hbm_bytes_per_s=1e-3)
    moved = 2 * (10 * 30 + 30 * 20 + 10 * 20)
    assert close(matmul_s(slow, 10, 20, 30), 1e3 * moved)
    assert close(matmul_s(slow, 10, 20, 30, groups=3), 3e3 * moved)
    assert close(matmul_s(slow, 10, 20, 30, "fp8"), 1e3 * (moved / 2 + 10 * 20))
    for shape in ((0, 20, 30), (10, 0, 30), (10, 20, 0)):
        assert matmul_s(HW, *shape) == 0.0
    assert matmul_s(HW, 0.5, 0.5, 0.5) == 0.25


SLOWED = {
    "kernel_gap_s": 1e-3,
    "product_bf16_frac": 0.5,
    "product_fp8_frac": 0.5,
    "misaligned_eff": 0.8,
    "half_tile_eff": 0.9,
}


@pytest.mark.parametrize(
    ("n", "k", "precision", "groups", "eff"),
    [
        (4096, 4096, "bf16", 1, 1.0),
        (4100, 4096, "bf16", 1, 0.8),
        (4096, 4100, "bf16", 1, 0.8),
        (4160, 4096, "bf16", 1, 1.0),  # 65 x 64: no multiple of 128, which 16 bits need not be
        (4160, 4096, "bf16", 2, 0.9),
        (4096, 4160, "bf16", 2, 0.9),
        (4096, 4096, "bf16", 2, 1.0),
        (4160, 4096, "fp8", 1, 0.9),
        (4096, 4160, "fp8", 1, 0.9),
        (4096, 4096, "fp8", 1, 1.0),
        (4100, 4096, "fp8", 1, 0.8),
    ],
)
def test_a_product_in_a_step_is_the_kernel_at_its_share(n, k, precision, groups, eff):
    hw = replace(H100, **SLOWED)
    alone = expected_matmul_time_s(
        512.0,
        n,
        k=k,
        dtype=precision,
        arch=hw.arch,
        peak_flop_per_s=hw.bf16_flop_per_s if precision == "bf16" else hw.fp8_flop_per_s,
        hbm_bytes_per_s=hw.hbm_bytes_per_s,
        n_units=hw.n_compute_units,
        l2_bytes=hw.l2_bytes,
        products=groups,
    )
    assert close(matmul_s(hw, 512.0, n, k, precision, groups), 1e-3 + alone / (0.5 * eff))


def test_bounds_of_a_product_in_a_step():
    old = replace(H100, **SLOWED, fp8_flop_per_s=0.0)  # half tiles are those of newer units
    even = matmul_s(old, 512, 4160, 4096, groups=2)
    assert even < matmul_s(replace(H100, **SLOWED), 512, 4160, 4096, groups=2)
    free = replace(H100, kernel_gap_s=0.25, product_bf16_frac=1e6)
    assert close(matmul_s(free, 4096, 4096, 4096), 0.25 + 2 * 4096**3 / H100.bf16_flop_per_s)
    at = {"n": 4096, "k": 4096}
    assert matmul_s(H100, 0.25, **at) == matmul_s(H100, 1.0, **at)
    assert matmul_s(H100, 4096, 0.25, 4096) > 0.0 < matmul_s(H100, 4096, 4096, 0.25)


def test_a_linear_is_three_products_and_its_casts():
    assert linear_s(HW, 10, 20, 30) == (12e3, 24e3)
    hw = replace(HW, cast_passes=2.0, hbm_eff=0.5)
    forward, backward = linear_s(hw, 10, 20, 30, "fp8", 5)
    assert close(forward, 30e3 + 3 * 2 * 5 * 10 * 30 / 5e5)
    assert close(backward, 60e3 + 6 * 2 * 5 * 10 * 20 / 5e5)
    assert linear_s(hw, 10, 20, 30) == (12e3, 24e3)
    slow = replace(HW, hbm_bytes_per_s=1.0, bf16_flop_per_s=1e9)  # fprop, dgrad, wgrad by bytes
    assert linear_s(slow, 10, 20, 30) == (2 * 1100, 4 * 1100)


# --- optimizer -----------------------------------------------------------------------------------

SHARDS = Shards(
    dense_params=800.0,
    expert_params=400.0,
    dense_ranks=8,
    expert_ranks=2,
    dense_stride=1,
    expert_stride=4,
    shard_ranks=4,
    expert_shard_ranks=2,
)


@pytest.mark.parametrize(
    ("zero", "params"), [(0, 1200.0), (1, 100.0 + 200.0), (2, 300.0), (3, 200.0 + 200.0)]
)
def test_optimizer_moves_the_states_of_its_share(zero, params):
    hw = replace(HW, hbm_eff=0.5)
    assert close(optimizer_s(hw, SW, SHARDS, zero), params * 28 / 5e5)
    narrow = replace(SW, moment_bytes=4.0)  # two moments, each read and written: 2 x 4 less
    assert close(optimizer_s(hw, narrow, SHARDS, zero), params * 20 / 5e5)
    away = formed(replace(hw, host_link_bytes_per_s=2.0), host_memory_bytes_per_s=7.0)
    want = params * (6 / 2 + 28 / 7)
    assert close(optimizer_s(away, SW, SHARDS, zero, offload=True), want)


# --- feed-forward --------------------------------------------------------------------------------


def test_dense_ffn():
    gated = dense_ffn_s(DenseFfn(ffn_hidden_size=64), 32, HW, 10, SHAPE._replace(tp=2))
    one = 2 * 10 * 32 * 32  # a matrix on one of two ranks
    want = FfnTime(3 * one, 6 * one, width_bytes=2 * 3 * 32, last_fwd_s=one)
    assert gated == want
    plain = DenseFfn(ffn_hidden_size=64, gated=False)
    found = dense_ffn_s(plain, 32, HW, 10, SHAPE._replace(tp=2))
    assert found == FfnTime(2 * one, 4 * one, width_bytes=2 * 2 * 32, last_fwd_s=one)
    assert ffn_s(NoFfn(), 32, HW, SW, tokens=1, shape=SHAPE) == FfnTime()


def moe(hw=HW, sw=SW, *, tokens=16, tp=2, ep=4, etp=1, precision="bf16", **changed):
    fields = {"n_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 64} | changed
    shape = SHAPE._replace(tp=tp, ep=ep, etp=etp, precision=precision)
    return moe_ffn_s(MoeFfn(**fields), 32, hw, sw, tokens, shape)


def test_experts_of_a_rank():
    """16 tokens over tp=2; ep=4: two local experts meet 8 x 4 x 2 / 8 = 8 rows each."""
    plain = moe(replace(HW, router_s=3.0), n_route_groups=3)
    one = 2 * (2 * 8 * 32 * 64)  # a matrix of both experts
    sent = 8 * 2 * 32 * 2.0  # own tokens, copies, width, 16 bits
    dispatch = sent / HBM + 3.0
    assert plain == FfnTime(
        3 * one, 6 * one, dispatch, dispatch, 2 * 3 * 64 * 2 / 2, sent, 2.0, 3, 0.0
    )
    two = moe(gated=False)
    assert (two.linear_fwd_s, two.linear_bwd_s, two.width_bytes) == (2 * one, 4 * one, 256.0)
    split = moe(etp=2)  # rows of two ranks, half the width
    assert split.linear_fwd_s == 3 * one and split.width_bytes == plain.width_bytes
    hw, sw = replace(HW, permute_passes=5.0, router_s=2.0), replace(SW, dispatch_factor=0.5)
    assert close(moe(hw, sw).dispatch_fwd_s, 0.5 * (5 * sent / HBM + 2))
    assert moe(ep=16).local_experts == 1.0
    slow = replace(HW, hbm_bytes_per_s=1e-3)  # bytes of groups: rows, weights and results
    grouped = moe(slow).linear_fwd_s
    assert close(grouped, 1e3 * 2 * 2 * (8 * 32 + 128 * 32 + 8 * 128 + 8 * 64 + 64 * 32 + 8 * 32))


def test_efficiency_of_grouped_products_is_not_that_of_shared_ones():
    hw = replace(HW, grouped_eff=0.5, grouped_fp8_eff=0.25)
    sw = replace(SW, grouped_factor=0.8)
    one = 2 * (2 * 8 * 32 * 64)
    assert close(moe(hw, sw).linear_fwd_s, 3 * one / 0.4)
    assert close(moe(hw, sw, precision="fp16").linear_fwd_s, 3 * one / 0.4)
    assert close(moe(hw, sw, precision="fp8").linear_bwd_s, 3 * one / 0.1)
    shared = 3 * 2 * 16 * 48 * 32  # all 16 tokens, 96 / 2 wide
    for field in ("shared_ffn_hidden_size", "dense_ffn_hidden_size"):
        beside = moe(hw, sw, **{field: 96})
        assert close(beside.linear_fwd_s, 3 * one / 0.4 + shared)
        assert close(beside.linear_bwd_s, 6 * one / 0.4 + 2 * shared)


def test_experts_at_a_latent_width():
    """Down from 32 to 16 and up again, once a token of the rank; experts work at 16."""
    found = moe(latent_size=16)
    experts, maps = 3 * 2 * (2 * 8 * 16 * 64), 2 * (2 * 8 * 32 * 16)
    assert found.linear_fwd_s == experts + maps
    assert found.linear_bwd_s == 2 * (experts + maps)
    assert found.dispatched_bytes == 8 * 2 * 16 * 2.0


# --- attention -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seq", "window", "keys"), [(8, None, 4), (8, 8, 4), (8, 9, 4), (8, 4, 3), (8, 2, 1.75)]
)
def test_mean_keys_of_a_query(seq, window, keys):
    """A window w of s: w (1 - w / 2s)."""
    assert mean_context_tokens(seq, window) == keys


def flash(hw=HW, sw=SW, tokens=10, context=100, rounds=1, **changed):
    core = Softmax(**{"heads": 4, "qk": 64, "v": 32} | changed)
    return flash_core_s(core, hw, sw, tokens, context, rounds)


FLASH_FLOP = 2 * 10 * 100 * 4 * (64 + 32)


def test_fused_attention():
    assert flash() == (FLASH_FLOP, 2.5 * FLASH_FLOP)
    hw = replace(HW, attention_eff=0.5, attention_backward_eff=0.8, kernel_floor_s=7.0)
    assert close(flash(hw)[0], FLASH_FLOP / 0.5 + 7)
    assert close(flash(hw)[1], 2.5 * FLASH_FLOP / 0.5 / 0.8 + 7)
    # half of the efficiency at 200 tokens = 2 x 100 of mean context; a quarter of 128 wide: half
    ramp = formed(replace(HW, attention_ramp_tokens=200.0), head_dim_exponent=0.5)
    slow = replace(SW, flash_factor=0.8)
    assert close(flash(ramp, slow)[0], FLASH_FLOP / (0.8 * 0.5 * 0.5))
    assert close(flash(ramp, slow, v=256)[0], 2 * 10 * 100 * 4 * 320 / (0.8 * 0.5))
    assert close(flash(replace(ramp, attention_eff=0.5), slow)[0], FLASH_FLOP / (0.4 * 0.5 * 0.5))
    # a ring of 4: blocks of a quarter, three merges of the output at 12 bytes an element
    merge = formed(replace(HW, kernel_floor_s=7.0), ring_merge_bytes=12.0)
    assert close(flash(merge, rounds=4)[0], FLASH_FLOP + 3 * 10 * 4 * 32 * 12 / HBM + 28)
    assert close(flash(merge, rounds=4)[1], 2.5 * FLASH_FLOP + 3 * 10 * 4 * 64 * 12 / HBM + 28)
    assert close(flash(ramp, rounds=4)[0], FLASH_FLOP / (50 / 250 * 0.5))


@pytest.mark.parametrize(
    ("dim", "eff"), [(64, 1.0), (128, 1.0), (80, 0.5), (96, 0.5), (72, 0.5), (100, 0.1)]
)
def test_unfused_attention(dim, eff):
    """The full square: 4 t s h d FLOP forward, the double backward; 2 bytes a score and pass."""
    hw = replace(
        HW,
        unfused_gemm_eff=0.5,
        unfused_head_ramp=dim * 3.0,
        head_misaligned_eff=0.5,
        head_odd_eff=0.2,
        unfused_passes=3.0,
        kernel_floor_s=7.0,
    )
    hw = formed(hw, unfused_launches=2.0, unfused_backward_traffic=1.5)
    multiply = 4 * 10 * 50 * 4 * dim / (0.5 * 0.25 * eff)
    traffic = 10 * 50 * 4 * 2 * 3 / HBM
    forward, backward = unfused_core_s(hw, 10, 50, 4, dim)
    assert close(forward, multiply + traffic + 14)
    assert close(backward, 2 * multiply + 1.5 * traffic)
    eager = unfused_core_s(formed(hw, eager_passes=9.0), 10, 50, 4, dim, compiled=False)
    assert close(eager[0], multiply + traffic * 9.0 / hw.unfused_passes + 14)


def test_scan():
    hw = replace(HW, attention_eff=0.5, scan_eff=0.5, kernel_floor_s=7.0)
    hw = formed(hw, scan_passes=3.0, scan_launches=2.0)
    once = 10 * 20 / 0.25 + 3 * 10 * 30 / HBM
    forward, backward = _scan_s(hw, 10, 20, 30)
    assert close(forward, once + 14) and close(backward, 2.5 * once + 14)


def test_cores_of_softmax_attention():
    full = Softmax(4, 64, 32)
    assert softmax_s(full, HW, SW, 10, 200) == flash()
    assert softmax_s(full, HW, SW, 10, 400, rounds=2) == flash(context=200, rounds=2)
    assert softmax_s(full._replace(window_tokens=100), HW, SW, 10, 400) == flash(context=87.5)
    old = replace(SW, attention="unfused")
    assert softmax_s(full, HW, old, 10, 200) == unfused_core_s(HW, 10, 200, 4, 64)
    part = full._replace(whole=False)  # what an indexer chose was never computed as a full square
    assert softmax_s(part, HW, old, 10, 200) == flash()
    # an indexer scores all 200 mean keys at 8 FLOP and leaves 100
    hw = replace(HW, attention_eff=0.5)
    sparse = full._replace(top_k_tokens=100, index_flop_per_key=8.0)
    index = 10 * 200 * 8 / 0.5
    forward, backward = softmax_s(sparse, hw, SW, 10, 400)
    assert close(forward, 2 * FLASH_FLOP + index)
    assert close(backward, 5 * FLASH_FLOP + index)
    few = softmax_s(sparse._replace(top_k_tokens=1000), hw, SW, 10, 400)[0]
    assert close(few, 4 * FLASH_FLOP + index)


def product(n, k, from_latent=False):
    return SimpleNamespace(n=n, k=k, from_latent=from_latent)


def mixer(core, flop=0.0):
    products = (product(8, 16), product(4, 8, True), product(2, 8, True))
    work = SimpleNamespace(products=products, core=core, streamed=11.0, exchanged=13.0)
    return SimpleNamespace(work=lambda hidden, tp: work, flop=lambda seq: flop * seq)


def test_a_mixer_is_its_products_and_its_core():
    of = {"tokens": 10, "shape": SHAPE._replace(tp=2, seq_len=200)}
    linear = 2 * 10 * (8 * 16 + 4 * 8 + 2 * 8)
    up = 2 * 10 * (4 * 8 + 2 * 8)
    around = (up, 4 * 11.0, 2 * 13.0)
    found = mixer_s(mixer(Softmax(4, 64, 32)), 16, HW, SW, **of)
    assert found == MixerTime(linear, 2 * linear, *flash(), *around)
    assert mixer_s(mixer(None), 16, HW, SW, **of) == MixerTime()
    hw = replace(HW, attention_eff=0.5, scan_eff=0.5, kernel_floor_s=7.0)
    hw = replace(hw, attention_backward_eff=0.8)
    scan = mixer_s(mixer(Scan(20, 30)), 16, hw, SW, **of)
    assert scan == MixerTime(linear, 2 * linear, *_scan_s(hw, 10, 20, 30), *around)
    other = mixer_s(mixer("plain", flop=3.0), 16, hw, SW, **of)
    core = 10 * 3 * 200 / 2 / 0.25 + 7
    assert other == MixerTime(linear, 2 * linear, core, 2.5 * core / 0.8, *around)


# --- collectives of a step -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "stride", "split"),
    [
        (1, 1, (1, 1)),
        (4, 1, (4, 1)),
        (16, 1, (8, 2)),
        (4, 2, (4, 1)),
        (8, 2, (4, 2)),
        (4, 8, (1, 4)),
        (4, 16, (1, 4)),
        (6, 1, (2, 3)),  # ranks 6 to 11 straddle two nodes
        (12, 1, (4, 3)),
        (5, 1, (1, 5)),
        (6, 2, (2, 3)),
    ],
)
def test_ranks_of_a_group_in_one_domain(ranks, stride, split):
    assert split_group(HW, ranks, stride) == split


def test_whole_nodes_of_a_rack_need_not_divide_it():
    rack = replace(HW, scaleup_domain_gpus=72, gpus_per_node=4)
    assert split_group(rack, 64, 1) == (64, 1)
    assert split_group(rack, 128, 1) == (64, 2)
    assert split_group(rack, 60, 1) == (60, 1)
    assert split_group(rack, 10, 1) == (2, 5)
    assert split_group(rack, 10, 2) == (10, 1)  # 20 GPUs: five nodes


def test_collectives_are_bytes_over_links():
    assert close(gather_s(HW, 8, 1, 800), 800 * 7 / 8 / 100)
    assert close(gather_s(HW, 8, 1, 800, reduce_all=True), 2 * 800 * 7 / 8 / 100)
    assert close(gather_s(HW, 8, 8, 800), 800 * 7 / 8 / 10)
    assert close(gather_s(HW, 16, 1, 800), max(800 * 7 / 8 / 100, 800 * 1 / 2 / 8 / 10))
    assert close(gather_s(HW, 8, 1, 0.5), 0.5 * 7 / 8 / 100)
    assert gather_s(HW, 1, 1, 800) == 0.0 == gather_s(HW, 8, 1, 0)
    switch = replace(HW, in_switch_reduction=True)
    assert close(gather_s(switch, 8, 1, 800, reduce_all=True), 8.0)
    assert close(gather_s(switch, 4, 1, 800, reduce_all=True), 2 * 800 * 3 / 4 / 100)
    assert close(collective_s(HW, "all-gather", 8, 8, 800, network_frac=0.5), 35.0)
    # all-to-all of two domains: half of the bytes leave, of which tokens go once to a node
    assert close(all_to_all_s(HW, 16, 1, 800), 40.0)
    assert close(all_to_all_s(HW, 8, 1, 800), 800 * 7 / 8 / 100)
    once = 2 * (1 - 0.5**4) / 4  # of two nodes, those with one of four experts or more
    assert close(all_to_all_s(HW, 16, 1, 800, copies=4), 40 * once)
    few = all_to_all_s(HW, 64, 1, 800, copies=8, max_domains=2)
    assert close(few, 70 * 2 * (1 - 0.5**8) / 8)  # 56 of 64 ranks lie outside; two nodes at most
    assert close(all_to_all_s(HW, 16, 1, 800, dispatch_frac=0.5), 30.0)
    assert close(all_to_all_s(HW, 16, 1, 800, copies=4, dispatch_frac=0.5), 30 * once)


def test_links_of_a_step_are_those_alone_slowed():
    hw = replace(H100, scaleup_frac=1.0, scaleout_frac=1.0)
    even = replace(hw, scaleup_latency_factor=1.0, scaleout_latency_factor=1.0)
    one = gather_s(even, 8, 1, 1e9)
    assert close(gather_s(even, 8, 1, 3e9, calls=3), 3 * one)
    late = replace(even, scaleup_latency_factor=5.0)
    assert gather_s(late, 8, 1, 8) > 2 * gather_s(even, 8, 1, 8)
    assert gather_s(replace(even, scaleout_latency_factor=5.0), 8, 1, 8) == gather_s(even, 8, 1, 8)
    half = replace(even, scaleup_frac=0.5)
    assert 1.8 < gather_s(half, 8, 1, 1e9) / one < 2.0
    out = replace(even, scaleout_frac=0.5)
    assert gather_s(out, 8, 1, 1e9) == one
    assert 1.8 < gather_s(out, 8, 8, 1e9) / gather_s(even, 8, 8, 1e9) < 2.0


def test_an_all_to_all_of_a_step_is_that_of_a_collective_but_for_unequal_parts():
    hw = replace(H100, scaleup_frac=1.0, scaleout_frac=1.0, all_to_all_frac=1.0)
    hw = replace(hw, scaleup_latency_factor=1.0, scaleout_latency_factor=1.0)
    uneven = replace(hw, all_to_all_frac=0.5)
    assert 1.8 < all_to_all_s(uneven, 8, 1, 1e9) / all_to_all_s(hw, 8, 1, 1e9) < 2.0
    assert gather_s(uneven, 8, 1, 1e9) == gather_s(hw, 8, 1, 1e9)
    for n_ranks in (8, 64):
        want = group_time_s(
            RankGroup(
                "all-to-all",
                1e8,
                n=n_ranks,
                n_in=8,
                fabric=hw.fabric,
                up=hw.scaleup_bytes_per_s,
                out=hw.scaleout_bytes_per_s,
            )
        )
        assert close(all_to_all_s(hw, n_ranks, 1, 1e8), want)


# --- data parallelism ----------------------------------------------------------------------------

APART = SHARDS._replace(expert_stride=8)
HIDES = replace(SW, dp_exposed_frac=0.25, dp_network_exposed_frac=0.1)


# 16 bits gathered: 2 x 800 x 7/8 / 100 = 14 s of the dense inside a domain, and of the experts
# between two, 2 x 400 x 1/2 / 10 = 40 s: 54 s; summed, twice that.


def windows(forward, backward, n_layers=1.0):
    return StageTimes(forward, backward, n_layers, forward + backward, 0.0, 0.0)


def replicated(zero, backward=1000.0, forward=1000.0, overlap=True, shards=APART, **changed):
    sw = replace(HIDES, **changed)
    layout = Layout(64, 64, zero_stage=zero, overlap_dp=overlap, precision="fp8")
    return replicated_s(HW, sw, shards, layout, windows(forward, backward))


def test_exchange_of_replicated_weights():
    assert close(replicated(0), 0.25 * 108)
    assert close(replicated(0, backward=100.0), 8 + 0.25 * 100)
    assert close(replicated(0, overlap=False), 108)
    assert close(replicated(0, shards=APART._replace(dense_stride=8)), 0.1 * (2 * 2 * 70 + 80))
    assert close(replicated(0, gradient_bytes=4.0), 0.25 * 216)
    alone = APART._replace(expert_ranks=1)
    assert close(replicated(0, overlap=False, shards=alone), 28)
    assert close(replicated(0, overlap=False, shards=APART._replace(dense_ranks=1)), 80)
    assert close(replicated(0, overlap=False, shards=APART._replace(expert_params=0.0)), 28)


def test_exchange_of_sharded_states():
    """ZeRO-1 and 2: gradients scattered, weights gathered, together what an all-reduce moves.

    Reduced whole they wait for the backward pass.
    """
    for zero in (1, 2):
        assert close(replicated(zero), 0.25 * 108)
        assert close(replicated(zero, backward=60.0), 48 + 0.25 * 60)
        assert close(replicated(zero, 40.0, 20.0, overlap_gather=True), 14 + 10 + 34 + 5)
        assert close(replicated(zero, overlap=False, overlap_gather=True), 108)
        whole = {"zero1_all_reduce": True, "gather_unoverlapped_frac": 0.5}
        assert close(replicated(zero, **whole), 108 + 0.5 * 54)
        assert close(replicated(zero, backward=100.0, low_precision_gather=True), 0.25 * 81)
    assert gather_bytes(HIDES, "fp8", 1) == 2.0
    narrow = replace(HIDES, low_precision_gather=True)
    assert gather_bytes(narrow, "bf16", 1) == 2.0 and gather_bytes(narrow, "fp8", 1) == 1.0
    # Megatron-Core: MXFP8 through the gradient buffer; its FSDP gathers what is multiplied
    assert gather_bytes(narrow, "mxfp8", 1) == 2.0 and gather_bytes(narrow, "mxfp8", 3) == 1.0
    assert gather_bytes(narrow, "nvfp4", 1) == 4.5 / 8  # packed, with its scales
    layout = Layout(64, 64, zero_stage=2)
    assert close(reduced_s(HW, HIDES, APART, layout, windows(0.0, 1000.0)), 0.25 * 54)
    assert close(reduced_s(HW, HIDES, APART, layout, windows(0.0, 50.0)), 4 + 12.5)


def test_overlap_inside_a_domain_and_over_the_network():
    assert exposed_frac(HW, HIDES, 8, 1, True) == 0.25
    assert exposed_frac(HW, HIDES, 16, 1, True) == exposed_frac(HW, HIDES, 2, 8, True) == 0.1
    assert exposed_frac(HW, HIDES, 16, 1, False) == 1.0
    for inside, across, helps in ((1.0, 1.0, True), (1.1, 0.5, False), (0.5, 1.1, False)):
        sw = replace(SW, dp_exposed_frac=inside, dp_network_exposed_frac=across)
        assert dp_overlap_helps(sw) is helps


def sharded(forward=1000.0, backward=1000.0, hw=HW, shards=APART, sw=HIDES, **changed):
    n_layers, overlap = changed.pop("n_layers", 6.0), changed.pop("overlap", True)
    layout = Layout(64, 64, zero_stage=3, overlap_dp=overlap, **changed)
    return sharded_s(hw, sw, shards, layout, windows(forward, backward, n_layers))


def test_exchange_of_sharded_weights():
    """Groups of 4: 800 x 2 B gathered are 12 s, as are the gradients; experts over two nodes 40."""
    assert close(sharded(), 0.25 * (52 + 104))
    assert close(sharded(forward=40.0), 12 + 10 + 26)
    assert close(sharded(overlap=False), 156)
    dense = APART._replace(expert_params=0.0)
    assert close(sharded(shards=dense), 0.25 * (12 + 24))
    assert close(sharded(shards=APART._replace(expert_shard_ranks=1)), 0.25 * (12 + 24))
    assert close(sharded(shards=dense, sw=replace(HIDES, gradient_bytes=4.0)), 0.25 * (12 + 36))
    fp8 = replace(HIDES, low_precision_gather=True)
    assert close(sharded(shards=dense, sw=fp8, precision="fp8"), 0.25 * (6 + 18))
    assert sharded(shards=APART._replace(shard_ranks=1)) == 0.0
    assert sharded(shards=dense._replace(shard_ranks=2)) > 0.0


def test_every_layer_of_sharded_weights_is_a_call():
    sw = replace(HIDES, gathers_per_layer=2.0)
    dense = APART._replace(expert_params=0.0)
    twelve = gather_s(H100, 4, 1, 1600.0, calls=12.0)
    assert close(sharded(hw=H100, shards=dense, sw=sw), 0.25 * 3 * twelve)
    one = gather_s(H100, 4, 1, 1600.0)
    assert close(sharded(hw=H100, shards=dense, sw=sw, n_layers=0.0), 0.25 * 3 * one)
    experts = gather_s(H100, 2, 8, 800.0, calls=6.0)
    assert close(sharded(hw=H100, sw=sw), 0.25 * 3 * (twelve + experts))
    none = gather_s(H100, 2, 8, 800.0)
    assert close(sharded(hw=H100, sw=sw, n_layers=0.0), 0.25 * 3 * (one + none))


def hybrid(hw, sw, shards, backward=1000.0, overlap=True, forward=1000.0, precision="bf16"):
    layout = Layout(64, 64, zero_stage=3, overlap_dp=overlap, precision=precision)
    return hybrid_s(hw, sw, shards, layout, windows(forward, backward))


def test_groups_of_hybrid_sharding_sum_their_gradients():
    """Two groups of four: each rank sums its 800 / 4 x 2 B with one other, 4 ranks away."""
    assert close(hybrid(HW, HIDES, APART, 1000.0, True), 0.25 * 4)
    assert close(hybrid(HW, HIDES, APART, 1.0, True), 3 + 0.25)
    assert hybrid(HW, HIDES, APART._replace(shard_ranks=8), 1000.0, True) == 0.0
    whole = APART._replace(expert_shard_ranks=1)  # 400 x 2 B of experts with the other group
    assert close(hybrid(HW, HIDES, whole, 1000.0, True), 0.25 * (4 + 80))
    shared = replace(HIDES, outer_shards=True, low_precision_gather=True)
    assert close(hybrid(HW, shared, whole), 0.25 * (2 + 40) + 0.25 * (2 + 40))
    assert close(hybrid(HW, shared, whole, precision="fp8"), 0.25 * (2 + 40) + 0.25 * (1 + 20))
    far = APART._replace(dense_stride=2)
    assert close(hybrid(HW, HIDES, far, 1000.0, False), 40)
    assert close(hybrid(HW, HIDES, far, 1000.0, True), 0.1 * 40)


def test_buckets_are_calls():
    hw, sw = H100, replace(HIDES, bucket_params=5e5)
    dense = SHARDS._replace(dense_params=4e6, expert_params=0.0)
    apart = Layout(64, 64, zero_stage=0, overlap_dp=False)
    once = replicated_s(hw, sw, dense, apart, windows(1e3, 1e3))
    assert close(once, gather_s(hw, 8, 1, 8e6, reduce_all=True, calls=8.0))
    more = replace(sw, bucket_params_per_rank=1.25e5)  # 1e6 of 8 ranks
    once = replicated_s(hw, more, dense, apart, windows(1e3, 1e3))
    assert close(once, gather_s(hw, 8, 1, 8e6, reduce_all=True, calls=4.0))
    apart = hybrid(hw, sw, dense._replace(shard_ranks=2), 1e3, False)
    assert close(apart, gather_s(hw, 4, 2, 4e6, reduce_all=True, calls=4.0))


def test_chunks_of_a_pipeline_have_each_other_s_passes_to_hide_behind():
    """Pipeline of 4 and 2 chunks: the last 4 micro-batches of one, then the last chunk's own."""
    slow = SHARDS._replace(dense_params=1e12, expert_params=0.0)
    layout = Layout(64, 64, tp=1, pp=4, dp=8, vpp=2, zero_stage=0)
    kept = {"shards": slow, "stages": windows(1.0, 2.0, 4)}
    hides = replace(HIDES, dp_exposed_frac=0.0, dp_network_exposed_frac=0.0)
    plain = exchanges_s(HW, hides, replace(layout, vpp=1), **kept)[1]
    assert close(plain - exchanges_s(HW, hides, layout, **kept)[1], 2.0 * 0.5 * 3)


def test_groups_of_a_layout():
    layout = Layout(64, 64, tp=2, cp=2, dp=4, ep=2, etp=2)
    held = windows(0.0, 0.0)._replace(dense_params=1.0, expert_params=2.0)
    want = Shards(1.0, 2.0, 8, 4, 2, 4, shard_ranks=8, expert_shard_ranks=4)
    assert shards_of(layout, held, 8) == want
    small, large = (replace(layout, shard_group_size=n) for n in (4, 64))
    assert shards_of(small, held, 8) == want._replace(shard_ranks=4, expert_shard_ranks=2)
    assert shards_of(large, held, 8) == want
    assert shards_of(replace(layout, ep=64), held, 8).expert_ranks == 1


@pytest.mark.parametrize(
    ("zero", "pp", "each", "once"),
    [
        (0, 1, 0.0, 0.25 * 108),
        (1, 1, 0.0, 0.25 * 108),
        (2, 1, 0.25 * 54, 0.25 * 54),  # every micro-batch its gradients, and the weights once
        (2, 2, 0.0, 0.25 * 108),  # a pipeline sums whole gradients
        (3, 1, 0.25 * (52 + 104), 0.25 * 4),
    ],
)
def test_exchanges_of_a_micro_batch_and_of_a_step(zero, pp, each, once):
    layout = Layout(64, 24, dp=8, pp=pp, zero_stage=zero)
    beside = windows(900.0, 1000.0, 6.0)
    found = exchanges_s(HW, HIDES, layout, APART, beside)
    assert found == (pytest.approx(each), pytest.approx(once))
    apart = exchanges_s(HW, HIDES, replace(layout, overlap_dp=False), APART, beside)
    assert apart == (pytest.approx(4 * each), pytest.approx(4 * once))


# --- a layer -------------------------------------------------------------------------------------

MIX = MixerTime(100.0, 200.0, 50.0, 125.0, 5.0, width_bytes=70.0, kv_bytes=8.0)
MLP = FfnTime(300.0, 600.0, width_bytes=30.0, last_fwd_s=90.0)
MOE = FfnTime(300.0, 600.0, 10.0, 20.0, 30.0, dispatched_bytes=400.0, local_experts=4.0)
HIDDEN = 32


def parts(mlp=MLP, kind="dense", has_mixer=True):
    return LayerParts(MIX, mlp, has_mixer, kind, 2 if kind == "moe" else 0, HIDDEN)


def test_memory_bound_passes_of_a_layer():
    """64 tokens: 8 B a token and width for two parts, split with the sequence, and both widths."""
    hw = formed(replace(HW, hbm_eff=0.5), elementwise_backward=1.5)
    kept = {"n_parts": 2, "hidden": HIDDEN, "tokens": 64}
    inner = 64 * (70 + 30)

    def passes(shape=SHAPE, hw=hw, sw=SW, **changed):
        return elementwise_s(MIX, MLP, hw=hw, sw=sw, shape=shape, **(kept | changed))

    want = (64 * 32 * 8 + inner) / 5e5
    assert passes() == (pytest.approx(want), pytest.approx(1.5 * want))
    assert close(passes(n_parts=1)[0], (64 * 32 * 4 + inner) / 5e5)
    split = SHAPE._replace(tp=4)
    assert close(passes(split)[0], (16 * 32 * 8 + inner) / 5e5)
    assert close(passes(split._replace(sequence_parallel=False))[0], want)
    launched = formed(replace(hw, kernel_floor_s=7.0), elementwise_launches=3.0)
    assert close(passes(hw=launched)[0], want + 3 * 2 * 7)
    eager = formed(hw, uncompiled_factor=1.2)
    sw = replace(SW, elementwise_factor=0.5)
    assert close(passes(hw=eager, sw=sw)[0], 0.5 * want)
    assert close(passes(hw=eager, sw=replace(sw, compiled=False))[0], 0.6 * want)


ONE = 64 * HIDDEN * 2 * 7 / 8 / 100  # one gather of the activations over 8 ranks
TP8 = SHAPE._replace(tp=8)


@pytest.mark.parametrize(
    ("kind", "has_mixer", "shape", "forward", "backward"),
    [
        ("dense", True, TP8, 2 * 2 * ONE, 2 * 3 * ONE),
        ("dense", False, TP8, 2 * ONE, 3 * ONE),
        ("moe", True, TP8, 2 * ONE, 3 * ONE),
        ("none", True, TP8, 2 * ONE, 3 * ONE),
        ("dense", True, TP8._replace(sequence_parallel=False), 4 * ONE, 4 * ONE),
        ("dense", True, SHAPE, 0.0, 0.0),
        ("dense", True, TP8._replace(tp=2), 4 * ONE * 4 / 7, 6 * ONE * 4 / 7),
        ("dense", True, TP8._replace(tp_stride=8), 40 * ONE, 60 * ONE),
    ],
)
def test_collectives_of_tensor_parallelism(kind, has_mixer, shape, forward, backward):
    comm = layer_comm(parts(MLP, kind, has_mixer), HW, SW, shape, 64)
    assert comm[:2] == (pytest.approx(forward), pytest.approx(backward))
    assert comm[2:] == (0.0,) * 4


def test_gathered_inputs_may_be_of_8_bits():
    sw = replace(SW, quantised_tp_gather=True)
    assert gathered_bytes(HW, sw, "fp8") == 1.0
    assert gathered_bytes(HW, SW, "fp8") == 2.0 == gathered_bytes(HW, sw, "bf16")
    comm = layer_comm(parts(), HW, sw, TP8._replace(precision="fp8"), 64)
    assert comm[:2] == (pytest.approx(2 * 1.5 * ONE), pytest.approx(2 * 2 * ONE))


def test_collectives_of_context_parallelism():
    cp = SHAPE._replace(cp=4, cp_stride=2)  # two domains of 8 join 4 ranks 2 apart
    ring = 64 * 4 * 8 * 3 / 4 / 100
    assert close(_context_comm(MIX, HIDDEN, HW, cp, 64), ring)
    comm = layer_comm(parts(), HW, SW, cp, 64)
    assert comm[2:4] == (pytest.approx(ring), pytest.approx(2 * ring))
    wide = cp._replace(cp=8)  # over two domains: a ring passes each edge once
    assert close(_context_comm(MIX, HIDDEN, HW, wide, 64), 64 * 8 * 8 * max(7.5e-3, 12.5e-3))
    heads = wide._replace(cp_kind="ulysses")
    assert close(_context_comm(MIX, HIDDEN, HW, heads, 64), (64 * 4 * HIDDEN + 64 * 8) / 2 / 10)
    far = cp._replace(cp_stride=8)
    assert close(_context_comm(MIX, HIDDEN, HW, far, 64), 10 * ring)
    heads = cp._replace(cp_kind="ulysses", tp=2)
    sent = 64 / 2 * 4 * HIDDEN + 64 * 8  # queries and outputs of a tensor rank, keys and values
    assert close(_context_comm(MIX, HIDDEN, HW, heads, 64), sent * 3 / 4 / 100)
    none = parts()._replace(mix=MIX._replace(kv_bytes=0.0))
    assert layer_comm(none, HW, SW, cp, 64)[2:4] == (0.0, 0.0)


def test_collectives_of_experts():
    shape = SHAPE._replace(ep=8)
    sent = 2 * 400 * 7 / 8 / 100  # out and back
    experts = parts(MOE, "moe")
    assert layer_comm(experts, HW, SW, shape, 64)[4:] == (pytest.approx(sent),) * 2
    assert layer_comm(parts(MOE, "dense"), HW, SW, shape, 64)[4:] == (0.0, 0.0)
    assert layer_comm(experts, HW, SW, SHAPE, 64) == (0.0,) * 6
    far = shape._replace(ep=16)
    once = replace(SW, deduplicated_all_to_all=True)
    pairs = 2 * (1 - 0.5**2) / 2  # of two nodes, those with one of two experts
    assert close(layer_comm(experts, HW, SW, far, 64).ep_fwd_s, 2 * 20)
    assert close(layer_comm(experts, HW, once, far, 64).ep_fwd_s, 2 * 20 * pairs)
    limited = parts(MOE._replace(route_domains=1), "moe")
    assert close(layer_comm(limited, HW, once, far, 64).ep_fwd_s, 2 * 20 / 2)
    rdma = replace(SW, rdma_dispatch=True, dispatch_frac=0.5)
    assert close(layer_comm(experts, HW, rdma, far, 64).ep_fwd_s, 2 * 15)
    split = layer_comm(experts, HW, SW, SHAPE._replace(etp=8), 64)
    gathered = 2 * 400 * 8 * 7 / 8 / 100
    assert split[:2] == (pytest.approx(gathered),) * 2
    both = layer_comm(experts, HW, SW, TP8._replace(etp=8), 64)
    assert both[:2] == (pytest.approx(2 * ONE + gathered), pytest.approx(3 * ONE + gathered))


@pytest.mark.parametrize(
    ("tp", "is_moe", "n_parts", "crosses", "want"),
    [
        (1, False, 2, False, 6.0),
        (1, False, 1, False, 3.0),
        (8, False, 2, False, 6 * 1.7),
        (16, False, 2, False, 6 * 1.7),
        (4, False, 2, False, 6 * 1.3),  # 3/7 of what eight ranks add
        (1, True, 2, False, 9.0),
        (4, False, 2, True, 4 * 5.0),
        (4, False, 1, True, 2 * 5.0),
        (1, False, 2, True, 6.0),  # one rank waits for no other
        (2, False, 2, True, 10.0),
    ],
)
def test_launches_of_a_layer(tp, is_moe, n_parts, crosses, want):
    sw = replace(SW, host_layer_s=6.0, host_tp_factor=0.7, pipeline_launch_s=5.0)
    hw = formed(host_moe=1.5, graph_layer_host_frac=0.5, graph_full_host_frac=0.1)
    assert close(host_s(hw, sw, tp, is_moe, n_parts, crosses), want)
    for graphs, left in (("layer", 0.5), ("full", 0.1)):
        kept = replace(sw, cuda_graphs=graphs, pipeline_launch_s=0.0)
        if not crosses:
            assert close(host_s(hw, kept, tp, is_moe, n_parts), left * want)


def test_launches_of_experts():
    hw = formed(
        replace(HW, expert_launch_s=0.5),
        unscaled_expert_frac=0.5,
        graph_layer_expert_frac=0.25,
        graph_full_host_frac=0.125,
    )
    sw = replace(SW, dispatch_factor=0.8)
    assert close(expert_launch_s(hw, sw, 4.0, "mxfp8"), 0.5 * 4 * 0.8)
    assert close(expert_launch_s(hw, sw, 4.0, "bf16"), 0.5 * 4 * 0.5 * 0.8)
    assert close(expert_launch_s(hw, replace(sw, cuda_graphs="layer"), 4.0, "mxfp8"), 0.4)
    assert close(expert_launch_s(hw, replace(sw, cuda_graphs="full"), 4.0, "mxfp8"), 0.2)
    assert expert_launch_s(hw, sw, 0.0, "bf16") == 0.0
    assert expert_launch_s(hw, replace(sw, launches_experts=False), 4.0, "bf16") == 0.0


PASSES = (64 * 32 * 8 + 64 * 100) / HBM


def test_a_layer_is_its_operators():
    """No launches, no ranks: products, core, passes, and what a layer repeats."""
    bare = bare_layer(parts(), HW, SW, SHAPE)
    want = LayerTime(
        fwd_s=450 + PASSES,
        bwd_s=925 + PASSES,
        matmul_s=1200.0,
        attention_s=175.0,
        elementwise_s=2 * PASSES,
    )
    assert bare.time == pytest.approx(want)
    assert close(bare.repeated_s, 450 + PASSES) and close(bare.rest_s, PASSES)
    experts = bare_layer(parts(MOE, "moe"), HW, SW, SHAPE).time
    assert close(experts.fwd_s, want.fwd_s + 10) and close(experts.bwd_s, want.bwd_s + 20)
    assert (experts.moe_s, experts.matmul_s) == (30.0, 1200.0)
    half = SHAPE._replace(micro_batch_size=4, cp=2)  # twice the tokens in the passes
    assert close(bare_layer(parts(), HW, SW, half).rest_s, 2 * PASSES)
    for kind, has_mixer, n in (("dense", False, 1), ("none", True, 1), ("none", False, 0)):
        bare = bare_layer(parts(MLP, kind, has_mixer), HW, SW, SHAPE)
        assert close(bare.rest_s, (64 * 32 * 4 * n + 64 * 100) / HBM)


def test_exchanges_of_a_layer_behind_its_operators():
    sw = replace(SW, tp_exposed_frac=0.5, cp_exposed_frac=0.2, ep_exposed_frac=0.4)
    hw = formed(overlapped_ep_frac=0.5, dualpipe_ep_frac=0.1)
    time = bare_layer(parts(), hw, sw, TP8).time
    plain = bare_layer(parts(), hw, SW, SHAPE).time
    assert close(time.tp_comm_s, 0.5 * 10 * ONE)
    assert close(time.matmul_s + time.attention_s, 1375.0)
    apart = bare_layer(parts(), hw, sw, TP8._replace(overlap_tp=False)).time
    assert close(apart.tp_comm_s, 10 * ONE)
    assert close(apart.fwd_s - time.fwd_s, 0.5 * 4 * ONE)
    assert close(apart.bwd_s - time.bwd_s, 0.5 * 6 * ONE)
    far = bare_layer(parts(), hw, sw, TP8._replace(tp_stride=8)).time
    assert close(far.tp_comm_s, (40 * ONE - 200) + (60 * ONE - 400))
    # a ring hides behind its blocks, other kinds are waited for
    ring = 64 * 8 * 2 * 1 / 2 / 100
    cp = SHAPE._replace(cp=2, micro_batch_size=2)
    found = bare_layer(parts(), hw, sw, cp).time
    assert close(found.cp_comm_s, 0.2 * 3 * ring)
    assert close(found.fwd_s - plain.fwd_s, 0.2 * ring)
    assert close(found.bwd_s - plain.bwd_s, 0.2 * 2 * ring)
    waited = bare_layer(parts(), hw, sw, cp._replace(cp_kind="all-gather")).time
    assert close(waited.cp_comm_s, 3 * ring)
    slow = bare_layer(parts(), hw, sw, cp._replace(cp_stride=8, micro_batch_size=64)).time
    long = 10 * 32 * ring
    assert close(slow.cp_comm_s, long - 0.8 * 50 + 2 * long - 0.8 * 125)
    # experts: both ways, forward and backward
    sent = 2 * 2 * 400 * 7 / 8 / 100
    ep, experts = SHAPE._replace(ep=8), parts(MOE, "moe")
    for changed, share in (
        ({}, 0.4),
        ({"overlap_ep": True}, 0.2),
        ({"dualpipe": True}, 0.1),
        ({"dualpipe": True, "overlap_ep": True}, 0.1),
    ):
        found = bare_layer(experts, hw, replace(sw, **changed), ep).time
        assert close(found.ep_comm_s, share * sent)
        assert close(found.fwd_s, 460 + PASSES + share * sent / 2)
        assert close(found.bwd_s, 945 + PASSES + share * sent / 2)
    waits = formed(hw, plain_ep_frac=1.0)  # a plain all-to-all, and a dispatcher of its own
    for apart, share in ((False, 1.0), (True, 0.4)):
        own = replace(sw, deduplicated_all_to_all=apart)
        assert close(bare_layer(experts, waits, own, ep).time.ep_comm_s, share * sent)
    long = MOE._replace(dispatched_bytes=400e3)
    window = 460 + PASSES, 945 + PASSES
    found = bare_layer(parts(long, "moe"), hw, sw, ep).time
    assert close(found.ep_comm_s, 1e3 * sent - 0.6 * sum(window))
    both = bare_layer(parts(long, "moe"), hw, sw, ep._replace(cp=2, micro_batch_size=2)).time
    assert close(both.cp_comm_s, 0.2 * 3 * ring)  # what hides the ring hides no experts
    assert close(both.ep_comm_s, 1e3 * sent - 0.6 * (sum(window) - 0.8 * 3 * ring))


def test_launches_are_a_floor_under_a_layer():
    """A norm of 1 adds both times; of 2, 450 beside 1080 are 1170."""
    sw = replace(SW, host_layer_s=10.0)
    added = formed(replace(HW, expert_launch_s=0.5), host_norm=1.0, host_backward=0.5)
    bare = bare_layer(parts(), HW, SW, SHAPE).time
    time = bare_layer(parts(), added, sw, SHAPE).time
    assert close(time.host_s, 15.0)
    assert close(time.fwd_s, bare.fwd_s + 10) and close(time.bwd_s, bare.bwd_s + 5)
    experts = bare_layer(parts(MOE, "moe"), formed(added, host_moe=2.0), sw, SHAPE).time
    assert close(experts.host_s, 1.5 * (20 + 0.5 * 4))
    crossing = SHAPE._replace(tp=2, pp_crosses=True)
    late = bare_layer(parts(), added, replace(sw, pipeline_launch_s=40.0), crossing).time
    assert close(late.host_s, 1.5 * 80)
    even = formed(replace(HW, hbm_bytes_per_s=1e30), host_norm=2.0)
    time = bare_layer(parts(), even, replace(SW, host_layer_s=1080.0), SHAPE).time
    assert close(time.fwd_s, 1170.0)


def test_early_stop_leaves_out_the_last_projection():
    sw = replace(SW, recompute_stops_early=True, tp_exposed_frac=1.0)
    forward = bare_layer(parts(), HW, sw, SHAPE)
    assert close(forward.time.fwd_s - forward.repeated_s, 90.0)
    for shape, n in ((TP8, 4), (TP8._replace(sequence_parallel=False), 2)):
        bare = bare_layer(parts(), HW, sw, shape)  # and the last of the layer's reductions
        assert close(bare.time.fwd_s - bare.repeated_s, 90 + 4 * ONE / n)
    experts = bare_layer(parts(MOE, "moe"), HW, sw, SHAPE)
    assert experts.repeated_s == experts.time.fwd_s


@pytest.mark.parametrize(
    ("recompute", "modules", "is_moe", "again"),
    [
        ("none", ("core_attn",), False, 0.0),
        ("full", (), False, 777.0),
        ("per-op", (), False, 0.3 * 400 + 11),
        ("selective", ("core_attn",), False, 50.0),
        ("selective", ("mla_up_proj",), False, 5.0),
        ("selective", ("layernorm",), False, 0.5 * 11),
        ("selective", ("moe_act",), True, 0.25 * 11),
        ("selective", ("moe_act",), False, 0.0),
        ("selective", ("mlp",), False, 300.0),
        ("selective", ("mlp",), True, 0.0),
        ("selective", ("moe",), True, 310.0),
        ("selective", ("moe",), False, 0.0),
        ("selective", ("core_attn", "layernorm", "unknown"), False, 55.5),
    ],
)
def test_what_recomputation_repeats(recompute, modules, is_moe, again):
    hw = formed(per_op_recompute_frac=0.3, norm_recompute_frac=0.5, act_recompute_frac=0.25)
    sw = replace(SW, recompute_modules=modules)
    mlp = MOE if is_moe else MLP
    layer = parts(mlp, "moe" if is_moe else "dense")
    bare = bare_layer(layer, HW, SW, SHAPE)._replace(repeated_s=777.0, rest_s=11.0)
    assert close(recompute_s(recompute, bare, layer, hw, sw), again)
    time = recomputing(bare, layer, recompute, hw, sw)
    assert close(time.recompute_s, again) and close(time.bwd_s, bare.time.bwd_s + again)


def test_head_and_loss():
    """64 tokens, 1,000 words: three products of 2 t h v, and 4 B a logit and pass."""
    hw = formed(replace(HW, cross_entropy_passes=5.0), fused_loss_frac=0.5, compiled_loss_frac=0.2)
    one, loss = 2 * 64 * HIDDEN * 1000, 64 * 1000 * 4 * 5 / HBM
    time = head_time(HIDDEN, 1000, hw, SW, SHAPE)
    want = LayerTime(one + loss / 2, 2 * one + loss / 2, 3 * one, elementwise_s=loss)
    assert time == pytest.approx(want)
    for changed, frac in (
        ({"fused_cross_entropy": True}, 0.5),
        ({"compiled_loss": True, "compiled": True, "fused_cross_entropy": True}, 0.2),
        ({"compiled_loss": True, "compiled": False}, 1.0),
    ):
        found = head_time(HIDDEN, 1000, hw, replace(SW, **changed), SHAPE)
        assert close(found.elementwise_s, frac * loss)
    sw = replace(SW, tp_exposed_frac=0.25)
    split = head_time(HIDDEN, 1000, hw, sw, TP8._replace(cp=2, micro_batch_size=2))
    reduced = 2 * 64 * HIDDEN * 2 * 7 / 8 / 100
    assert close(split.matmul_s, 3 * one / 8) and close(split.elementwise_s, loss / 8)
    assert close(split.tp_comm_s, 0.25 * reduced)
    assert close(split.bwd_s, (2 * one + loss / 2) / 8 + 0.25 * reduced)
    apart = head_time(HIDDEN, 1000, hw, sw, TP8._replace(overlap_tp=False))
    assert close(apart.tp_comm_s, reduced)


# --- a step --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vpp", "schedule", "bubble"),
    [(1, "1f1b", 6.0), (2, "1f1b", 3.0), (1, "zb-h1", 3.0), (1, "zb-h2", 2.0), (1, "gpipe", 6.0)],
)
def test_bubble_of_four_stages(vpp, schedule, bubble):
    """Of 2 s each: three others to pass, over the chunks; half or a third of it without bubbles."""
    assert pipeline_s(2.0, 8.0, 8, vpp, schedule) == (16.0, pytest.approx(bubble))


LAYOUTS = (
    Layout(4096, 64, tp=2, pp=2, dp=4, overlap_pp=False, zero_stage=1, recompute="full"),
    Layout(4096, 64, tp=4, cp=2, pp=4, vpp=2, dp=2, offload_optimizer=True, precision="fp8"),
    Layout(4096, 64, dp=16, zero_stage=3, shard_group_size=8),
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_terms_are_the_parts_of_a_step(layout):
    sw = replace(HIDES, step_host_s=1e-3, host_layer_s=1e-3, pp_exposed_frac=0.5)
    hw = replace(H100, straggler_per_log2_hosts=0.01, site_factor=1.1)
    parts = breakdown(LLAMA, hw, sw, layout)[0]
    terms = part_terms(LLAMA, hw, sw, layout, parts)
    named = {term.name: term for term in terms}
    assert {name: term.value for name, term in named.items()} == {
        name: value for name, value in parts.parts().items() if value
    }
    for name, term in named.items():
        if name != "optimizer_s":
            assert eval(term.formula, {"log2": math.log2}, term.inputs) == pytest.approx(term.value)
    edge = "last" if layout.pp > 1 else "only"
    stage = {"last": layout.pp, "only": 1}[edge]
    assert f"stage {stage} of {layout.pp}" in named["matmul_s"].source


def test_what_a_layer_sees_of_a_layout():
    layout = Layout(64, 64, 2, tp=4, cp=2, ep=8, etp=2, pp=2, dp=4, recompute="selective")
    shape = shape_of(layout, HW, SW)
    want = Shape(4, 2, 8, 2, 2, 64, "bf16", "selective", True, "ring", True, 1, 4, 2, False)
    assert shape == want
    assert shape_of(layout, HW, replace(SW, selective_per_op=True)).recompute == "per-op"
    slow = replace(SW, pipeline_launch_s=1e-3)
    assert shape_of(layout, HW, slow).pp_crosses
    assert not shape_of(replace(layout, pp=1), HW, slow).pp_crosses
    node = Layout(64, 64, pp=8)
    assert not shape_of(node, HW, slow).pp_crosses
    assert shape_of(replace(node, dp=2), HW, slow).pp_crosses
    assert (want.rounds, want._replace(cp_kind="ulysses").rounds) == (2, 1)


def test_times_are_added():
    a, b = LayerTime(*range(11)), LayerTime(*range(10, 21))
    assert add_times([(1, a)]) == a
    assert add_times([(2, a), (3, b)]) == LayerTime(*(2 * i + 3 * (i + 10) for i in range(11)))
    assert add_times([(3, a)]) == LayerTime(*(3 * i for i in range(11)))


@pytest.mark.parametrize(
    ("recompute", "layers", "pp", "frac"),
    [
        ("none", None, 2, 0.0),
        ("selective", None, 2, 0.0),
        ("full", None, 1, 1 / 3),
        ("full", 4, 2, 8 / 32 / 3),
        ("full", 16, 4, 1 / 3),
        ("per-op", None, 2, 0.1),
    ],
)
def test_flop_of_recomputation(recompute, layers, pp, frac):
    layout = Layout(64, 64, pp=pp, recompute=recompute, recompute_layers=layers)
    found = recompute_flop_frac(recompute, layout, SimpleNamespace(n_layers=32), 0.3)
    assert close(found, frac)


def test_transfers_between_stages():
    layout = Layout(64, 12, 2, tp=4, cp=2, pp=2, dp=2)
    whole = 2 * 64 / 2 * HIDDEN * 2
    assert transfer_bytes(SW, layout, HIDDEN) == whole / 4
    plain = replace(layout, sequence_parallel=False)
    assert transfer_bytes(SW, plain, HIDDEN) == whole
    assert transfer_bytes(replace(SW, scatter_gather=True), plain, HIDDEN) == whole / 4
    # 3 micro-batches, two chunks each: 2 (3 x 2 + 2 - 1) sends to a rank 16 away, over the network
    sw, hw = replace(SW, pp_exposed_frac=0.5), replace(HW, p2p_latency_s=3.0)
    one = whole / 4 / 10 + 3
    chunks = replace(layout, vpp=2)
    assert close(pipeline_transfers_s(hw, sw, chunks, HIDDEN), 14 * one * 0.5)
    assert close(pipeline_transfers_s(hw, sw, layout, HIDDEN), 8 * one * 0.5)
    apart = replace(layout, overlap_pp=False)
    assert close(pipeline_transfers_s(hw, sw, apart, HIDDEN), 8 * one)
    assert pipeline_transfers_s(hw, SW, apart, HIDDEN) == 0.0
    assert pipeline_transfers_s(hw, sw, replace(layout, pp=1), HIDDEN) == 0.0


STAGES = [
    Stage(LayerTime(10.0, 20.0, matmul_s=30.0), 100.0, 900.0, 3),
    Stage(
        LayerTime(15.0, 25.0, 20.0, 8.0, 4.0, 1.0, 2.0, 1.5, 0.5, recompute_s=2.0, host_s=1.0),
        600.0,
        300.0,
        4,
    ),
]


def test_terms_of_a_step():
    """Two stages of 30 and 40 s, 6 micro-batches on 16 GPUs of two hosts, 4 % a doubling."""
    layout = Layout(64, 24, tp=2, pp=2, dp=4, overlap_dp=False, zero_stage=0)
    every, heaviest = stage_times(STAGES)
    assert (every, heaviest) == (StageTimes(15.0, 25.0, 4, 70.0, 100.0, 900.0), 1)
    assert every.seconds == 40.0
    hw = replace(HW, straggler_per_log2_hosts=0.04, site_factor=1.5, p2p_latency_s=3.0)
    sw = replace(SW, step_host_s=5.0, pp_exposed_frac=1.0, maturity=Maturity("script", 1.3))
    terms = step_terms(every, hw, sw, layout, HIDDEN)
    sent = 2 * (6 + 1) * (64 * HIDDEN * 2 / 2 / 10 + 3)
    # 100 dense over 4 ranks 2 apart; experts over 8 ranks 1 apart: two bytes, twice 3/4 and 7/8
    exchange = 2 * 2 * (100 * 3 / 4 + 900 * 7 / 8) / 100
    update = 1000 * 28 / HBM
    base = 240 + 30 + sent + exchange + update + 5
    late = base * (1.04 * 1.5 - 1)
    want = (240.0, 30.0, sent, exchange, update, 5.0, late, (base + late) * 0.3)
    assert terms == pytest.approx(want)
    found, number = compose(STAGES, hw, sw, layout, HIDDEN)
    assert number == 1 and close(found.total_s, sum(want))
    named = found.parts()
    assert [named[n] for n in ("matmul_s", "attention_s", "elementwise_s", "moe_s")] == [
        120.0,
        48.0,
        24.0,
        6.0,
    ]
    assert (named["tp_comm_s"], named["cp_comm_s"], named["ep_comm_s"]) == (12.0, 9.0, 3.0)
    assert (named["recompute_s"], named["host_s"]) == (12.0, 6 * 1.0 + 5)
    after = ("bubble_s", "pp_comm_s", "dp_comm_s", "optimizer_s", "straggler_s")
    assert [named[n] for n in after] == pytest.approx([want[i] for i in (1, 2, 3, 4, 6)])


def test_half_a_host_has_no_stragglers():
    hw = replace(HW, straggler_per_log2_hosts=0.04)
    every = stage_times(STAGES)[0]
    for gpus, share in ((4, 0.0), (8, 0.0), (64, 0.12)):
        layout = Layout(64, 64, dp=gpus, overlap_dp=False)
        terms = step_terms(every, hw, SW, layout, HIDDEN)
        assert close(terms.straggler_s, share * sum(terms[:-2]))


def test_rates_of_a_step():
    """6 N and 12 L h s / 2 FLOP a token; rates over what the step takes."""
    layout = Layout(8192, 64, tp=2, pp=2, dp=4, recompute="full")
    found = step_time(LLAMA, H100, SW, layout)
    tokens = 64 * 8192
    matrices = 32 * (41_943_040 + 176_160_768) + 128_256 * 4096
    scores = 32 * 2 * 2 * 4096 * (8192 + 1) / 2
    flop = tokens * 3 * (2 * matrices + scores)
    assert close(found.model_flop, flop)
    assert close(found.hardware_flop, 4 / 3 * flop)
    time = found.expected_s
    assert close(found.mfu, flop / (16 * H100.bf16_flop_per_s * time))
    assert close(found.hfu, 4 / 3 * found.mfu)
    assert close(found.tokens_per_s, tokens / time)
    assert close(found.tokens_per_s_per_gpu, tokens / time / 16)
    assert close(found.bubble_frac, found.expected.bubble_s / time)
    assert (found.n_gpus, found.n_micro_batches) == (16, 16)
    assert found.roofline_s == found.roofline.total_s


def test_layers_recomputed_of_a_stage():
    assert recomputed(((0, 2), (1, 6)), None) == [(0, 2, 2), (1, 6, 6)]
    assert recomputed(((0, 2), (1, 6)), 5) == [(0, 2, 2), (1, 6, 3)]
    assert recomputed(((0, 2), (1, 6)), 1) == [(0, 2, 1), (1, 6, 0)]


@pytest.mark.parametrize(
    ("schedule", "experts", "changes"),
    [("dualpipe", True, True), ("dualpipe", False, False), ("1f1b", True, False)],
)
def test_dispatch_under_dualpipe(schedule, experts, changes):
    layout = Layout(64, 64, pp=2, schedule=schedule)
    assert (dispatched(SW, layout, experts) is not SW) is changes
    own = replace(SW, dualpipe=True, dispatch_frac=0.9)
    assert dispatched(own, layout, experts) is own


@pytest.mark.parametrize(
    ("changed", "hidden"),
    [({}, True), ({"pp": 2}, False), ({"pp": 2, "vpp": 2}, True), ({"recompute": "full"}, False)],
)
def test_an_exchange_is_hidden_where_the_layout_lets_it_be(changed, hidden):
    """Megatron-Core, transformer_config.py: overlap_moe_expert_parallel_comm."""
    sw = replace(SW, overlap_ep=True)
    assert dispatched(sw, Layout(64, 64, **changed), True).overlap_ep is hidden


def staged(model, **changed):
    """Times of the stages with a layer of 1 s and 2 s, of which 1 s is computed again, head 5 s."""
    layer = LayerTime(1.0, 3.0, recompute_s=1.0)
    layout = Layout(64, 64, **changed)
    kept = {"times": lambda mixer, ffn, shape: layer, "head": LayerTime(1.0, 4.0)}
    stages = model_stages(model, HW, SW, layout, SHAPE, **kept)
    return [(s.time.fwd_s, s.time.bwd_s, s.time.recompute_s) for s in stages]


def test_times_of_stages():
    """32 layers on two stages; the head on the last; of 5 recomputed layers 11 keep theirs."""
    assert staged(LLAMA, pp=2) == [(16.0, 48.0, 16.0), (17.0, 52.0, 16.0)]
    some = {"recompute": "full", "recompute_layers": 5}
    assert staged(LLAMA, pp=2, **some) == [(16.0, 37.0, 5.0), (17.0, 41.0, 5.0)]
    whole = [(16.0, 48.0, 16.0), (17.0, 52.0, 16.0)]
    assert staged(LLAMA, pp=2, recompute="full") == whole
    assert staged(LLAMA, pp=2, recompute_layers=5) == whole  # no limit where none is asked for
    # two prediction layers: a layer and a head each more, on the last stage
    more = LLAMA.model_copy(update={"n_mtp_layers": 2})
    assert staged(more, pp=2)[1] == (16 + 2 + 3.0, 48 + 6 + 12.0, 18.0)


def test_a_prediction_layer_is_one_of_the_last_kind():
    mixed = load_model("deepseek-v3").spec
    sparse = mixed.layer_sequence[-1]
    assert mixed.n_mtp_layers == 1 and sparse != mixed.layer_sequence[0]
    zero, one = LayerTime(), LayerTime(1.0, 2.0)
    kept = {"times": lambda *names: one if names[:2] == sparse else zero, "head": zero}
    found = model_stages(mixed, HW, SW, Layout(64, 64), SHAPE, **kept)[0]
    assert found.time.fwd_s == 61 - 3 + 1


def values(hardware):
    """Hardware is equal to itself alone: its fields, to compare two."""
    return {f.name: getattr(hardware, f.name) for f in fields(hardware)}


def test_the_ideal_is_the_data_sheet():
    """Efficiency 1, latency 0, nothing exposed; what is sent and kept stays the family's."""
    floats = [f for f in fields(Hardware) if isinstance(f.default, float)]
    slow = {f.name: 0.5 for f in floats if f.default in (0.0, 1.0) and f.name != "l2_bytes"}
    sheet = replace(HW, l2_bytes=5e7, host_link_bytes_per_s=3.0, fabric_class="efa")
    made = replace(sheet, **slow, in_switch_reduction=True)
    want = replace(sheet, in_switch_reduction=True, optimizer_bytes_per_param=24.0)
    assert values(ideal_hardware(made)) == values(want)
    less = ideal_hardware(replace(made, optimizer_bytes_per_param=16.0))
    assert less.optimizer_bytes_per_param == 16.0
    late = {f.name: 0.5 for f in fields(Software) if f.name.endswith(("_s", "_factor"))}
    exposed = {f.name: 0.5 for f in fields(Software) if f.name.endswith("exposed_frac")}
    made = replace(
        SW,
        **late | exposed | {"elementwise_factor": 0.7},
        gather_unoverlapped_frac=0.5,
        gathers_per_layer=3.0,
        attention="unfused",
        compiled=False,
        dualpipe=True,
        gradient_bytes=4.0,
        stage_split="balanced",
    )
    want = replace(
        SW,
        elementwise_factor=0.4,
        dispatch_factor=0.0,
        fused_cross_entropy=True,
        gradient_bytes=4.0,
        stage_split="balanced",
    )
    assert ideal_software(made) == want
    assert ideal_software(replace(made, elementwise_factor=0.3)).elementwise_factor == 0.3


# --- the stated interval -------------------------------------------------------------------------


def classes(kind="dense", tp=8, domain=8, measured=True, **changed):
    model = SimpleNamespace(
        has_experts=kind == "moe",
        mixers={"a": SimpleNamespace(measured=True), "b": SimpleNamespace(measured=measured)},
    )
    hw = replace(HW, scaleup_domain_gpus=domain)
    found = interval_classes(model, hw, "mine", Layout(64, 64, tp=tp), **changed)
    assert found[-2:] == ("family/mine", kind)
    return found[:-2]


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({}, ()),
        ({"kind": "moe"}, ()),
        ({"tp": 16}, ("wide-tp",)),
        ({"tp": 8, "domain": 4}, ("wide-tp",)),
        ({"tp": 16, "domain": 32}, ("wide-tp",)),
        ({"tp": 16, "domain": 64}, ()),
        ({"tp": 128, "domain": 72}, ("wide-tp",)),
        ({"measured": False}, ("linear-attention",)),
    ],
)
def test_classes_of_a_step(changed, first):
    assert classes(**changed) == ("hardware/toy", *first)


@pytest.mark.parametrize(
    ("classes", "widths", "site", "width"),
    [
        (("family/x", "dense"), {"dense": 0.1}, False, 0.1),
        (("family/x", "moe"), {"moe": 0.2, "family/x": 0.1}, False, 0.2),
        (("family/x", "moe"), {"moe": 0.2, "family/x": 0.3}, False, 0.3),
        (("wide-tp", "moe"), {"moe": 0.1, "wide-tp": 0.3}, False, 0.3),
        (("hardware/toy", "dense"), {"dense": 0.1, "hardware/toy": 0.4}, False, 0.1),
        (("other",), {"dense": 0.1, "unknown": 0.6}, False, 0.6),
        (("dense",), {"dense": 0.1, "site": 0.5}, True, 0.05),
        (("dense",), {"dense": 0.1}, True, 0.1),
    ],
)
def test_width_of_the_interval(classes, widths, site, width):
    low, high = interval(2.0, classes, widths, site)
    assert low == pytest.approx(2 * 2.718281828459045**-width)
    assert high == pytest.approx(2 * 2.718281828459045**width)


@pytest.mark.parametrize(
    ("widths", "ends"),
    [
        ({"hardware/toy": 0.0}, (1.0, 8.0)),
        ({}, (1.0, 8.0)),
        ({"hardware/toy": 0.0, "hardware/unknown": 9.0}, (1.0, 8.0)),
        ({"hardware/unknown": 1.0}, (0.592, 11.05)),
        ({"hardware/toy": 1.0, "hardware/unknown": 9.0}, (0.592, 11.05)),
    ],
)
def test_interval_of_an_architecture_without_runs(widths, ends):
    """Errors apart add as squares: ln 2 and 1 are 1.217, ln 4 and 1 are 1.709."""
    found = beyond_measured(1.0, 2.0, 8.0, ("hardware/toy", "dense"), widths | {"dense": 0.1})
    assert found == pytest.approx(ends, rel=0.01)


def test_a_small_chip_is_not_held_to_the_watts_of_a_large_one():
    def kept(gpu, **board):
        card = load_cluster(gpu)
        changed = card.gpu.model_copy(update=board)
        return step_hardware(card.model_copy(update={"gpu": changed})).product_bf16_frac

    whole = kept("rtx-a6000")
    assert kept("rtx-a6000", n_compute_units=42, bf16_flop_per_s=77.4e12, tdp_w=150.0) == whole
    assert kept("rtx-a6000", tdp_w=150.0) == pytest.approx(0.5**0.333 * whole)
    assert kept("a100-pcie-80gb") < kept("a100-sxm-80gb")
