"""What is in this machine: driver names, the hub's cache."""

import json
import stat

import pytest

from gpuscale.cli.app import run
from gpuscale.errors import GpuscaleError
from gpuscale.io import this_machine
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.models import load_model

NAMES = [
    ("NVIDIA H100 80GB HBM3", "h100-sxm"),
    ("NVIDIA H100 PCIe", "h100-pcie"),
    ("NVIDIA H100 NVL", "h100-nvl"),
    ("NVIDIA H200", "h200-sxm"),
    ("NVIDIA B300 SXM6 AC", "b300-sxm"),
    ("NVIDIA GB200", "gb200"),
    ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
    ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
    ("NVIDIA A10G", "a10g"),
    ("Tesla T4", "t4"),
    ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
    ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
    ("NVIDIA GeForce RTX 4060 Ti", "rtx-4060-ti-16gb"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
    ("NVIDIA GB10", "dgx-spark"),
    ("AMD Instinct MI300X OAM", "mi300x"),
]


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A machine whose nvidia-smi prints what is wanted."""

    def has(*names):
        tool = tmp_path / "nvidia-smi"
        tool.write_text("#!/bin/sh\n" + "".join(f"echo '{n}'\n" for n in names))
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        this_machine.gpus_here.cache_clear()

    monkeypatch.setattr(this_machine, "_torch", list)
    yield has
    this_machine.gpus_here.cache_clear()


@pytest.mark.parametrize(("name", "preset"), NAMES)
def test_driver_names_are_presets(name, preset):
    assert this_machine.preset_of(name) == preset


def test_auto_is_the_cards_of_this_machine(driver, capsys):
    driver(*["NVIDIA GeForce RTX 3090"] * 2)
    assert load_gpu("auto").name == "rtx-3090"
    cluster = load_cluster("auto")
    assert (cluster.gpus_per_node, cluster.n_gpus, cluster.gpu.name) == (2, 2, "rtx-3090")
    assert run(["plan", "llama3.2-1b", "--gpu", "auto", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["n_gpus"] == 2


def test_two_kinds_of_card_want_a_name(driver, capsys):
    driver("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090")
    assert run(["memory", "llama3-8b", "--gpu", "auto"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "2 kinds" in err and "--gpu" in err


def test_no_gpu_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(this_machine, "_torch", list)
    this_machine.gpus_here.cache_clear()
    with pytest.raises(GpuscaleError, match="no GPU was found"):
        load_gpu("auto")


def test_unknown_card_is_said():
    with pytest.raises(GpuscaleError, match="has no preset"):
        this_machine.preset_of("NVIDIA GeForce GT 710")


def test_hub_id_is_read_from_the_local_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(GpuscaleError, match="not in the local hub cache"):
        load_model("someone/new-model")
    snapshot = tmp_path / "models--someone--new-model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "vocab_size": 100,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "tie_word_embeddings": False,
    }
    (snapshot / "config.json").write_text(json.dumps(config))
    assert load_model("someone/new-model").spec.n_layers == 3
    refs = tmp_path / "models--someone--new-model" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    assert load_model("someone/new-model").spec.hidden_size == 64
    assert load_model("meta-llama/Meta-Llama-3-8B").origin == "preset llama3-8b"
