"""Fine-tuning memory held by hand on Llama 3 8B: each term alone, then divided as it must be."""

from dataclasses import replace

import pytest

from gpuscale.core.finetune.bench import (
    Bench,
    _apart,
    fewest_gpus,
    largest_micro_batch,
    longest_seq_len,
    sharded,
    with_micro_batch,
)
from gpuscale.core.finetune.memory import finetune_memory
from gpuscale.core.finetune.method import Job, Method, canonical, check, counts
from gpuscale.core.finetune.parameters import IDEAL
from gpuscale.core.finetune.states import gathered_params, matrix_state_bytes, optimizer
from gpuscale.core.finetune.step import finetune_step, long_context_gain
from gpuscale.core.formats import element_bytes
from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.io.finetune import finetune_site
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software

LLAMA = load_model("llama3-8b").spec
MIXTRAL = load_model("mixtral-8x7b").spec
N = 8_030_261_248  # Llama 3 8B
EDGES = 2 * 128_256 * 4096  # embedding and head
LAYER = 218_103_808  # linear maps of a layer: 41,943,040 attention, 176,160,768 MLP
NORM = 4096
LORA = 41_943_040  # adapters of rank 16 on all maps (PEFT)
T = 2048  # tokens of a micro-batch


def job(method=None, optim="adamw", loss="fused", **more):
    fields = {"recompute": "full", "zero_stage": 0, "global_batch_size": 1} | {
        k: v for k, v in more.items() if k in Layout.__dataclass_fields__
    }
    rest = {k: v for k, v in more.items() if k not in Layout.__dataclass_fields__}
    layout = Layout(**({"seq_len": T} | fields))
    return Job(method or Method(), optimizer(optim), layout, loss, **rest)


def peak(j, p=IDEAL, model=LLAMA):
    return finetune_memory(model, model_facts(model), j, p)


# --- what is trained -----------------------------------------------------------------------------


def trained(model=LLAMA, **method):
    return counts(model, Method(**method)).trained_params


def test_trained_parameters_by_hand():
    assert trained(kind="full") == N - NORM  # the last norm is neither a layer's nor an edge's
    assert trained(kind="full", embeddings_frozen=True) == 32 * (LAYER + 2 * NORM)
    assert trained(kind="full", frozen_layers=24) == 8 * (LAYER + 2 * NORM)
    assert trained(kind="full", frozen_layers=99) == 0
    assert trained(rank=16) == LORA == trained(rank=32) / 2
    assert trained(rank=16, train_embeddings=True) == LORA + EDGES
    # DoRA: a magnitude for each output of q, k, v, o, gate, up, down
    outputs = 4096 + 1024 + 1024 + 4096 + 2 * 14336 + 4096
    assert trained(rank=16, kind="dora") == LORA + 32 * outputs
    # one adapter over the joint output of queries, keys and values; of gate and up
    assert trained(rank=8, targets=("qkv",)) == 32 * 8 * (4096 + 6144)
    assert trained(rank=8, targets=("q", "k", "v")) == 32 * 8 * (3 * 4096 + 6144)
    assert trained(rank=8, targets=("gate_up", "down")) == 32 * 8 * 2 * (4096 + 14336) + (
        32 * 8 * 14336
    )
    assert trained(rank=8, targets=("attention",)) == trained(rank=8, targets=tuple("qkvo"))
    mlp = trained(rank=8, targets=("gate", "up", "down"))
    assert trained(rank=8, targets=("mlp",)) == mlp == 32 * 8 * 3 * (4096 + 14336)
    # every expert of Mixtral has its own
    assert trained(MIXTRAL, rank=8, targets=("mlp",)) == 8 * mlp
    found = counts(MIXTRAL, Method(rank=8)).kinds[0]
    assert found.expert_adapter_params == 8 * mlp / 32
    assert found.adapter_params - found.expert_adapter_params == 8 * (
        2 * (4096 + 4096) + 2 * (4096 + 1024)
    )


