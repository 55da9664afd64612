"""What all rooms share, by hand: stages, schedules, settings, formats, quantities, words."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuscale.core.formats import (
    FORMATS,
    compute_dtype,
    edge_bytes,
    element_bytes,
    is_narrow,
    number_format,
    weight_bytes,
)
from gpuscale.core.habits import ANY
from gpuscale.core.layout import CONTEXT_KINDS, ContextShape, Exchange, Layout
from gpuscale.core.model.params import KindWeights, ModelWeights, kind_weights, model_weights
from gpuscale.core.quantity import (
    MAX_ABS,
    dimension_of,
    format_count,
    format_si,
    format_time,
    parse,
)
from gpuscale.core.records import Term, term_of, total_of
from gpuscale.core.schedules import Pass, in_flight, orders, schedule_of
from gpuscale.core.settings import JobSettings
from gpuscale.core.stages import (
    StageParams,
    deal,
    dealt_chunks,
    distinct_stages,
    layout_stages,
    split_layers,
    split_text,
    splits_by_length,
    stage_kinds,
    widest_stage,
)
from gpuscale.core.step.replay import replay
from gpuscale.core.words import gb, key_words
from gpuscale.io.models import load_model
from gpuscale.specs.model import DenseFfn, MoeFfn

# --- stages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "pp", "rule", "head", "vpp", "want"),
    [
        (8, 4, "even", 0.0, 1, (2, 2, 2, 2)),
        (10, 4, "even", 0.0, 1, (2, 3, 3, 2)),  # with both ends 12: three each
        (9, 4, "even", 0.0, 1, (2, 2, 3, 2)),
        (11, 4, "even", 0.0, 1, (2, 3, 3, 3)),
        (7, 5, "even", 0.0, 1, (1, 1, 2, 2, 1)),
        (4, 6, "even", 0.0, 1, (0, 1, 1, 1, 1, 0)),
        (4, 5, "even", 0.0, 1, (1, 1, 1, 1, 0)),
        (1, 2, "even", 0.0, 1, (1, 0)),
        (2, 2, "even", 0.0, 1, (1, 1)),
        (9, 2, "balanced", 3.0, 1, (6, 3)),
        (9, 2, "balanced", 0.0, 1, (4, 5)),
        (9, 4, "balanced", 1.0, 1, (2, 2, 3, 2)),
        (9, 4, "balanced", 9.0, 1, (2, 3, 3, 1)),
        (13, 4, "balanced", 0.0, 2, (3, 3, 3, 4)),
        (13, 4, "balanced", 9.0, 2, (4, 4, 4, 1)),
        (14, 3, "balanced", 9.0, 3, (6, 6, 2)),
        (8, 4, "balanced", 3.0, 1, (2, 2, 2, 2)),
        (10, 4, "balanced", 3.0, 1, (2, 3, 3, 2)),
        (6, 3, "greedy", 0.0, 1, (3, 2, 1)),
        (6, 3, "greedy", 3.0, 1, (4, 2, 0)),
        (4, 1, "greedy", 9.0, 1, (4,)),
    ],
)
def test_layers_of_stages(n, pp, rule, head, vpp, want):
    assert split_layers(n, pp, rule, head, vpp) == want


def test_splits_that_are_refused():
    for n, pp, vpp in ((4, 7, 1), (4, 5, 2), (0, 1, 1), (4, 0, 1)):
        with pytest.raises(ValueError, match="is more than"):
            split_layers(n, pp, vpp=vpp)


def test_splits_in_words_and_by_the_layers_of_one():
    """torchtitan: 10 layers on 4 stages; 12 with both ends, three each."""
    assert split_text((7, 8, 8, 7, 7)) == "7, 2 x 8, 2 x 7"
    found = [(s.layers_per_stage, s.counts) for s in splits_by_length(10, 4)]
    assert found == [(3, (3, 3, 2, 2)), (3, (2, 3, 3, 2)), (3, (2, 3, 3, 2)), (3, (3, 3, 3, 1))]
    assert splits_by_length(5, 4)[0].counts == (1, 2, 2, 0)  # stages of two: three hold five
    assert [s.counts for s in splits_by_length(4, 1)] == [(4,)] * 4


def test_chunks_of_stages():
    """The first stage is short in its first chunk, the others in their last."""
    assert deal((3, 4), 1) == ((range(0, 3),), (range(3, 7),))
    assert deal((3, 3), 2) == ((range(0, 1), range(3, 5)), (range(1, 3), range(5, 6)))
    assert deal((5, 4), 3) == (
        (range(0, 1), range(3, 5), range(6, 8)),
        (range(1, 3), range(5, 6), range(8, 9)),
    )
    assert dealt_chunks((1, 2, 3, 4), 2) == (
        (range(0, 1), range(3, 6)),
        (range(1, 3), range(6, 10)),
    )


TOY = ModelWeights(
    kinds=(KindWeights(100.0, 0.0, 100.0), KindWeights(60.0, 400.0, 260.0)),
    names=(("a", "d"), ("a", "e")),
    sequence=(0, 0, 1, 1, 1),
    embedding_params=50.0,
    head_params=30.0,
    tied=False,
    mtp_dense_params=8.0,
    mtp_expert_params=16.0,
    head_layers=0.0,
)


def test_weights_of_stages():
    """Two dense layers and a sparse one with the embedding; two sparse ones with head and tail."""
    assert TOY.n_layers == 5
    layout = Layout(1, 1, tp=2, pp=2, ep=4, etp=2, dp=4)
    first, last = layout_stages(TOY, "even", replace(layout, stage_layers=(3, 2)))
    assert first == StageParams(
        (260 + 50) / 2, 400 / 8, 50 / 2, 60 / 2 + 400 / 8, ((0, 2), (1, 1)), 3, False, 50 / 2
    )
    assert last == StageParams(
        (120 + 38) / 2, 816 / 8, 38 / 2, 60 / 2 + 400 / 8, ((1, 2),), 2, True, 38 / 2
    )
    (whole,) = layout_stages(TOY, "even", Layout(1, 1))
    assert whole.widest_edge_params == 50
    assert whole.dense_params == 2 * 100 + 3 * 60 + 50 + 30 + 8
    assert whole.expert_params == 1216.0 and whole.largest_layer_params == 460
    tied = replace(TOY, tied=True)
    (alone,) = layout_stages(tied, "even", Layout(1, 1))
    assert alone.edge_params == 58 and whole.edge_params == 88
    split = layout_stages(tied, "even", Layout(1, 1, pp=2, stage_layers=(3, 2)))
    assert [s.edge_params for s in split] == [50, 38]  # the last stage holds a copy
    ends = layout_stages(TOY, "even", Layout(1, 1, pp=7))
    assert [s.n_layers for s in ends] == [0, 1, 1, 1, 1, 1, 0]
    assert ends[0].largest_layer_params == 0.0 and ends[-1].dense_params == 38
    assert widest_stage(TOY, "even", 2, 2, 1, 8, (3, 2)) == (155, 50)
    assert widest_stage(TOY, "even", 2, 2, 1, 1, (3, 2)) == (79, 816)


def test_kinds_of_stages():
    assert stage_kinds(TOY, "even", 2, 1, (3, 2)) == (((0, 2), (1, 1)), ((1, 2),))
    assert stage_kinds(TOY, "even", 2, 2, (1, 1, 2, 1)) == (((0, 1), (1, 2)), ((0, 1), (1, 1)))
    alike = replace(TOY, sequence=(1,) * 6)
    found = distinct_stages(alike, "even", 3, 1)
    assert found == ((((1, 2),), 2, False, 2), (((1, 2),), 2, True, 1))


def test_weights_of_a_kind_and_a_model():
    """An expert's weights count double in the balance: of 8, 2 are met."""
    mixer = load_model("llama3-8b").spec.layer_groups[0].mixer
    own = 41_943_040 + 7.0
    dense = kind_weights(mixer, DenseFfn(ffn_hidden_size=10), 4096, 7.0)
    assert dense == KindWeights(own + 122_880, 0.0, own + 122_880)
    ffn = MoeFfn(n_experts=8, top_k=2, expert_ffn_hidden_size=10)
    router, each = 8 * 4096, 122_880
    sparse = kind_weights(mixer, ffn, 4096, 7.0)
    assert sparse == KindWeights(own + router, 8.0 * each, own + router + 2 * 2 * each)
    llama = model_weights(load_model("llama3-8b").spec)
    layer, edge = 218_103_808 + 8192, 128_256 * 4096
    assert (llama.embedding_params, llama.head_params) == (edge, edge + 4096)
    assert llama.head_layers == pytest.approx(edge / layer) and not llama.tied
    assert llama.sequence == (0,) * 32 and llama.mtp_dense_params == 0
    seen = load_model("llama3-8b").spec.model_copy(update={"vision_params": 5, "extra_params": 3})
    assert model_weights(seen).embedding_params == edge + 8
    deep = model_weights(load_model("deepseek-v3").spec)
    assert deep.sequence == (0,) * 3 + (1,) * 58
    mtp = deep.mtp_dense_params + deep.mtp_expert_params
    assert mtp == 11_610_068_224 and deep.mtp_expert_params == 256 * 3 * 7168 * 2048
    head = 129_280 * 7168
    assert deep.head_layers == pytest.approx(1 + 2 * head / deep.kinds[1].balance_params)


