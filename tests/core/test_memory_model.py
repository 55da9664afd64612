"""Memory of a pipeline stage: invariants, and published peaks."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.fit import fewest_gpus, usable_bytes
from gpuscale.core.memory.parameters import IDEAL, parameters_of
from gpuscale.core.memory.peak import peak_stage, shards, stage_memories
from gpuscale.core.model.params import count_params
from gpuscale.core.rules import facts_of
from gpuscale.core.schedules import in_flight
from gpuscale.core.serving.replica import ServingJob, fewest_serving, replica_memory
from gpuscale.io.hardware import load_gpu
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software
from gpuscale.specs.model import ModelSpec

SMALL = {n: load_model(n).spec for n in ("llama3-8b", "deepseek-v3", "gpt2", "qwen3-next-80b-a3b")}
FACTS = {n: model_facts(m) for n, m in SMALL.items()}
FAMILIES = {n: parameters_of(load_software(n)) for n in ("megatron-core", "torchtitan", "nanotron")}

LAYOUTS = st.builds(
    Layout,
    seq_len=st.sampled_from([512, 4096, 32768]),
    global_batch_size=st.integers(1, 4096),
    micro_batch_size=st.integers(1, 8),
    tp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2]),
    pp=st.integers(1, 12),
    dp=st.integers(1, 64),
    zero_stage=st.integers(0, 3),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full", "per-op"]),
    schedule=st.sampled_from(["1f1b", "zb-h1", "dualpipe", "gpipe"]),
    precision=st.sampled_from(["bf16", "fp16", "fp8", "nvfp4"]),
    offload_optimizer=st.booleans(),
    offload_activations=st.booleans(),
)


def total(name, layout, parameters):
    return peak_stage(stage_memories(FACTS[name], layout, parameters)).total_bytes


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FACTS)), LAYOUTS, st.sampled_from(sorted(FAMILIES)))
def test_parts_add_up_and_ideal_is_below_expected(name, layout, family):
    parameters = FAMILIES[family]
    ideal = replace(
        IDEAL,
        **{
            n: getattr(parameters, n)
            for n in (
                "weights_bytes",
                "gradients_bytes",
                "gradients_bytes_fp16",
                "master_bytes",
                "optimizer_bytes",
                "sharded_weights_bytes",
                "selective_per_op",
                "fused_cross_entropy",
                "loss",
                "quantised_inputs",
                "narrow_weights",
                "fp8_orientations",
                "stage_split",
            )
        },
        fused_logits_bytes=min(IDEAL.fused_logits_bytes, parameters.fused_logits_bytes),
    )
    for stage, bare in zip(
        stage_memories(FACTS[name], layout, parameters),
        stage_memories(FACTS[name], layout, ideal),
        strict=True,
    ):
        parts = (
            stage.weights_bytes,
            stage.gradients_bytes,
            stage.master_bytes,
            stage.optimizer_bytes,
            stage.activations_bytes,
            stage.logits_bytes,
            stage.working_bytes,
            stage.fragmentation_bytes,
            stage.context_bytes,
        )
        assert all(math.isfinite(p) and p >= 0 for p in parts)
        assert sum(parts) == pytest.approx(stage.total_bytes, rel=1e-12)
        assert bare.total_bytes <= stage.total_bytes * (1 + 1e-12)
        kinds = [stage.kind_bytes(k) for k in ("allocated", "reserved", "nvidia-smi")]
        assert kinds == sorted(kinds)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(FACTS)), LAYOUTS, st.sampled_from(sorted(FAMILIES)))
def test_more_sharding_never_holds_more_states(name, layout, family):
    def states(changed):
        stages = stage_memories(FACTS[name], changed, FAMILIES[family])
        return [s.states_bytes for s in stages]

    here = states(replace(layout, zero_stage=min(layout.zero_stage, 2)))
    more_ranks = states(replace(layout, zero_stage=min(layout.zero_stage, 2), dp=2 * layout.dp))
    assert all(b <= a * (1 + 1e-12) for a, b in zip(here, more_ranks, strict=True))
    # stage 2 against stage 1; stage 3 of FSDP changes the recipe to fp32 shards
    one, two = (states(replace(layout, zero_stage=z)) for z in (1, 2))
    assert all(b <= a * (1 + 1e-12) for a, b in zip(one, two, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FACTS)), LAYOUTS)
def test_more_tokens_never_need_less(name, layout):
    parameters = FAMILIES["megatron-core"]
    longer = replace(layout, seq_len=2 * layout.seq_len)
    assert total(name, longer, parameters) >= total(name, layout, parameters)
    whole = replace(layout, recompute="none")
    full = replace(layout, recompute="full")
    kept = [
        peak_stage(stage_memories(FACTS[name], x, parameters)).activations_bytes
        for x in (whole, full)
    ]
    assert kept[1] <= kept[0]


def test_one_gpu_is_the_plain_sum():
    layout = Layout(seq_len=4096, global_batch_size=1, zero_stage=0)
    (stage,) = stage_memories(FACTS["llama3-8b"], layout, IDEAL)
    params = count_params(SMALL["llama3-8b"]).total_params
    assert stage.states_bytes == pytest.approx(16 * params, rel=1e-6)
    tokens, h = 4096, 4096
    # 8 h, q k v and output in two bytes, three FFN widths in two bytes
    layer = tokens * (8 * h + 2 * (32 + 8 + 8 + 32) * 128 + 2 * 3 * 14336)
    assert stage.activations_bytes == pytest.approx(32 * layer)
    assert stage.logits_bytes == pytest.approx(IDEAL.logits_bytes * tokens * 128256)
    assert (stage.fragmentation_bytes, stage.context_bytes, stage.working_bytes) == (0, 0, 0)


def test_korthikanti_without_dropout():
    """GPT layer of Korthikanti table 2: 34 sbh holds 3 sbh of dropout masks and 2 of GeLU's."""
    gpt = model_facts(load_model("gpt3-175b").spec)
    layout = Layout(seq_len=2048, global_batch_size=1, zero_stage=0)
    (stage,) = stage_memories(gpt, layout, replace(IDEAL, unfused_attention=True))
    layer = stage.activations_bytes / 96
    korthikanti = 2048 * 12288 * (34 + 5 * 96 * 2048 / 12288)
    assert layer == pytest.approx(korthikanti, rel=0.02)