def test_inputs_that_adapters_read():
    """q, k and v share one, gate and up another; attention keeps the input of o anyway."""
    (kind,) = counts(LLAMA, Method()).kinds
    assert kind.adapter_inputs == 4096 * 6 + 14336
    assert kind.distinct_inputs == 4096 * 2 + 14336 == kind.trained_inputs
    assert kind.adapter_outputs == 2 * 4096 + 2 * 1024 + 2 * 14336 + 4096
    assert kind.largest_matrix == 4096 * 14336
    (q_v,) = counts(LLAMA, Method(targets=("q", "v"))).kinds
    assert (q_v.adapter_inputs, q_v.distinct_inputs, q_v.n_adapted) == (8192, 4096, 2)
    (moe,) = counts(MIXTRAL, Method()).kinds
    assert moe.distinct_inputs == 4096 + 2 * (4096 + 14336)  # of two experts a token


def test_names_of_targets():
    for name, want in (("W_Pack", "qkv"), ("c_attn", "qkv"), ("Query", "q"), ("w2", "down"),
                       ("out_proj", "o"), ("linear_fc1", "gate_up"), ("All Linear", "all-linear"),
                       ("all-linears", "all-linear"), ("gate_proj", "gate")):  # fmt: skip
        assert canonical(name) == want
    check(LLAMA, Method(rank=1024))
    with pytest.raises(ValueError, match="rank 1,025 is above the width 1,024"):
        check(LLAMA, Method(rank=1025))
    check(LLAMA, Method("full"))


# --- states --------------------------------------------------------------------------------------


def test_states_of_adapters_are_sharded_by_their_stage():
    wide = replace(IDEAL, adapter_weights_bytes=4.0, adapter_moment_bytes=4.0)
    for zero, weights, states in ((0, 1, 1), (1, 1, 4), (2, 1, 4), (3, 4, 4)):
        found = peak(job(dp=4, zero_stage=zero, global_batch_size=4), wide)
        assert found.base_bytes == pytest.approx(2 * N / weights)
        assert found.adapter_bytes == pytest.approx(6 * LORA / weights)
        assert found.optimizer_bytes == pytest.approx(8 * LORA / states)
        assert found.gradients_bytes == 0.0
    twice = peak(job(dp=4, global_batch_size=4), replace(IDEAL, replica_buckets=True))
    assert twice.adapter_bytes == (2 + 2 * 2) * LORA  # DDP reduces copies
    alone = peak(job(), replace(IDEAL, replica_buckets=True))
    assert alone.adapter_bytes == (2 + 2) * LORA
    saved = peak(job(Method(train_embeddings=True)))
    assert saved.adapter_bytes == 4 * LORA + 8 * (EDGES + NORM)
    assert peak(job(optim="paged-adamw-8bit")).optimizer_bytes == 0.0
    away = peak(job(offload=frozenset({"parameters", "optimizer"})))
    assert (away.base_bytes, away.optimizer_bytes) == (0.0, 0.0)
    assert away.host_bytes == pytest.approx(2 * N + 4 * LORA)


def test_states_of_full_training_are_sharded_by_their_stage():
    """Mixed precision of 2 + 2 + 12 bytes (ZeRO, arXiv:1910.02054, section 3.1)."""
    mixed = replace(IDEAL, full_master_bytes=4.0, full_moment_bytes=4.0)
    full = Method("full")
    for zero, w, g, s in ((0, 1, 1, 1), (1, 1, 1, 4), (2, 1, 4, 4), (3, 4, 4, 4)):
        found = peak(job(full, dp=4, zero_stage=zero, global_batch_size=4), mixed)
        assert found.base_bytes == pytest.approx(2 * N / w)
        assert found.gradients_bytes == pytest.approx(2 * N / g, rel=1e-5)
        assert found.optimizer_bytes == pytest.approx(12 * N / s, rel=1e-5)
    half = peak(job(Method("full", frozen_layers=16)), mixed)
    assert half.optimizer_bytes == pytest.approx(12 * 16 * (LAYER + 2 * NORM), rel=1e-5)
    step = peak(job(full), replace(mixed, step_bytes=4.0))  # the root of the second moment
    assert step.moment == "optimizer step"
    assert step.gathered_bytes == pytest.approx(4 * N, rel=1e-5)
    buckets = peak(job(full, dp=2, global_batch_size=2), replace(mixed, replica_buckets=True))
    assert buckets.gradients_bytes == pytest.approx(4 * N, rel=1e-5)


