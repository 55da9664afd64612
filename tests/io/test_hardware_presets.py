"""Every shipped GPU, cluster and link: loads, cites, hangs together, and holds known figures."""

import dataclasses
import re

import pytest

from gpuscale.core.quantity import parse
from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import cluster_from_table, gpu_from_table, load_cluster, load_gpu
from gpuscale.io.inputs import load_inputs
from gpuscale.io.presets import (
    find_preset,
    known_names,
    preset_aliases,
    preset_names,
    preset_path,
    preset_roots,
)
from gpuscale.io.text import parse_toml, read_toml
from gpuscale.io.toml_out import spec_to_toml

FIGURE = re.compile(r"(_per_s|_bytes|_hz|_w|_per_unit|_units|_per_gpu_hour|_per_node)$")
CATALOGUES = (("vendor", ""), ("documents", "/documents"))
GPUS = [(n, c) for c, k in CATALOGUES for n in preset_names(f"gpu{k}")]
CLUSTERS = [(n, c) for c, k in CATALOGUES for n in preset_names(f"cluster{k}")]


def without_sources(spec):
    return {k: v for k, v in spec.model_dump().items() if k != "sources"}


@pytest.mark.parametrize(("name", "catalogue"), GPUS)
def test_gpu_preset(name, catalogue):
    gpu = load_gpu(name, catalogue)
    assert gpu.name == name
    given = {k: v for k, v in gpu.model_dump().items() if v is not None}
    uncited = [k for k in given if FIGURE.search(k) and k not in gpu.sources]
    assert not uncited
    assert all(text.strip() for text in gpu.sources.values())
    assert set(gpu.sources) <= set(given)
    assert load_cluster(gpu.usual_cluster or name, catalogue).gpu == gpu
    assert load_cluster(name, catalogue).gpu == gpu
    assert gpu_from_table(parse_toml(spec_to_toml(gpu), "copy"), "copy") == gpu


@pytest.mark.parametrize(("name", "catalogue"), CLUSTERS)
def test_cluster_preset(name, catalogue):
    cluster = load_cluster(name, catalogue)
    assert cluster.name == name
    default = {f.name: f.default for f in dataclasses.fields(cluster)}
    given = {k for k, v in cluster.model_dump().items() if v is not None and v != default[k]}
    uncited = [k for k in given if FIGURE.search(k) and k not in cluster.sources]
    assert not uncited
    if cluster.n_nodes and cluster.n_gpus:
        assert cluster.n_nodes * cluster.gpus_per_node == cluster.n_gpus
    sizes = [level.gpus or float("inf") for level in cluster.levels]
    assert sizes == sorted(sizes)
    copy = cluster_from_table(parse_toml(spec_to_toml(cluster), "copy"), "copy")
    assert copy == cluster


def test_counts_of_presets():
    assert len(preset_names("gpu")) >= 41
    assert len(preset_names("cluster")) >= 64


@pytest.mark.parametrize("kind", ["gpu", "cluster"])
def test_aliases_lead_somewhere_and_hide_nothing(kind):
    names = set(preset_names(kind))
    for alias, name in preset_aliases(kind).items():
        assert name in names, alias
        assert alias not in names


@pytest.mark.parametrize(
    "alias",
    "h100 a100 v100 b200 h200 gb200 gb300 b300 h800 h20 mi300x l40s 4090 tpu-v5p H100_SXM".split(),
)
def test_what_people_type(alias):
    assert load_gpu(alias).hbm_bytes > 1e10


# from the makers' data sheets and tables, dense rates, one direction
DATA_SHEETS = [
    ("h100", "bf16_flop_per_s", 989.4e12, 0.001, "NVIDIA H100 data sheet (1979 with sparsity)"),
    ("h100", "hbm_bytes_per_s", 3.35e12, 0, "NVIDIA H100 data sheet"),
    ("h100", "scaleup_bytes_per_s", 450e9, 0, "NVIDIA H100 data sheet: 900 GB/s both ways"),
    ("a100", "bf16_flop_per_s", 312e12, 0, "NVIDIA A100 data sheet"),
    ("a100", "hbm_bytes_per_s", 2.039e12, 0, "NVIDIA A100 data sheet"),
    ("v100", "fp16_flop_per_s", 125e12, 0, "NVIDIA V100 data sheet"),
    ("h800", "scaleup_bytes_per_s", 200e9, 0, "H800: 400 GB/s both ways"),
    ("b200", "bf16_flop_per_s", 2.25e15, 0, "NVIDIA DGX B200: 36 PFLOP/s bf16 sparse / 16"),
    ("gb200", "bf16_flop_per_s", 2.5e15, 0, "NVIDIA GB200 NVL72: 360 PFLOP/s sparse / 144"),
    ("mi300x", "bf16_flop_per_s", 1307.4e12, 0, "AMD MI300X data sheet"),
    ("mi300x", "hbm_bytes_per_s", 5.3e12, 0, "AMD MI300X data sheet"),
    ("tpu-v5p", "bf16_flop_per_s", 459e12, 0, "Google Cloud TPU v5p"),
    ("l40s", "hbm_bytes_per_s", 864e9, 0, "NVIDIA L40S data sheet"),
]


