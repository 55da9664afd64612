"""Memory held by hand on a toy model: 2 dense and 2 expert layers, 8 wide, each figure its own."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import (
    ActivationSplit,
    LayerFacts,
    ModelFacts,
    StageMemory,
    layer_bytes,
    layer_facts,
    model_facts,
)
from gpuscale.core.memory.fit import (
    _layouts,
    _widest_ep,
    fewest_gpus,
    gpu_counts,
    stage_terms,
    usable_bytes,
    usable_term,
    why,
)
from gpuscale.core.memory.parameters import (
    IDEAL,
    RECIPES,
    check_zero,
    gpus_to_hold,
    nodes_to_hold,
    parameters_of,
    sharded_states,
)
from gpuscale.core.memory.peak import (
    KindActivations,
    StateBlock,
    held_params,
    kept_bytes,
    kept_share,
    layer_activations,
    layout_activations,
    one_stage,
    passing_bytes,
    peak_stage,
    printed_bytes,
    shards,
    stage_memories,
    state_block,
    state_rules,
)
from gpuscale.core.model.mixers.kind import CacheShape, Kept
from gpuscale.core.model.mixers.recurrent import NoMixer
from gpuscale.core.model.params import KindWeights, ModelWeights
from gpuscale.core.rules import facts_of
from gpuscale.core.serving.memory import (
    EngineMemory,
    activation_bytes,
    cache_bytes_per_sequence,
    cache_room,
    replica_weight_bytes,
    routed_params,
    serving_terms,
)
from gpuscale.core.serving.records import Drafts, Replica
from gpuscale.core.serving.replica import (
    FewestServing,
    ServingJob,
    fewest_serving,
    model_weight_bytes,
    replica_memory,
    replica_of,
    serving_memory,
)
from gpuscale.core.stages import StageParams
from gpuscale.core.verdict import Spread
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software
from gpuscale.specs.model import DenseFfn, ModelSpec, MoeFfn, NoFfn

MIXER = Kept(latent=4.0, split=10.0, up_projected=3.0, score_heads=2.0)
DENSE = LayerFacts(2, MIXER, 12.0, 1, 0.0, 0.0, 0.0, saved_split=7.0, saved_width=8.0)
SPARSE = LayerFacts(2, MIXER, 0.0, 8, 2.0, 16.0, 6.0, saved_split=5.0)
WEIGHTS = ModelWeights(
    kinds=(KindWeights(100.0, 0.0, 100.0), KindWeights(60.0, 400.0, 260.0)),
    names=(("a", "d"), ("a", "e")),
    sequence=(0, 0, 1, 1),
    embedding_params=50.0,
    head_params=30.0,
    tied=False,
    mtp_dense_params=0.0,
    mtp_expert_params=0.0,
    head_layers=0.0,
)
TOY = ModelFacts(8, 1000, WEIGHTS, (DENSE, SPARSE), 0)
LLAMA = load_model("llama3-8b").spec
QWEN = load_model("qwen3-30b-a3b").spec
DEEPSEEK = load_model("deepseek-v3").spec


def close(value, want):
    return value == pytest.approx(want, rel=1e-9, abs=1e-12)


# --- one layer -----------------------------------------------------------------------------------

P = replace(
    IDEAL,
    hidden_bytes=8.0,
    attention_bytes=2.0,
    ffn_bytes=3.0,
    scores_bytes=5.0,
    expert_hidden_bytes=2.0,
)
NORMS, LATENT, CORE, FFN = 8.0 * 8, 2.0 * 4, 2.0 * 10, 3.0 * 12
EXPERTS = 2 * (2.0 * 16 + 3.0 * 6)  # two copies of a token
PLAIN = NORMS + LATENT + CORE
SCORES = 5.0 * 2 * 7


@pytest.mark.parametrize(
    ("layer", "changed", "per_token"),
    [
        (DENSE, {}, PLAIN + FFN),
        (SPARSE, {}, PLAIN + EXPERTS),
        (DENSE, {"tp": 2}, NORMS + LATENT + (CORE + FFN) / 2),
        (DENSE, {"tp": 2, "sequence_parallel": True}, (PLAIN + FFN) / 2),
        (SPARSE, {"tp": 2, "sequence_parallel": True}, (PLAIN + EXPERTS) / 2),
        (DENSE, {"sequence_parallel": True}, PLAIN + FFN),
        (DENSE, {"recompute": "full"}, 2.0 * 8),
        (DENSE, {"recompute": "full", "tp": 2}, 2.0 * 8),
        (DENSE, {"recompute": "full", "tp": 2, "sequence_parallel": True}, 8.0),
        # input of 8 elements and what the policy saves, two bytes each
        (DENSE, {"recompute": "per-op"}, 2 * (8 + 7 + 8)),
        (DENSE, {"recompute": "per-op", "tp": 2}, 2 * (8 + 7 / 2 + 8)),
        (
            DENSE,
            {"recompute": "per-op", "tp": 2, "sequence_parallel": True},
            2 * (8 / 2 + 7 / 2 + 8),
        ),
        (SPARSE, {"recompute": "per-op"}, 2 * (8 + 5)),
        # and two copies of 16 elements, there and back
        (SPARSE, {"recompute": "per-op", "exchanged": True}, 2 * (8 + 5 + 2 * 2 * 16)),
        (
            SPARSE,
            {"recompute": "per-op", "exchanged": True, "tp": 2, "expert_imbalance": 1.5},
            2 * (8 + (5 + 2 * 1.5 * 2 * 16) / 2),
        ),
        (DENSE, {"unfused_attention": True}, PLAIN + FFN + SCORES),
        (DENSE, {"unfused_attention": True, "tp": 2}, NORMS + LATENT + (CORE + FFN + SCORES) / 2),
        (DENSE, {"unfused_attention": True, "recompute": "selective"}, PLAIN + FFN),
        (DENSE, {"recompute": "selective"}, PLAIN + FFN),
        (DENSE, {"recompute_modules": ("mlp",)}, PLAIN + FFN),
        (DENSE, {"recompute": "selective", "recompute_modules": ("mlp",)}, PLAIN),
        (DENSE, {"recompute": "selective", "recompute_modules": ("moe",)}, PLAIN + FFN),
        (DENSE, {"recompute": "selective", "recompute_modules": ("mlp_act",)}, PLAIN + FFN * 2 / 3),
        (
            DENSE,
            {"recompute": "selective", "recompute_modules": ("layernorm",)},
            PLAIN + FFN - 2 * 2 * 8,
        ),
        (
            DENSE,
            {"recompute": "selective", "recompute_modules": ("mla_up_proj",)},
            PLAIN + FFN - 2 * 3,
        ),
        (SPARSE, {"recompute": "selective", "recompute_modules": ("moe",)}, PLAIN),
        (SPARSE, {"recompute": "selective", "recompute_modules": ("mlp",)}, PLAIN + EXPERTS),
        (
            SPARSE,
            {"recompute": "selective", "recompute_modules": ("moe_act",)},
            PLAIN + EXPERTS - 2 * 6,
        ),
        (SPARSE, {"etp": 2}, PLAIN + EXPERTS + 2 * 2.0 * 16),
        (SPARSE, {"expert_imbalance": 1.5}, PLAIN + 1.5 * EXPERTS),
        # a byte less for each norm's output, for a third of the FFN's elements, an expert's input
        (DENSE, {"eight_bit": True}, PLAIN - 2 * 8 + FFN * 5 / 6),
        (SPARSE, {"eight_bit": True}, PLAIN - 2 * 8 + 2 * (16 + 3.0 * 6 * 5 / 6)),
        (
            DENSE,
            {"eight_bit": True, "recompute": "selective", "recompute_modules": ("layernorm",)},
            PLAIN - 2 * 8 - 2 * 8 + FFN * 5 / 6,
        ),
    ],
)
def test_what_a_layer_keeps(layer, changed, per_token):
    own = {k: v for k, v in changed.items() if k not in ActivationSplit._fields}
    split = ActivationSplit(5.0, 7.0, **{k: v for k, v in changed.items() if k not in own})
    assert close(layer_bytes(layer, 8, replace(P, **own), split), 5 * per_token)


def test_scores_of_all_keys_and_norms_of_few_bytes():
    unfused = replace(P, unfused_attention=True)
    kept = layer_bytes(DENSE, 8, unfused, ActivationSplit(1.0, 7.0))
    assert close(kept, PLAIN + FFN + 5.0 * 2 * 7)
    lean = replace(P, hidden_bytes=2.0, recompute_modules=("layernorm",))
    left = layer_bytes(DENSE, 8, lean, ActivationSplit(1.0, 7.0, recompute="selective"))
    assert close(left, LATENT + CORE + FFN)  # a norm gives back no more than it keeps


@pytest.mark.parametrize(
    ("ffn", "want", "saved"),  # saved: of the FFN, beside q, v and the output of attention
    [
        (DenseFfn(ffn_hidden_size=20), (2, 60.0, 1, 0.0, 0.0, 0.0), (20, 32)),  # gate, down
        (DenseFfn(ffn_hidden_size=20, gated=False), (2, 40.0, 1, 0.0, 0.0, 0.0), (20, 0)),  # up
        (NoFfn(), (1, 0.0, 1, 0.0, 0.0, 0.0), (0, 0)),
        (
            MoeFfn(n_experts=8, top_k=2, expert_ffn_hidden_size=5, shared_ffn_hidden_size=7),
            (2, 21.0, 8, 2.0, 32.0, 15.0),
            (7, 32),  # of the shared expert alone
        ),
        (
            MoeFfn(
                n_experts=8,
                top_k=2,
                expert_ffn_hidden_size=5,
                gated=False,
                latent_size=16,
                shared_ffn_hidden_size=3,
                dense_ffn_hidden_size=7,
            ),
            (2, 20.0, 8, 2.0, 16.0, 10.0),
            (3 + 7, 0),
        ),
    ],
)
def test_elements_of_a_layer(ffn, want, saved):
    mixer = LLAMA.layer_groups[0].mixer
    found = layer_facts(mixer, ffn, 32)
    rest = (found.ffn, found.n_experts, found.top_k, found.expert_width, found.expert_ffn)
    assert (found.n_sublayers, *rest) == want and found.mixer == mixer.kept()
    attention = 4096 + 1024 + 4096
    assert (found.saved_split, found.saved_width) == (attention + saved[0], saved[1])
    bare = layer_facts(NoMixer(), ffn, 32)
    assert bare.n_sublayers == want[0] - 1 and bare.saved_split == saved[0]


# --- parameters ----------------------------------------------------------------------------------


def test_parameters_of_a_job():
    megatron = load_software("megatron-core")
    family = parameters_of(megatron)
    assert family.gradients_bytes == megatron.memory.gradients_bytes == 4.0
    assert family.recompute_modules == ("core_attn",) and family.offloaded_layers == 0
    assert parameters_of(megatron, {"gradient_bytes": 2.0}).gradients_bytes == 2.0
    assert parameters_of(megatron, {"gradient_bytes": 4}).gradients_bytes == 4.0
    wide = parameters_of(load_software("torchtitan"), {"gradient_bytes": 4})
    assert wide.gradients_bytes == 4.0
    assert parameters_of(megatron, {"moment_bytes": 4}).optimizer_bytes == 4.0
    assert parameters_of(megatron, {"attention": "unfused"}).unfused_attention
    assert not family.unfused_attention
    stored = load_software("megatron-deepspeed")  # 2 of the gradient beside 4 of its sum
    assert parameters_of(stored, {"gradient_bytes": 4}).gradients_bytes == 6.0
    job = {"loss": "chunked", "offload_layers": 3, "expert_imbalance": 1.5, "recipe": "bf16-adam"}
    found = parameters_of(megatron, job | {"recompute_modules": ["moe"]})
    assert (found.loss, found.offloaded_layers, found.expert_imbalance) == ("chunked", 3, 1.5)
    assert found.recompute_modules == ("moe",)
    states = (found.weights_bytes, found.gradients_bytes, found.master_bytes, found.optimizer_bytes)
    assert states == (2, 2, 0, 4) and found.sharded_weights_bytes == 2
    assert found.gradients_bytes_fp16 == 2 and found.step_bytes == 0.0


@pytest.mark.parametrize(
    ("precision", "architecture", "narrow"),
    [
        ("bf16", "hopper", None),
        ("fp8", "hopper", 2.0),  # products read rows alone: a transposed copy beside
        ("fp8", "blackwell", 1.0),  # and here any layout
        ("mxfp8", "blackwell", 2 * 33 / 32),  # rows and columns, 8-bit scales of 32
        ("nvfp4", "blackwell-ultra", 2 * 4.5 / 8),  # 8-bit scales of 16
    ],
)
def test_weights_in_narrow_formats(precision, architecture, narrow):
    """Transformer Engine: quantised weights alone, or cached beside those of 16 bits."""
    facts = model_facts(load_model("llama3-8b").spec)
    for kept, wide in ((True, 0.0), (False, 2.0)):
        p = parameters_of(
            load_software("megatron-core"), {"low_precision_gather": kept}, architecture
        )
        lay = Layout(8192, 8, dp=8, zero_stage=1, precision=precision)
        held = stage_memories(facts, lay, p)[0].weights_bytes
        edges = 2 * 128256 * 4096.0  # embedding and head stay in 16 bits
        linears = facts.weights.kinds[0].dense_params * 32
        want = 2.0 * linears if narrow is None else (wide + narrow) * linears
        assert held - 2.0 * edges == pytest.approx(want, rel=1e-3)


def test_pages_of_experts_in_a_graph_of_the_iteration():
    whole = parameters_of(load_software("megatron-bridge"), {"cuda_graphs": "full"})
    assert whole.expert_imbalance == 1.2  # moe_paged_stash_buffer_size_factor_cuda
    layers = parameters_of(load_software("megatron-bridge"), {"cuda_graphs": "layer"})
    assert layers.expert_imbalance == 1.0


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({}, 1 / 48),  # a layer's forward pass beside another one's backward pass
        ({"pp": 4, "vpp": 2}, 1 / 2),  # Megatron-Core: num_warmup_microbatches + 1
        ({"pp": 4, "vpp": 2, "global_batch_size": 8}, 0.0),  # no more than there are
    ],
)
def test_hidden_exchange_of_experts_holds_a_chunk_more(changed, more):
    layout = replace(Layout(4096, 256, dp=2, ep=2, zero_stage=1), **changed)
    facts, plain = model_facts(QWEN), parameters_of(load_software("megatron-core"))
    held = [
        stage_memories(facts, layout, p)[0].in_flight_micro_batches
        for p in (plain, parameters_of(load_software("megatron-core"), {"overlap_ep": True}))
    ]
    assert held[1] - held[0] == pytest.approx(more)


@pytest.mark.parametrize(
    ("changed", "frac"), [({}, 1.0), ({"loss": "chunked"}, 0.125), ({"loss": "fused"}, 0.0)]
)
def test_logits_held_by_the_loss(changed, frac):
    assert replace(IDEAL, **changed).held_logits_frac == frac
    assert replace(IDEAL, **changed, fused_linear_ce=True).held_logits_frac == 0.0


# --- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        ({}, (16, 16)),
        ({"tp": 2}, (16, 32)),
        ({"tp": 2, "ep": 4}, (16, 8)),
        ({"tp": 2, "ep": 4, "etp": 2}, (16, 4)),
        ({"shard_group_size": 4}, (4, 4)),
        ({"shard_group_size": 64}, (16, 16)),
        ({"shard_group_size": 4, "ep": 2}, (4, 2)),
        ({"shard_group_size": 4, "ep": 8}, (4, 1)),
        ({"ep": 64}, (16, 1)),
    ],
)
def test_ranks_that_share_states(changed, want):
    assert shards(Layout(64, 64, dp=8, cp=2, **changed)) == want


STATES = replace(
    IDEAL,
    weights_bytes=2.0,
    gradients_bytes=4.0,
    gradients_bytes_fp16=3.0,
    master_bytes=5.0,
    optimizer_bytes=8.0,
    step_bytes=0.5,
    sharded_weights_bytes=6.0,
)


@pytest.mark.parametrize(
    ("changed", "weights", "gradients", "master", "optimizer"),
    [
        ({"zero_stage": 0}, (2, False), (4, False), (5, False), (8, False)),
        ({"zero_stage": 1}, (2, False), (4, False), (5, True), (8.5, True)),
        ({"zero_stage": 2}, (2, False), (4, True), (5, True), (8.5, True)),
        ({"zero_stage": 2, "pp": 2}, (2, False), (4, False), (5, True), (8.5, True)),
        ({"zero_stage": 3}, (6, True), (4, True), (0, True), (8.5, True)),
        ({"zero_stage": 3, "pp": 2}, (6, True), (4, True), (0, True), (8.5, True)),
        ({"zero_stage": 1, "precision": "fp16"}, (2, False), (3, False), (5, True), (8.5, True)),
        (
            {"zero_stage": 1, "offload_optimizer": True},
            (2, False),
            (4, False),
            (0, True),
            (0, True),
        ),
    ],
)
def test_bytes_of_states(changed, weights, gradients, master, optimizer):
    found = state_rules(Layout(64, 64, **changed), STATES)
    assert tuple(found.values()) == (weights, gradients, master, optimizer)
    narrow = replace(STATES, sharded_weights_bytes=2.0)
    if changed == {"zero_stage": 3}:  # shards in 16 bits have their master beside them
        assert state_rules(Layout(64, 64, **changed), narrow)["master_bytes"] == (5, True)


STAGE = StageParams(120.0, 80.0, 20.0, 30.0, ((0, 3), (1, 1)), 4, True, 12.0)


def test_states_of_a_stage():
    """120 dense over 4, 80 of experts over 2; ZeRO-3 gathers 2 layers of 30; an edge of 12."""
    p = replace(STATES, unsharded_layers=2.0)

    def block(**changed):
        return state_block(STAGE, Layout(64, 64, **changed), p, 4, 2)

    assert block(zero_stage=1) == StateBlock(400, 800, 5 * 70, 8.5 * 70, 0.0, 0.0)
    at_loss, at_layer = 6 * 12 + 2 * 30, 6 * 2 * 30 + 4 * 12  # weights of 2 bytes, gradients of 4
    assert block(zero_stage=3) == StateBlock(420, 280, 0, 595, at_loss, at_layer)
    whole = block(zero_stage=3, pp=2)
    assert (whole.unsharded_loss_bytes, whole.unsharded_layer_bytes) == (6 * 200, 6 * 200)
    assert block(zero_stage=3, schedule="dualpipe", pp=2).unsharded_layer_bytes == 6 * 400
    many = state_block(STAGE, Layout(64, 64, zero_stage=3), replace(p, unsharded_layers=99), 4, 2)
    assert many.unsharded_layer_bytes == 6 * 200 + 4 * 12
    alone = state_block(STAGE, Layout(64, 64, zero_stage=3), p, 1, 1)
    assert alone.unsharded_loss_bytes == alone.unsharded_layer_bytes == 0.0
    assert block(zero_stage=1, schedule="dualpipe", pp=4).weights_bytes == 800
    assert held_params(STAGE, Layout(64, 64, schedule="dualpipe", pp=4)) == (240.0, 160.0)


@pytest.mark.parametrize(
    ("zero", "want"), [(0, (2, 2, 4, 8)), (1, (2, 2, 1, 2)), (2, (2, 0.5, 1, 2)), (3, (0.5,) * 2)]
)
def test_states_by_the_paper(zero, want):
    found = sharded_states(100, RECIPES["mixed-adam"], zero, 4)
    parts = (found.weights_bytes, found.gradients_bytes, found.master_bytes, found.optimizer_bytes)
    want = (0.5, 0.5, 1, 2) if zero == 3 else want
    assert parts == tuple(100 * w for w in want)
    assert found.total_bytes == 100 * sum(want)
    assert sharded_states(100, RECIPES["mixed-adam"], zero).total_bytes == 1600


def test_what_states_refuse():
    for zero, n in ((4, 1), (-1, 1), (0, 0)):
        with pytest.raises(ValueError):
            check_zero(zero, n)
    check_zero(3, 1)
    for call in (lambda: gpus_to_hold(1.0, 0.0), lambda: nodes_to_hold(1, 0)):
        with pytest.raises(ValueError):
            call()
    assert gpus_to_hold(1.0, 1.0) == gpus_to_hold(0.0, 1.0) == 1 and gpus_to_hold(1.1, 1.0) == 2
    assert nodes_to_hold(3, 1) == 3 and nodes_to_hold(8, 8) == 1 and nodes_to_hold(17, 8) == 3
    assert RECIPES["mixed-adam"].k_bytes == 12 and RECIPES["fp32-adam"].bytes_per_param == 16


# --- a stage -------------------------------------------------------------------------------------

ACTS = (KindActivations(10.0, 25.0), KindActivations(40.0, 70.0))


@pytest.mark.parametrize(
    ("changed", "offloaded", "share", "kept"),
    [
        ({}, 0, (1.0, 1.0), 70.0),
        ({"recompute": "full"}, 0, (1.0, 1.0), 70.0),
        ({"recompute": "full", "recompute_layers": 1}, 0, (0.25, 1.0), 70 / 4 + 145 * 3 / 4),
        ({"recompute_layers": 1}, 0, (1.0, 1.0), 70.0),
        ({"recompute": "full", "recompute_layers": 9}, 0, (1.0, 1.0), 70.0),
        ({}, 1, (1.0, 0.75), 52.5),
        ({}, 9, (1.0, 0.0), 0.0),
        ({"offload_activations": True}, 0, (1.0, 0.25), 17.5),
    ],
)
def test_what_a_stage_keeps(changed, offloaded, share, kept):
    layout = Layout(64, 64, **changed)
    assert kept_share(STAGE, layout, offloaded) == share
    assert close(kept_bytes(STAGE, ACTS, layout, offloaded), kept)
    empty = StageParams(30.0, 0.0, 30.0, 0.0, (), 0, True, 30.0)
    assert kept_bytes(empty, ACTS, layout, offloaded) == 0.0


@pytest.mark.parametrize(
    ("changed", "passing"),
    [
        ({}, 11.0),
        ({"tp": 2}, 11 + 3 * 2048),
        ({"tp": 2, "sequence_parallel": False}, 11.0),
        ({"pp": 2}, 11 + 2 * 2048),
        ({"pp": 2, "tp": 2}, 11 + 3 * 2048 + 2 * 1024),
        ({"pp": 2, "tp": 2, "sequence_parallel": False}, 11 + 2 * 2048),
    ],
)
def test_buffers_of_a_backward_pass(changed, passing):
    """An activation between layers: 2 bytes, 8 wide, 2 sequences of 256 over 4 ranks."""
    p = replace(IDEAL, gathered_tensors=3.0, workspace_bytes=11.0)
    assert passing_bytes(TOY, Layout(256, 64, 2, cp=4, **changed), p) == passing


def stage_of(p=IDEAL, model=TOY, stage=STAGE, i=0, **changed):
    layout = Layout(**{"seq_len": 6, "global_batch_size": 4, "zero_stage": 0} | changed)
    return one_stage(model, stage, i, layout, p, ACTS)


def test_parts_of_a_stage():
    """200 parameters, 70 bytes kept, 6 tokens of 1,000 logits."""
    found = stage_of(replace(STATES, logits_bytes=7.0))
    states = (found.weights_bytes, found.gradients_bytes, found.master_bytes, found.optimizer_bytes)
    assert states == (400, 800, 1000, 1600) and found.states_bytes == 3800
    assert (found.activations_bytes, found.logits_bytes) == (70.0, 42e3)
    assert (found.params, found.n_layers, found.in_flight_micro_batches) == (200.0, 4, 1.0)
    assert (found.stage, found.working_bytes, found.fragmentation_bytes) == (0, 0.0, 0.0)
    assert found.total_bytes == 3800 + 70 + 42e3
    split = stage_of(tp=2, cp=2, micro_batch_size=4)
    assert split.logits_bytes == IDEAL.logits_bytes * 4 * 3 * 1000 / 2
    assert stage_of(replace(IDEAL, fused_cross_entropy=True)).logits_bytes == 4 * 6e3
    whole = replace(IDEAL, whole_logits_bytes=3.0, loss="chunked")
    assert stage_of(whole, tp=2).logits_bytes == (6 * 3e3 + 3 * 6e3) / 8
    assert stage_of(whole).logits_bytes == 6 * 6e3 / 8
    assert stage_of(replace(IDEAL, loss="fused")).logits_bytes == 0.0
    headless = replace(STAGE, has_head=False)
    assert stage_of(stage=headless).logits_bytes == 0.0
    flying = stage_of(pp=2, stage=headless)
    assert (flying.in_flight_micro_batches, flying.activations_bytes) == (2.0, 140.0)
    assert stage_of(pp=2, i=1).activations_bytes == 70.0
    more = replace(TOY, n_mtp_layers=2)  # two prediction layers of the last kind, three losses
    found = stage_of(model=more)
    assert found.activations_bytes == 70 + 2 * 40 and found.logits_bytes == 3 * 36e3
    assert stage_of(model=more, stage=headless).activations_bytes == 70.0


def test_what_a_stage_works_in():
    quiet = {"loss": "fused"}
    p = replace(IDEAL, **quiet, live_layers=1.5, head_gradient_bytes=4.0, workspace_bytes=11.0)
    assert stage_of(p).working_bytes == 1.5 * 70 + 4 * 8000 + 11
    assert stage_of(p, recompute="full").working_bytes == 2.5 * 70 + 4 * 8000 + 11
    assert stage_of(p, tp=2, sequence_parallel=False).working_bytes == 105 + 2 * 8000 + 11
    headless = replace(STAGE, has_head=False)
    assert stage_of(p, stage=headless).working_bytes == 105 + 11
    # logits are gone when the backward pass of a layer runs
    loss = replace(IDEAL, live_layers=600.0)
    assert stage_of(loss).working_bytes == 600 * 70 - 36e3
    assert stage_of(replace(IDEAL, live_layers=1.0)).working_bytes == 0.0
    empty = StageParams(30.0, 0.0, 30.0, 0.0, (), 0, True, 30.0)
    assert stage_of(p, stage=empty, recompute="full").working_bytes == 4 * 8000 + 11
    gathered = stage_of(replace(IDEAL, **quiet), zero_stage=3, dp=4)
    assert gathered.working_bytes == 4 * 30 + 2 * 12  # a layer's backward pass, not the loss
    head = stage_of(IDEAL, zero_stage=3, dp=4)
    assert head.working_bytes == 4 * 12 + 2 * 30  # logits outweigh the layer
    around = replace(IDEAL, fragmentation=1.1, context_bytes=500.0)
    found, bare = stage_of(around), stage_of()
    assert close(found.fragmentation_bytes, 0.1 * bare.total_bytes)
    assert close(found.total_bytes, 1.1 * bare.total_bytes + 500)
    assert close(found.kind_bytes("reserved"), 1.1 * bare.total_bytes)
    assert found.kind_bytes("allocated") == bare.total_bytes
    assert found.kind_bytes("nvidia-smi") == found.total_bytes
    with pytest.raises(ValueError, match="must be one of"):
        found.kind_bytes("guessed")


def test_activations_of_a_layout():
    """As the layer's own table, of micro-batch times sequence over the context ranks."""
    layout = Layout(64, 64, 2, cp=4, tp=2, etp=2, recompute="full", precision="fp8")
    p = replace(P, quantised_inputs=True, unfused_attention=True, expert_imbalance=1.5)
    split = ActivationSplit(32.0, 64, 2, sequence_parallel=True, etp=2, eight_bit=True)
    whole = [layer_bytes(k, 8, p, split) for k in TOY.kinds]
    found = layout_activations(TOY, p, layout)
    assert [a.whole_bytes for a in found] == whole
    assert [a.kept_bytes for a in found] == [2 * 8 * 32 / 2] * 2
    wide = layout_activations(TOY, p, replace(layout, precision="bf16"))
    assert wide[0].whole_bytes > found[0].whole_bytes
    plain = replace(p, quantised_inputs=False)
    assert layout_activations(TOY, plain, layout)[0].whole_bytes == wide[0].whole_bytes
    own = replace(P, selective_per_op=True)
    some = layout_activations(TOY, own, replace(layout, recompute="selective"))
    assert some[0].kept_bytes == 2 * (8 / 2 + 7 / 2 + 8) * 32
    far = layout_activations(TOY, own, replace(layout, recompute="selective", ep=2))
    assert far[1].kept_bytes - some[1].kept_bytes == 2 * 2 * 2 * 16 / 2 * 32
    short = layer_activations(TOY, P, ActivationSplit(32.0, 64))
    assert short[0].kept_bytes == short[0].whole_bytes == 32 * (PLAIN + FFN)