def test_states_on_the_host():
    """What stays is one layer's gradients; the head is the largest: 128,256 x 4,096."""
    mixed = replace(IDEAL, full_master_bytes=4.0, full_moment_bytes=4.0)
    full = Method("full")
    moved = peak(job(full, offload=frozenset({"optimizer"})), mixed)
    assert moved.optimizer_bytes == 0.0
    assert moved.gradients_bytes == pytest.approx(EDGES, rel=1e-3)  # 2 bytes of half the edges
    assert moved.host_bytes == pytest.approx(14 * N, rel=1e-4)
    kept = peak(
        job(full, offload=frozenset({"optimizer"})), replace(mixed, offload_gradients=False)
    )
    assert kept.gradients_bytes == pytest.approx(2 * N, rel=1e-4)
    assert kept.host_bytes == pytest.approx(12 * N, rel=1e-4)
    inward = peak(job(full, optim="adamw+in-backward"), mixed)
    assert inward.gradients_bytes <= EDGES * 1.001


def test_optimizers_by_hand():
    """A 1,024 x 4,096 matrix: GaLore of rank 256 keeps m r + 2 n r (its section 4.1)."""
    galore = matrix_state_bytes(optimizer("galore"), 4096, 1024, 2.0)
    assert galore == 2 * (1024 * 256 + 2 * 4096 * 256)
    assert matrix_state_bytes(optimizer("galore"), 1024, 4096, 2.0, 64) == galore / 4
    assert matrix_state_bytes(optimizer("galore"), 1024, 4096, 2.0, 9999) == 4 * galore
    assert matrix_state_bytes(optimizer("galore-8bit"), 1024, 4096, 4.0) == (
        2 * 1024 * 256 + 2 * (65 / 64) * 4096 * 256
    )
    assert matrix_state_bytes(optimizer("adamw-8bit"), 256, 1, 4.0) == 2 * (256 + 4)
    assert matrix_state_bytes(optimizer("muon"), 10, 10, 4.0) == 400
    assert matrix_state_bytes(optimizer("adafactor"), 3, 5, 2.0) == 4 * 8  # a row and a column
    muon = peak(job(Method("full"), optim="muon"), replace(IDEAL, full_moment_bytes=4.0))
    others = N - 32 * LAYER  # AdamW's two moments outside the matrices
    assert muon.optimizer_bytes == pytest.approx(4 * (32 * LAYER) + 8 * others, rel=1e-5)


# --- activations ---------------------------------------------------------------------------------

QUIET = replace(IDEAL, working_factor=1.0)


def kept(p=QUIET, model=LLAMA, **more):
    return peak(job(**({"recompute": "none"} | more)), p, model).kept_bytes / T


def test_inputs_of_layers_are_kept_where_all_is_recomputed():
    found = peak(job())
    assert found.kept_bytes == 32 * 2 * 4096 * T
    assert peak(job(tp=2)).kept_bytes == found.kept_bytes / 2
    assert peak(job(tp=2, sequence_parallel=False)).kept_bytes == found.kept_bytes
    assert peak(job(cp=2)).kept_bytes == found.kept_bytes / 2
    assert peak(job(micro_batch_size=3, global_batch_size=3)).kept_bytes == 3 * found.kept_bytes
    away = peak(job(offload_activations=True))
    assert away.kept_bytes == found.kept_bytes * 2 / 32
    assert away.host_bytes == found.kept_bytes * 30 / 32
    assert found.host_bytes == 0.0


def test_pairs_hold_a_log_softmax_beside_the_reference_s():
    p = replace(QUIET, logits_eager_bytes=12.0, pair_logit_bytes=6.0)
    pair, one = (peak(job(loss=loss), p).logits_bytes for loss in ("pairs", "eager"))
    assert (pair, one) == (18 * T * 128_256, 12 * T * 128_256)


