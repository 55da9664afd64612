"""Measured matmul rows: reading, predicting, scoring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.formats import element_bytes
from gpuscale.core.kernel.calibration import ArchCalibration, matmul_interval_s
from gpuscale.core.kernel.expected import expected_matmul_time_s
from gpuscale.core.records import made_of
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.records import ScoredRow
from gpuscale.evidence.rows_hardware import Row, Rows, meaning, number, rows_of
from gpuscale.specs.gpu import GpuSpec


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
        return made_of(expected_matmul_time_s, self, arch=arch, warm_l2=True)


@lru_cache(maxsize=64)
def measured_gpu(name: str) -> GpuSpec | None:
    """Preset of a GPU as a row of measurements prints it; None for an unknown one."""
    from gpuscale.evidence.rows_hardware import gpu_preset
    from gpuscale.io.hardware import load_gpu

    try:
        return load_gpu(name)
    except GpuscaleError:
        preset = gpu_preset(name)
    return load_gpu(preset) if preset else None


def parse_row(row: Row, index: int) -> GemmRow:
    """Read one row. Raises GpuscaleError for one that cannot be predicted."""
    dims = [number(row.get(c)) for c in ("m", "n", "k")]
    if any(d is None or d < 1 for d in dims):
        raise GpuscaleError("m, n or k is missing or below 1")
    m, n, k = (float(d) for d in dims if d is not None)
    gpu = measured_gpu(row.get("gpu", ""))
    if gpu is None:
        raise GpuscaleError(f"unknown GPU {row.get('gpu', '')[:40]!r}")
    dtype = number_format(row.get("dtype", ""))
    if dtype is None:
        raise GpuscaleError(f"unknown number format {row.get('dtype', '')[:40]!r}")
    peak = gpu.flop_per_s("fp8" if dtype == "fp8-block" else dtype)
    if peak is None:
        raise GpuscaleError(f"{gpu.name} offers no {dtype}")
    library, narrow = row.get("kernel", ""), meaning("weights", row.get("dtype", ""))
    time_us = number(row.get("time_us"))
    return GemmRow(
        id=row.get("id") or f"row-{index}",
        gpu=row.get("gpu", ""),
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
        time_s=None if time_us is None else time_us * 1e-6,
        source=row.get("source", ""),
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
        parsed = parse_row(row, index)
        arch = load_arch(measured_gpu(parsed.gpu) or parsed.architecture, calibration)
        expected_s = parsed.expected_s(arch)
        ends = matmul_interval_s(expected_s, parsed.dtype, arch, parsed.kernels)
        more = {"dtype": parsed.dtype, "architecture": parsed.architecture}
        return (expected_s, *ends), more | {"kernel": parsed.library, "size": size_class(parsed)}

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


def size_class(row: GemmRow) -> str:
    """Where the product lies by its ideal time: launch-bound, small, medium, large."""
    ideal_s = 2 * row.m * row.n * row.k / row.peak_flop_per_s
    for limit, name in ((1e-6, "below 1 us"), (1e-5, "1 to 10 us"), (1e-3, "10 us to 1 ms")):
        if ideal_s < limit:
            return name
    return "above 1 ms"


def short_source(source: str) -> str:
    """Repository of a citation."""
    return source.split(":")[0].split("@")[0][:60]
