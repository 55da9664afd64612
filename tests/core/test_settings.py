"""What a run sets beside its layout: the same words in every question, one effect."""

import dataclasses

import pytest

from gpuscale.answers.ask import fields_of
from gpuscale.answers.job_options import JobOptions
from gpuscale.answers.training.plan import Plan
from gpuscale.answers.training.plan_request import job_keys
from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.settings import DISPATCHERS, JobSettings
from gpuscale.core.step.records import Software
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import capabilities_of, load_software, software_record

NAMES = {f.name for f in dataclasses.fields(JobSettings)}


def test_questions_and_job_files_say_every_setting():
    assert set(fields_of(JobOptions)) == NAMES
    assert set(job_keys(Plan)) >= NAMES


def test_dispatchers_set_fields_of_the_software():
    known = {f.name for f in dataclasses.fields(Software)}
    assert all(set(fields) <= known for fields in DISPATCHERS.values())


def test_settings_reach_time_and_memory():
    spec = load_software("megatron-core")
    said = JobSettings(cuda_graphs="layer", dispatcher="deepep", moments="bf16", gradients="bf16")
    software = software_record(spec, "hopper", said.options)
    assert (software.cuda_graphs, software.rdma_dispatch) == ("layer", True)
    assert (software.moment_bytes, software.gradient_bytes) == (4.0, 2.0)
    memory = parameters_of(spec, said.options)
    assert (memory.optimizer_bytes, memory.gradients_bytes) == (4.0, 2.0)


@pytest.mark.parametrize(
    ("software", "settings", "word"),
    [
        ("nanotron", JobSettings(cuda_graphs="layer"), "CUDA graphs"),
        ("fsdp", JobSettings(dispatcher="deepep"), "dispatcher"),
        ("torchtitan", JobSettings(moments="fp8"), "moments"),
        ("megatron-lm-2021", JobSettings(overlap_ep=True), "overlap"),
        ("megatron-core", JobSettings(cuda_graphs="full", dispatcher="hybridep"), ""),
    ],
)
def test_what_a_framework_lacks_is_said(software, settings, word):
    said = settings.against(capabilities_of(load_software(software)))
    assert word in said if word else said == ""


def test_deepep_takes_twenty_nodes_of_eight():
    """DeepEP, csrc/kernels/configs.cuh: NUM_MAX_NVL_PEERS 8, NUM_MAX_RDMA_PEERS 20."""
    wide = [JobSettings(dispatcher=d).refused_by(1, 1, 256, "none") for d in DISPATCHERS]
    assert [bool(why) for why in wide] == [d == "deepep" for d in DISPATCHERS]
    assert not JobSettings(dispatcher="deepep").refused_by(1, 1, 160, "none")


def steps(**more):
    from gpuscale.answers.training.asked import Timeline

    return (
        Timeline(
            "qwen3-30b-a3b", gpus=64, ep=16, dp=64, global_batch=256, cluster="dgx-h100", **more
        )
        .answer()
        .result.step_s
    )


def test_graphs_dispatcher_and_kernels_shorten_a_step():
    plain = steps(dispatcher="alltoall")
    assert steps(cuda_graphs="layer", dispatcher="alltoall") <= plain
    assert steps(dispatcher="deepep") < plain
    assert steps(moe_kernels="2025", dispatcher="alltoall") < plain
    assert steps(moments="bf16", dispatcher="alltoall") < plain


def test_scripts_that_are_not_compiled_are_slower():
    """NanoGPT's README: 250 ms an iteration, 135 compiled (1.85); others 2.4 (docs/accuracy.md)."""
    ask = dict(gpus=1, gpu="a100-80gb", seq_len=1024, global_batch=44, micro_batch=44)
    ask |= dict(software="pytorch", fit="expected")
    fused = Plan("gpt2", **ask).answer().result.step_s
    eager = ["software.compiled=false"]
    apart = Plan("gpt2", set=eager, attention="eager", **ask).answer().result.step_s
    assert 1.4 < apart / fused < 2.4


def test_modules_are_known():
    with pytest.raises(GpuscaleError, match="unknown module"):
        JobOptions(recompute_modules="core_attn,nonsense")