@pytest.mark.parametrize(
    ("name", "tokens", "gib"),
    [("qwen2.5-1.5b", 4096, 6.854 - 1.5254), ("qwen2.5-7b", 1024, 8.8142 - 7.2486)],
)
def test_a_cast_base_carries_fp32_between_layers(name, tokens, gib):
    """Memory that a forward pass leaves, of can-i-finetune-this on an RTX 4080 (2026-07-02).

    Beside the layers' inputs those are logits and their log-softmax, fp32.
    """
    model = load_model(name).spec
    quantised = job(Method(base="nf4", targets=("attention",)), loss="eager", seq_len=tokens)
    found = peak(quantised, replace(QUIET, edge_bytes=4.0, logits_eager_bytes=8.0), model)
    assert found.kept_bytes + found.logits_bytes == pytest.approx(gib * 2**30, rel=0.03)
    less = peak(quantised, replace(QUIET, logits_eager_bytes=8.0), model)
    assert less.kept_bytes == found.kept_bytes / 2


KEPT = {  # what a layer keeps beside plain LoRA
    "full": {"method": Method("full")},
    "q, v": {"method": Method(targets=("q", "v"))},
    "dora": {"method": Method("dora")},
    "packed": {"method": Method(base="nf4"), "p": replace(QUIET, packed_input_bytes=2.0)},
    "casts": {"p": replace(QUIET, adapter_casts=True)},
    "norms": {"p": replace(QUIET, norm_bytes=4.0)},
    "edges": {"p": replace(QUIET, edge_bytes=4.0), "method": Method(base="nf4")},
    "eager": {"attention": "eager"},
}


@pytest.mark.parametrize("what", KEPT)
@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-8b", "mixtral-8x7b", "deepseek-v2-lite"])
def test_all_that_a_layer_keeps_is_split_by_tp_and_sequence_parallelism(name, what):
    """Korthikanti et al. (2022), section 4.2.2: a layer keeps s b h (34 + 5 a s / h) / t."""
    more = {"model": load_model(name).spec} | KEPT[what]
    assert kept(tp=2, **more) == pytest.approx(kept(**more) / 2, rel=1e-6)


def test_what_methods_and_kernels_keep_beside():
    """Bytes a token and layer more than plain LoRA: each as its source counts it."""
    plain = kept()
    light = replace(QUIET, full_gradients_bytes=0.0)
    assert kept(light, method=Method("full")) == pytest.approx(plain)  # all maps: same inputs
    q_v = kept(method=Method(targets=("q", "v")))
    assert plain - q_v == pytest.approx(32 * 2 * (4096 + 14336))
    assert kept(replace(QUIET, adapter_casts=True)) - plain == pytest.approx(32 * 2 * 4 * 4096)
    wide = kept(replace(QUIET, adapter_input_bytes=4.0))
    assert wide - plain == pytest.approx(32 * 2 * (2 * 4096 + 14336))
    outputs = 2 * 4096 + 2 * 1024 + 2 * 14336 + 4096
    assert kept(method=Method("dora")) - plain == pytest.approx(32 * 2 * outputs)
    packed = replace(QUIET, packed_input_bytes=2.0)
    assert kept(packed, method=Method(base="nf4")) - plain == pytest.approx(
        32 * 2 * (2 * 4096 + 14336)
    )
    assert kept(packed) == pytest.approx(plain)
    norms = replace(QUIET, norm_bytes=4.0)
    assert kept(norms) - plain == pytest.approx(32 * 2 * 4 * 4096)
    assert kept(norms, compiled=True) == pytest.approx(plain)
    fused = replace(norms, fused_loss_norms=True)
    assert kept(fused) == pytest.approx(plain)
    assert kept(fused, loss="chunked") - kept(loss="chunked") == pytest.approx(32 * 2 * 4 * 4096)
    assert kept(attention="eager") - plain == pytest.approx(32 * 6 * 32 * T)
    assert kept(tp=2) == pytest.approx(plain / 2)
    norm_inputs = 32 * 2 * 2 * 4096  # of two norms, whole on each rank
    assert kept(tp=2, sequence_parallel=False) == pytest.approx((plain + norm_inputs) / 2)
    assert kept(replace(QUIET, kept_factor=0.5)) == pytest.approx(plain / 2)
    assert kept(offload_activations=True) == pytest.approx(plain * 2 / 32)
    # working: of the largest layer, what is not kept already
    half = peak(job(), replace(IDEAL, working_factor=0.5))
    assert half.working_bytes == pytest.approx(0.5 * plain / 32 * T)
    none = peak(job(recompute="none"), replace(IDEAL, working_factor=1.5))
    assert none.working_bytes == pytest.approx(0.5 * plain / 32 * T)