def test_stages_of_a_layout():
    """Layers 0 and 1 with the embedding, 2 and 3 with the head."""
    first, last = stage_memories(TOY, Layout(6, 4, pp=2, zero_stage=0), IDEAL)
    assert (first.weights_bytes, last.weights_bytes) == (2 * 250, 2 * (120 + 800 + 30))
    assert (first.logits_bytes, last.logits_bytes) == (0.0, 36e3)
    assert peak_stage((first, last)) is last
    assert peak_stage((last, first), "last") is first
    assert peak_stage((first, last), "first") is first


def test_figures_as_families_print_them():
    layout = Layout(2048, 8, pp=2)
    for name in ("nanotron", "megatron-core"):
        software = load_software(name)
        p = parameters_of(software)
        stages = stage_memories(model_facts(LLAMA), layout, p)
        one = stages[0] if p.printed_stage == "first" else max(stages, key=lambda s: s.total_bytes)
        for kind in ("", "printed"):
            found = printed_bytes(model_facts(LLAMA), layout, parameters_of(software), kind)
            assert found == one.kind_bytes(p.printed_kind)
        assert (
            printed_bytes(model_facts(LLAMA), layout, parameters_of(software), "allocated")
            == one.allocated_bytes
        )


def test_terms_of_a_stage():
    cases = (
        (TOY, {"zero_stage": 1, "dp": 2}),
        (TOY, {"zero_stage": 3, "dp": 4, "recompute": "full", "recompute_layers": 1}),
        (replace(TOY, n_mtp_layers=1), {"pp": 2, "offload_activations": True}),
    )
    for model, changed in cases:
        layout = Layout(6, 8, **changed)
        p = replace(IDEAL, fragmentation=1.1)
        for stage in stage_memories(model, layout, p):
            for term in stage_terms(model, layout, p, stage):
                assert term.value == getattr(stage, term.name)
                assert eval(term.formula, {}, term.inputs) == pytest.approx(term.value)
                prediction = "mtp_layers" in term.inputs
                if term.name == "activations_bytes":
                    assert prediction == bool(model.n_mtp_layers and stage.logits_bytes)


