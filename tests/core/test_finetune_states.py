"""States of a stage of Mixtral: dense and expert parameters by their own numbers of GPUs."""

from dataclasses import replace

import pytest

from gpuscale.core.finetune.memory import bucket_bytes, bytes_per_logit, fragmentation_of
from gpuscale.core.finetune.method import Job, Method, counts
from gpuscale.core.finetune.parameters import IDEAL, kept_in
from gpuscale.core.finetune.states import States, held, optimizer, stage_states
from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.stages import layout_stages
from gpuscale.io.models import load_model

MIXTRAL, TIED = load_model("mixtral-8x7b").spec, load_model("qwen2.5-1.5b").spec
EXPERTS = 8 * 176_160_768  # of a layer
ATTENTION = 41_943_040
OTHER = 10 * 4096  # of a layer: two norms and the router of eight
EDGE = 32_000 * 4096
HEAVY = replace(
    IDEAL, adapter_weights_bytes=4.0, adapter_gradients_bytes=3.0, adapter_moment_bytes=4.0,
    saved_module_bytes=8.0, full_master_bytes=4.0, full_moment_bytes=4.0, gathered_layers=1.5,
    step_bytes=5.0,
)  # fmt: skip
ADAM = replace(optimizer("adamw"), temporaries=1.0)


def states(method, zero, offload=(), optim=ADAM, p=HEAVY, **more):
    """TP 2, EP 2 x ETP 2, four replicas: four GPUs share a dense weight, two one of an expert."""
    layout = Layout(8, 8, tp=2, ep=2, etp=2, dp=4, zero_stage=zero)
    job = Job(replace(Method(method), **more), optim, layout, offload=frozenset(offload))
    (stage,) = layout_stages(model_facts(MIXTRAL).weights, "even", layout)
    return stage_states(stage, 0, counts(MIXTRAL, job.method), job, p)


def near(**fields):
    given = dict.fromkeys(States.__slots__, 0.0) | fields
    return States(**{k: pytest.approx(v, rel=1e-6) for k, v in given.items()})


DENSE, SPLIT = 32 * ATTENTION / 2, 32 * EXPERTS / 4
REST = 32 * OTHER + (2 * EDGE + 4096) / 2
LAYER = ATTENTION / 2 + EXPERTS / 4
# rank 16: q and o 16 x 8,192, k and v 16 x 5,120; experts three maps of 16 x 18,432
OWN, OF_EXPERTS = 32 * 16 * 2 * (8192 + 5120) / 2, 32 * 8 * 3 * 16 * 18_432 / 4


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_states_of_adapters(zero):
    by = (4, 2) if zero == 3 else (1, 1)
    state_by = (4, 2) if zero else (1, 1)
    adapters = OWN / by[0] + OF_EXPERTS / by[1]
    want = {
        "base_bytes": 2 * (DENSE / by[0] + SPLIT / by[1] + REST / by[0]),
        "adapter_bytes": 7 * adapters,
        "optimizer_bytes": 8 * (OWN / state_by[0] + OF_EXPERTS / state_by[1]),
        "step_bytes": 5 * adapters,
    }
    if zero == 3:
        want |= {"gathered_bytes": 1.5 * 2 * LAYER, "gathered_edge_bytes": 2 * EDGE + 4096}
    assert states("lora", zero) == near(**want)
    saved = states("lora", zero, train_embeddings=True).adapter_bytes - want["adapter_bytes"]
    assert saved == pytest.approx(8 * (EDGE + 2048) / by[0])
    away = states("lora", zero, ("parameters", "optimizer"))
    host = want["base_bytes"] + want["optimizer_bytes"]
    assert away == near(**(want | {"base_bytes": 0, "optimizer_bytes": 0, "host_bytes": host}))


