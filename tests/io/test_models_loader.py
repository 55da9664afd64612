"""Loading models: every way in, and one clear line for everything that is wrong."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuscale.core.model.params import count_params
from gpuscale.errors import GpuscaleError
from gpuscale.io.hf_config import spec_from_config
from gpuscale.io.models import load_model, model_from_table
from gpuscale.io.presets import normalised, preset_aliases, preset_names
from gpuscale.io.text import parse_toml
from gpuscale.io.toml_out import spec_to_toml

DATA = Path(__file__).parent.parent / "data" / "hf_configs"
CASES = json.loads((DATA / "configs.json").read_text())
LLAMA = CASES["llama-mha-tied"]
FULL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 512,
    "tie_word_embeddings": True,
}


def piped(data):
    """Load what comes through a pipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return load_model("-")


def refused(arg, stdin=None):
    with pytest.raises(GpuscaleError) as caught:
        load_model(arg) if stdin is None else piped(stdin)
    message = caught.value.message
    assert "\n" not in message and len(message) < 400
    return message


@pytest.mark.parametrize("name", ["meta-llama/Meta-Llama-3-70B", "deepseek-ai/DeepSeek-V3"])
def test_name_of_a_model_hub(name, tmp_path, monkeypatch):
    """`owner/name` is the preset, unless there is such a file or folder."""
    monkeypatch.chdir(tmp_path)
    assert load_model(name).spec == load_model(name.split("/")[1]).spec
    folder = tmp_path / name
    folder.mkdir(parents=True)
    with pytest.raises(GpuscaleError, match="holds no config.json"):
        load_model(name)


@pytest.mark.parametrize("name", ["llama3-8b-foo", "instruct", "fp8-awq"])
def test_other_words_are_not_variants(name):
    with pytest.raises(GpuscaleError, match="unknown model preset"):
        load_model(name)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("ministral3-8b", 8.4), ("ministral3-14b", 13.5)],  # the model cards
)
def test_ministral_has_the_parameters_of_its_card(name, billions):
    found = count_params(load_model(name).spec).total_params
    assert found == pytest.approx(billions * 1e9, rel=0.015)


@pytest.mark.parametrize("name", ["./llama3-70b", "a/b/llama3-70b"])
def test_other_paths_are_files(name):
    with pytest.raises(GpuscaleError, match="no such file"):
        load_model(name)


def test_every_way_in(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    spec = load_model(str(config)).spec
    toml = tmp_path / "mine.toml"
    toml.write_text(spec_to_toml(spec))
    assert load_model(str(tmp_path)).spec == load_model(str(config)).spec
    assert load_model(str(toml)).spec == spec
    for text in (json.dumps(LLAMA), toml.read_text()):
        loaded = piped(text.encode())
        assert count_params(loaded.spec) == count_params(spec)
        assert loaded.origin == "standard input"


def test_a_folder_is_not_taken_for_a_preset(tmp_path, monkeypatch):
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_model("gpt2").origin == "preset gpt2"
    assert "holds no config.json" in refused("./gpt2")


@pytest.mark.slow
@pytest.mark.parametrize("alias", sorted(preset_aliases("model")))
def test_aliases_lead_to_presets(alias):
    assert load_model(alias).spec.name in preset_names("model")


@pytest.mark.parametrize("name", preset_names("model"))
def test_toml_round_trip(name):
    spec = load_model(name).spec
    assert model_from_table(parse_toml(spec_to_toml(spec), name), name) == spec


def test_unknown_name_gets_a_hint():
    with pytest.raises(GpuscaleError) as caught:
        load_model("lama3-70b")
    assert caught.value.message == "unknown model preset `lama3-70b`"
    assert "llama3-70b" in caught.value.hint


BAD_TEXT = {
    b"": "is empty",
    b"  \n ": "is empty",
    b"\xff\xfe\x00": "is not text",
    b"a\x00b": "is a binary file",
    b"{": "not valid JSON",
    b"[1, 2]": "not valid TOML",
    b"{} x": "not valid JSON",
    b'{"hidden_size": NaN}': "NaN is not a value",
    b"{}": "is not known",
    b'{"peft_type": "LORA", "base_model_name_or_path": "a/b"}': "adapters, not a model",
    b'{"model_type": "llama"}': "hidden_size, num_hidden_layers",
    b'{"model_type": 3}': "model_type",
    b'{"model_type": "llama", "text_config": 5}': "text_config",
    b"hidden_size = ": "not valid TOML",
    b'name = "x"': "required",
    b"[" * 100_000: "not valid TOML",
    b'{"a":' * 100_000: "not valid JSON",
}


@pytest.mark.parametrize(("data", "problem"), BAD_TEXT.items(), ids=lambda v: repr(v)[:24])
def test_bad_text(data, problem):
    assert problem in refused("-", data)


def test_huge_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b" " * 5_000_001)
    assert "larger than 5 MB" in refused(str(path))


BAD_KEYS = [
    ("hidden_size", "64"),
    ("hidden_size", -1),
    ("hidden_size", 0),
    ("hidden_size", 1e300),
    ("hidden_size", True),
    ("hidden_size", 64.5),
    ("hidden_size", [64]),
    ("hidden_size", {}),
    ("hidden_size", float("inf")),
    ("num_hidden_layers", 1_000_000),
    ("num_hidden_layers", -4),
    ("num_attention_heads", 0),
    ("num_attention_heads", 128),
    ("vocab_size", 10**400),
    ("tie_word_embeddings", "yes"),
    ("attention_bias", 7),
    ("head_dim", "wide"),
    ("intermediate_size", "big"),
    ("num_key_value_heads", -2),
]