# --- what fits -----------------------------------------------------------------------------------


def test_usable_memory():
    assert close(usable_bytes(100.0), 98.9)
    assert usable_bytes(100.0, 77.0) == 77.0
    told, plain = usable_term(77.0, 100.0, 77.0), usable_term(None, 100.0, 98.9)
    assert (told.formula, told.inputs) == ("", {})
    assert "stated" in told.source and "PyTorch" in plain.source
    assert close(eval(plain.formula, {}, plain.inputs), 98.9) and plain.value == 98.9


def test_numbers_of_gpus_that_are_tried():
    """Parts of a node, sixteen nodes one by one, then by twos to 32, by fours to 64."""
    found = list(gpu_counts(8, 8 * 72))
    nodes = [*range(1, 17), *range(18, 33, 2), *range(36, 65, 4), 72]
    assert found == [1, 2, 4, *(8 * n for n in nodes)]
    assert list(gpu_counts(1, 3)) == [1, 2, 3]
    assert list(gpu_counts(6, 11)) == [1, 2, 4, 6]


@pytest.mark.parametrize(
    ("experts", "ranks", "ep"), [(8, 16, 8), (8, 4, 4), (8, 6, 2), (1, 16, 1), (60, 16, 4)]
)
def test_widest_expert_parallelism(experts, ranks, ep):
    assert _widest_ep(experts, ranks) == ep


