"""One rule book: a layout that a framework cannot run is refused with a method and without one."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from running import invoke

MODELS = ("llama3-70b", "phi4", "mixtral-8x7b", "qwen3-30b-a3b", "qwen2.5-7b")
SOFTWARE = ("hf-deepspeed", "hf-fsdp", "megatron-core", "megatron-bridge", "fsdp", "nemo-automodel")
DEGREES = st.fixed_dictionaries(
    {
        "tp": st.sampled_from((1, 2, 3, 4, 8)),
        "pp": st.sampled_from((1, 2, 4, 5)),
        "cp": st.sampled_from((1, 2, 4)),
        "ep": st.sampled_from((1, 2, 3, 8)),
    },
    optional={
        "zero": st.sampled_from((0, 1, 2, 3)),
        "recompute": st.sampled_from(("full", "none")),
    },
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(SOFTWARE), DEGREES)
@example("llama3-70b", "hf-deepspeed", {"tp": 1, "pp": 4, "cp": 1, "ep": 1})
@example("phi4", "megatron-core", {"tp": 4, "pp": 1, "cp": 1, "ep": 1})
def test_a_layout_is_judged_alike(model, software, degrees):
    at = [word for name, value in degrees.items() for word in (f"--{name}", str(value))]
    ask = ["memory", model, "--gpus", "240", *at, "--software", software]
    plain, tuned, rl = (invoke(*ask, *more) for more in ([], ["--method", "full"], RL))
    assert (plain.returncode == 2) == (tuned.returncode == 2), (plain.stderr, tuned.stderr)
    if tuned.returncode == 2:
        assert rl.returncode == 2, tuned.stderr


RL = ["--method", "dpo"]