def test_in_flight_schedules():
    assert [in_flight("1f1b", i, 4, 1, 8) for i in range(4)] == [4, 3, 2, 1]
    assert in_flight("1f1b", 0, 4, 1, 2) == 2  # no more than there are
    # Korthikanti 4.2.3: interleaving holds 1 + (p-1)/(p v) times as much on the first stage
    assert in_flight("interleaved", 0, 8, 4, 64) == pytest.approx(8 * (1 + 7 / 32))
    assert in_flight("dualpipe", 3, 8, 1, 64) == 9  # DeepSeek-V3 report, table 2: PP + 1
    assert in_flight("gpipe", 0, 4, 1, 64) == 64


def test_dualpipe_holds_parameters_twice():
    layout = Layout(seq_len=4096, global_batch_size=64, pp=4, zero_stage=0)
    one, two = (
        stage_memories(FACTS["llama3-8b"], replace(layout, schedule=s), IDEAL)[1].weights_bytes
        for s in ("1f1b", "dualpipe")
    )
    assert two == 2 * one


def test_hsdp_divides_by_the_group():
    layout = Layout(seq_len=1, global_batch_size=128, dp=128, zero_stage=3, shard_group_size=8)
    assert shards(layout) == (8, 8)
    assert shards(replace(layout, shard_group_size=None)) == (128, 128)