# --- schedules -----------------------------------------------------------------------------------


def said(ops):
    return " ".join(f"{op.kind}{op.micro_batch}" for op in ops)


@pytest.mark.parametrize(
    ("schedule", "vpp", "m", "device", "work"),
    [
        ("1f1b", 1, 3, 0, "F0 F1 B0 F2 B1 B2"),
        ("1f1b", 1, 3, 1, "F0 B0 F1 B1 F2 B2"),
        ("gpipe", 1, 2, 1, "F0 F1 B0 B1"),
        ("zb-h1", 1, 3, 0, "F0 F1 B0 W0 F2 B1 W1 B2 W2"),
        ("zb-h1", 1, 3, 1, "F0 B0 F1 B1 W0 F2 B2 W1 W2"),
        ("zb-h2", 1, 4, 0, "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3"),
        ("zb-h2", 1, 4, 1, "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"),
        ("interleaved", 2, 2, 0, "F0 F1 F0 F1 B0 B1 B0 B1"),
        ("interleaved", 2, 2, 1, "F0 F1 F0 B0 F1 B1 B0 B1"),
        ("interleaved", 2, 4, 0, "F0 F1 F0 F1 F2 B0 F3 B1 F2 B0 F3 B1 B2 B3 B2 B3"),
    ],
)
def test_work_of_a_device(schedule, vpp, m, device, work):
    assert said(orders(schedule, 2, vpp, m)[device]) == work


