"""Measured collectives: reading, predicting, scoring."""

from __future__ import annotations

import re
from pathlib import Path

from gpuscale.core.dataclasses import dataclass, replace
from gpuscale.core.network.calibration import FabricCalibration, collective_interval_s
from gpuscale.core.network.expected import expected_collective_time_s
from gpuscale.core.records import made_of
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.records import ScoredRow
from gpuscale.evidence.rows_hardware import Row, Rows, meaning, number, whole
from gpuscale.evidence.score_gemm import Timed, measured_gpu, timed_rows
from gpuscale.specs.gpu import GpuSpec

TORCH_LAUNCH_S = 2e-5
"""What a call through torch.distributed, timed on the host, adds (H200 and B200 rows of
stas00/ml-engineering network/README.md against nccl-tests on the same GPUs at 32 KiB)."""


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One measured collective with the bandwidths of its links."""

    id: str
    gpu: str
    op: str
    size_bytes: float
    n_ranks: int
    n_in_domain: int
    inner: str  # fabric presets
    outer: str
    scaleup_bytes_per_s: float
    scaleout_bytes_per_s: float
    algorithm: str
    host_launch_s: float
    time_s: float | None
    source: str
    nics_per_gpu: float = 1.0

    def expected_s(self, fabric: FabricCalibration) -> float:
        """Predicted time with given constants."""
        if fabric.nics_per_gpu != self.nics_per_gpu:
            fabric = replace(fabric, nics_per_gpu=self.nics_per_gpu)
        return made_of(expected_collective_time_s, self, fabric=fabric)


def network_of(fabric: str) -> str:
    """Fabric preset of the network named in a row; "" inside one scale-up domain.

    >>> network_of("EFA 32x100G per node (400G/GPU)"), network_of("NVLink4")
    ('efa', '')
    """
    return meaning("network", fabric + " ") or ""


def nics_of(fabric: str, gpus_per_node: int, default: float) -> tuple[float, float]:
    """Scale-out bandwidth and NICs of one GPU in a row: "400G/GPU" or "8x200G per node", in bit/s.

    >>> nics_of("EFA 4x100G per node", 8, 0.0)
    (6250000000.0, 0.5)
    """
    text = fabric.lower().replace("gb/s", "g").replace("gbps", "g")
    match = re.search(r"(\d+)\s*x\s*(\d+(?:\.\d+)?)\s*g", text)
    if match:
        nics = float(match[1]) / gpus_per_node
        return nics * float(match[2]) * 1e9 / 8, nics
    match = re.search(r"(\d+(?:\.\d+)?)\s*g\s*/\s*gpu", text)
    return (float(match[1]) * 1e9 / 8 if match else default), 1.0


def parse_row(row: Row, index: int) -> CollectiveRow:
    """Read one row. Raises GpuscaleError for one that cannot be predicted."""
    from gpuscale.io.calibration import inner_link, network_class
    from gpuscale.io.hardware import load_cluster

    op = meaning("collective", row.get("op", "").replace("_", "-"))
    if op is None:
        raise GpuscaleError(f"unknown collective {row.get('op', '')[:40]!r}")
    gpu = measured_gpu(row.get("gpu", ""))
    if gpu is None:
        raise GpuscaleError(f"unknown GPU {row.get('gpu', '')[:40]!r}")
    n, size = whole(row.get("n_gpus")), _size(row)
    if n is None or size is None:
        raise GpuscaleError("no size" if n else "no number of GPUs")
    fabric = row.get("fabric", "")
    network = network_of(fabric)
    per_node = whole(row.get("gpus_per_node")) or 8
    n_in = min(n, per_node)
    if n > n_in and (not network or "nvl72" in fabric.lower()) and gpu.scaleup_domain_gpus >= n:
        n_in = n
    elif n > gpu.scaleup_domain_gpus > per_node:
        n_in = gpu.scaleup_domain_gpus
    usual = load_cluster(gpu.usual_cluster or gpu.name)
    default = usual.egress_bytes_per_s_per_gpu or 0.0
    if n_in < n and not (network or default):
        raise GpuscaleError(f"unknown network {fabric[:40]!r}")
    nic, nics_per_gpu = nics_of(fabric, per_node, default) if n_in < n else (default, 1.0)
    time_us = number(row.get("time_us"))
    return CollectiveRow(
        id=row.get("id") or f"row-{index}",
        gpu=row.get("gpu", ""),
        op=op,
        size_bytes=size,
        n_ranks=n,
        n_in_domain=n_in,
        inner=inner_link(_with_peer(gpu, fabric)),
        outer=network_class(network or usual.fabric_class, nic, per_node),
        scaleup_bytes_per_s=_scaleup_bytes_per_s(gpu, fabric),
        scaleout_bytes_per_s=nic,
        algorithm=_algorithm(row.get("algorithm", "")),
        host_launch_s=TORCH_LAUNCH_S if "torch" in row.get("note", "").lower() else 0.0,
        time_s=None if time_us is None else time_us * 1e-6,
        source=row.get("source", ""),
        nics_per_gpu=nics_per_gpu,
    )


def _scaleup_bytes_per_s(gpu: GpuSpec, fabric: str) -> float:
    slot = gpu.pcie_bytes_per_s or 0.0
    return slot if fabric.lower().startswith("pcie") else gpu.scaleup_bytes_per_s or slot


def _with_peer(gpu: GpuSpec, fabric: str) -> GpuSpec:
    """GPU as a row says that cards reach each other: "PCIe 5 P2P", "PCIe 4 host"."""
    words = fabric.lower().split()
    peer = next((p for p in ("p2p", "host") if p in words), None)
    if "pcie" not in words or peer is None:
        return gpu
    return gpu.model_copy(update={"peer": peer, "scaleup_link": "PCIe"})


def _algorithm(text: str) -> str:
    """Algorithm that a row was forced to; else what the library chooses."""
    words = text.lower().split()
    forced = {"nccl ring": "ring", "nccl tree": "tree"}.get(" ".join(words[:2]), "auto")
    return "custom" if "custom" in words else forced


def _size(row: Row) -> float | None:
    """Find the printed size; else that of the tokens in the note, 1 (dispatch) or 2 bytes each."""
    size = number(row.get("size_bytes"))
    if size is not None:
        return size
    match = re.search(r"(\d+) tokens/rank hidden (\d+) top-(\d+)", row.get("note", ""))
    if match is None:
        return None
    tokens, hidden, top_k = (float(g) for g in match.groups())
    return tokens * hidden * top_k * (1.0 if "dispatch" in row.get("op", "") else 2.0)


def predict_collective_rows(
    path_or_rows: Rows, calibration: str | Path | None = None
) -> list[ScoredRow]:
    """Predict every row of a collectives.csv, in order; what cannot be predicted says why.

    `path_or_rows`: CSV with the columns op, gpu, n_gpus, gpus_per_node, fabric, size_bytes,
    time_us, algorithm, note, source. `calibration`: overlay that `gpuscale calibrate` wrote.
    Returns: quantity `time_us`; classes op, fabric, span, size, algorithm, source.
    """
    from gpuscale.io.calibration import load_link

    def predict(row: Row, index: int) -> Timed:
        parsed = parse_row(row, index)
        inside, outside = (load_link(link, calibration) for link in (parsed.inner, parsed.outer))
        fabric = FabricCalibration(inside, outside)
        expected_s = parsed.expected_s(fabric)
        ends = made_of(collective_interval_s, parsed, time_s=expected_s, fabric=fabric)
        span = "one domain" if parsed.n_in_domain >= parsed.n_ranks else "network"
        return (expected_s, *ends), {"span": span, "size": size_class(parsed.size_bytes)}

    return timed_rows(path_or_rows, predict, ("op", "fabric", "algorithm"))


def size_class(size_bytes: float) -> str:
    """Small (latency-bound), medium, large."""
    if size_bytes < 2**18:
        return "below 256 KiB"
    return "256 KiB to 64 MiB" if size_bytes < 2**26 else "from 64 MiB"
