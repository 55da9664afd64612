"""Loading calibration: architectures and fabrics from presets, and a person's own overlay."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import checked, find_preset, is_own
from gpuscale.io.text import Table, read_toml

if TYPE_CHECKING:
    from gpuscale.core.kernel.calibration import ArchCalibration, Board
    from gpuscale.core.network.calibration import FabricCalibration, LinkCalibration
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec

GENERAL_ARCH = "general"
"""Preset of an architecture without figures of its own."""

GENERAL_LINK = "general"
"""Preset of a scale-up link without figures of its own."""

GENERAL_NETWORK = "general-network"
"""Preset of a scale-out network without figures of its own."""


@lru_cache(maxsize=8)
def load_calibration(path: str | Path | None) -> Table:
    """Read an overlay: tables `arch.NAME`, `fabric.NAME`, `site`; {} for None.

    Raises GpuscaleError if the file cannot be read or holds other keys.
    """
    if path is None:
        return {}
    table = read_toml(path)
    for key in table:
        if key not in ("arch", "fabric", "site", "measured", "made_by", "source"):
            raise GpuscaleError(
                f"{path}: unknown key `{key}`",
                "a calibration file has [arch.NAME], [fabric.NAME] and [site]; "
                "`gpuscale calibrate` writes one",
            )
    return table


def site_factor(calibration: str | Path | None) -> float:
    """Factor of an overlay on every expected step time: `site.step_time_factor`, 1 without.

    Raises GpuscaleError if it is no number from 0.5 to 10.
    """
    site = load_calibration(calibration).get("site", {})
    value = site.get("step_time_factor", 1.0) if isinstance(site, dict) else None
    if not isinstance(value, (int, float)) or not 0.5 <= value <= 10.0:
        raise GpuscaleError(f"{calibration}: site.step_time_factor must be a number from 0.5 to 10")
    return float(value)


def merged(base: Table, over: Table) -> Table:
    """Tables of `over` laid over those of `base`, key by key."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        out[key] = merged(out[key], value) if both else value
    return out


def overlay_of(kind: str, name: str, calibration: str | Path | None) -> Table:
    """Part of an overlay for one preset of a kind ("arch", "fabric")."""
    tables = load_calibration(calibration).get(kind, {})
    if not isinstance(tables, dict) or not isinstance(tables.get(name, {}), dict):
        raise GpuscaleError(f"{calibration}: [{kind}.{name}] must be a table")
    return dict(tables.get(name, {}))


def load_arch(gpu: GpuSpec | str, calibration: str | Path | None = None) -> ArchCalibration:
    """Calibration of a GPU's architecture; the nearest or the general one where there is none.

    Of a GPU, products run at the clock that its power allows; of a name, at the measured board's.

    `gpu`: a GPU, or the name of its architecture. `calibration`: overlay file (`--calibration`).
    """
    if isinstance(gpu, str):
        return _load_arch(gpu, calibration, None)
    return _load_arch(gpu.architecture, calibration, board_of(gpu))


def board_of(gpu: GpuSpec) -> Board | None:
    """Return what decides a GPU's clock under load; None where its data sheet does not say."""
    from gpuscale.core.kernel.calibration import Board

    rate = gpu.bf16_flop_per_s or gpu.fp16_flop_per_s
    known = gpu.tdp_w and gpu.n_compute_units and rate
    return Board(gpu.tdp_w or 0.0, gpu.n_compute_units or 1, rate or 0.0) if known else None


@lru_cache(maxsize=64)
def _load_arch(name: str, calibration: str | Path | None, board: Board | None) -> ArchCalibration:
    from gpuscale.core.kernel.calibration import at_power

    found = arch_spec(name, calibration)
    return at_power(found, board, found.power) if board and found.power else found


def arch_spec(name: str, calibration: str | Path | None = None) -> ArchCalibration:
    """Architecture with its `nearest` one's tables and the overlay merged in, on any board."""
    from gpuscale.core.kernel.calibration import ArchCalibration

    return _validated(ArchCalibration, "arch", name, GENERAL_ARCH, calibration)


@lru_cache(maxsize=64)
def load_link(name: str, calibration: str | Path | None = None) -> LinkCalibration:
    """Class of link by name: nvlink4, infiniband, efa ...; its `nearest` and the overlay merged."""
    from gpuscale.core.network.calibration import LinkCalibration

    return _validated(LinkCalibration, "fabric", name, GENERAL_LINK, calibration)