@pytest.mark.parametrize(("gpu", "field", "value", "rel", "source"), DATA_SHEETS)
def test_figures_of_data_sheets(gpu, field, value, rel, source):
    assert getattr(load_gpu(gpu), field) == pytest.approx(value, rel=rel, abs=0), source


def test_documents_catalogue_rounds():
    documents = load_gpu("h100", catalogue="documents")
    assert (documents.bf16_flop_per_s, documents.hbm_bytes) == (990e12, 80e9)
    assert load_gpu("gb200", catalogue="documents").bf16_flop_per_s == 2250e12
    assert load_cluster("gb200-nvl72", "documents").node_egress_bytes_per_s == 3600e9
    assert load_cluster("h100-superpod", "documents").n_gpus == 1024


def test_links():
    links = {name: read_toml(preset_path("link", name)) for name in preset_names("link")}
    rates = {name: parse(link["bytes_per_s"], "bytes_per_s") for name, link in links.items()}
    assert [rates[n] for n in ("ib-hdr", "ib-ndr", "ethernet-100g")] == [25e9, 50e9, 12.5e9]
    for link in links.values():
        assert "bytes_per_s" in link["sources"]
        low, high = link.get("latency_low_s", "0 s"), link.get("latency_high_s", "1 s")
        assert parse(low, "s") <= parse(high, "s")


def test_unknown_names_get_the_closest_one():
    with pytest.raises(GpuscaleError) as caught:
        load_gpu("h100-smx")
    assert caught.value.message == "unknown GPU preset `h100-smx`"
    assert caught.value.hint == "did you mean `h100-sxm`?"
    with pytest.raises(GpuscaleError, match="unknown cluster or GPU `dgx-h10`"):
        load_cluster("dgx-h10")
    with pytest.raises(GpuscaleError, match="documents' catalogue"):
        load_gpu("mi300x", "documents")
    with pytest.raises(GpuscaleError, match="catalogue"):
        load_gpu("h100", "vendors")


@pytest.mark.parametrize("name", ["", ".", "..", "../gpu/h100-sxm", "_aliases", "a\0b", "x" * 9999])
def test_odd_names_are_no_presets(name):
    assert find_preset("gpu", name) is None


def test_own_folder_comes_first(tmp_path, monkeypatch):
    (tmp_path / "gpu").mkdir()
    text = preset_path("gpu", "h100-sxm").read_text().replace('"80 GiB"', '"64 GiB"')
    (tmp_path / "gpu" / "h100-sxm.toml").write_text(text)
    (tmp_path / "gpu" / "mine.toml").write_text(text.replace("h100-sxm", "mine"))
    (tmp_path / "gpu" / "_aliases.toml").write_text('ours = "mine"\n')
    monkeypatch.setenv("GPUSCALE_PRESETS", str(tmp_path))
    assert preset_roots()[0] == tmp_path
    assert load_gpu("h100").hbm_bytes == 64 * 2**30
    assert load_gpu("ours").name == "mine"
    assert "mine" in known_names("gpu")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GPUSCALE_PRESETS")
    own = tmp_path / "config" / "gpuscale" / "presets" / "gpu"
    own.mkdir(parents=True)
    (own / "xdg.toml").write_text(text.replace("h100-sxm", "xdg"))
    assert load_gpu("xdg").hbm_bytes == 64 * 2**30