def test_the_widest_layer_works_and_a_window_bounds_the_scores():
    """DeepSeek-V2-Lite: 26 layers keep the inputs of six experts, the first those of an MLP."""
    model = load_model("deepseek-v2-lite").spec
    p = replace(QUIET, working_factor=2.0, full_gradients_bytes=0.0)
    found = peak(job(method=Method("full"), recompute="none"), p, model)
    assert found.kept_bytes / 27 < found.working_bytes < found.kept_bytes / 26
    mistral = load_model("mistral-7b").spec  # 32 heads; a window of 4,096 tokens, which masks
    one, four = (
        kept(model=mistral, attention="eager", seq_len=n) * T / n
        - kept(model=mistral, seq_len=n) * T / n
        for n in (4096, 16_384)
    )
    assert one == four / 4 == pytest.approx(32 * QUIET.scores_bytes * 32 * 4096)


def test_logits_of_each_loss():
    """Qwen's tables: 12 bytes a logit with the fp32 copy of autocast, 8 without."""
    p = replace(IDEAL, logits_eager_bytes=12.0, logits_chunked_bytes=2.0, logits_fused_bytes=0.5)
    vocab = 128_256 * T
    eager = peak(job(loss="eager"), p)
    assert eager.moment == "loss" and eager.logits_bytes == 12 * vocab
    assert peak(job(loss="eager", tp=2), p).logits_bytes == 6 * vocab
    assert peak(job(loss="eager", precision="fp16"), p).logits_bytes == 12 * vocab
    no_copy = replace(p, fp16_copy=False)
    assert peak(job(loss="eager", precision="fp16"), no_copy).logits_bytes == 8 * vocab
    assert peak(job(loss="eager"), no_copy).logits_bytes == 12 * vocab
    quiet = replace(p, working_factor=0.0)
    assert peak(job(loss="chunked"), quiet).logits_bytes == 2 * vocab
    assert peak(job(loss="fused"), quiet).logits_bytes == 0.5 * vocab


def test_gradients_at_the_loss():
    """Nothing but the head's, twice where the loss is summed by chunks; all when accumulating."""
    p = replace(IDEAL, logits_eager_bytes=100.0, logits_chunked_bytes=100.0)
    head = EDGES / 2
    full = Method("full")
    assert peak(job(full, loss="eager"), p).gradients_bytes == pytest.approx(2 * head, rel=1e-5)
    assert peak(job(full, loss="chunked"), p).gradients_bytes == pytest.approx(4 * head, rel=1e-5)
    more = peak(job(full, loss="eager", global_batch_size=2), p)
    assert more.gradients_bytes == pytest.approx(2 * N, rel=1e-5)
    inward = peak(job(full, loss="eager", optim="adamw+in-backward", global_batch_size=2), p)
    assert inward.gradients_bytes == pytest.approx(2 * head, rel=1e-5)


def test_what_is_gathered_at_once_has_a_limit_but_is_one_layer_at_least():
    p = replace(IDEAL, gathered_layers=3.0)
    assert gathered_params(2e8, p) == gathered_params(2e8, replace(p, most_gathered_params=1e9))
    assert gathered_params(6e8, replace(p, most_gathered_params=1e9)) == 1e9
    assert gathered_params(3e9, replace(p, most_gathered_params=1e9)) == 3e9