def load_fabric(cluster: ClusterSpec, calibration: str | Path | None = None) -> FabricCalibration:
    """Calibration of a cluster's links: inside the scale-up domain, and between domains."""
    gpu, nics, node = cluster.gpu, cluster.nics_per_node, cluster.gpus_per_node
    inner = inner_link(gpu, cluster.scaleup_class)
    bridged = gpu.bridge if gpu.bridged and inner.startswith("pcie") else None
    return _links(
        inner,
        network_class(cluster.fabric_class, cluster.egress_bytes_per_s_per_gpu or 0.0, node),
        nics / node if nics else 1.0,
        scaleup_class(bridged[0]) if bridged else "",
        bridged[1] if bridged else 0.0,
        calibration,
    )


def inner_link(gpu: GpuSpec, scaleup: str = "") -> str:
    """Fabric preset of the links inside a domain, `scaleup` being what a cluster says of them.

    >>> from gpuscale.io.hardware import load_gpu
    >>> [inner_link(load_gpu(name), "pcie") for name in ("l40s", "rtx-4090")]
    ['pcie', 'pcie-host']
    """
    name = "pcie" if scaleup == "pcie" else scaleup_class(gpu.scaleup_link)
    return "pcie-host" if name == "pcie" and gpu.peer == "host" else name


@lru_cache(maxsize=64)
def _links(
    inner: str,
    outer: str,
    nics_per_gpu: float,
    bridge: str,
    bridge_bytes_per_s: float,
    calibration: str | Path | None,
) -> FabricCalibration:
    from gpuscale.core.network.calibration import FabricCalibration

    return FabricCalibration(
        load_link(inner, calibration),
        load_link(outer, calibration),
        nics_per_gpu,
        load_link(bridge, calibration) if bridge else None,
        bridge_bytes_per_s,
    )


EFA_V1_NODE_BYTES_PER_S = 50e9
"""Egress of the nodes with the first generation of EFA (4 x 100 Gb/s: p4d, p4de)."""


def network_class(fabric_class: str, nic_bytes_per_s: float, gpus_per_node: int) -> str:
    """Fabric preset of a scale-out network; the generations of EFA differ in latency."""
    node = nic_bytes_per_s * gpus_per_node
    if fabric_class == "efa" and 0.0 < node <= EFA_V1_NODE_BYTES_PER_S:
        return "efa-v1"
    known = fabric_class and find_preset("fabric", fabric_class) is not None
    return fabric_class if known else GENERAL_NETWORK


BORROWED_LINK_FRAC = (0.65, 1.5)
"""Interval of a link whose constants are those of another class."""


def scaleup_class(link: str) -> str:
    """Fabric preset of a scale-up link as the data sheet calls it.

    >>> scaleup_class("NVLink 4 (reduced)"), scaleup_class("Infinity Fabric 4")
    ('nvlink4', 'amd-if')
    """
    text = link.lower()
    match = re.search(r"nvlink[- ]?(\d)", text)
    if match:
        return f"nvlink{match[1]}"
    for word, name in (
        ("infinity", "amd-if"),
        ("xgmi", "amd-if"),
        ("ici", "ici"),
        ("pcie", "pcie"),
        ("neuron", "neuronlink"),
        ("roce", "roce"),
    ):
        if word in text:
            return name
    return GENERAL_LINK


T = TypeVar("T")


def _validated(
    model: type[T], kind: str, name: str, general: str, calibration: str | Path | None
) -> T:
    overlay, path = overlay_of(kind, name, calibration), find_preset(kind, name)
    table = merged(_table(kind, name, general, 0), overlay)
    table["name"] = name
    own = not overlay and (path is None or is_own(str(path)))
    return checked(model, table, f"{kind}.{name}", own=own)


def _table(kind: str, name: str, general: str, depth: int) -> Table:
    path = find_preset(kind, name) or find_preset(kind, general)
    if path is None:
        return {"name": name}
    table = read_toml(path)
    nearest = str(table.get("nearest", ""))
    if nearest and depth < 4:
        return merged(_borrowed(_table(kind, nearest, general, depth + 1)), table)
    return table


def _borrowed(table: Table) -> Table:
    """Mark constants of another architecture or link, whose interval is wider."""
    table = {k: v for k, v in table.items() if k != "power"}  # of that architecture's own board
    formats = {k: {**v, "borrowed": True} for k, v in table.get("matmul", {}).items()}
    ops = {
        k: {
            **v,
            "low_frac": min(v.get("low_frac", 1.0), BORROWED_LINK_FRAC[0]),
            "high_frac": max(v.get("high_frac", 1.0), BORROWED_LINK_FRAC[1]),
        }
        for k, v in table.get("ops", {}).items()
    }
    return {**table, **({"matmul": formats} if formats else {}), **({"ops": ops} if ops else {})}
