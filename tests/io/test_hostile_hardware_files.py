"""Hostile hardware files: one clear error, never a traceback, never a strange number."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import cluster_from_table, gpu_from_table, load_cluster, load_gpu
from gpuscale.io.presets import preset_path
from gpuscale.io.text import read_toml

GPU = read_toml(preset_path("gpu", "h100"))
CLUSTER = read_toml(preset_path("cluster", "h100-superpod"))

FILES = {
    "empty": b"",
    "blank": b" \n\t\n",
    "binary": bytes(range(256)),
    "nul": b"name = \x00",
    "utf16": "name = 'x'".encode("utf-16"),
    "no-toml": b"{]",
    "list": b"[[a]]\n[[a]]\n",
    "nested": b"a = " + b"[" * 5000 + b"]" * 5000,
    "huge": b"a" * 6_000_000,
    "duplicate": b'name = "a"\nname = "b"\n',
    "missing": b'name = "x"\n',
    "tables": b"[a]\n" * 2,
    "dotted": b".".join([b"a"] * 3000) + b" = 1\n",
    "long-int": b"year = " + b"9" * 5000,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("load", [load_gpu, load_cluster])
def test_hostile_file(tmp_path, name, load):
    path = tmp_path / "x.toml"
    path.write_bytes(FILES[name])
    with pytest.raises(GpuscaleError) as caught:
        load(str(path))
    assert "x.toml" in caught.value.message
    assert "\n" not in caught.value.message.strip()


@pytest.mark.parametrize("path", ["/", "no/such.toml", "a\0.toml", "x/" * 3000, "/dev/null"])
def test_hostile_path(path):
    with pytest.raises(GpuscaleError):
        load_cluster(path)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from([1e300, -1.0, 0, math.nan, math.inf, "-1 GB", "1e300", "NaN", "0 B"]),
    ),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3),
    max_leaves=6,
)


def check(make, table):
    try:
        spec = make(table, "x.toml")
    except GpuscaleError as error:
        assert error.message.startswith("x.toml")
        return
    for value in spec.model_dump().values():
        assert not isinstance(value, float) or 0 <= value <= 1e30


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(GPU)), VALUES)
def test_any_value_of_a_gpu_key(key, value):
    check(gpu_from_table, GPU | {key: value})


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.sampled_from(sorted(CLUSTER)), st.text(max_size=8)), VALUES)
def test_any_value_of_a_cluster_key(key, value):
    check(cluster_from_table, CLUSTER | {key: value})


@pytest.mark.parametrize("key", ["hbm_bytes_per_s", "hbm_bytes", "bf16_flop_per_s"])
def test_rates_and_sizes_below_one_are_refused(key, tmp_path):
    spec = {
        "name": '"x"',
        "architecture": '"hopper"',
        "hbm_bytes": '"80 GB"',
        "hbm_bytes_per_s": '"3 TB/s"',
        key: "1e-300",
    }
    path = tmp_path / "g.toml"
    path.write_text("\n".join(f"{k} = {v}" for k, v in spec.items()))
    with pytest.raises(GpuscaleError, match=f"{key}: input should be greater than or equal to 1"):
        load_gpu(str(path))


def test_a_misspelt_key_is_told_before_the_missing_one(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text('name="x"\narchitecture="hopper"\nhbm_bytez="80 GB"\nhbm_bytes_per_s="3 TB/s"')
    with pytest.raises(GpuscaleError, match="hbm_bytez: not a key") as caught:
        load_gpu(str(path))
    assert caught.value.hint == "did you mean `hbm_bytes`?"
