"""Launch files written: what the framework's parser took, and what our own reader reads back."""

import json
import re
from pathlib import Path

import pytest
import yaml

from gpuscale.core.layout import Layout
from gpuscale.core.settings import JobSettings
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.launch.dialects.write import chunk_layers, launch_script, writes
from gpuscale.launch.job import WRAPPERS, TrainingLaunch
from gpuscale.launch.read.detect import read_launch

DATA = Path(__file__).parent.parent / "data" / "launch"
READ_BACK = {
    "megatron": ("tp", "pp", "vpp", "cp", "micro_batch_size", "global_batch_size", "seq_len"),
    "megatron-bridge": ("tp", "pp", "vpp", "cp", "micro_batch_size", "global_batch_size"),
    "torchtitan": ("tp", "pp", "cp", "micro_batch_size", "seq_len", "recompute"),
    "deepspeed": ("micro_batch_size", "global_batch_size"),
    "accelerate": ("tp", "cp", "micro_batch_size"),
    "maxtext": ("tp", "pp", "vpp", "cp", "micro_batch_size", "seq_len", "recompute", "precision"),
    "nanotron": ("tp", "pp", "dp", "micro_batch_size", "seq_len", "zero_stage", "recompute"),
}

KINDS = {"deepspeed": "trainer", "accelerate": "trainer"}
"""What is launched with a JSON or a YAML beside it is a trainer's job."""


def keys_of(text):
    """Table of a file; of FSDP without its own recomputation, which the Trainer's excludes."""
    table = yaml.safe_load(text)
    fsdp = {**table.get("fsdp_config", {}), "fsdp_activation_checkpointing": None}
    return {**table, "fsdp_config": fsdp}


NODES = {"ampere": "dgx-a100", "hopper": "dgx-h100", "blackwell": "dgx-b200"}


def job_of(row):
    def frozen(table):
        return {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}

    return TrainingLaunch(
        model=load_model(row["model"]).spec,
        cluster=load_cluster(NODES[row["arch"]]),
        software="",
        layout=Layout(**frozen(row["layout"])),
        stage_layers=tuple(row["chunks"]),
        settings=JobSettings(**frozen(row.get("settings", {}))),
    )


@pytest.mark.slow
@pytest.mark.parametrize("framework", READ_BACK)
def test_the_files_are_those_that_the_parser_took(framework):
    recorded = json.loads((DATA / f"{framework}.json").read_text("utf-8"))
    assert len(recorded["rows"]) >= 200
    for row in recorded["rows"]:
        assert row["accepted"] and row["agreed"], row
        written = writes(job_of(row), framework)
        assert written.version == recorded["version"]
        if framework not in KINDS:
            assert grouped(written.train) == grouped(row["train"])
        pairs = zip(written.files, row["files"], strict=True)
        assert all(keys_of(file.text) == keys_of(text) for file, text in pairs)


def grouped(words):
    """Options with their values, in any order."""
    starts = [i for i, word in enumerate(words) if re.match(r"--|[a-z-]+:|.*=", word)]
    ends = [*starts[1:], len(words)]
    return sorted((tuple(words[a:b]) for a, b in zip(starts, ends, strict=True)), key=str)


@pytest.mark.slow
@pytest.mark.parametrize("framework", READ_BACK)
def test_what_is_written_is_read_back(framework):
    rows = json.loads((DATA / f"{framework}.json").read_text("utf-8"))["rows"]
    for row in rows[::7]:
        job = job_of(row)
        _, name, text = launch_script(job, framework, "slurm")
        found = read_launch({name: text})
        assert found.kind == KINDS.get(framework, framework)
        assert found.world_size == job.layout.n_gpus
        assert not found.not_understood and not found.wrong
        for field in READ_BACK[framework]:
            nearest = ("selective", "per-op", *(("none",) if framework == "maxtext" else ()))
            if field == "recompute" and job.layout.recompute in nearest:
                continue  # one policy of torchtitan; for MaxText those of its names nearest to them
            assert getattr(found, field) == getattr(job.layout, field), field


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_wrapper_starts_the_same_command(wrapper):
    model = load_model("llama3-8b").spec
    layout = Layout(8192, 64, tp=2, dp=8)
    job = TrainingLaunch(model, load_cluster("dgx-h100"), "megatron-core", layout, (32,))
    _, name, text = launch_script(job, "megatron", wrapper)
    if name.endswith((".yaml", ".yml")):
        assert isinstance(yaml.safe_load(text), dict)
    assert read_launch({name: text}).tp == 2
    assert "--tensor-model-parallel-size 2" in text


def test_chunks_are_in_model_order():
    model = load_model("llama3-8b").spec
    assert chunk_layers(model, (8, 8, 8, 8), 2) == (4,) * 8


def test_nanotron_has_context_parallelism_where_it_is_asked_for(tmp_path, capsys):
    """Its trainer (2411b022) makes no random weights with it, and needs DDP or no ZeRO."""
    from gpuscale.cli.app import run

    base = ["plan", "llama3-8b", "--gpus", "64", "--software", "nanotron", "--seq-len", "131072"]
    base += ["--global-batch", "64"]
    assert run([*base, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["layout"]["cp"] == 1
    assert run([*base, "--cp", "4", "-o", str(tmp_path / "run.sh")]) == 0
    text = (tmp_path / "run.sh").read_text()
    assert "context_parallel_size: 4" in text and "resume_checkpoint_path: checkpoint" in text
    capsys.readouterr()
    assert run([*base, "--cp", "8", "--tp", "8", "--zero", "1"]) == 2
    assert "one replica with ZeRO-1" in capsys.readouterr().err
    assert run([*base, "--cp", "8", "--tp", "8", "--zero", "0"]) in (0, 1)


def test_what_a_model_is_not_known_by_is_left_to_megatrons_defaults_and_said():
    layout = {"dp": 8, "seq_len": 1024, "global_batch_size": 8}
    for model, base in (("llama3-8b", True), ("gpt2", False)):
        row = {"model": model, "arch": "hopper", "layout": layout}
        job = job_of({**row, "chunks": [load_model(model).spec.n_layers]})
        said = " ".join(writes(job, "megatron").unsaid)
        assert "--norm-epsilon, 1e-5" in said and ("--rotary-base, 10,000" in said) is base
