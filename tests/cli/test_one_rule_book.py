"""One rule book: a layout that a framework cannot run is refused with a method and without one."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from running import invoke

from gpuscale.io.presets import preset_names
from gpuscale.io.software import load_software

MODELS = ("llama3-70b", "phi4", "mixtral-8x7b", "qwen3-30b-a3b", "qwen2.5-7b")
SOFTWARE = (
    "hf-deepspeed hf-fsdp megatron-core megatron-bridge fsdp nemo-automodel axolotl torchtune "
    "litgpt prime-rl trl openrlhf verl skyrl nemo-rl megatron-swift llama-factory unsloth"
).split()
DEGREES = st.fixed_dictionaries(
    {
        "tp": st.sampled_from((1, 2, 3, 4, 8)),
        "pp": st.sampled_from((1, 2, 4, 5)),
        "cp": st.sampled_from((1, 2, 4)),
        "ep": st.sampled_from((1, 2, 3, 8)),
    },
    optional={
        "zero": st.sampled_from((0, 1, 2, 3)),
        "recompute": st.sampled_from(("full", "none", "selective")),
        "recompute-layers": st.sampled_from((2, 4)),
        "offload": st.sampled_from(("optimizer", "activations", "optimizer,activations")),
        "etp": st.sampled_from((1, 2, 4)),
        "vpp": st.sampled_from((2, 3)),
        "cp-kind": st.sampled_from(("ring", "ulysses", "all-gather")),
        "order": st.just("tp-cp-pp-dp"),
    },
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(SOFTWARE), DEGREES)
@example("llama3-70b", "hf-deepspeed", {"tp": 1, "pp": 4, "cp": 1, "ep": 1})
@example("phi4", "megatron-core", {"tp": 4, "pp": 1, "cp": 1, "ep": 1})
@example("mixtral-8x7b", "megatron-core", {"tp": 8, "pp": 1, "cp": 2, "ep": 8})
@example("llama3-70b", "skyrl", {"tp": 1, "pp": 1, "cp": 4, "ep": 1, "cp-kind": "ring", "zero": 2})
def test_a_layout_is_judged_alike(model, software, degrees):
    if degrees["cp"] == 1:  # what does nothing is refused with a method alone
        degrees = {k: v for k, v in degrees.items() if k not in ("cp-kind", "order")}
    at = [word for name, value in degrees.items() for word in (f"--{name}", str(value))]
    ask = ["memory", model, "--gpus", "240", *at, "--software", software]
    plain, tuned, rl = (invoke(*ask, *more) for more in ([], ["--method", "full"], RL))
    assert (plain.returncode == 2) == (tuned.returncode == 2), (plain.stderr, tuned.stderr)
    if tuned.returncode == 2:
        assert rl.returncode == 2, tuned.stderr


RL = ["--method", "dpo"]


OFFERED = {
    "axolotl": "tp cp ep",
    "deepspeed-chat": "",
    "fsdp-qlora": "cp",
    "litgpt": "",
    "llama-factory": "tp pp cp ep",
    "megatron-swift": "tp pp cp ep",
    "mlx": "",
    "ms-swift": "tp cp",
    "nemo-automodel": "tp pp cp ep",
    "openrlhf": "tp cp",
    "prime-rl": "cp ep",
    "skyrl": "tp pp cp ep",
    "torchtune": "tp cp",
    "trl": "cp",
    "unsloth": "",
    "verl": "tp pp cp ep",
}
"""Framework -> kinds of parallelism that its own source has (`[capabilities.sources]`)."""

WORDS = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}


@pytest.mark.slow
@pytest.mark.parametrize("software", OFFERED)
@pytest.mark.parametrize("degree", WORDS)
def test_what_a_framework_does_not_have_is_refused(software, degree):
    ask = ("memory", "mixtral-8x7b", "--gpus", "64", f"--{degree}", "4", "--software", software)
    for method in ((), ("--method", "full")):
        answer = invoke(*ask, *method)
        if degree in OFFERED[software].split():
            assert answer.returncode in (0, 1), answer.stderr
        else:
            assert answer.returncode == 2
            assert f"{software} has no {WORDS[degree]} parallelism: {degree}=4" in answer.stderr


def test_adapters_are_split_where_the_recipe_of_adapters_is():
    ask = ("memory", "llama3-8b", "--gpus", "8", "--tp", "4", "--software", "torchtune", "--method")
    assert invoke(*ask, "full").returncode == 0
    assert "torchtune has no tensor parallelism" in invoke(*ask, "lora").stderr


def test_every_framework_says_what_it_has():
    without = [n for n in preset_names("software") if not load_software(n).capabilities]
    assert without == []


@pytest.mark.slow
@pytest.mark.parametrize("software", ["torchtune", "litgpt", "prime-rl", "mlx", "axolotl", "trl"])
@pytest.mark.parametrize("method", ["full", "lora", "dpo"])
def test_a_free_plan_finds_a_layout(software, method):
    ask = ("plan", "qwen2.5-7b", "--gpus", "8", "--method", method, "--software", software)
    assert invoke(*ask).returncode in (0, 1)
    assert invoke("memory", *ask[1:]).returncode in (0, 1)