def test_layouts_of_a_number_of_gpus():
    """8 ranks of two GPUs each: every legal (tp, pp, dp), the batch kept or grown."""
    facts = model_facts(LLAMA)
    rules = facts_of(LLAMA, 64, 12, 16)
    layout = Layout(64, 12, 1, cp=2)
    found = {(x.tp, x.pp, x.dp) for x in _layouts(facts, layout, rules, 16, 4, False)}
    every = {(t, p, 8 // t // p) for t in (1, 2, 4) for p in (1, 2, 4, 8) if 8 % (t * p) == 0}
    legal = {(t, p, d) for t, p, d in every if d > 0 and 12 % d == 0}
    assert found == legal
    assert legal > {(1, 8, 1), (4, 2, 1), (4, 1, 2)} and (1, 1, 8) not in legal
    grown = {(x.pp, x.dp, x.global_batch_size) for x in _layouts(facts, layout, rules, 16, 4, True)}
    assert {(1, 8, 16), (2, 4, 12), (8, 1, 12)} <= grown
    one = Layout(64, 1, 2, cp=2)
    assert all(
        x.global_batch_size == x.dp * 2 * x.pp
        for x in _layouts(facts, one, facts_of(LLAMA, 64, 1, 16), 16, 4, True)
    )
    for x in _layouts(facts, replace(layout, vpp=2, schedule="zb-h1"), rules, 16, 4, False):
        assert (x.vpp, x.schedule, x.etp, x.shard_group_size) == (1, "1f1b", 1, None)
        assert x.sequence_parallel is (x.tp > 1)
    kept = [
        x.schedule
        for x in _layouts(facts, replace(layout, schedule="zb-h1"), rules, 16, 4, False)
        if x.pp > 1
    ]
    assert kept and set(kept) == {"zb-h1"}


def fewest(room, grow=True, per_node=8, batch=8, **changed):
    layout = Layout(64, batch, **changed)
    rules = facts_of(LLAMA, 64, batch, 1)
    kept = {"room_bytes": room, "gpus_per_node": per_node, "grow_batch": grow}
    return fewest_gpus(model_facts(LLAMA), IDEAL, layout, rules, **kept)


def test_fewest_gpus_hold_the_states():
    """16 bytes of 8.03 billion parameters: 128.5 GB and a little, halved by two GPUs."""
    one, two, four = (fewest(room * 1e9) for room in (140, 75, 40))
    assert (one.n_gpus, two.n_gpus, four.n_gpus) == (1, 2, 4)
    assert (one.n_nodes, four.tp * four.pp * four.dp) == (1, 4)
    assert 128.48e9 < one.total_bytes < 129.5e9
    assert four.total_bytes <= 40e9 < two.total_bytes <= 75e9
    many = fewest(6.1e9)  # 11 layers and an edge over 8 ranks are 5.9 GB
    assert (many.n_gpus, many.n_nodes) == (24, 3)
    assert fewest(1e6) is None


def test_more_gpus_without_a_larger_batch_stop_helping():
    assert fewest(40e9, grow=False).n_gpus == 4
    assert fewest(1e8, grow=False, batch=1) is None


@pytest.mark.parametrize(
    ("stage", "n", "words"),
    [
        (0, 1, "one stage"),
        (0, 2, "4 layers, 2.5 micro-batches held, input embedding"),
        (1, 3, "4 layers, 2.5 micro-batches held"),
        (2, 3, "4 layers, 2.5 micro-batches held, head and logits"),
    ],
)
def test_why_a_stage_is_the_fullest(stage, n, words):
    memory = StageMemory(stage, 4, 0.0, 2.5, *[0.0] * 9)
    assert why(memory, n) == words


# --- serving -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kv", "concurrency", "usable", "most", "tokens", "fits"),
    [
        (2.0, 5, 30.0, 6, 60.0, True),
        (2.0, 6, 30.0, 6, 60.0, True),
        (2.0, 7, 30.0, 6, 60.0, False),
        (2.0, 0, 17.0, 0, 0.0, False),
        (2.0, 0, 18.0, 0, 0.0, True),
        (0.0, 5, 30.0, 5, 0.0, True),
        (2e-13, 5, 30.0, 1e12, 6e14, True),
    ],
)
def test_sequences_beside_the_weights(kv, concurrency, usable, most, tokens, fits):
    """10 of weights, 5 of activations, 3 of overhead."""
    kept = {"activations_bytes": 5.0, "overhead_bytes": 3.0, "context_tokens": 10.0}
    found = serving_memory(10.0, kv, concurrency, usable, **kept)
    assert (found.max_concurrency, found.fits) == (most, fits)
    assert close(found.total_bytes, 18 + kv * concurrency)
    assert close(found.cache_tokens, tokens)
    with pytest.raises(ValueError, match="negative"):
        serving_memory(1.0, 1.0, -1, 10.0)


def test_weights_of_a_replica():
    """Llama 3 8B: 32 layers of 218,112,000 parameters, edges of 525,336,576 each in 16 bits."""
    layer, edge = 218_103_808 + 2 * 4096, 128_256 * 4096
    assert replica_weight_bytes(LLAMA, Replica()) == 2 * (32 * layer + 2 * edge)
    assert replica_weight_bytes(LLAMA, Replica(tp=4)) == (32 * layer + 2 * edge) / 2
    attention = 41_943_040 + 2 * 4096
    eight = replica_weight_bytes(LLAMA, Replica(ffn_format="fp8"))
    assert close(eight, 32 * (176_160_768 + 2 * attention) + 4 * edge)
    stages = replica_weight_bytes(LLAMA, Replica(pp=3))  # 11 layers, and one of the edges
    assert close(stages, 2 * (11 * layer + edge))
    assert close(replica_weight_bytes(LLAMA, Replica(pp=2)), 2 * (16 * layer + edge))
    places = {"position": "learned", "max_position": 8192}  # the first end is the fuller
    first = replica_weight_bytes(LLAMA.model_copy(update=places), Replica(pp=2))
    assert close(first, 2 * (16 * layer + edge + 8192 * 4096))
    tied = LLAMA.model_copy(update={"tie_embeddings": True})
    assert close(replica_weight_bytes(tied, Replica(pp=2)), 2 * (16 * layer + edge))
    seeing = LLAMA.model_copy(update={"vision_params": 1e9})  # llama.cpp has a tower apart
    assert close(replica_weight_bytes(seeing, Replica(tp=4)), (32 * layer + 2 * edge + 1e9) / 2)
    apart = EngineMemory(embedding_on_host=True)
    assert close(replica_weight_bytes(seeing, Replica(), apart), 2 * (32 * layer + edge))
    assert close(replica_weight_bytes(tied, Replica()), 2 * (32 * layer + edge))
    ranks = replica_weight_bytes(LLAMA, Replica(tp=2, dp_attention=4))
    assert close(ranks, 32 * layer + 2 * edge)


def test_experts_of_a_replica_are_split_over_the_group():
    """Qwen3 30B-A3B: 128 experts of 3 x 2,048 x 768 in each of 48 layers."""
    ffn = QWEN.layer_groups[0].ffn
    assert routed_params(ffn, 2048) == 128 * 3 * 2048 * 768
    assert routed_params(DenseFfn(ffn_hidden_size=8), 2048) == 0.0
    one = replica_weight_bytes(QWEN, Replica())
    four = replica_weight_bytes(QWEN, Replica(dp_attention=4, ep=4))
    own = 2 * 2048 * 4096 + 2 * 2048 * 512 + 2 * 128 + 2 * 2048  # attention and norms
    layer = own + 2048 * 128 + 128 * 3 * 2048 * 768
    assert close(one, 2 * (48 * layer + 2 * 151_936 * 2048))
    assert close(one - four, 2 * 48 * 128 * 3 * 2048 * 768 * 3 / 4)


def test_a_prediction_layer_drafts():
    bare = replica_weight_bytes(DEEPSEEK, Replica(tp=8, ffn_format="fp8"))
    drafts = Replica(tp=8, ffn_format="fp8", drafts=Drafts(1, 0.8))
    more = replica_weight_bytes(DEEPSEEK, drafts) - bare
    assert more == pytest.approx(11.5e9 / 8, rel=0.02)  # 14 B with its own head and embedding


def test_activations_of_a_prefill_chunk():
    """``2 t (3 h + widest)``: three FFN widths, or the rows that an expert rank gathers."""
    assert activation_bytes(LLAMA, Replica(), 10) == 20 * (3 * 4096 + 3 * 14336)
    assert activation_bytes(LLAMA, Replica(tp=4), 10) == 20 * (3 * 4096 + 3 * 14336 / 4)
    of = {"tokens": 10}
    assert activation_bytes(QWEN, Replica(), **of) == 20 * (3 * 2048 + 8 * (2048 + 3 * 768))
    split = activation_bytes(QWEN, Replica(tp=4), **of)
    assert split == 20 * (3 * 2048 + 8 * (2048 + 3 * 768 / 4))
    spread = activation_bytes(QWEN, Replica(dp_attention=4, ep=4), **of)
    assert spread == 20 * (3 * 2048 + 8 * (2048 + 3 * 768))
    both = activation_bytes(QWEN, Replica(tp=2, dp_attention=4, ep=4), **of)
    assert both == 20 * (3 * 2048 + 8 * (2048 + 3 * 768 / 2))
    wide = activation_bytes(QWEN, Replica(tp=128, ep=128), **of)  # a row at least
    assert wide == 20 * (3 * 2048 + (2048 + 3 * 768))
    latent = QWEN.layer_groups[0].ffn.model_copy(update={"latent_size": 512})
    thin = QWEN.model_copy(update={"ffns": dict.fromkeys(QWEN.ffns, latent)})
    assert activation_bytes(thin, Replica(), **of) == 20 * (3 * 2048 + 8 * (512 + 3 * 768))


W, PEAK = 2 * 8_030_257_152.0, 2 * 1000 * (3 * 4096 + 3 * 14336)
LOGITS = 8 * 4 * 128_256.0  # of a sequence


def room(gpu=80e9, replica=None, **changed):
    engine = EngineMemory(**{"context_bytes": 1e9, "chunk_tokens": 1000.0} | changed)
    return cache_room(LLAMA, replica or Replica(), engine, gpu)


def test_room_that_engines_leave():
    sampler = 256 * LOGITS
    found = room()
    assert close(found.weights_bytes, W) and close(found.activations_bytes, PEAK + sampler)
    assert close(found.cache_bytes, 0.9 * 80e9 - W - PEAK - sampler - 1e9)
    assert close(found.overhead_bytes, 0.1 * 80e9 + 1e9) and found.usable_bytes == 80e9
    free = room(rule="free")
    assert close(free.cache_bytes, 0.9 * (80e9 - W - PEAK - sampler - 1e9))
    assert close(free.overhead_bytes, 80e9 - W - PEAK - sampler - free.cache_bytes)
    every = room(rule="all")
    assert close(every.cache_bytes, 80e9 - W - PEAK - sampler - 1e9)
    assert close(every.overhead_bytes, 1e9)
    static = room(rule="static")
    assert close(static.cache_bytes, 0.9 * (80e9 - 1e9) - W)
    assert static.activations_bytes == 0.0
    assert close(static.overhead_bytes, 80e9 - 0.9 * 79e9)


def test_buffers_of_collectives_grow_with_the_group():
    for gpus, shared in ((1, 0.0), (2, 1.0), (8, 3.0)):
        found = room(rule="static", collective_bytes=7e8, replica=Replica(tp=gpus))
        assert close(found.cache_bytes, 0.9 * (79e9 - shared * 7e8) - W / gpus)


def test_the_sampler_gives_way_to_the_cache():
    """Down to 16 sequences: 2 % of the device stay for the cache where they can."""
    gpu = (W + PEAK + 1e9 + 100 * LOGITS) / 0.88
    tight = room(gpu)
    assert close(tight.activations_bytes, PEAK + 100 * LOGITS)
    assert close(tight.cache_bytes, 0.02 * gpu)
    less = room((W + PEAK + 1e9 + 5 * LOGITS) / 0.88)
    assert close(less.activations_bytes, PEAK + 16 * LOGITS)
    few = room((W + PEAK + 1e9) / 0.88, sampler_sequences=8.0)
    assert close(few.activations_bytes, PEAK + 8 * LOGITS)


def test_cache_of_a_sequence():
    """Llama 3 8B: 32 layers, K and V of 8 heads, 128 wide: 131,072 bytes a token."""
    assert cache_bytes_per_sequence(LLAMA, Replica(), 10) == 1_310_720
    assert cache_bytes_per_sequence(LLAMA, Replica(kv_format="fp8"), 10) == 655_360
    assert cache_bytes_per_sequence(LLAMA, Replica(tp=4, pp=2), 10) == 1_310_720 / 8
    assert cache_bytes_per_sequence(LLAMA, Replica(tp=16), 10) == 1_310_720 / 8
    assert cache_bytes_per_sequence(DEEPSEEK, Replica(tp=8), 10) == 61 * 576 * 20
    shape = CacheShape(3.0, 5.0, 4.0, 7.0, 11.0)
    mixer = SimpleNamespace(cache=lambda: shape, cache_shards=lambda tp: tp)
    model = SimpleNamespace(layer_groups=[SimpleNamespace(n=6, mixer=mixer)])
    short, long = (cache_bytes_per_sequence(model, Replica(tp=2, pp=3), n) for n in (2, 10))
    assert short == 6 / 2 / 3 * (2 * (3 * 2 + 5 * 2) + 7 * 4 + 11 * 2)
    assert long == 6 / 2 / 3 * (2 * (3 * 10 + 5 * 4) + 7 * 4 + 11 * 2)


def test_weights_of_a_model():
    layer, edge = 32 * (218_103_808 + 2 * 4096) + 4096, 2 * 128_256 * 4096
    assert model_weight_bytes(LLAMA, "bf16") == 2 * (layer + edge)
    assert model_weight_bytes(LLAMA, "fp8") == layer + 2 * edge
    assert model_weight_bytes(LLAMA, "fp32") == 4 * (layer + edge)
    experts = 48 * 128 * 3 * 2048 * 768  # attention of 4-bit experts stays in 16 bits
    attention = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512 + 2 * 128)
    norms, router, edges = 48 * 2 * 2048 + 2048, 48 * 2048 * 128, 2 * 151_936 * 2048
    want = 0.5625 * (experts + router + norms) + 2 * (attention + edges)
    assert close(model_weight_bytes(QWEN, "nvfp4"), want)


