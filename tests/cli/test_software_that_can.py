"""Where nobody names software, one is taken that can do what is asked, and said."""

import json

import pytest

from gpuscale.cli.app import run


@pytest.mark.parametrize(
    ("asked", "software"),
    [
        ("llama3-8b --method full --tp 2", "nemo-automodel"),
        ("llama3-8b --method lora --pp 2 --cp 2", "nemo-automodel"),
        ("qwen3-30b-a3b --method lora --ep 2", "nemo-automodel"),
        ("llama3-8b --method qlora --zero 1", "hf-deepspeed"),
        ("llama3-8b --method lora --cp 2 --cp-kind ulysses", "hf-deepspeed"),
        ("llama3-8b --method grpo --tp 2", "verl"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "memory"])
def test_software_that_can_is_taken(command, asked, software, capsys):
    assert run([command, *asked.split(), "--gpus", "8", "--gpu", "h100-sxm", "--json"]) in (0, 1)
    result = json.loads(capsys.readouterr().out)["result"]
    other = software not in ("hf-deepspeed",) or "qlora" in asked
    assert any(t.startswith(f"software {software}, as") for t in result["taken"]) == other


def test_one_that_is_named_is_kept(capsys):
    line = "memory llama3-8b --method full --tp 2 --gpus 8 --software hf-deepspeed"
    assert run(line.split()) == 2
    assert "hf-deepspeed has no tensor parallelism" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["megatron-core:0.12", "megatron-core:2025-06", "nemo:2.2"])
def test_versions_of_megatron_are_known(named, capsys):
    line = f"memory llama3-8b --gpus 8 --gpu h100-sxm --software {named}"
    assert run(line.split()) in (0, 1)
    assert "llama3-8b" in capsys.readouterr().out