def test_unpacked_and_gathered_weights():
    nf4 = peak(job(Method(base="nf4")), replace(IDEAL, dequantised_copies=2.0))
    assert nf4.gathered_bytes == 2 * 2 * 4096 * 14336
    assert peak(job(Method(base="nf4"), tp=2)).gathered_bytes == 4096 * 14336
    cast = peak(job(Method(base="nf4")), replace(IDEAL, edge_bytes=4.0))
    less = peak(job(Method(base="nf4")))
    assert cast.base_bytes - less.base_bytes == 2 * (EDGES + 65 * NORM)
    gptq = peak(job(Method(base="int4-g128")), replace(IDEAL, edge_bytes=4.0))
    assert gptq.base_bytes == peak(job(Method(base="int4-g128"))).base_bytes
    p = replace(IDEAL, gathered_layers=2.0)
    sharded = {"dp": 4, "zero_stage": 3, "global_batch_size": 4}
    deep = peak(job(**sharded), replace(p, working_factor=100.0))
    assert (deep.moment, deep.gathered_bytes) == ("backward", pytest.approx(2 * 2 * LAYER))
    assert peak(job(**sharded), p).gathered_bytes == pytest.approx(2 * 2 * LAYER + EDGES + NORM)
    root = peak(job(**sharded), replace(p, root_gathered=True))
    assert root.gathered_bytes == pytest.approx(2 * 2 * LAYER + 2 * (EDGES + NORM))
    loss = peak(job(**sharded, loss="eager"), replace(p, logits_eager_bytes=60.0))
    assert loss.gathered_bytes == pytest.approx(2 * 2 * LAYER + EDGES + NORM)
    assert peak(job(zero_stage=3)).gathered_bytes == 0.0
    load = peak(job(**sharded), replace(IDEAL, loading_factor=1.5))
    assert load.moment == "loading" and load.allocated_bytes == pytest.approx(3 * N)
    assert peak(job(zero_stage=3), replace(IDEAL, loading_factor=1.5)).moment != "loading"
    assert (
        peak(job(dp=4, global_batch_size=4), replace(IDEAL, loading_factor=3)).moment != "loading"
    )


def test_what_lies_around_the_tensors():
    p = replace(IDEAL, overhead_bytes=1e9, fragmentation=1.1, context_bytes=5e8)
    bare, found = peak(job()), peak(job(), p)
    assert found.workspace_bytes == 1e9
    assert found.allocated_bytes == pytest.approx(bare.allocated_bytes + 1e9)
    assert found.kind_bytes("reserved") == pytest.approx(1.1 * found.allocated_bytes)
    assert found.kind_bytes("nvidia-smi") == pytest.approx(1.1 * found.allocated_bytes + 5e8)
    assert found.kind_bytes("allocated") == found.allocated_bytes


def test_stages_hold_their_layers_and_edges():
    """Two stages of 16: the embedding on the first, head and norm on the last."""
    layers = 16 * (LAYER + 2 * NORM)
    first = peak(job(pp=2, global_batch_size=8))
    assert first.stage == 0 and first.base_bytes == 2 * (layers + EDGES / 2)
    assert first.kept_bytes == 2 * 16 * 2 * 4096 * T  # 1F1B: two micro-batches at once
    chunks = peak(job(pp=2, vpp=2, global_batch_size=8))
    assert chunks.kept_bytes == 2.5 * 16 * 2 * 4096 * T  # Narayanan 2021: 2 (p-1) + (v-1) p + 1
    last = peak(job(pp=2, loss="eager", global_batch_size=8))
    assert last.stage == 1 and last.base_bytes == 2 * (layers + EDGES / 2 + NORM)
    moe = peak(job(ep=8, dp=8, global_batch_size=8), model=MIXTRAL)
    experts = 32 * 8 * 176_160_768
    whole = counts(MIXTRAL, Method()).total_params
    assert moe.base_bytes == pytest.approx(2 * (whole - experts * 7 / 8), rel=1e-6)


# --- time ----------------------------------------------------------------------------------------

A100 = load_cluster("a100-sxm-80gb")
PEFT = load_software("hf-peft")


def site(j):
    return finetune_site(A100, PEFT, j)


def step(j, link=None, **changed):
    hw, sw, p = site(j)
    hw = replace(hw, host_link_bytes_per_s=link) if link else hw
    return finetune_step(LLAMA, j, hw, sw, replace(p, **changed))


def test_unpacking_reads_the_packed_base_and_writes_it_wide():
    """Forward, recomputed and backward: 4.127 bits in and 16 out, of 32 layers."""
    bandwidth = site(job())[0].hbm_bytes_per_s
    once = 32 * LAYER * (element_bytes("nf4-dq") + 2) / bandwidth
    nf4 = Method(base="nf4")
    half = {"dequantise_eff_frac": 0.5, "dequantise_gptq_frac": 0.25}
    assert step(job(nf4), **half).unpack_s == pytest.approx(3 * once / 0.5)
    assert step(job(nf4, recompute="none"), **half).unpack_s == pytest.approx(2 * once / 0.5)
    assert step(job(nf4, tp=2), **half).unpack_s == pytest.approx(3 * once)
    assert step(job(nf4, pp=2, global_batch_size=4), **half).unpack_s == pytest.approx(12 * once)
    gptq = 32 * LAYER * (element_bytes("int4-g128") + 2) / bandwidth
    packed = step(job(Method(base="int4-g128")), **half).unpack_s
    assert packed == pytest.approx(3 * gptq / 0.25)
    assert step(job()).unpack_s == 0.0 == step(job(Method("full"))).unpack_s