def test_replica_of_a_job():
    job = ServingJob("fp8", "fp8")
    assert replica_of(LLAMA, job, 8, 2) == Replica(
        8, 2, ffn_format="fp8", attention_format="fp8", kv_format="fp8"
    )
    apart = replica_of(LLAMA, job, 8, 2, split_kv=True)
    assert (apart.tp, apart.dp_attention, apart.ep, apart.pp) == (1, 8, 1, 2)
    sparse = replica_of(QWEN, job, 8, 1, split_kv=True)
    assert (sparse.tp, sparse.dp_attention, sparse.ep) == (1, 8, 8)
    assert replica_of(QWEN, job, 8, 1).ep == 1
    assert replica_of(DEEPSEEK, job, 8, 1, split_kv=True).ep == 8  # some layers have experts


@pytest.mark.parametrize(
    ("model", "replica", "rule", "gpu"),
    [
        (LLAMA, Replica(), "device", 80e9),
        (LLAMA, Replica(pp=3), "device", 80e9),
        (LLAMA, Replica(), "device", 21e9),  # the sampler gives way
        (LLAMA, Replica(), "device", 20e9),
        (QWEN, Replica(tp=4, dp_attention=2, ep=2, ffn_format="fp8"), "static", 80e9),
        (QWEN, Replica(tp=2), "free", 80e9),
        (DEEPSEEK, Replica(tp=8, pp=2, drafts=Drafts(1, 0.8)), "all", 141e9),
    ],
)
def test_terms_of_a_serving_gpu(model, replica, rule, gpu):
    engine = EngineMemory(rule=rule)
    at = cache_room(model, replica, engine, gpu)
    cache = cache_bytes_per_sequence(model, replica, 1000)
    found = serving_memory(
        at.weights_bytes,
        cache,
        3,
        gpu,
        activations_bytes=at.activations_bytes,
        overhead_bytes=at.overhead_bytes,
    )
    total, most = serving_terms(model, replica, engine, found)
    names = {"max": max, "min": min, "floor": math.floor, "log2": math.log2}
    for term in (total, most, *total.children):
        if term.formula:
            assert eval(term.formula, names, term.inputs) == pytest.approx(term.value)
    assert {t.name: t.value for t in total.children} == total.inputs
    assert [t.name for t in total.children if not t.formula] == (
        ["activations_bytes"] if rule == "static" else []
    )
    assert most.value == found.max_concurrency and total.value == found.total_bytes
    tight = "fewest_sequences" in total.children[2].inputs
    assert tight == (gpu < 30e9)
    stateless = serving_memory(1.0, 0.0, 3, gpu)
    assert len(serving_terms(model, replica, engine, stateless)) == 1