def dense(layers, hidden, heads, kv, ffn, vocab, *, tied=False, gated=True):
    return ModelSpec.model_validate(
        {
            "name": "m",
            "hidden_size": hidden,
            "vocab_size": vocab,
            "layers": f"{layers} x a+f",
            "mixers": {
                "a": {
                    "kind": "attention",
                    "n_heads": heads,
                    "n_kv_heads": kv,
                    "head_dim": hidden // heads,
                }
            },
            "ffns": {"f": {"kind": "dense", "ffn_hidden_size": ffn, "gated": gated}},
            "tie_embeddings": tied,
        }
    )


SIMUMAX = "MooreThreads/SimuMax, Megatron-LM 23e00ed on 8 B200, max allocated over ranks"
BLOOM = "bigscience chronicles-prequel, A100 80 GB, nvidia-smi"
GIB = 2.0**30
QWEN_ON_H100 = "pytorch/torchtitan#1690, Qwen3-32B on H100 of 95 GiB"
PUBLISHED = [  # family, options, model, layout, kind, bytes, relative tolerance, source
    (
        "megatron-no-overlap",
        {"fused_cross_entropy": True},
        dense(12, 8192, 64, 8, 28672, 128256),
        Layout(4096, 16, tp=2, dp=4, sequence_parallel=True),
        "allocated",
        60.68 * GIB,
        0.02,
        SIMUMAX,
    ),
    (
        "megatron-no-overlap",
        {"fused_cross_entropy": True},
        dense(12, 8192, 64, 8, 28672, 128256),
        Layout(4096, 16, pp=2, dp=4),
        "allocated",
        66.55 * GIB,
        0.02,
        SIMUMAX,
    ),
    (
        "megatron-no-overlap",
        {"fused_cross_entropy": True},
        dense(12, 8192, 64, 8, 28672, 128256),
        Layout(131072, 4, tp=2, cp=4),
        "allocated",
        112.67 * GIB,
        0.03,
        SIMUMAX,
    ),
    (
        "megatron-no-overlap",
        {"fused_cross_entropy": True},
        dense(4, 16384, 128, 16, 53248, 128256),
        Layout(4096, 16, pp=2, dp=4),
        "allocated",
        87.08 * GIB,
        0.03,
        SIMUMAX,
    ),
    (
        "megatron-deepspeed",
        {"attention": "unfused"},
        dense(70, 14336, 112, 112, 57344, 250880, tied=True, gated=False),
        Layout(2048, 2048, 2, tp=4, pp=12, dp=8, sequence_parallel=False, recompute="full"),
        "nvidia-smi",
        59e9,
        0.05,
        BLOOM,
    ),
    (
        "megatron-deepspeed",
        {"attention": "unfused"},
        dense(72, 14336, 64, 64, 57344, 250880, tied=True, gated=False),
        Layout(
            2048,
            2048,
            8,
            tp=8,
            pp=12,
            dp=4,
            sequence_parallel=False,
            recompute="full",
            precision="fp16",
        ),
        "nvidia-smi",
        69e9,
        0.06,
        BLOOM,
    ),
    (
        "torchtitan:2024-12",
        {},
        dense(32, 4096, 32, 8, 14336, 128256),
        Layout(32768, 8, dp=8, zero_stage=3, recompute="full", precision="fp8"),
        "reserved",
        83.9 * GIB,
        0.03,
        "torchtitan benchmarks, Llama-3-8B with FSDP and CP on 8 H100",
    ),
    (
        "torchtitan:2024-12",
        {},
        dense(32, 4096, 32, 8, 14336, 128256),
        Layout(8192, 16, 2, dp=8, zero_stage=3, recompute="selective"),
        "reserved",
        77.0 * GIB,
        0.05,
        "torchtitan benchmarks, Llama-3-8B on 8 H100",
    ),
    # the parameters were not fitted to those below
    (
        "torchtitan:2025-03",
        {},
        dense(32, 4096, 32, 8, 14336, 128256),
        Layout(8192, 8, dp=8, zero_stage=3, recompute="per-op"),
        "reserved",
        49.58 * GIB,
        0.03,
        "pytorch/torchtitan#996, Llama-3-8B on 8 H100",
    ),
    (
        "torchtitan:2025-09",
        {},
        "qwen3-32b",
        Layout(4096, 16, 2, dp=8, zero_stage=3, recompute="full"),
        "reserved",
        81.85 * GIB,
        0.03,
        QWEN_ON_H100,
    ),
    *(
        (
            "torchtitan:2025-03",  # not compiled: the loss neither
            {},
            "qwen3-32b",
            Layout(4096, n * dp, n, tp=8, dp=dp, zero_stage=3, recompute="full"),
            "reserved",
            gib * GIB,
            0.03,
            QWEN_ON_H100,
        )
        for n, dp, gib in ((16, 4, 43.45), (32, 4, 70.79), (32, 8, 63.27))
    ),
    (
        "torchtitan",
        {},
        "qwen3-30b-a3b",
        Layout(8192, 64, 8, dp=8, zero_stage=3, recompute="per-op"),
        "reserved",
        141.79 * GIB,
        0.03,
        "mlc-ai/pith-train#79, torchtitan on 8 B200, loss in eight chunks",
    ),
]