def test_transfers_over_a_slow_link_take_its_time():
    """At 1 MB/s nothing hides them: weights twice, inputs of all but two layers out and back."""
    slow = 1e6
    alone = job(offload=frozenset({"parameters"}), zero_stage=3)
    four = replace(alone, layout=replace(alone.layout, dp=4, global_batch_size=4))
    assert step(alone, slow).offload_s == pytest.approx(2 * 2 * N / slow, rel=0.01)
    assert step(four, slow).offload_s == pytest.approx(N / slow, rel=0.01)
    kept = replace(four, layout=replace(four.layout, zero_stage=0))
    assert step(kept, slow).offload_s == pytest.approx(4 * N / slow, rel=0.01)
    inputs = step(job(offload_activations=True), slow).offload_s
    assert inputs == pytest.approx(2 * 2 * 4096 * T * 30 / slow, rel=0.01)
    twice = step(job(offload_activations=True, global_batch_size=2), slow).offload_s
    assert twice == pytest.approx(2 * inputs, rel=0.01)
    assert step(job(offload_activations=True, cp=2), slow).offload_s == pytest.approx(
        inputs / 2, rel=0.02
    )
    found = step(job())
    assert found.offload_s == 0.0 and found.step_s == found.parts.total_s


def test_weights_come_from_the_host_as_they_are_stored():
    """Twice a micro-batch: 4 bytes of a weight trained in fp32, half a byte and 2 % of NF4."""
    slow = 1e8
    full = job(Method("full"), offload=frozenset({"parameters"}))
    assert step(full, slow, full_weights_bytes=4.0).offload_s == pytest.approx(8 * N / slow, 0.01)
    packed = job(Method(base="nf4"), offload=frozenset({"parameters"}))
    each = 2 * Method(base="nf4").base_bytes
    assert step(packed, slow, full_weights_bytes=4.0).offload_s == pytest.approx(
        each * N / slow, rel=0.01
    )


def test_transfers_hide_behind_what_the_gpu_does_and_its_launches(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "gpuscale.core.finetune.step.offload_time_s", lambda *a: seen.append(a[-1]) or 0.0
    )
    j = job(global_batch_size=4)
    hw, sw, p = site(j)
    found = finetune_step(LLAMA, j, hw, sw, p).parts
    busy = found.matmul_s + found.attention_s + found.elementwise_s
    launches = found.host_s - sw.step_host_s  # the host's part of a step, but once a step
    assert seen == [pytest.approx((busy + launches) / 4)] and launches >= 0.0


def test_packed_rows_taken_apart_are_as_many_tokens():
    apart = _apart(job(seq_len=8192, micro_batch_size=2, global_batch_size=6), 2000.0).layout
    assert (apart.seq_len, apart.micro_batch_size, apart.global_batch_size) == (2048, 8, 24)
    same = job(seq_len=8192)
    assert _apart(same, 9000.0) == _apart(same, 8192.0) == same


def test_an_optimizer_on_the_host_updates_its_shard():
    full = Method("full")
    moved = {"offload_optimizer": True, "zero_stage": 1}
    one, four = step(job(full, **moved)), step(job(full, dp=4, global_batch_size=4, **moved))
    assert one.offload_s == pytest.approx(4 * four.offload_s)
    whole = step(job(full, dp=4, global_batch_size=4, offload_optimizer=True))
    assert whole.offload_s == pytest.approx(one.offload_s)  # no shards without ZeRO
    split = step(job(full, tp=2, **moved))
    assert one.offload_s == pytest.approx(2 * split.offload_s)
    hw = site(job())[0]
    links = replace(hw, host_link_bytes_per_s=1e30)
    p = replace(IDEAL, host_update_bytes_per_s=1e9, full_moment_bytes=4.0, full_master_bytes=4.0)
    j = job(full, **moved)
    found = finetune_step(LLAMA, j, links, site(j)[1], p).offload_s
    # read and written: 2 of weights, 4 of master, 8 of moments; 2 of gradients read
    assert found == pytest.approx(N * (2 * 14 + 2) / 1e9, rel=1e-4)