def test_stages_of_passes():
    """Chunks: stage 0 and 2 on the first device, 1 and 3 on the other; DualPipe both ends."""
    first, second = orders("interleaved", 2, 2, 2)
    assert [op.stage for op in first] == [0, 0, 2, 2, 2, 2, 0, 0]
    assert [op.stage for op in second] == [1, 1, 3, 3, 3, 3, 1, 1]
    both = orders("dualpipe", 2, 1, 4)
    assert {op.stage for op in both[0]} == {0, 1} == {op.stage for op in both[1]}
    assert both[0][0] == Pass("F", 0, 0) and both[0][1] == Pass("F", 2, 1)


@pytest.mark.parametrize(("pp", "m"), [(2, 4), (2, 8), (4, 8), (4, 12), (6, 12), (8, 16), (8, 20)])
def test_work_of_dualpipe(pp, m):
    """Every pass once; never more than p + 1 micro-batches held; as long as the paper says.

    DeepSeek-V3, table 2: a bubble of (p/2 - 1) (F&B + B - 3 W), with B = W = F of 1 each two.
    """
    devices = orders("dualpipe", pp, 1, m)
    done = [op for ops in devices for op in ops]
    assert len(done) == len(set(done)) == 3 * m * pp
    assert {op.stage for op in done} == set(range(pp))
    assert {op.micro_batch for op in done} == set(range(m))
    for i, ops in enumerate(devices):
        assert {op.stage for op in ops} == {i, pp - 1 - i}
        held = most = 0
        for op in ops:
            held += {"F": 1, "B": 0, "W": -1}[op.kind]
            most = max(most, held)
        assert most <= pp + 1
    length_s = replay(devices, lambda op: 1.0).length_s
    bound = 3 * m + (pp / 2 - 1) * (3 + 2 - 3)
    assert bound - 2 <= length_s <= bound and (pp > 4 or length_s == bound)
    mirrored = [op._replace(micro_batch=(op.micro_batch + m // 2) % m) for op in devices[0]]
    assert devices[-1] == mirrored  # the last device works as the first, on the other half


def test_weight_gradients_that_wait_for_few_micro_batches():
    assert said(orders("zb-h1", 3, 1, 1)[2]) == "F0 B0 W0"
    assert said(orders("zb-h1", 3, 1, 3)[2]) == "F0 B0 F1 B1 F2 B2 W0 W1 W2"


@pytest.mark.parametrize(
    ("schedule", "stage", "pp", "vpp", "m", "held"),
    [
        ("1f1b", 1, 4, 1, 8, 3.0),
        ("1f1b", 0, 4, 1, 2, 2.0),
        ("interleaved", 0, 4, 2, 8, 5.5),
        ("interleaved", 3, 4, 2, 8, 2.5),
        ("interleaved", 0, 4, 2, 2, 2.0),
        ("1f1b", 0, 4, 2, 8, 5.5),
        ("zb-h1", 2, 4, 1, 8, 4.0),
        ("zb-h1", 2, 4, 1, 3, 3.0),
        ("zb-h2", 0, 4, 1, 8, 7.0),
        ("dualpipe", 0, 4, 1, 8, 5.0),
        ("gpipe", 0, 4, 1, 9, 9.0),
        ("gpipe", 0, 1, 1, 9, 9.0),
        ("zb-h1", 0, 1, 1, 9, 1.0),
    ],
)
def test_micro_batches_held(schedule, stage, pp, vpp, m, held):
    assert in_flight(schedule, stage, pp, vpp, m) == held
    row = schedule_of(schedule, pp, vpp)
    assert row.weight_copies == (2.0 if row.name == "dualpipe" else 1.0)


def test_what_schedules_need():
    for schedule, pp, vpp, m in (
        ("interleaved", 4, 2, 6),
        ("dualpipe", 3, 1, 8),
        ("dualpipe", 4, 1, 9),
        ("dualpipe", 4, 1, 6),
    ):
        with pytest.raises(ValueError, match="needs"):
            orders(schedule, pp, vpp, m)
    with pytest.raises(ValueError, match="at least 2.pp=8 micro-batches"):
        orders("dualpipe", 4, 1, 6)
    assert len(orders("dualpipe", 4, 1, 8)) == 4


# --- context parallelism -------------------------------------------------------------------------


def test_exchanges_of_context_parallelism():
    split = ContextShape(cp=4, tp=2, cp_ranks_in_domain=4, tokens=10.0, hidden_size=6, kv_bytes=8.0)
    ring = (Exchange("gather", 4, 1, 10 * 4 * 8),)
    assert CONTEXT_KINDS["ring"].exchanges(split) == ring
    assert CONTEXT_KINDS["all-gather"].exchanges(split) == ring
    resharded = 10 / 2 * 2 * 6 * 2 + 10 * 8
    assert CONTEXT_KINDS["ulysses"].exchanges(split) == (Exchange("all-to-all", 4, 1, resharded),)
    needs = CONTEXT_KINDS["ulysses"].needs
    assert needs(4, 2, (32,), (8,)) == "" and needs(2, 8, (32,), (16,)) == ""
    assert needs(4, 2, (36,), (8,)) == "Ulysses cp=4 does not divide 36/2 heads"
    assert needs(2, 16, (64,), (8,)) == "Ulysses cp=2 does not divide 8/16 KV heads"
    assert CONTEXT_KINDS["ring"].needs(7, 3, (1,), (1,)) == ""


# --- settings ------------------------------------------------------------------------------------

BARE = replace(
    ANY,
    name="X",
    cuda_graphs=("layer",),
    dispatchers=("deepep",),
    moments=(),
    overlap_ep=False,
    recompute_modules=("moe",),
    offload_activations=False,
)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ""),
        ({"cuda_graphs": "none", "dispatcher": "alltoall", "moments": "fp32"}, ""),
        ({"cuda_graphs": "layer", "dispatcher": "deepep"}, ""),
        ({"cuda_graphs": "full"}, "X has no CUDA graphs `full`: it has layer"),
        ({"dispatcher": "hybridep"}, "X has no dispatcher `hybridep`: it has deepep"),
        ({"moments": "bf16"}, "X has no moments `bf16`: it has none"),
        ({"overlap_ep": True}, "X does not overlap the exchange of the experts"),
        ({"overlap_ep": False}, ""),
        ({"recompute_modules": ("moe",)}, ""),
        ({"recompute_modules": ("mlp",)}, "X does not recompute mlp alone: it names moe"),
        ({"offload_layers": 2}, "X does not offload activations"),
        ({"offload_layers": 0}, ""),
    ],
)
def test_settings_that_a_framework_lacks(settings, said):
    assert JobSettings(**settings).against(BARE) == said
    assert JobSettings(**settings).against(ANY) == ""


