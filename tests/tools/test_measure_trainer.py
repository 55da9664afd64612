"""Jobs of tools/measure_trainer.py: models are the presets, and gpuscale answers each kind."""

import json
import runpy
from pathlib import Path

import pytest
import tomli

from gpuscale.io.models import load_model
from tests.running import invoke

TABLE = tomli.loads(Path("tools/measure_trainer.toml").read_text("utf-8"))
TOOL = runpy.run_path("tools/measure_trainer.py")


@pytest.mark.parametrize("name", TABLE["models"])
def test_a_model_has_the_shape_of_its_preset(name):
    shape, spec = TABLE["models"][name], load_model(name).spec
    widths = shape.get("hidden_size", shape.get("n_embd")), shape["vocab_size"]
    assert widths == (spec.hidden_size, spec.vocab_size)
    assert shape.get("num_hidden_layers", shape.get("n_layer")) == spec.n_layers


@pytest.mark.parametrize(
    "name", ["llama-lora-4k", "qwen1.7b-sft", "llama-dpo-lora", "llama-qlora-2k", "gptoss-lora-4k"]
)
def test_gpuscale_is_asked_what_is_measured(name):
    job = TABLE["jobs"][name]
    _, *asked = TOOL["command"](job)
    found = invoke(*asked)
    assert found.returncode == 0, found.stderr
    layout = json.loads(found.stdout)["result"]["layout"]
    assert layout["micro_batch_size"] == job["micro_batch"]
    assert (layout["seq_len"], layout["recompute"]) == (job["seq_len"], job["recompute"])
