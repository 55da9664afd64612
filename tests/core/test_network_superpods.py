"""Switch and link counts against NVIDIA's published SuperPOD tables, levels against the book."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.fabric.clos import tree
from gpuscale.core.fabric.of_cluster import design_of, plan_of
from gpuscale.core.fabric.records import equal_ports
from gpuscale.core.network.hierarchy import network_report
from gpuscale.io.hardware import load_cluster

H100 = "NVIDIA DGX SuperPOD H100 reference architecture, network fabrics, table 4"
B200 = "NVIDIA DGX SuperPOD B200 reference architecture, architecture, 2 to 64 SU"
B300 = "NVIDIA DGX SuperPOD B300 (Spectrum-X) reference architecture"
XDR = "NVIDIA DGX SuperPOD B300 XDR reference architecture"

# preset, GPU ports (whole scalable units), leaf, spine, core, leaf-spine cables, source
PUBLISHED = [
    ("superpod-h100-1su", 256, 8, 4, 0, 256, H100),
    ("superpod-h100-2su", 512, 16, 8, 0, 512, H100),
    ("superpod-h100-3su", 768, 24, 16, 0, 768, H100),
    ("superpod-h100-4su", 1024, 32, 16, 0, 1024, H100),
    ("superpod-b200-8su", 2048, 64, 32, 0, 2048, B200),
    ("superpod-b200-16su", 4096, 128, 128, 64, 4096, B200),
    ("superpod-b200-32su", 8192, 256, 256, 128, 8192, B200),
    ("superpod-b200-64su", 16384, 512, 512, 256, 16384, B200),
    ("superpod-b300-eth-1su", 512, 16, 8, 0, 1024, B300 + "; the table counts twin cables"),
    ("superpod-b300-eth-4su", 2048, 64, 32, 0, 4096, B300 + "; the table counts twin cables"),
    ("superpod-b300-eth-16su", 8192, 256, 128, 0, 16384, B300 + "; the table counts twin cables"),
    ("superpod-b300-xdr-1su", 576, 8, 4, 0, 576, XDR),
    ("superpod-b300-xdr-2su", 1152, 16, 8, 0, 1152, XDR),
    ("superpod-b300-xdr-4su", 2304, 32, 18, 0, 2304, XDR),
    ("superpod-b300-xdr-8su", 4608, 64, 36, 0, 4608, XDR),
    ("superpod-b300-xdr-18su", 10368, 144, 72, 0, 10368, XDR),
]


@pytest.mark.parametrize(("name", "n", "leaf", "spine", "core", "links", "source"), PUBLISHED)
def test_published_superpods(name, n, leaf, spine, core, links, source):
    """Of the presets as they stand: nodes given up to the manager are still built for."""
    cluster = load_cluster(name)
    for n_gpus in (n, cluster.n_gpus):
        made = design_of(plan_of(cluster, n_gpus))
        counts = [made.switches(t) for t in ("leaf", "spine", "core")]
        assert counts == [leaf, spine, core], source
        assert made.group("leaf") == links, source
    published = (cluster.n_leaf_switches, cluster.n_spine_switches, cluster.n_core_switches)
    assert published == (leaf, spine, core), source


def test_levels_of_the_book():
    """How to Scale Your Model, GPU chapter: 514, 413 and 17,100 GB/s; 400 GB/s per node."""
    report = network_report(load_cluster("h100-superpod", "documents"), 1024)
    allowed = [round(v.collective_bytes_per_s / 1e9, -1) for v in report.levels]
    assert allowed == [510, 410, 17070]
    assert [v.bytes_per_s_per_node for v in report.levels[1:]] == [400e9, 400e9]
    assert [v.total_bytes_per_s for v in report.levels] == [3.6e12, 12.8e12, 51.2e12]
    assert report.slowest_level == "leaf"
    design = design_of(plan_of(load_cluster("h100-superpod", "documents"), 1024))
    assert report.n_scaleup_switches + design.n_switches == 560  # the book's count


def test_rack_of_the_book():
    """72 x 900 GB/s are 64.8 TB/s (the documents print 32.4)."""
    level = network_report(load_cluster("gb200-nvl72", "documents"), 72).levels[0]
    assert level.total_bytes_per_s == 64.8e12


def test_oversubscription_divides_the_share():
    levels = network_report(load_cluster("meta-24k"), 24576).levels
    assert levels[-1].bytes_per_s_per_gpu == pytest.approx(50e9 / 7)


@given(st.integers(1, 200_000), st.integers(2, 256))
def test_fat_tree_has_ports_for_all(n_gpus, radix):
    try:
        made = tree([n_gpus], equal_ports(radix))
    except ValueError as error:
        assert "join at most" in str(error) and n_gpus > radix * (radix // 2) ** 4
        return
    n, half = len(made.switches), radix // 2
    assert made.switches[0] * (radix if n == 1 else half) >= n_gpus
    assert n == 1 or made.switches[-1] * radix >= made.links_up[-1]
    assert n != 2 or half % made.switches[1] == 0


@given(st.integers(2, 4096))
def test_more_bandwidth_is_never_slower(n_gpus):
    cluster = load_cluster("dgx-h100")
    faster = cluster.model_copy(update={"node_egress_bytes_per_s": 800e9})
    slow, fast = network_report(cluster, n_gpus), network_report(faster, n_gpus)
    assert fast.collective_bytes_per_s >= slow.collective_bytes_per_s
