"""Names as model hubs write them."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.errors import GpuscaleError
from gpuscale.io.models import DATED, STORED, TUNED, load_model, read_hub_name
from gpuscale.io.presets import find_preset, preset_names

NAMES = [  # as on the hub: preset, format of the weights by the card
    ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b", "bf16"),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "qwen3-30b-a3b", "fp8"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3", "bf16"),
    ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "llama3.1-8b", "nf4"),
    ("TheBloke/Llama-2-13B-chat-GPTQ", "llama2-13b", "int4-g128"),
    ("nvidia/Llama-3.3-70B-Instruct-FP4", "llama3.3-70b", "nvfp4"),
    ("neuralmagic/Llama-3.2-3B-Instruct-quantized.w8a8", "llama3.2-3b", "int8"),
    ("google/gemma-3-27b-it-qat-q4_0-gguf", "gemma3-27b", "q4_0"),
    ("qwen2.5:7b-instruct-q5_K_M", "qwen2.5-7b", "q5_k_m"),
    ("deepseek-r1:32b", "qwen2.5-32b", "bf16"),
    ("microsoft/Phi-3-mini-4k-instruct", "phi3-mini", "bf16"),
    ("openai/gpt-oss-20b", "gpt-oss-20b", "mxfp4"),
    ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3", "fp8"),
    ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama3.1-70b", "int4-g128"),
    ("RedHatAI/Qwen3-32B-FP8-dynamic", "qwen3-32b", "fp8"),
    ("TinyLlama/TinyLlama-1.1B-step-50K-105b", "tinyllama-1.1b", "bf16"),
]


@pytest.mark.parametrize(("name", "preset", "stored"), NAMES)
def test_names_of_a_hub(name, preset, stored):
    model = load_model(name)
    assert (model.spec.name, model.spec.published_format) == (preset, stored)
    plain = load_model(preset).spec
    if stored != plain.published_format:
        assert any(preset in w and stored in w for w in model.warnings)


@pytest.mark.parametrize("name", preset_names("model"))
def test_the_name_on_the_hub_means_the_preset(name):
    spec = load_model(name).spec
    if spec.hub:
        on_hub = load_model(spec.hub).spec
        assert (on_hub.name, on_hub.published_format) == (name, spec.published_format)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from(preset_names("model")), st.sampled_from(["-instruct", "-it", "-AWQ", "-2507"])
)
def test_a_suffix_keeps_the_shape(name, suffix):
    spec = load_model(name).spec
    found = load_model(name + suffix).spec
    assert (found.layers, found.hidden_size) == (spec.layers, spec.hidden_size)


def test_words_that_are_dropped_name_no_model():
    for name in preset_names("model"):
        words = [w for w in name.split("-") if not re.fullmatch(f"{TUNED}|{DATED}", w)]
        assert [w for w in words if w not in STORED], name
    for name in ("instruct", "chat-gguf", "", "-", "q4_k_m", "2507", "no-such-model-7b-it"):
        assert read_hub_name(name, lambda short: find_preset("model", short) is not None) is None


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("mistral-7b-sft-constitutional-ai", "mistral-7b"),
        ("Llama-3-8B-helpful-assistant", "llama3-8b"),
        ("zephyr-7b-gemma-sft", None),
        ("llama-3-8b-pruned", None),
        ("qwen2.5-7b-embedding", None),
        ("llama-3-8b-16layers", None),
    ],
)
def test_a_name_by_its_beginning_unless_its_end_says_another_shape(name, model):
    if model is None:
        with pytest.raises(GpuscaleError):
            load_model(f"a/{name}")
    else:
        assert load_model(f"a/{name}").spec.name == model


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", 262_144),
        ("qwen3_coder_30b_a3b", 262_144),
        ("Qwen/Qwen3-30B-A3B", 40_960),
        ("microsoft/Phi-3-mini-128k-instruct", 131_072),
        ("TinyLlama/TinyLlama-1.1B-step-64K-105b", 2_048),
    ],
)
def test_a_checkpoint_has_the_length_that_it_was_made_for(name, tokens):
    assert load_model(name).spec.max_position == tokens