@pytest.mark.parametrize(
    ("settings", "pp", "vpp", "ep", "recompute", "word"),
    [
        ({}, 4, 1, 999, "full", ""),
        ({"dispatcher": "deepep"}, 1, 1, 161, "none", "at most 160"),
        ({"dispatcher": "deepep"}, 1, 1, 160, "none", ""),
        ({"overlap_ep": True}, 1, 1, 1, "none", "ep above 1"),
        ({"overlap_ep": True}, 1, 1, 2, "none", ""),
        ({"overlap_ep": True}, 2, 1, 2, "none", "interleaved"),
        ({"overlap_ep": True}, 2, 2, 2, "none", ""),
        ({"overlap_ep": True}, 1, 1, 2, "full", "excludes"),
        ({"overlap_ep": True, "recompute_modules": ("moe",)}, 1, 1, 2, "none", "excludes"),
        ({"overlap_ep": True, "recompute_modules": ("mlp",)}, 1, 1, 2, "none", ""),
        ({"offload_layers": 2}, 1, 1, 1, "none", ""),
        ({"offload_layers": 2}, 2, 1, 1, "none", "neither"),
        ({"offload_layers": 2}, 1, 1, 1, "full", "neither"),
        # Megatron-Core, transformer_config.py: graphs of layers with recomputation, offload
        ({"offload_layers": 2, "cuda_graphs": "full"}, 1, 1, 1, "none", "graphs"),
        ({"cuda_graphs": "layer"}, 1, 1, 1, "full", "exclude full"),
        ({"cuda_graphs": "full"}, 1, 1, 1, "full", ""),
        ({"cuda_graphs": "layer"}, 1, 1, 1, "selective", ""),
        (
            {"cuda_graphs": "layer", "recompute_modules": ("moe",)},
            1,
            1,
            1,
            "selective",
            "exclude recomputing",
        ),
    ],
)
def test_settings_that_a_layout_excludes(settings, pp, vpp, ep, recompute, word):
    said = JobSettings(**settings).refused_by(pp, vpp, ep, recompute)
    assert word in said if word else said == ""