def test_memory_of_a_replica_and_the_smallest():
    job = ServingJob(context_tokens=1000, concurrency=64)
    found = replica_memory(LLAMA, job, 2, 1, 80e9)
    assert close(found.kv_bytes_per_sequence_per_gpu, 131_072_000 / 2)
    assert close(found.kv_cache_bytes, 64 * 131_072_000 / 2)
    assert found.kv_bytes_per_token_all_gpus == 131_072
    apart = replica_memory(LLAMA, job, 2, 1, 80e9, split_kv=True)
    assert close(apart.kv_bytes_per_sequence_per_gpu, 131_072_000 / 2)
    wide = ModelSpec.model_validate(LLAMA.model_dump() | {"name": "wide"})
    assert fewest_serving(wide, job, 80e9, 8) == FewestServing(1, 1, 1, 1)
    assert fewest_serving(wide, job, 16e9, 8) == FewestServing(4, 1, 4, 1)
    assert fewest_serving(wide, job, 16e9, 2) == FewestServing(4, 2, 2, 2)
    assert fewest_serving(wide, job, 2e9, 1) is None
    assert math.isfinite(found.cache_tokens)


def test_a_job_that_nearly_fills_a_host_is_as_likely_as_not_whatever_its_width():
    """A caller that names no width of hosts is given a wide one, not none."""
    assert Spread().on_host(1e12, 1e12, told=False) == 0.5
    assert 0.5 < Spread().on_host(1e12, 2e12, told=False) < Spread().on_host(1e12, 2e12, told=True)
