"""Measured parts, matrix products and collectives: reading, predicting, scoring."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.core.formats import element_bytes
from gpuscale.core.kernel.calibration import ArchCalibration, matmul_interval_s
from gpuscale.core.kernel.expected import ProductRows, product_time_s
from gpuscale.core.network.calibration import FabricCalibration, collective_interval_s
from gpuscale.core.network.expected import RankGroup, group_time_s
from gpuscale.core.records import dataclass, made_of, replace
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.records import ScoredRow
from gpuscale.evidence.rows_named import Row, Rows, gpu_preset, meaning, number, rows_of, whole
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.specs.hardware import GpuSpec


def number_format(name: str) -> str | None:
    """Format of the model for a format as measurements name it.

    >>> number_format("bfloat16"), number_format("fp8_ootb"), number_format("w4afp8")
    ('bf16', 'fp8', 'fp8')
    """
    return meaning("dtype", name.strip())


@dataclass(frozen=True, slots=True)
class GemmRow:
    """One measured product with the data-sheet figures of its GPU."""

    id: str
    gpu: str
    m: float
    n: float
    k: float
    dtype: str
    kernels: str  # "te" or ""
    architecture: str
    peak_flop_per_s: float
    hbm_bytes_per_s: float
    n_units: int | None
    l2_bytes: float | None
    include_quant: bool
    out_bytes: float
    time_s: float | None
    source: str
    library: str
    weight_bytes: float | None = None  # weight-only quantisation

    def expected_s(self, arch: ArchCalibration) -> float:
        """Predicted time; the operands may be in the cache, as in the benchmarks' loops."""
        units, cache = self.n_units or 1, self.l2_bytes or 0.0
        more = {"in_bytes": element_bytes(self.dtype), "n_units": units, "l2_bytes": cache}
        rows = made_of(ProductRows, self, warm_l2=True, **more)
        return product_time_s(self.m, rows, self.dtype, arch, self.kernels)


@lru_cache(maxsize=64)
def measured_gpu(name: str) -> GpuSpec | None:
    """Preset of a GPU as a row of measurements prints it; None for an unknown one."""
    try:
        return load_gpu(name)
    except GpuscaleError:
        preset = gpu_preset(name)
    return load_gpu(preset) if preset else None


def _gpu_of(row: Row) -> GpuSpec:
    if (gpu := measured_gpu(row.get("gpu", ""))) is None:
        raise GpuscaleError(f"unknown GPU {row.get('gpu', '')[:40]!r}")
    return gpu


def _printed(row: Row, index: int) -> dict[str, Any]:
    """Take what a row of any kind prints: its name, GPU, time [s] and source."""
    time_us = number(row.get("time_us"))
    return {
        "id": row.get("id") or f"row-{index}",
        "gpu": row.get("gpu", ""),
        "time_s": None if time_us is None else time_us * 1e-6,
        "source": row.get("source", ""),
    }


def gemm_row(row: Row, index: int) -> GemmRow:
    """Read one row. Raises GpuscaleError for one that cannot be predicted."""
    dims = [number(row.get(c)) for c in ("m", "n", "k")]
    if any(d is None or d < 1 for d in dims):
        raise GpuscaleError("m, n or k is missing or below 1")
    m, n, k = (float(d) for d in dims if d is not None)
    gpu = _gpu_of(row)
    dtype = number_format(row.get("dtype", ""))
    if dtype is None:
        raise GpuscaleError(f"unknown number format {row.get('dtype', '')[:40]!r}")
    peak = gpu.flop_per_s("fp8" if dtype == "fp8-block" else dtype)
    if peak is None:
        raise GpuscaleError(f"{gpu.name} offers no {dtype}")
    library, narrow = row.get("kernel", ""), meaning("weights", row.get("dtype", ""))
    return GemmRow(
        **_printed(row, index),
        m=m,
        n=n,
        k=k,
        dtype=dtype,
        kernels="te" if library.startswith("te_") else "",
        architecture=gpu.architecture,
        peak_flop_per_s=peak,
        hbm_bytes_per_s=gpu.hbm_bytes_per_s,
        n_units=gpu.n_compute_units,
        l2_bytes=max(gpu.l2_bytes or 0.0, gpu.last_level_cache_bytes or 0.0) or None,
        include_quant="quant" in row.get("includes", ""),
        out_bytes=8.0 if "accum_fp32" in library else 2.0,
        library=library,
        weight_bytes=element_bytes(narrow) if narrow else None,
    )


