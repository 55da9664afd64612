"""Megatron-Bridge: a recipe with overrides, written and read back."""

import pytest

from gpuscale.core.layout import Layout
from gpuscale.core.settings import JobSettings
from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.launch.dialects.write import launch_script
from gpuscale.launch.job import TrainingLaunch
from gpuscale.launch.read.detect import read_launch


def job_of(model, layout, chunks, settings):
    spec = load_model(model).spec
    place = load_cluster("gb200-nvl72")
    return TrainingLaunch(spec, place, "megatron-bridge", layout, chunks, settings)


def test_what_is_written_is_read_back():
    chunks = (4,) * 15 + (1,)
    layout = Layout(4096, 4096, ep=64, pp=4, vpp=4, dp=64, recompute="selective", precision="mxfp8")
    settings = JobSettings(
        cuda_graphs="layer",
        dispatcher="hybridep",
        overlap_ep=True,
        recompute_modules=("mla_up_proj",),
        moments="bf16",
        gradients="bf16",
    )
    job = job_of("deepseek-v3", layout, chunks, settings)
    written, name, text = launch_script(job, "megatron-bridge", "torchrun")
    found = read_launch({name: text})
    assert (found.kind, found.model_name, found.world_size) == (
        "megatron-bridge",
        "deepseek-v3",
        256,
    )
    assert (found.pp, found.vpp, found.ep, found.stage_layers) == (4, 4, 64, chunks)
    assert (found.precision, found.recompute, found.zero_stage) == ("mxfp8", "selective", 1)
    assert found.settings == {
        "cuda_graphs": "layer",
        "dispatcher": "hybridep",
        "overlap_ep": "on",
        "recompute_modules": ("mla_up_proj",),
        "moments": "bf16",
        "gradients": "bf16",
    }
    assert not found.wrong and not written.unsaid


@pytest.mark.parametrize(("zero", "sharding"), [(2, "optim_grads"), (3, "optim_grads_params")])
def test_sharding_is_megatron_fsdp(zero, sharding):
    layout = Layout(8192, 64, dp=16, zero_stage=zero)
    job = job_of("llama3-8b", layout, (32,), JobSettings())
    _, name, text = launch_script(job, "megatron-bridge", "slurm")
    assert f"ddp.data_parallel_sharding_strategy={sharding}" in text
    assert read_launch({name: text}).zero_stage == zero


def test_a_model_without_a_recipe_is_refused():
    job = job_of("gpt3-175b", Layout(2048, 64, dp=8), (96,), JobSettings())
    with pytest.raises(GpuscaleError, match="no configuration of gpt3-175b"):
        launch_script(job, "megatron-bridge", "torchrun")
