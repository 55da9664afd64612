"""The layer pattern language: what it means, and that nothing makes it crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.specs.model import MAX_LAYERS, compress, expand

LAYER = st.tuples(st.sampled_from("abc"), st.sampled_from(["d", "moe"]))


def test_nested():
    got = expand("3 x m+d, 2 x (5 x s+e, f+e)")
    assert got == (("m", "d"),) * 3 + ((("s", "e"),) * 5 + (("f", "e"),)) * 2


@given(st.lists(LAYER, min_size=1, max_size=60))
def test_compress_and_expand_are_inverse(layers):
    assert list(expand(compress(layers))) == layers


@given(st.lists(LAYER, min_size=1, max_size=6), st.integers(2, 50))
def test_repeats_are_found(block, n):
    assert len(compress(block * n)) <= len(f"{n} x ({', '.join(f'{m}+{f}' for m, f in block)})") + 9


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        assert 0 < len(expand(text)) <= MAX_LAYERS
    except ValueError as error:
        assert "\n" not in str(error).split("layer pattern", 1)[0]


@given(st.text(alphabet="0123456789x(), +ab", max_size=60))
def test_near_patterns_are_read_or_refused(text):
    try:
        assert 0 < len(expand(text)) <= MAX_LAYERS
    except ValueError as error:
        assert "layer pattern" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3 x",
        "a",
        "a+b,",
        "(a+b",
        "a+b)",
        "2 x (a+b",
        "a+b c+d",
        "10001 x a+b",
        "0 x a+b",
        "999999999 x 999999999 x a+b",
        "(" * 5000,
        "-1 x a+b",
    ],
)
def test_refused(text):
    with pytest.raises(ValueError, match="pattern"):
        expand(text)