def test_settings_in_words_and_as_options():
    every = JobSettings(
        "full",
        "hybridep",
        True,
        "2025",
        ("moe", "mlp"),
        3,
        "fp8",
        "fp32",
        "sgd",
        "flash1",
        "fused",
        False,
    )
    assert every.words == (
        "CUDA graphs of the iteration",
        "HybridEP",
        "expert exchange overlapped",
        "expert kernels 2025",
        "selective means moe, mlp",
        "activations of 3 layers on the host",
        "moments in fp8",
        "gradients in fp32",
        "recipe sgd",
        "flash1 attention",
        "fused loss",
        "weights in 16 bits too",
    )
    assert JobSettings(cuda_graphs="none", overlap_ep=False).words == ()
    assert every.options == {
        "cuda_graphs": "full",
        "deduplicated_all_to_all": True,
        "rdma_dispatch": True,
        "overlap_ep": True,
        "moe_kernels": "2025",
        "recompute_modules": ("moe", "mlp"),
        "offload_layers": 3,
        "moment_bytes": 2.0,
        "gradient_bytes": 4.0,
        "recipe": "sgd",
        "attention": "flash",
        "flash_generation": "1",
        "loss": "fused",
        "fused_cross_entropy": True,
        "low_precision_gather": False,
    }
    assert JobSettings(offload_layers=0).said == {"offload_layers": 0} and JobSettings().said == {}