def predict_gemm_rows(path_or_rows: Rows, calibration: str | Path | None = None) -> list[ScoredRow]:
    """Predict every row of a gemm.csv, in order; what cannot be predicted says why.

    `path_or_rows`: CSV with the columns m, n, k, dtype, gpu, time_us, kernel, includes, source.
    `calibration`: overlay that `gpuscale calibrate` wrote. Returns: quantity `time_us`; classes
    dtype, architecture, kernel, size, source.
    """
    from gpuscale.io.calibration import load_arch

    def predict(row: Row, index: int) -> Timed:
        parsed = gemm_row(row, index)
        arch = load_arch(measured_gpu(parsed.gpu) or parsed.architecture, calibration)
        expected_s = parsed.expected_s(arch)
        ends = matmul_interval_s(expected_s, parsed.dtype, arch, parsed.kernels)
        more = {"dtype": parsed.dtype, "architecture": parsed.architecture}
        return (expected_s, *ends), more | {"kernel": parsed.library, "size": gemm_size(parsed)}

    return timed_rows(path_or_rows, predict, ("dtype", "kernel"))


Timed = tuple[tuple[float, float, float], dict[str, str]]
"""Expected time with the ends of its interval [s], and classes."""


def timed_rows(
    rows: Rows, predict: Callable[[Row, int], Timed], named: Sequence[str]
) -> list[ScoredRow]:
    """Score the time of every row; `named` columns are classes, whether it can be predicted or not.

    `predict` raises GpuscaleError or ValueError for a row that cannot be.
    """
    scored = []
    for index, row in enumerate(rows_of(rows), 1):
        measured, times = number(row.get("time_us")), dict[str, Any]()
        classes = {key: row.get(key, "") for key in named}
        reason = "" if measured else "no measured time"
        try:
            (expected_s, low_s, high_s), more = predict(row, index)
            times = {"predicted": expected_s * 1e6, "low": low_s * 1e6, "high": high_s * 1e6}
            classes |= more
        except (GpuscaleError, ValueError) as error:
            reason = str(error).splitlines()[0]
        scored.append(
            ScoredRow(
                id=row.get("id") or f"row-{index}",
                gpu=row.get("gpu", ""),
                quantity="time_us",
                measured=measured,
                reason=reason,
                classes=classes | {"source": short_source(row.get("source", ""))},
                **times,
            )
        )
    return scored


def gemm_size(row: GemmRow) -> str:
    """Where the product lies by its ideal time: launch-bound, small, medium, large."""
    ideal_s = 2 * row.m * row.n * row.k / row.peak_flop_per_s
    for limit, name in ((1e-6, "below 1 us"), (1e-5, "1 to 10 us"), (1e-3, "10 us to 1 ms")):
        if ideal_s < limit:
            return name
    return "above 1 ms"


def short_source(source: str) -> str:
    """Repository of a citation."""
    return source.split(":")[0].split("@")[0][:60]


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
        ranks = (self.op, self.size_bytes, self.n_ranks, self.n_in_domain)
        links = fabric, self.scaleup_bytes_per_s, self.scaleout_bytes_per_s
        group = RankGroup(*ranks, *links, algorithm=self.algorithm)
        return group_time_s(group) + (self.host_launch_s if self.n_ranks > 1 else 0.0)


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


def collective_row(row: Row, index: int) -> CollectiveRow:
    """Read one row. Raises GpuscaleError for one that cannot be predicted."""
    from gpuscale.io.calibration import inner_link, network_class

    op = meaning("collective", row.get("op", "").replace("_", "-"))
    if op is None:
        raise GpuscaleError(f"unknown collective {row.get('op', '')[:40]!r}")
    gpu = _gpu_of(row)
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
    return CollectiveRow(
        **_printed(row, index),
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
        parsed = collective_row(row, index)
        inside, outside = (load_link(link, calibration) for link in (parsed.inner, parsed.outer))
        fabric = FabricCalibration(inside, outside)
        expected_s = parsed.expected_s(fabric)
        ends = made_of(collective_interval_s, parsed, time_s=expected_s, fabric=fabric)
        span = "one domain" if parsed.n_in_domain >= parsed.n_ranks else "network"
        return (expected_s, *ends), {"span": span, "size": message_size(parsed.size_bytes)}

    return timed_rows(path_or_rows, predict, ("op", "fabric", "algorithm"))


def message_size(size_bytes: float) -> str:
    """Small (latency-bound), medium, large."""
    if size_bytes < 2**18:
        return "below 256 KiB"
    return "256 KiB to 64 MiB" if size_bytes < 2**26 else "from 64 MiB"
