"""One split of layers and weights over pipeline stages, for time and memory alike."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.memory.peak import stage_memories
from gpuscale.core.model.params import count_params
from gpuscale.core.rules import against_pp, facts_of
from gpuscale.core.stages import SPLIT_RULES, deal, layout_stages, split_layers, split_text
from gpuscale.core.step.step import model_stages, shape_of
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.software import capabilities_of, load_software, software_record
from gpuscale.io.step import step_hardware

MODELS = ("llama3-8b", "gemma3-27b", "qwen3-30b-a3b", "deepseek-v3", "nemotron-3-nano", "gpt3-175b")
FAMILIES = ("megatron-core", "nanotron", "torchtitan")


@lru_cache
def model(name):
    spec = load_model(name).spec
    return spec, model_facts(spec)


def test_published_splits():
    # nanotron playbook, Llama3-8B on 8 stages: 5 4 4 5 4 4 4 2 layers
    assert split_layers(32, 8, "greedy", 525.3 / 243.3) == (5, 4, 4, 5, 4, 4, 4, 2)
    # Llama 3 405B (arXiv:2407.21783, 3.3.2): one layer less on the first and the last stage
    assert split_layers(126, 16) == (7, *[8] * 14, 7)
    # Megatron-Bridge 0.3, DeepSeek-V3 recipes: 61 layers, a prediction layer and the loss
    edge = model("deepseek-v3")[1].weights.head_layers
    assert split_layers(61, 8, "balanced", edge) == (*[8] * 7, 5)
    assert split_layers(61, 4, "balanced", edge) == (16, 16, 16, 13)
    assert split_layers(61, 16, "balanced", edge) == (*[4] * 15, 1)


def test_every_stage_but_the_last_has_a_layer_of_each_chunk():
    """11 layers on four stages of three chunks: the head is the last one's third."""
    assert split_layers(11, 4, "balanced", 0.0, 3) == (3, 3, 3, 2)
    assert split_layers(11, 4, "balanced", 0.0, 1) == (2, 3, 3, 3)
    assert split_layers(21, 4, "balanced", 50.0, 4) == (6, 6, 6, 3)  # a head as heavy as 50 layers


@given(
    st.integers(1, 300),
    st.integers(1, 64),
    st.sampled_from(SPLIT_RULES),
    st.floats(0, 6),
    st.integers(1, 8),
)
def test_every_layer_has_one_stage(n_layers, pp, rule, head_layers, vpp):
    pp = min(pp, n_layers)
    vpp = min(vpp, n_layers // pp)
    counts = split_layers(n_layers, pp, rule, head_layers, vpp)
    assert (sum(counts), len(counts)) == (n_layers, pp)
    assert min(counts) >= (0 if rule == "greedy" else max(1, vpp - 1))
    assert rule == "greedy" or min(counts[1:-1], default=vpp) >= vpp
    chunks = deal(counts, vpp)
    assert [sum(len(c) for c in stage) for stage in chunks] == list(counts)
    in_order = [i for c in range(vpp) for stage in chunks for i in stage[c]]
    assert in_order == list(range(n_layers))


@given(st.integers(2, 300), st.integers(2, 64), st.floats(0, 6))
def test_balanced_is_never_heavier_than_even(n_layers, pp, head_layers):
    pp = min(pp, n_layers)

    def heaviest(rule):
        *front, last = split_layers(n_layers, pp, rule, head_layers)
        return max([*front, last + head_layers])

    assert heaviest("balanced") <= heaviest("even")


def test_more_stages_than_layers_are_refused():
    assert split_layers(70, 72) == (0, *[1] * 70, 0)  # Megatron-Core: 72 % 72 == 0 with both ends
    with pytest.raises(ValueError, match="pp=8 is more than 4 layers"):
        split_layers(4, 8)
    with pytest.raises(ValueError, match="stage split must be"):
        split_layers(4, 2, "by-name")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(FAMILIES),
    st.integers(2, 16),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 8]),
)
def test_time_and_memory_hold_the_same_layers(name, family, pp, vpp, tp):
    spec, facts = model(name)
    vpp = vpp if pp * vpp <= spec.n_layers else 1
    software = load_software(family)
    hw = step_hardware(load_cluster("dgx-h100"))
    sw = software_record(software, hw.architecture)
    layout = Layout(4096, 64, tp=tp, pp=pp, vpp=vpp)
    timed = model_stages(spec, hw, sw, layout, shape_of(layout, hw, sw))
    held = stage_memories(facts, layout, parameters_of(software))
    assert [t.n_layers for t in timed] == [m.n_layers for m in held]
    weights = [t.dense_params + t.expert_params for t in timed]
    assert weights == pytest.approx([m.params for m in held], rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("tp", "pp", "ep"), [(1, 1, 1), (2, 4, 1), (1, 3, 2), (4, 2, 4)])
def test_stages_hold_the_whole_model(name, tp, pp, ep):
    spec, facts = model(name)
    stages = layout_stages(facts.weights, "even", Layout(1, 1, tp=tp, pp=pp, ep=ep))
    held = sum(s.dense_params * tp + s.expert_params * ep for s in stages)
    counted = count_params(spec)
    copied = spec.vocab_size * spec.hidden_size if spec.tie_embeddings and pp > 1 else 0
    assert held == pytest.approx(counted.total_params + counted.mtp_params + copied, rel=2e-4)


def test_a_layout_can_name_its_stages():
    _, facts = model("deepseek-v3")
    layout = Layout(1, 1, pp=4, stage_layers=(15, 16, 16, 14))
    assert [s.n_layers for s in layout_stages(facts.weights, "even", layout)] == [15, 16, 16, 14]


def test_split_in_words():
    assert split_text((8, 8, 8, 8, 8, 8, 8, 5)) == "7 x 8, 5"
    assert split_text((7, 8, 8, 7)) == "7, 2 x 8, 7"
    assert split_text((4, 4)) == "2 x 4"


def test_the_ends_of_a_pipeline_may_hold_embedding_and_head_alone():
    soft = capabilities_of(load_software("megatron-core"))
    facts = facts_of(load_model("gpt3-175b").spec, 2048, 1568, 784, soft)
    assert against_pp(98, 1, facts) is None
    assert against_pp(99, 1, facts) is not None
    other = replace(facts, runs_on=replace(soft, lone_ends=False))
    assert against_pp(98, 1, other) is not None and against_pp(96, 1, other) is None