def test_cluster_file_names_a_gpu_file_beside_it(tmp_path):
    (tmp_path / "g.toml").write_text(preset_path("gpu", "h200").read_text())
    text = preset_path("cluster", "dgx-h100").read_text()
    path = tmp_path / "c.toml"
    path.write_text(text.replace('gpu = "h100-sxm"', 'gpu = "./g.toml"', 1))
    assert load_cluster(str(path)).gpu.name == "h200-sxm"
    path.write_text(text.replace('gpu = "h100-sxm"', 'gpu = "h100-smx"', 1))
    with pytest.raises(GpuscaleError, match="c.toml: gpu: unknown GPU preset") as caught:
        load_cluster(str(path))
    assert "h100-sxm" in caught.value.hint


def test_typing_error_in_a_file_is_told(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text(preset_path("gpu", "h100").read_text().replace("hbm_bytes =", "hbm_byte =", 1))
    with pytest.raises(GpuscaleError, match="hbm_byte"):
        load_gpu(str(path))


def test_h800_node_and_superpods():
    assert load_cluster("h800").scaleup_bytes_per_s == 200e9
    assert [lv.gpus for lv in load_cluster("h100-superpod").levels] == [256, None]
    assert [lv.gpus for lv in load_cluster("superpod-b200-16su").levels] == [256, 2048, None]
    assert load_cluster("meta-24k").levels[-1].oversubscription == 7


def test_fabric_classes_are_of_a_known_set():
    known = {"infiniband", "roce", "efa", "omni-path", "tcpx", "ethernet", "ici", "slingshot"}
    inside = {"nvlink", "pcie", "amd-if", "roce", "ici", "neuronlink"}
    for name in preset_names("cluster"):
        table = read_toml(preset_path("cluster", name))
        assert table["fabric_class"] in known
        assert table["scaleup_class"] in inside


def test_own_gpu_gets_its_usual_node_with_itself_in_it(tmp_path, monkeypatch):
    text = preset_path("gpu", "h100").read_text()
    text = text.replace("h100-sxm", "mine").replace('"450 GB/s"', '"600 GB/s"')
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "mine.toml").write_text(text)
    by_path = load_cluster(str(tmp_path / "gpu" / "mine.toml"))
    monkeypatch.setenv("GPUSCALE_PRESETS", str(tmp_path))
    for cluster in (by_path, load_cluster("mine")):
        assert (cluster.name, cluster.gpu.name) == ("dgx-h100", "mine")
        assert cluster.scaleup_bytes_per_s == 600e9
    (tmp_path / "lone.toml").write_text(text.replace('usual_cluster = "dgx-h100"', ""))
    lone = load_cluster(str(tmp_path / "lone.toml"))
    assert (lone.name, lone.gpus_per_node, lone.scaleup_class) == ("pcie-mine", 8, "pcie")


def test_file_without_ending_gets_a_hint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("")
    for load in (load_gpu, load_cluster):
        with pytest.raises(GpuscaleError) as caught:
            load("mine")
        assert "./mine" in caught.value.hint


@pytest.mark.parametrize("name", ["rtx-3090", "rtx3090", "3090"])
def test_any_count_of_a_card_is_one_machine(name):
    machine = load_cluster(name)
    assert (machine.gpu.name, machine.scaleup_class) == ("rtx-3090", "pcie")
    assert machine.scaleup_bytes_per_s == machine.gpu.peer_bytes_per_s


def test_peer_rate_of_a_card_changes_its_machine():
    class Asked:
        settings = ("gpu.peer_bytes_per_s=56 GB/s",)
        calibration = None

    assert load_inputs(Asked(), cluster="rtx-3090").cluster.scaleup_bytes_per_s == 56e9


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100 40G", "a100-sxm-40gb"),
        ("A100-80g", "a100-sxm-80gb"),
        ("RTX4090-24G", "rtx-4090"),
        ("3090 24GiB", "rtx-3090"),
        ("V100 32G", "v100-sxm2-32gb"),
        ("L40S 48G", "l40s"),
        ("a10g", "a10g"),
    ],
)
def test_memory_at_the_end_of_a_name_is_read_as_people_write_it(written, name):
    assert load_cluster(written).gpu.name == name


@pytest.mark.parametrize("written", ["4090 48G", "2080ti-22g", "3080 0g"])
def test_a_card_of_another_size_is_refused_with_the_way_to_ask(written):
    with pytest.raises(GpuscaleError) as refused:
        load_cluster(written)
    assert "--set gpu.hbm_bytes=" in (refused.value.hint or "")
