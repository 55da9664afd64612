"""TOML in and out, and validation errors as one line."""

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import spec_error
from gpuscale.io.text import parse_toml, read_toml
from gpuscale.io.toml_out import spec_to_toml, table_to_toml
from gpuscale.specs.model import ModelSpec

GOOD = {
    "name": "m",
    "hidden_size": 8,
    "vocab_size": 9,
    "layers": "2 x a+b",
    "mixers": {"a": {"kind": "attention", "n_heads": 2, "n_kv_heads": 1, "head_dim": 4}},
    "ffns": {"b": {"kind": "dense", "ffn_hidden_size": 16}},
}

BAD = [
    ({"hidden_sise": 8}, "m.toml: hidden_sise: not a key that is known here"),
    ({"hidden_size": -8}, "m.toml: hidden_size: input should be greater than or"),
    ({"hidden_size": "wide"}, "m.toml: hidden_size:"),
    ({"hidden_size": float("nan")}, "m.toml: hidden_size:"),
    ({"hidden_size": 1e300}, "m.toml: hidden_size: far too large"),
    ({"layers": "2 x a+c"}, "m.toml: layers: ffn 'c' is not in [ffns]"),
    ({"layers": "2 x"}, "m.toml: layer pattern ends"),
    ({"mixers": {"a": {"n_heads": 2}}}, "m.toml: mixers.a: needs a `kind`"),
    (
        {"mixers": {"a": {"kind": "attention", "n_heads": 0, "n_kv_heads": 1, "head_dim": 4}}},
        "m.toml: mixers.a.n_heads: input should be greater than or equal to 1, got 0",
    ),
    ({"mixers": {"a": {"kind": "magic"}}}, "m.toml: mixers.a:"),
    ({"training_tokens": "15 GB"}, "m.toml: training_tokens: unit 'GB'"),
    ({"extra_params": 1e300}, "m.toml: extra_params:"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=lambda v: str(v)[:30])
def test_error_names_file_key_and_problem(change, message):
    with pytest.raises(pydantic.ValidationError) as caught:
        ModelSpec.model_validate({**GOOD, **change})
    error = spec_error("m.toml", caught.value, list(ModelSpec.__dataclass_fields__))
    assert error.message.startswith(message)
    assert "\n" not in error.message and "pydantic" not in error.message
    if "hidden_sise" in change:
        assert error.hint == "did you mean `hidden_size`?"


def test_other_problems_are_counted():
    with pytest.raises(pydantic.ValidationError) as caught:
        ModelSpec.model_validate({**GOOD, "hidden_size": 0, "vocab_size": 0})
    assert spec_error("x", caught.value).message.endswith("(and 1 more problem)")


def test_defaults_are_not_written():
    spec = ModelSpec.model_validate(GOOD)
    assert parse_toml(spec_to_toml(spec), "x") == GOOD


def test_keys_before_tables():
    text = table_to_toml({"t": {"b": 2.0}, "a": 1, "list": [{"c": True}]})
    assert text == "a = 1\n\n[t]\nb = 2\n\n[[list]]\nc = true\n"


PLAIN = (
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TABLES = st.recursive(
    st.dictionaries(KEYS, PLAIN | st.lists(PLAIN, max_size=3), max_size=4),
    lambda inner: st.dictionaries(KEYS, PLAIN | inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(TABLES)
def test_any_table_comes_back(table):
    assert parse_toml(table_to_toml(table), "x") == table


def test_reading_fails_clearly(tmp_path):
    path = tmp_path / "x.toml"
    with pytest.raises(GpuscaleError, match="no such file"):
        read_toml(path)
    with pytest.raises(GpuscaleError, match="is a folder"):
        read_toml(tmp_path)
    path.write_text("a = 1\nb = ]\n")
    with pytest.raises(GpuscaleError, match="not valid TOML.*line 2"):
        read_toml(path)
