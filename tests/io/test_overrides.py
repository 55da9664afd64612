"""What-if overrides: strict, complete, told."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.answers.summary import changed_text
from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.inputs import apply_overrides, load_inputs, parse_settings

H100 = load_gpu("h100")
POD = load_cluster("h100-superpod")


def loaded(*settings, **names):
    return load_inputs(SimpleNamespace(settings=settings, calibration=None), **names)


def test_change_is_made_and_told():
    spec, lines = apply_overrides(POD, "cluster", ["cluster.node_egress_bytes_per_s=800 GB/s"])
    assert spec.node_egress_bytes_per_s == 800e9
    assert lines == ("cluster.node_egress_bytes_per_s: 400 GB/s -> 800 GB/s (what-if)",)
    assert spec.sources["node_egress_bytes_per_s"].startswith("what-if")
    assert POD.node_egress_bytes_per_s == 400e9


def test_nested_keys_and_lists():
    spec, _ = apply_overrides(
        POD,
        "cluster",
        [
            "cluster.gpu.hbm_bytes_per_s=4 TB/s",
            "cluster.levels.spine.oversubscription=4",
            "cluster.levels.0.gpus=128",
            "cluster.n_nodes=none",
            "cluster.in_switch_reduction_scaleout=false",
        ],
    )
    assert spec.gpu.hbm_bytes_per_s == 4e12
    assert [(lv.gpus, lv.oversubscription) for lv in spec.levels] == [(128, 1), (None, 4)]
    assert spec.n_nodes is None
    assert spec.in_switch_reduction_scaleout is False


def test_gpu_is_short_for_the_clusters_gpu():
    result = loaded("gpu.hbm_bytes=96 GiB", cluster="h100")
    assert result.gpu.hbm_bytes == result.cluster.gpu.hbm_bytes == 96 * 2**30
    assert changed_text(result) == "changed: cluster.gpu.hbm_bytes: 85.9 GB -> 103.1 GB (what-if)"


def test_scaleup_of_the_gpu_reaches_the_cluster():
    result = loaded("gpu.scaleup_bytes_per_s=900 GB/s", cluster="h100")
    assert result.cluster.scaleup_bytes_per_s == result.gpu.scaleup_bytes_per_s == 900e9
    assert len(result.changes) == 2


def test_whole_gpu_by_name():
    assert loaded("cluster.gpu=h200", cluster="h100").gpu.name == "h200-sxm"


def test_model_keys():
    result = loaded("model.n_layers=40", "model.mixers.full.n_heads=32", model="llama3-70b")
    assert result.model.n_layers == 40
    assert [m.n_heads for m in result.model.mixers.values()] == [32]
    with pytest.raises(GpuscaleError, match="the layers differ"):
        loaded("model.n_layers=40", model="deepseek-v3")


def test_descriptive_key_warns():
    assert "changes no result" in loaded("cluster.fabric=Omni", cluster="h100").warnings[0]


BAD = [
    ("cluster.node_egres=1", "unknown --set key", "cluster.node_egress_bytes_per_s"),
    ("gpu.bf16=3", "unknown --set key", "cluster.gpu.bf16_flop_per_s"),
    ("gpu.hbm_bytes=-1", "greater than 0", ""),
    ("gpu.hbm_bytes=nan", "not a number", ""),
    ("gpu.hbm_bytes=inf", "not a number", ""),
    ("gpu.hbm_bytes=1e300", "out of range", ""),
    ("gpu.hbm_bytes=400 Gb/s", "unit 'Gb/s'", ""),
    ("gpu.hbm_bytes", "not KEY=VALUE", ""),
    ("=3", "not KEY=VALUE", ""),
    ("gpu.=3", "not KEY=VALUE", ""),
    ("gpu.hbm_bytes.x=3", "no keys below", ""),
    ("cluster.gpus_per_node=8.5", "valid integer", ""),
    ("cluster.gpus_per_node=none", "--set cluster.gpus_per_node", ""),
    ("cluster.gpu=none", "--set cluster.gpu", ""),
    ("cluster.gpu=h10", "unknown GPU preset", ""),
    ("cluster.levels.spine.oversubscription=0.5", "greater than or equal to 1", ""),
    ("cluster.levels.leaf.gpus=none", "each must hold more GPUs", ""),
    ("cluster.levels=[{name='a',gpus=3},{name='b',gpus=2}]", "each must hold more GPUs", ""),
    ("cluster.levels=[[[[", "not valid TOML", ""),
    ("model.hidden_size=3", "unknown --set key", "this command can change cluster."),
]


@pytest.mark.parametrize(("setting", "message", "hint"), BAD)
def test_bad_setting_is_one_line(setting, message, hint):
    with pytest.raises(GpuscaleError) as caught:
        loaded(setting, cluster="h100-superpod")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message


def test_twice_is_refused():
    with pytest.raises(GpuscaleError, match="given twice"):
        parse_settings(["gpu.tdp_w=1", "gpu.tdp_w=2"])


KEYS = [f"gpu.{k}" for k in type(H100).__dataclass_fields__] + [
    f"cluster.{k}" for k in type(POD).__dataclass_fields__
]
TEXTS = st.one_of(
    st.text(max_size=40),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(
        ["[", "{}", "[{}]", '""', "none", "true", "1e300", "-0", "9" * 400, "[1]", "{a=1}"]
    ),
)


@pytest.mark.slow
@given(st.one_of(st.sampled_from(KEYS), st.text(max_size=30)), TEXTS)
def test_any_setting_gives_a_spec_or_one_clear_error(key, value):
    try:
        result = loaded(f"{key}={value}", cluster="h100-superpod")
    except GpuscaleError as error:
        assert error.message.strip()
    else:
        assert result.changes


def test_a_process_has_the_same_share_of_another_memory():
    mac = load_gpu("m4-max")
    small, _ = apply_overrides(mac, "gpu", ["gpu.hbm_bytes=64 GiB"])
    assert small.usable_hbm_bytes / small.hbm_bytes == mac.usable_hbm_bytes / mac.hbm_bytes
    assert load_gpu("M4 Max 64GB").usable_hbm_bytes == small.usable_hbm_bytes
    said, _ = apply_overrides(mac, "gpu", ["gpu.hbm_bytes=64 GiB", "gpu.usable_hbm_bytes=60 GiB"])
    assert said.usable_hbm_bytes == 60 * 2**30
    with pytest.raises(GpuscaleError, match="no apple-m4-max of 40 GB"):
        load_cluster("m4 max 40gb")