@pytest.mark.parametrize("frozen", [0, 24])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_states_of_full_training(zero, frozen):
    """Weights of 2 bytes, gradients of 2, master and moments of 12, each from its stage on."""
    whole = counts(MIXTRAL, Method("full", frozen_layers=frozen))
    share = whole.trained_params / whole.total_params

    def of(least):
        by = (4, 2) if zero >= least else (1, 1)
        return (DENSE + REST) / by[0] + SPLIT / by[1]

    gradients, held_bytes = 2 * of(2) * share, 12 * of(1) * share
    want = {
        "base_bytes": 2 * of(3), "gradients_bytes": gradients, "optimizer_bytes": held_bytes,
        "step_bytes": 5 * of(1) * share, "head_gradient_bytes": 2 * share * EDGE / 2,
    }  # fmt: skip
    if zero == 3:
        want |= {"gathered_bytes": 2 * 1.5 * LAYER, "gathered_edge_bytes": 2 * EDGE + 4096}
    assert states("full", zero, frozen_layers=frozen) == near(**want)
    away = states("full", zero, ("parameters", "gradients", "optimizer"), frozen_layers=frozen)
    left = min(gradients, 2 * LAYER)
    host = 2 * of(3) + gradients + held_bytes
    gone = {"base_bytes": 0, "optimizer_bytes": 0, "step_bytes": 0, "gradients_bytes": left}
    assert away == near(**(want | gone | {"host_bytes": host}))
    inward = states("full", zero, frozen_layers=frozen, optim=replace(ADAM, in_backward=True))
    assert inward.gradients_bytes == pytest.approx(2 * LAYER) and inward.step_bytes == 0.0
    paged = states("full", zero, frozen_layers=frozen, optim=replace(ADAM, paged=True))
    assert paged.optimizer_bytes == pytest.approx(held_bytes / 3)
    buckets = states(
        "full", zero, frozen_layers=frozen, p=replace(HEAVY, replica_buckets=True)
    ).gradients_bytes
    assert buckets == pytest.approx(gradients * (2 if zero == 0 else 1))


def test_a_tied_head_is_a_copy_on_the_last_stage():
    """Qwen2.5 1.5B: 151,936 x 1,536, once on one stage, once on each end of two."""
    whole, edge = counts(TIED, Method("full")), 151_936 * 1536
    assert whole.head_params == 0.0 and whole.top_params == 1536
    for pp, edges in ((1, [edge + 1536]), (2, [edge, edge + 1536]), (4, [edge, 0, 0, edge + 1536])):
        layout = Layout(8, 8, pp=pp)
        stages = layout_stages(model_facts(TIED).weights, "even", layout)
        found = [held(stage, i, whole, layout) for i, stage in enumerate(stages)]
        assert [here.edges for here in found] == edges
        assert [here.head for here in found] == [0] * (pp - 1) + [edge]


def test_trained_shares_by_hand():
    """Of 32 layers 8, 32 or more are frozen; edges are with them, or where they are said to be."""
    whole = counts(MIXTRAL, Method("full"))
    layers = 32 * (ATTENTION + EXPERTS + OTHER)
    assert whole.total_params == layers + 2 * EDGE + 4096 and whole.top_params == 4096
    assert whole.trained_params == layers + 2 * EDGE
    for frozen, share in ((8, 0.75), (32, 0.0), (40, 0.0)):
        found = counts(MIXTRAL, Method("full", frozen_layers=frozen)).trained_params
        assert found == pytest.approx(layers * share)
    assert counts(MIXTRAL, Method("full", embeddings_frozen=True)).trained_params == layers
    (kind,) = whole.kinds
    assert (kind.adapter_params, kind.n_adapted, kind.adapter_inputs) == (0, 0, 0)
    assert kind.other_params == OTHER


def test_bytes_of_a_logit_are_none_below_nothing():
    job = Job(Method(), optimizer("adamw"), Layout(8, 8, precision="fp16"), "eager")
    p = replace(IDEAL, fp16_copy=False, logits_eager_bytes=3.0)
    assert bytes_per_logit(job, p) == 0.0
    assert bytes_per_logit(job, replace(p, logits_eager_bytes=4.5)) == 0.5