def expected_peak(model, layout, software, options=None):
    """Return the fullest stage of a job under a framework family."""
    model = load_model(model).spec if isinstance(model, str) else model
    parameters = parameters_of(load_software(software), options)
    return peak_stage(stage_memories(model_facts(model), layout, parameters))


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda r: r[0])
def test_published_peaks(row):
    family, options, model, layout, kind, want, rel, source = row
    got = expected_peak(model, layout, family, options)
    assert got.kind_bytes(kind) == pytest.approx(want, rel=rel), source


def test_gpt3_on_512_v100_does_not_fit():  # errata E8
    gpt = load_model("gpt3-175b").spec
    layout = Layout(
        seq_len=2048, global_batch_size=64, tp=8, dp=64, recompute="full", precision="fp16"
    )
    peak = expected_peak(gpt, layout, "megatron-lm-2021")
    assert peak.weights_bytes > load_gpu("v100").hbm_bytes
    found = fewest_gpus(
        model_facts(gpt),
        parameters_of(load_software("megatron-lm-2021")),
        layout,
        facts_of(gpt, 2048, 64, 512),
        room_bytes=usable_bytes(load_gpu("v100").hbm_bytes),
        gpus_per_node=8,
        grow_batch=True,
    )
    assert found is not None
    assert found.n_gpus > 8
    assert found.total_bytes <= usable_bytes(load_gpu("v100").hbm_bytes)


def test_671b_on_16_cards():  # errata E25: fp8 fits, bf16 does not
    model, hbm = SMALL["deepseek-v3"], load_gpu("h100").hbm_bytes
    assert not replica_memory(model, ServingJob("bf16"), 8, 2, hbm).fits
    fp8 = ServingJob("fp8", "fp8", concurrency=64)
    memory = replica_memory(model, fp8, 8, 2, hbm)
    assert memory.fits
    down = 31 * 7168 * (1536 + 512 + 64)  # projections to the latents: on every rank
    assert memory.weights_bytes == pytest.approx(671e9 / 8 * 31 / 61 + 7 / 8 * down, rel=0.01)
    assert memory.kv_bytes_per_token_all_gpus == 61 * (512 + 64)
    found = fewest_serving(model, fp8, hbm, 8)
    assert found is not None
    assert (found.n_gpus, found.tp, found.pp) == (16, 8, 2)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 4), st.integers(1, 512))
def test_the_concurrency_that_fits_fits(tp, pp, concurrency):
    model = SMALL["llama3-8b"]
    memory = replica_memory(model, ServingJob(concurrency=concurrency), tp, pp, 80e9)
    assert memory.fits == (concurrency <= memory.max_concurrency)