# --- formats -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "element", "edge", "narrow", "scaled"),
    [
        ("fp32", 4.0, 4.0, False, False),
        ("tf32", 4.0, 4.0, False, False),
        ("bf16", 2.0, 2.0, False, False),
        ("fp8", 1.0, 2.0, True, False),
        ("mxfp8", 33 / 32, 2.0, True, True),
        ("nvfp4", 4.5 / 8, 2.0, True, True),
        ("mxfp4", 4.25 / 8, 2.0, True, True),
    ],
)
def test_bytes_of_formats(dtype, element, edge, narrow, scaled):
    assert element_bytes(dtype) == element and edge_bytes(dtype) == edge
    assert is_narrow(dtype) is narrow and number_format(dtype).block_scaled is scaled
    assert weight_bytes(8.0, dtype) == FORMATS[dtype].bits
    with pytest.raises(ValueError, match="abacus"):
        number_format("abacus")


@pytest.mark.parametrize(
    ("x", "w", "used"),
    [
        ("bf16", "bf16", "bf16"),
        ("fp8", "fp8", "fp8"),
        ("bf16", "fp8", "bf16"),
        ("fp8", "bf16", "bf16"),
        ("bf16", "int4", "bf16"),
        ("fp32", "bf16", "fp32"),
    ],
)
def test_format_of_a_product(x, w, used):
    assert compute_dtype(x, w) == used


# --- quantities ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dim", "value"),
    [
        ("80 GiB", "bytes", 80 * 2**30),
        ("80GB", "bytes", 80e9),
        ("400 Gb/s", "bytes_per_s", 50e9),
        ("400 GB/s", "bytes_per_s", 400e9),
        ("8 bit/s", "bytes_per_s", 1.0),
        ("1.5 TFLOPs", "flop", 1.5e12),
        ("1 PFLOP/s", "flop_per_s", 1e15),
        ("2 TOPS", "flop_per_s", 2e12),
        ("30d", "s", 30 * 86400),
        ("1.5 us", "s", 1.5e-6),
        ("1w", "s", 7 * 86400),
        ("2 h", "s", 7200),
        ("1y", "s", 365.25 * 86400),
        ("3 min", "s", 180),
        ("15T", "tokens", 15e12),
        ("2B tokens", "tokens", 2e9),
        ("1_000", "count", 1000),
        (".5", "frac", 0.5),
        ("40%", "frac", 0.4),
        ("5 kWh", "j", 1.8e7),
        ("1 MWh", "j", 3.6e9),
        ("2.5 USD/h", "usd_per_hour", 2.5),
        ("5MUSD", "usd", 5e6),
        ("$5", "usd", 5.0),
        ("-1e3", "bytes", -1000.0),
        ("1e30", "count", 1e30),
        ("1" + " " * 199, "count", 1.0),
    ],
)
def test_text_with_a_unit(text, dim, value):
    assert parse(text, dim) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "dim", "word"),
    [
        ("many", "bytes", "is not a number"),
        ("80 Gb", "bytes", "is not known here"),
        ("£5", "usd", "is not a number|after the number"),
        ("1e31", "count", "out of range"),
        ("1e999", "count", "out of range"),
        ("x" * 50, "count", "xxx..."),
        ("1 GB" + " " * 200 + "x", "bytes", "is not a number"),  # its end was not read
        ("1" + " " * 200, "count", "is not a number"),
        ("5 " + "y" * 50, "count", "'yyyyyyyyyyyyyyyyyyyy' in '5 y"),
    ],
)
def test_text_that_is_no_quantity(text, dim, word):
    with pytest.raises(ValueError, match=word):
        parse(text, dim)
    assert MAX_ABS == 1e30


