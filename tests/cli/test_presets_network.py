"""`gpuscale presets` and `gpuscale network` as people call them."""

import json
import os
import subprocess
import sys

import pytest
from running import forked

from gpuscale.cli.app import run
from gpuscale.cli.parser import completer
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.presets import preset_names


def out(capsys, *args):
    code = run(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_list_has_every_preset(capsys):
    code, text, err = out(capsys, "presets")
    assert (code, err) == (0, "")
    for kind in ("gpu", "cluster", "model"):
        assert all(f" {name} " in text for name in preset_names(kind))


def test_filter_and_kind(capsys):
    code, text, _ = out(capsys, "presets", "h800", "--kind", "gpu", "--json")
    rows = json.loads(text)["result"]["presets"]
    assert code == 0
    assert [r["name"] for r in rows] == ["h800-pcie-80gb", "h800-sxm"]
    assert "200 GB/s" in rows[1]["figures"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*preset_names("gpu"), *preset_names("cluster")])
def test_shown_preset_can_be_given_back(capsys, tmp_path, name):
    code, text, _ = out(capsys, "presets", "show", name)
    assert code == 0
    path = tmp_path / "mine.toml"
    path.write_text(text)
    load = load_gpu if name in preset_names("gpu") else load_cluster
    assert load(str(path)) == load(name)


def test_show_with_a_change_can_be_given_back(capsys, tmp_path):
    code, text, _ = out(
        capsys, "presets", "show", "dgx-h100", "--set", "cluster.gpu.hbm_bytes=96 GiB"
    )
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert code == 0
    assert text.startswith("# cluster.gpu.hbm_bytes: 85.9 GB -> 103.1 GB (what-if)\n")
    assert load_cluster(str(path)).gpu.hbm_bytes == 96 * 2**30


def test_show_as_json(capsys):
    code, text, _ = out(capsys, "presets", "show", "h100", "--json")
    result = json.loads(text)["result"]
    assert code == 0
    assert result["hbm_bytes"] == "80 GiB"
    assert "hbm_bytes" in result["sources"]


@pytest.mark.parametrize(
    ("args", "start"),
    [
        (("presets", "show", "h100-smx"), "error: unknown preset `h100-smx`\n\nhint: did you mean"),
        (("presets", "show"), "error: `presets show` takes one name"),
        (("presets", "zzzz"), "error: no preset holds `zzzz`"),
        (("presets", "--kind", "gpus"), "error: unknown kind of preset `gpus`"),
        (("presets", "--set", "gpu.tdp_w=1"), "error: --set: nothing to change"),
        (("presets", "--catalogue", "x"), "error: unknown catalogue `x`"),
        (("network", "dgx-h10"), "error: unknown cluster or GPU `dgx-h10`"),
        (("network", "h100", "--gpus", "0"), "error: --gpus must be between 1 and"),
        (("network", "pod-tpu-v4", "--gpus", "10000"), "error: pod-tpu-v4: no box of 10000"),
        (("network", "h100", "--gpus", "999999999"), "error: --gpus must be between 1 and"),
        (("network", "h100", "--set", "model.n_layers=3"), "error: unknown --set key"),
    ],
)
def test_bad_input(capsys, args, start):
    code, text, err = out(capsys, *args)
    assert (code, text) == (2, "")
    assert err.startswith(start)


def test_network_numbers(capsys):
    code, text, _ = out(
        capsys, "network", "h100-superpod", "--gpus", "4096", "--catalogue", "documents", "--json"
    )
    result = json.loads(text)["result"]
    assert code == 0
    counts = (result["n_leaf_switches"], result["n_spine_switches"], result["n_core_switches"])
    assert counts == (128, 128, 64)  # quiz 3 of the GPU chapter


def test_network_says_what_was_changed(capsys):
    setting = "cluster.node_egress_bytes_per_s=800 GB/s"
    _, text, _ = out(capsys, "network", "h100", "--set", setting)
    assert "changed: cluster.node_egress_bytes_per_s: 400 GB/s -> 800 GB/s (what-if)" in text


@pytest.mark.parametrize("name", preset_names("cluster"))
def test_network_of_every_cluster(capsys, name):
    code, text, _ = out(capsys, "network", name, "--json")
    assert code == 0
    assert json.loads(text)["result"]["n_gpus"] >= 1


def test_completion():
    assert completer("gpu")("h100") == [
        "h100-nvl",
        "h100-pcie",
        "h100-sxm",
        "h100",
        "h100-80gb",
        "h100-94gb",
        "h100-sxm5",
    ]
    assert {"dgx-h100", "dgx-h200"} <= set(completer("cluster")("dgx-h"))
    assert "h100" in completer("cluster")("h1")
    assert "llama3-70b" in completer("model")("llama3-7")


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("gpuscale memory llama3-7", "llama3-70b"),
        ("gpuscale memory llama3-70b --cluster dgx-h", "dgx-h100"),
        ("gpuscale memory llama3-70b --software megatron-c", "megatron-core"),
        ("gpuscale plan deepseek-v", "deepseek-v3"),
        ("gpuscale collective all-r", "all-reduce"),
        ("gpuscale roofline chip b2", "b200-sxm"),
    ],
)
def test_completion_of_a_shell(line, want):
    """As bash asks for it; parameters of one name are completed alike in every command."""
    at = str(len(line.split()) - 1)
    done = forked(_GPUSCALE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=at)
    assert want in done.stdout.split(), done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux's full device")
@pytest.mark.parametrize("line", ["matmul-time h100 8 8 8", "quiz --json", "memory --help"])
def test_full_disk_is_no_bug(line):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpuscale", *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    want = "error: the answer cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, want)


def test_completion_reads_no_preset():
    code = (
        "from gpuscale.cli.parser import completer; import sys; c = completer('cluster');"
        "assert c('dgx'); print(*{'pydantic', 'rich', 'numpy'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []
