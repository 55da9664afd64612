"""`gpuscale network` as a buyer calls it: a preset, a wish, a cable list, a bad wish."""

import json

import pytest

from gpuscale.answers.parts.asked import Network
from gpuscale.cli.app import run


def call(capsys, line):
    code = run(line.split() if isinstance(line, str) else line)
    out = capsys.readouterr()
    return code, out.out, out.err


def result(capsys, line):
    code, out, _ = call(capsys, f"{line} --json")
    assert code == 0
    return json.loads(out)["result"]


def test_a_wish(capsys):
    """8192 GPUs, a seventh of the bandwidth beyond a leaf, QM9700: counts follow 56 down, 8 up."""
    r = result(capsys, "network --gpus 8192 --oversubscription 7 --switch QM9700")
    assert (r["n_leaf_switches"], r["n_spine_switches"], r["n_core_switches"]) == (152, 38, 19)
    assert r["design"]["tiers"][0]["ports_down"] == 56
    top = r["design"]["bisection"][-1]["bytes_per_s_per_gpu"]
    assert top == pytest.approx(50e9 / 7)
    assert r["levels"][-1]["bytes_per_s_per_gpu"] == pytest.approx(top)
    assert r["all_reduce"]["low_s"] <= r["all_reduce"]["time_s"] <= r["all_reduce"]["high_s"]


def test_question_of_a_three_tier_tree(capsys):
    """27,648 hosts, 48 ports: 1,152 edge, 1,152 aggregation, 576 core; a public reading list."""
    r = result(capsys, "network --gpus 27648 --radix 48 --tiers 3 --topology fat-tree")
    counts = (r["n_leaf_switches"], r["n_spine_switches"], r["n_core_switches"])
    assert counts == (1152, 1152, 576) and r["n_switches"] == 2880


@pytest.mark.parametrize(
    ("line", "switches", "links"),
    [
        ("network superpod-h100-3su", 40, 1532),
        ("network superpod-b300-eth-1su", 24, 2048),
        ("network --gpus 512 --switch QM9700 --topology rail-only", 8, 512),
        ("network --gpus 4096 --switch QM9700 --topology rail-only", 192, 8192),
        ("network --gpus 1024 --switch tomahawk4 --link 200Gb/s --uplink 400Gb/s", None, None),
        (
            "network --gpus 261632 --nics 8 --radix 64 --topology dragonfly --shape 16,32,16,511",
            16352,
            None,
        ),
    ],
)
def test_designs_from_the_command_line(capsys, line, switches, links):
    r = result(capsys, line)
    assert switches is None or r["n_switches"] == switches
    assert links is None or r["n_links"] == links
    assert r["n_switches"] == sum(t["n_switches"] for t in r["design"]["tiers"])


def test_megascale_leaf_from_the_command_line(capsys):
    """Hosts at 200G, uplinks at 400G: a 64-port box takes 64 hosts and 32 uplinks."""
    r = result(
        capsys, "network --gpus 512 --switch tomahawk4 --link 200Gb/s --uplink 400Gb/s --tiers 2"
    )
    leaf = r["design"]["tiers"][0]
    assert (leaf["n_switches"], leaf["ports_down"], leaf["ports_up"]) == (8, 64, 32)


def test_text_says_what_the_json_says(capsys):
    line = "network superpod-h100-1su"
    r = result(capsys, line)
    _, text, _ = call(capsys, line)
    for value in (r["n_switches"], r["n_links"], *(g["n_links"] for g in r["design"]["links"])):
        assert f"{value:,}" in text
    assert f"{r['bill']['usd'] / r['n_gpus']:,.0f} USD per GPU" in text
    for loss in r["losses"]:
        assert loss["part"] in text


def test_torus_bisection_is_right_or_not_printed(capsys):
    r = result(capsys, "network pod-tpu-v4")
    assert r["design"]["bisection"][0]["bytes_per_s"] == 512 * 45e9
    _, text, _ = call(capsys, "network pod-tpu-v4")
    assert "bisection, 2-way" not in text and "23.04 TB/s" in text
    open_axes = result(capsys, "network pod-tpu-v5e --gpus 64")  # 8x8: no axis of 16
    assert open_axes["design"]["bisection"][0]["bytes_per_s"] == 8 * 50e9


