"""Every plan's layout, put to `memory` and `timeline`, gives the same numbers."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuscale.answers.memory import Memory
from gpuscale.answers.plan import Plan
from gpuscale.answers.timeline import Timeline
from gpuscale.errors import GpuscaleError

SOFTWARE = (
    "megatron-core",
    "megatron-bridge",
    "torchtitan",
    "fsdp",
    "deepspeed-zero3",
    "nanotron",
    "jax",
    "any",
)


def asked(layout, model, cluster, software):
    """Say a layout as the options of `memory` and `timeline`."""
    on = {True: "on", False: "off"}
    offload = {
        (True, True): "both",
        (True, False): "optimizer",
        (False, True): "activations",
        (False, False): "none",
    }
    same = ("tp", "pp", "vpp", "cp", "cp_kind", "ep", "etp", "dp", "seq_len", "precision", "order")
    return {
        "model": model,
        "cluster": cluster,
        "software": software,
        **{name: getattr(layout, name) for name in same},
        "zero": layout.zero_stage,
        "shard_group": layout.shard_group_size,
        "micro_batch": layout.micro_batch_size,
        "global_batch": layout.global_batch_size,
        "sequence_parallel": on[layout.sequence_parallel],
        "recompute": layout.recompute,
        "recompute_layers": layout.recompute_layers,
        "schedule": layout.schedule,
        "overlap_tp": on[layout.overlap_tp],
        "overlap_dp": on[layout.overlap_dp],
        "overlap_pp": on[layout.overlap_pp],
        "offload": offload[layout.offload_optimizer, layout.offload_activations],
    }


@settings(max_examples=16, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    model=st.sampled_from(["llama3-8b", "llama3-70b", "qwen3-30b-a3b", "gemma3-27b", "phi4"]),
    software=st.sampled_from(SOFTWARE),
    cluster=st.sampled_from(["dgx-h100", "dgx-a100", "dgx-b200"]),
    n_nodes=st.sampled_from([2, 4, 6]),
    seq_len=st.sampled_from([4096, 8192]),
    fit=st.sampled_from(["safe", "tight"]),
)
def test_memory_and_timeline_say_what_the_plan_says(
    model, software, cluster, n_nodes, seq_len, fit
):
    try:
        plan = Plan(
            model=model,
            gpus=8 * n_nodes,
            cluster=cluster,
            software=software,
            seq_len=seq_len,
            fit=fit,
        ).answer()
    except GpuscaleError:
        return  # nothing that this software can run
    found = plan.result
    options = asked(found.layout, model, cluster, software)
    memory = Memory(**options).answer().result
    assert memory.total_bytes == pytest.approx(found.peak_bytes, rel=1e-9)
    assert tuple(s.n_layers for s in memory.stages) == found.stage_layers
    step = Timeline(**options).answer().result
    assert step.step_s == pytest.approx(found.step_s, rel=1e-9)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    model=st.sampled_from(["llama3-8b", "llama3-70b", "qwen3-30b-a3b", "gemma3-27b", "phi4"]),
    software=st.sampled_from(["megatron-core", "torchtitan", "deepspeed-zero3", "any"]),
    cluster=st.sampled_from(["dgx-h100", "dgx-a100", "dgx-b200"]),
    recompute=st.sampled_from(["none", "full"]),
    micro_batch=st.sampled_from([1, 2]),
)
def test_plan_holds_the_smallest_number_of_memory(model, software, cluster, recompute, micro_batch):
    same = {
        "model": model,
        "cluster": cluster,
        "software": software,
        "recompute": recompute,
        "micro_batch": micro_batch,
        "seq_len": 4096,
    }
    try:
        memory = Memory(**same, min_gpus=True).answer()
    except GpuscaleError:
        return  # not with this software
    found, zero = memory.result.fewest, memory.inputs["zero_stage"]
    if found is None:
        return
    batch = found.dp * found.pp * micro_batch
    at = {"tp": found.tp, "pp": found.pp, "dp": found.dp, "ep": found.ep, "cp": 1, "etp": 1}
    pins = {**at, "zero": zero, "recompute": recompute, "micro_batch": micro_batch}
    plan = Plan(
        **same | {k: str(v) for k, v in pins.items()},
        gpus=str(found.n_gpus),
        global_batch=str(batch),
        schedule="1f1b",
        fit="safe",
    ).answer()
    assert fits_safely(plan.result)
    for gpus in (found.n_gpus // 2, found.n_gpus - 8):
        if gpus > 0 and (gpus % 8 == 0 or gpus in (1, 2, 4)):
            assert fits_nowhere(same, gpus, zero)


def fits_nowhere(same, gpus, zero):
    """Whether a plan with the same job on fewer GPUs, TP in a node, does not fit safely."""
    pins = {"zero": zero, "cp": 1, "etp": 1, "tp": "1,2,4,8", "schedule": "1f1b"}
    try:
        plan = Plan(
            **same | {k: str(v) for k, v in pins.items()},
            gpus=str(gpus),
            global_batch="840",
            fit="safe",
            offload="none",
        ).answer()
    except GpuscaleError:
        return True
    return not fits_safely(plan.result)


def fits_safely(found):
    """Whether the upper end of the memory interval fits."""
    return found.peak_bytes * found.memory_interval_factor_80 <= found.capacity_bytes


@pytest.mark.parametrize(
    "wish",
    [
        {"deadline": "30d", "tokens": "1T"},
        {"budget": "0.5 MUSD", "tokens": "0.2T", "price": "2.5 USD/h"},
        {"objective": "fewest-gpus"},
        {"max_step_time": "20s"},
    ],
)
def test_the_size_that_is_found_is_planned_as_a_plan_of_it(wish):
    found = Plan(model="llama3-70b", **wish).answer().result.chosen
    alone = Plan(
        model="llama3-70b", gpus=str(found.n_gpus), global_batch=str(found.global_batch_size)
    ).answer()
    assert found.meets
    assert found.step_s == pytest.approx(alone.result.step_s, rel=0.06)
    near = found.step_s * (1 - 1e-12) <= alone.result.step_s
    assert found.layout == alone.result.layout or near  # the simpler one misses the condition
