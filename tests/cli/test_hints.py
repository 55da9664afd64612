"""Hints name a likely typing mistake, or say what a thing is called here."""

import pytest
from running import invoke

from gpuscale.errors import typo_of

ALIKE = [  # what merely spells alike, and what must not be offered for it
    ("memory llama3-8b --lora", "--format"),
    ("memory llama3-8b --checkpoint", "--catalogue"),
    ("memory gpt-5", "gpt-3"),
    ("memory llama-4", "llama"),
    ("train llama3-8b", "plan?"),
    ("gemm h100 64 64 64", "gemma"),
]


@pytest.mark.parametrize(("line", "other"), ALIKE)
def test_a_hint_is_never_what_merely_spells_alike(line, other):
    r = invoke(*line.split())
    assert (r.returncode, r.stdout) == (2, "")
    assert r.stderr.startswith("error: ") and "hint: " in r.stderr
    assert "did you mean" not in r.stderr and other not in r.stderr.partition("hint:")[2]


@pytest.mark.parametrize(
    ("name", "other"),
    [("b100", "a100"), ("a1000", "a100"), ("4070", "4090"), ("rtx5070", "rtx5070ti")],
)
def test_another_product_is_no_typing_mistake(name, other):
    assert typo_of(name, [other]) == ""


NAMED_HERE = [
    ("memory llama3-8b --lora", "--method lora"),
    ("memory llama3-8b --batch 4", "--global-batch"),
    ("plan llama3-8b --tensor-parallel 8", "--tp"),
    ("finetune llama3-8b", "--method lora"),
    ("inference llama3-8b", "gpuscale serve"),
    ("gemm h100 1 1 1", "matmul-time"),
]


@pytest.mark.parametrize(("line", "said"), NAMED_HERE)
def test_a_hint_says_what_a_thing_is_called_here(line, said):
    r = invoke(*line.split())
    assert r.returncode == 2 and said in r.stderr.partition("hint:")[2]


@pytest.mark.parametrize("name", ["3090", "rtx3090", "a4000", "v100"])
def test_usual_names_of_gpus_are_known(name):
    assert invoke("matmul-time", name, "64", "64", "64").returncode == 0


@pytest.mark.parametrize("name", ["mpt-7b", "llama-13b", "bloom-7b", "falcon-40b", "gemma-7b"])
def test_usual_models_are_themselves(name):
    r = invoke("model", name)
    assert r.returncode == 0
    assert r.stdout.lower().startswith(name.partition("-")[0])
