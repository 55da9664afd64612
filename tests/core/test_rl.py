"""RL post-training: lengths, roles, phases."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.cli.app import run
from gpuscale.core.finetune.rl import METHODS
from gpuscale.core.finetune.rl_step import RlStep, n_tensors, responses, roles
from gpuscale.io.models import load_model


@settings(max_examples=30, deadline=None)
@given(st.floats(10, 1e4), st.floats(1.05, 50))
def test_the_mean_of_the_lengths_is_the_given_one(mean, times):
    r = responses(mean, mean * times)
    steps = 4000
    width = r.max_tokens / steps
    total = sum(r.alive((i + 0.5) * width) * width for i in range(steps))
    assert total == pytest.approx(mean, rel=2e-3)
    assert mean <= r.longest(1000) <= r.max_tokens


def test_roles_are_those_of_the_methods():
    held = {m: roles(m) for m in METHODS}
    assert [m for m in METHODS if held[m].critic] == ["ppo"]
    assert all(held[m].reference for m in METHODS)
    assert not roles("grpo", kl=False).reference
    assert not roles("dpo", adapters=True).reference
    assert [m for m in METHODS if not held[m].rollout] == ["dpo"]
    assert [m for m in METHODS if held[m].reward] == ["ppo"]
    assert not roles("ppo", reward=False).reward
    with pytest.raises(ValueError, match="must be one of"):
        roles("sft")


def test_an_asynchronous_step_takes_the_longer_pool():
    phases = (60.0, 5.0, 5.0, 0.0, 0.0, 30.0, 1.0, 0.0, 2.0)
    assert RlStep(*phases, "split").step_s == sum(phases)
    assert RlStep(*phases, "async").step_s == 63.0
    assert RlStep(*phases, "split").bound == "rollout"


def test_experts_are_tensors_of_their_own():
    """verl handles 48 layers of 128 experts with three matrices each: 18,432 of them."""
    assert n_tensors(load_model("qwen3-30b-a3b").spec) == pytest.approx(18_432, rel=0.02)


REFUSED = [
    (("--method", "lora", "--group", "4"), "--group is for RL"),
    (("--method", "grpo", "--engine", "split", "--gpus", "1"), "no split of 1 GPUs"),
    (("--method", "grpo", "--rollout-gpus", "8", "--gpus", "8"), "leaves none"),
    (("--method", "dpo", "--group", "4"), "--group: --method dpo has no rollout"),
    (("--method", "grpo", "--response", "4k", "--max-response", "1k"), "above --max-response"),
    (("--group", "4"), "--group needs --method"),
]


@pytest.mark.parametrize(("args", "words"), REFUSED)
def test_what_cannot_be_is_refused(capsys, args, words):
    code = run(("plan", "qwen2.5-7b", *args))
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert words in captured.err


def test_a_split_is_compared_with_others(capsys):
    args = ("--gpus", "16", "--engine", "async", "--rollout-gpus", "8", "--response", "1k")
    code = run(("plan", "qwen2.5-7b", "--method", "grpo", *args))
    text = capsys.readouterr().out
    assert code == 0
    for word in ("rollout GPUs", "bound by", "log-probabilities", "weights to the engine"):
        assert word in text


def test_more_memory_never_slows_a_step(capsys):
    """The engine's degree is the fastest that fits, so a larger card has no fewer choices."""
    ask = ["plan", "gemma3-27b", "--method", "grpo", "--gpus", "16", "--json"]
    steps = []
    for room in ("80GB", "240GB"):
        assert run([*ask, "--set", f"gpu.hbm_bytes={room}"]) == 0
        steps.append(json.loads(capsys.readouterr().out)["result"]["step_s"])
    assert steps[1] <= steps[0]