def test_adapters_and_experts_cost_their_launches():
    base = step(job(recompute="none"))
    late = step(job(recompute="none"), adapter_launch_s=1.0)
    assert late.step_s > base.step_s + 32 * 7 * 0.9  # one a map and pass, on the host
    assert step(job(recompute="none"), merged_launch_s=1.0) == base  # no experts are stacked
    more = step(job(recompute="none"), adapter_passes=50.0)
    assert more.step_s > base.step_s
    dora = step(job(Method("dora"), recompute="none"))
    assert dora.step_s > base.step_s
    rank = step(job(Method(rank=1024), recompute="none"))
    assert rank.step_s > 1.2 * base.step_s
    assert long_context_gain(16384, 0.6, 16384) == pytest.approx(1.3)


def test_what_fuses_the_loss_fuses_norms_in_time_too():
    j = job(loss="fused")
    plain, liger = step(j, fused_loss_norms=False).parts, step(j).parts
    saved = 1 - liger.elementwise_s / plain.elementwise_s
    assert 0.25 < saved < 1 - 1 / 1.8  # launches, and the head's, stay
    assert step(replace(j, compiled=True)).parts.elementwise_s == liger.elementwise_s
    eager = job(loss="eager")
    assert step(eager) == step(eager, fused_loss_norms=False)


def bench(usable=80e9, mean=None):
    return Bench(LLAMA, model_facts(LLAMA), site, usable, 8, mean)


@pytest.mark.parametrize("usable", [30e9, 60e9])
def test_the_largest_that_fits_and_one_more_that_does_not(usable):
    b, one = bench(usable), job(loss="eager")
    n = largest_micro_batch(b, one)
    assert n >= 1 and b.fits(with_micro_batch(one, n))
    assert not b.fits(with_micro_batch(one, n + 1))
    long = longest_seq_len(b, one)
    assert long % 64 == 0
    at = [replace(one, layout=replace(one.layout, seq_len=long + more)) for more in (0, 64)]
    assert b.fits(at[0]) and not b.fits(at[1])
    assert largest_micro_batch(bench(1e9), one) == 0 == longest_seq_len(bench(1e9), one)


def test_more_gpus_are_data_parallel():
    one = job(global_batch_size=6, micro_batch_size=4, tp=2)
    eight = sharded(one, 8, 3).layout
    assert (eight.dp, eight.zero_stage, eight.global_batch_size) == (4, 3, 16)
    assert sharded(one, 2).layout.global_batch_size == 8
    full = job(Method("full"))
    found = fewest_gpus(bench(), full)
    assert found is not None and found.layout.zero_stage == 3
    fewer = [sharded(full, n, z) for n in (1, 2, 4) for z in (0, 3) if n < found.layout.dp]
    assert fewer and not any(bench().fits(j) for j in fewer)
    assert fewest_gpus(bench(1e9), full, 4) is None


def test_padding_keeps_the_tokens_of_the_data():
    """Rows of 500 of at most 2,048 tokens: what is trained on is the data's, padding beside it."""
    for micro in (1, 4):
        j = job(micro_batch_size=micro, global_batch_size=8)
        found = bench(mean=500.0).step(j)
        assert found.tokens == pytest.approx(8 * 500, rel=2e-3)
        assert found.padded_tokens >= found.tokens * (1 - 1e-9)
    assert found.padded_tokens == pytest.approx(8 * 500 * (1 + 1 / 2 + 1 / 3 + 1 / 4), rel=2e-3)
    plain = bench(mean=4096.0).step(job())
    assert plain.tokens == plain.padded_tokens == T
    assert found.tokens_per_s == found.tokens / found.step_s
    trial = bench(usable=1.0).trial(job())
    assert not trial.fits and bench().trial(job()).fits
