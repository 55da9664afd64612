"""Networks of hosts, which need not be GPUs, and what `collective` is told of a machine."""

import pytest

import gpuscale
from gpuscale.cli.app import run


@pytest.mark.parametrize("topology", ["fat-tree", "clos", "leaf-spine"])
def test_three_tiers_of_48_ports_join_27648_hosts(topology, capsys):
    args = ["network", "--hosts", "27648", "--topology", topology, "--ports", "48"]
    assert run([*args, "--tiers", "3"]) == 0
    text = capsys.readouterr().out
    assert "27,648 hosts of one port each" in text and "2,880" in text
    assert "GPUs" not in text


def test_hosts_or_gpus_not_both(capsys):
    assert run(["network", "--hosts", "16", "--gpus", "16"]) == 2
    assert capsys.readouterr().err.startswith("error: give --gpus or --hosts")


def busbw(**more) -> float:
    found = gpuscale.collective("all-reduce", bytes="4 GiB", **more)
    return found.result.expected.busbw_bytes_per_s


def test_options_of_a_machine_change_what_they_say():
    two = busbw(cluster="dgx-a100", gpus=16)
    assert busbw(cluster="dgx-a100", gpus=16, nics=4) == pytest.approx(96e9, rel=0.05)
    assert busbw(cluster="dgx-a100", gpus=16, link="200Gb/s") == pytest.approx(two, rel=1e-9)
    assert busbw(cluster="dgx-h100", gpus=64, oversubscription=4) < 100e9
    direct, host = (busbw(cluster="rtx-4090", gpus=4, peer=peer) for peer in ("p2p", "host"))
    assert direct > host == busbw(cluster="rtx-4090", gpus=4)
    assert busbw(cluster="rtx-3090", gpus=2, peer="bridge") > 2 * busbw(cluster="rtx-3090", gpus=2)
    alone = busbw(cluster="rtx-3090", gpus=2, gpus_per_node=1, link="25Gb/s")
    assert 2e9 < alone < 25e9 / 8


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("dgx-h100", "--oversubscription", "0.5"), "--oversubscription must be at least 1"),
        (("rtx-4090", "--gpus", "2", "--peer", "bridge"), "no NVLink bridge of rtx-4090"),
    ],
)
def test_what_a_machine_cannot_be_is_one_line(args, message, capsys):
    assert run(["collective", "all-reduce", *args, "--bytes", "1GB"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and message in shown.err