@pytest.mark.parametrize(("zero", "copies"), [(2, 2.0), (3, 4.0)])
def test_sharded_steps_read_fp32_gradients(zero, copies):
    """DeepSpeed: stage 2 steps on an fp32 copy in place of 2 bytes, stage 3 beside its buffer."""
    p = replace(HEAVY, full_gradients_bytes=2.0, step_gradients_bytes=4.0)
    more = states("full", zero, p=p).step_bytes - states("full", zero).step_bytes
    assert more == pytest.approx(copies * (DENSE / 4 + SPLIT / 2 + REST / 4), rel=1e-6)


@pytest.mark.parametrize(("zero", "held"), [(0, 0.0), (1, 2e9), (2, 2e9), (3, 0.0)])
def test_buckets_of_the_lower_stages(zero, held):
    """Two buffers of 5e8 elements in 16 bits (zero/config.py: reduce_bucket_size, overlap_comm)."""
    p = replace(IDEAL, reduce_bucket_bytes=2 * 2 * 5e8)
    assert bucket_bytes(Layout(8, 8, dp=4, zero_stage=zero), p) == held
    assert bucket_bytes(Layout(8, 1, zero_stage=zero), p) == 0.0


def test_the_largest_layer_is_gathered():
    """DeepSeek-V2-Lite: its first layer is dense, the others hold 64 experts and two shared."""
    model = load_model("deepseek-v2-lite").spec
    job = Job(Method("full"), ADAM, Layout(8, 8, dp=8, zero_stage=3))
    (stage,) = layout_stages(model_facts(model).weights, "even", job.layout)
    found = stage_states(stage, 0, counts(model, job.method), job, HEAVY)
    experts = (64 + 2) * 3 * 2048 * 1408
    assert 2 * 1.5 * experts < found.gathered_bytes < 2 * 1.5 * 1.04 * experts
    (dense,) = {k.largest_matrix for k in counts(model, job.method).kinds if not k.expert_params}
    assert dense == 2048 * 10_944  # the MLP of the first; of an expert 2048 x 1408
    assert held(stage, 0, counts(model, job.method), job.layout).largest_matrix == dense


@pytest.mark.parametrize(("zero", "stepped"), [(2, DENSE / 4 + SPLIT / 2 + REST / 4), (3, 1e8)])
def test_zero_3_steps_on_one_group_at_a_time(zero, stepped):
    """DeepSpeed: stage 3 steps on `sub_group_size` elements (1e9 unless said) together."""
    found = states("full", zero, p=replace(HEAVY, step_group_params=1e8)).step_bytes
    assert found == pytest.approx(5 * stepped, rel=1e-6)


def test_weights_are_kept_as_they_are_loaded():
    """Loaded in fp32 a weight trained in full has 4 + 4 + 2 x 4 bytes, in bf16 half of it.

    An engine's flat fp32 master (DeepSpeed) stays whatever was loaded; of a foreach optimizer the
    temporary is as wide as the weights.
    """
    wide = kept_in(IDEAL, "fp32", full=True)
    assert (wide.full_weights_bytes, wide.full_gradients_bytes, wide.full_moment_bytes) == (4, 4, 4)
    assert wide.step_bytes == IDEAL.step_bytes == 0.0
    assert kept_in(replace(IDEAL, step_bytes=2.0), "fp32", full=True).step_bytes == 4.0
    assert kept_in(wide, "bf16", full=True).full_moment_bytes == 2.0
    engine = replace(IDEAL, full_master_bytes=4.0)
    assert kept_in(engine, "fp32", full=True) == engine
    assert kept_in(engine, "fp32", full=False) == replace(engine, frozen_bytes=4.0)


@pytest.mark.parametrize(("zero", "holes"), [(0, 1.1), (2, 1.1), (3, 1.3)])
def test_layers_that_are_gathered_and_let_go_leave_holes(zero, holes):
    p = replace(IDEAL, fragmentation=1.1, sharded_fragmentation=1.3)
    assert fragmentation_of(zero, p) == holes
    assert fragmentation_of(zero, replace(p, fragmentation=1.4)) == 1.4