def test_cable_list_and_its_check(capsys, tmp_path):
    path = tmp_path / "cables.csv"
    code, out, _ = call(capsys, "network superpod-h100-1su --cables --format csv")
    assert code == 0
    rows = out.splitlines()
    assert rows[0] == "a_device,a_port,b_device,b_port,length"
    assert len(rows) == 1 + 248 + 256  # the manager's four ports are free in the list
    path.write_text(out)
    code, out, err = call(capsys, f"network check {path} --switch QM9700")
    assert (code, err) == (0, "") and "WRONG" not in out
    path.write_text("\n".join([*rows, rows[-1]]))
    code, out, _ = call(capsys, f"network check {path} --radix 64")
    assert code == 1 and "has 2 cables" in out
    path.write_text("a,b\n1,2\n")
    code, out, err = call(capsys, f"network check {path}")
    assert (code, out) == (2, "") and "no column a_device" in err


def test_plane_lists_are_disjoint(capsys, tmp_path):
    path = tmp_path / "cables.csv"
    _, out, _ = call(capsys, "network superpod-b300-eth-1su --cables --format csv")
    path.write_text(out)
    code, out, _ = call(capsys, ["network", "check", str(path), "--radix", "128", "--json"])
    assert code == 0
    assert json.loads(out)["result"]["report"]["n_planes"] == 2


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("network --gpus 64 --radix 0", "error: --radix must be between 2"),
        ("network --gpus 64 --nics 0", "error: --nics must be between 1"),
        ("network --gpus 64 --ports-per-nic 0", "error: --ports-per-nic must be between 1"),
        ("network --gpus 64 --oversubscription 0.5", "error: --oversubscription must be at least"),
        ("network --gpus 64 --oversubscription -1", "error: --oversubscription must be above 0"),
        ("network --gpus 64 --switch qm970", "error: unknown switch preset `qm970`"),
        ("network --gpus 640 --switch QM9700 --switch-price 36000", "error: --switch-price 36000"),
        ("network dgx-h100 --gpus 640 --switch QM8700", "error: switch qm8700: no port of 50.00"),
        ("network --gpus 64 --topology star", "error: unknown topology `star`"),
        ("network --gpus 99999 --radix 8 --tiers 2", "error: dgx-h100: 2 tiers of 8-port"),
        ("network --gpus 256 --planes 3 --ports-per-nic 2", "error: dgx-h100: 2 ports of a NIC"),
        ("network pod-tpu-v4 --gpus 1000", "error: pod-tpu-v4: no box of 1000 chips"),
        ("network check", "error: `network check` needs a file"),
        ("network check nothere.csv", "error: nothere.csv: no such file"),
        ("network dgx-h100 x", "error: `x`: one cluster"),
    ],
)
def test_bad_wishes_are_refused(capsys, line, start):
    code, out, err = call(capsys, line)
    assert (code, out) == (2, "")
    assert err.startswith(start), err


def test_rail_only_saves_what_is_published():
    """Rail-only: 38 to 77 % of the network's price, 37 to 75 % of its power (arXiv:2307.12169)."""
    ask = {"gpus": 512, "switch": "QM9700"}
    full = Network(topology="rail-optimised", **ask).answer().result
    rails = Network(topology="rail-only", **ask).answer().result
    assert 0.38 < 1 - rails.bill.usd / full.bill.usd < 0.77
    assert 0.37 < 1 - rails.bill.power_low_w / full.bill.power_low_w < 0.75


def test_picture_of_the_topology(capsys, tmp_path):
    path = tmp_path / "net.svg"
    assert run(["network", "superpod-h100-1su", "-o", str(path), "--plot"]) == 0
    assert "leaf" in capsys.readouterr().out
    assert path.read_text().startswith("<svg") and "252 links" in path.read_text()