@pytest.mark.parametrize(
    ("value", "dim", "text"),
    [
        (85899345920.0, "bytes", "85.90 GB"),
        (0.0, "bytes", "0 B"),
        (999.96e6, "bytes", "1.000 GB"),
        (1234.0, "flop", "1.234 kFLOP"),
        (989.4e12, "flop_per_s", "989.4 TFLOP/s"),
        (-2e9, "bytes", "-2.000 GB"),
        (0.5, "w", "0.5000 W"),
        (0.0005, "w", "0.0005 W"),
        (1e-9, "usd", "1e-09 USD"),
        (5e21, "flop", "5000 EFLOP"),
        (1e34, "flop", "1.000e+16 EFLOP"),
        (2.5, "usd_per_hour", "2.500 USD/h"),
        (0.1234, "frac", "12.3 %"),
        (0.0, "s", "0 s"),
        (1.5e-9, "s", "1.500 ns"),
        (1.111e-3, "s", "1.111 ms"),
        (0.99996e-3, "s", "1.000 ms"),
        (0.5, "s", "500.0 ms"),
        (599.0, "s", "599.0 s"),
        (600.0, "s", "10.00 min"),
        (7200.0, "s", "2.000 h"),
        (172800.0, "s", "2.000 days"),
        (-3.0, "s", "-3.000 s"),
        (1234.0, "count", "1,234"),
        (1234.5, "count", "1234"),
        (2.5, "count", "2.500"),
        (999_999.0, "count", "999,999"),
        (1e6, "count", "1.000M"),
        (2.5e9, "tokens", "2.500B"),
        (15e12, "tokens", "15.00T"),
    ],
)
def test_quantities_in_words(value, dim, text):
    assert format_si(value, dim) == text
    assert format_time(1.0, 2) == "1.0 s" and format_count(-2e6) == "-2.000M"


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("hbm_bytes", "bytes"),
        ("egress_bytes_per_s", "bytes_per_s"),
        ("step_s", "s"),
        ("s", "s"),
        ("tokens_per_s", ""),
        ("usd_per_hour", "usd_per_hour"),
        ("mfu", ""),
        ("tokens", "tokens"),
        ("tokens_per_usd", ""),
    ],
)
def test_dimension_of_a_name(name, dim):
    assert dimension_of(name) == dim


def test_words_of_keys_and_gigabytes():
    assert key_words("expected.time_s") == "expected time"
    assert key_words("gpu.hbm_bytes_per_s") == "GPU HBM bandwidth"
    assert key_words("layout.tp") == "TP" and key_words("mfu") == "MFU"
    assert key_words("bubble_frac") == "bubble" and key_words("seq-len") == "sequence length"
    assert key_words("draw_w") == "draw power" and key_words("n_gpus") == "n GPUS"
    assert [gb(x) for x in (9.99e9, 9.996e9, 84.95e9, -12e9, 0.0, -0.004e9)] == [
        "9.99 GB",
        "10.0 GB",
        "85.0 GB",
        "-12.0 GB",
        "0.00 GB",
        "0.00 GB",
    ]


def test_terms_find_their_inputs():
    given = SimpleNamespace(step_s=2.0, tokens=9.0)
    found = term_of("rate", "", "tokens / step_s + max(tokens, 1)", "book", given, tokens=8, rate=4)
    assert found == Term(
        "rate", 4.0, "", "tokens / step_s + max(tokens, 1)", {"tokens": 8.0, "step_s": 2.0}, "book"
    )
    total = total_of("sum", 3.0, "s", {"a": 1.0, "b": 2.0}, "book")
    assert (total.formula, total.inputs) == ("a + b", {"a": 1.0, "b": 2.0})