@pytest.mark.parametrize(("key", "value"), BAD_KEYS)
def test_bad_key(key, value):
    text = json.dumps({**FULL, key: value}).encode()
    assert key in refused("-", text)


def test_absurd_model_is_refused():
    sizes = {"hidden_size": 10**9, "intermediate_size": 10**9, "num_hidden_layers": 1000}
    text = json.dumps({**FULL, **sizes}).encode()
    assert "parameters, more than" in refused("-", text)


def test_unknown_type_is_read_with_a_warning():
    config = {**FULL, "model_type": "nextbigthing"}
    spec, warnings = spec_from_config(config, "x.json")
    known, _ = spec_from_config(FULL, "x.json")
    assert count_params(spec).total_params == count_params(known).total_params
    assert "nextbigthing" in warnings[0] and "RMSNorm" in warnings[0]


def test_unknown_type_without_keys_is_refused():
    config = {"model_type": "nextbigthing", "hidden_size": 64}
    with pytest.raises(GpuscaleError, match="num_hidden_layers, num_attention_heads, vocab_size"):
        spec_from_config(config, "x.json")


def test_assumed_defaults_are_told():
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    spec, warnings = spec_from_config({"model_type": "gemma3", "text_config": text}, "x.json")
    assert spec.vocab_size == 262_208 and spec.tie_embeddings
    assert "num_attention_heads=8" in warnings[-1] and "vocab_size=262208" in warnings[-1]


QUANTIZED = [
    ({"quant_method": "fp8"}, 8),
    ({"quant_method": "mxfp4"}, 4.25),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
    ({"quant_method": "awq"}, 4),
    ({"quant_method": "gptq", "bits": 8}, 8),
    ({"quant_method": "awq", "bits": 4}, 4),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 4}}},
        },
        4,
    ),
    ({"quant_method": "something"}, None),
]


@pytest.mark.parametrize(("config", "bits"), QUANTIZED)
def test_weight_bits(config, bits):
    spec, warnings = spec_from_config({**FULL, "quantization_config": config}, "x.json")
    assert spec.weight_bits == bits
    assert bool(warnings) is (bits is None)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(CASES)), data=st.data(), value=JUNK)
def test_any_key_may_be_broken(name, data, value):
    """A released config with one key replaced by junk is read or refused, never a traceback."""
    config = json.loads(json.dumps(CASES[name]))
    inner = config.get("text_config") if data.draw(st.booleans()) else None
    table = inner or config
    key = data.draw(st.sampled_from(sorted(table)))
    table[key] = value
    try:
        spec, _ = spec_from_config(config, "x.json")
        assert count_params(spec).total_params > 0
    except GpuscaleError as error:
        assert "x.json" in error.message


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(CASES)), data=st.data())
def test_any_key_may_be_missing(name, data):
    config = json.loads(json.dumps(CASES[name]))
    table = config.get("text_config", config)
    del table[data.draw(st.sampled_from(sorted(table)))]
    try:
        spec, _ = spec_from_config(config, "x.json")
        assert count_params(spec).total_params > 0
    except GpuscaleError as error:
        assert "x.json" in error.message


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_any_bytes_are_refused(data):
    with pytest.raises(GpuscaleError):
        piped(data)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80))
def test_any_name_is_refused(name):
    known = {*preset_names("model"), *preset_aliases("model"), "-"}
    if normalised(name) in known:
        return
    with pytest.raises(GpuscaleError):
        load_model(name)


@pytest.mark.parametrize(
    "more",
    [
        {"mamba_d_state": 16},
        {"linear_num_key_heads": 4},
        {"type_vocab_size": 2},
        {"is_encoder_decoder": True},
        {"attn_layer_period": 8},
    ],
)
def test_unknown_type_with_foreign_layers_is_refused(more):
    with pytest.raises(GpuscaleError, match=f"no plain decoder: it has {next(iter(more))}"):
        spec_from_config({**FULL, "model_type": "nextbigthing", **more}, "x.json")


def test_unknown_moe_and_latent_types_are_read():
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    spec, warnings = spec_from_config({**FULL, **experts, "model_type": "next"}, "x.json")
    known, _ = spec_from_config({**FULL, **experts, "model_type": "qwen3_moe"}, "x.json")
    assert count_params(spec).ffn_params == count_params(known).ffn_params
    assert count_params(spec).mixer_params == 4 * 4 * 64 * 64
    assert warnings
    latent = CASES["deepseek-v3"]
    read, _ = spec_from_config({**latent, "model_type": "next"}, "x.json")
    assert count_params(read) == count_params(spec_from_config(latent, "x.json")[0])


def test_more_experts_a_token_than_there_are(tmp_path):
    config = {
        "model_type": "mixtral",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 100,
        "intermediate_size": 128,
        "num_local_experts": 8,
        "num_experts_per_tok": 9,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(GpuscaleError, match="top_k 9 is more than the 8 experts"):
        load_model(str(tmp_path))
