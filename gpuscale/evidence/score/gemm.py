"""Measured matmul rows: reading, predicting, scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.kernel.calibration import ArchCalibration, matmul_interval_s
from gpuscale.core.kernel.expected import expected_matmul_time_s
from gpuscale.core.records import made_of
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.score.records import ScoredRow

if TYPE_CHECKING:
    from gpuscale.specs.gpu import GpuSpec

Row = Mapping[str, str]
Rows = str | Path | Sequence[Row]

DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp16": "fp16",
    "tf32": "tf32",
    "float32": "fp32",
    "fp32": "fp32",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "float8": "fp8",
    "fp8_static": "fp8",
    "fp8_ootb": "fp8",
    "fp8_block": "fp8-block",
    "fp8-block": "fp8-block",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "fp4": "nvfp4",
    "int8": "int8",
    "w8a8": "int8",
    "sq": "int8",
    "int4": "int4",
    "int8_wo": "bf16",
    "int4_wo": "bf16",
}
"""Format names of the measurements -> formats of the model; weight-only ones compute in bf16."""

WEIGHT_ONLY = {
    "int8_wo": "int8",
    "int4_wo": "int4",
    "w4a16": "int4",
    "w8a16": "int8",
    "w4a16_mxfp4": "mxfp4",
}
"""Names of the measurements -> format in which the weights are read."""

ALIKE = (  # part of a name that the list lacks -> format
    ("a16", "bf16"),
    ("_wo", "bf16"),
    ("fp8_block", "fp8-block"),
    ("fp8", "fp8"),
    ("mxfp4", "mxfp4"),
    ("fp4", "nvfp4"),
    ("int8", "int8"),
    ("bf16", "bf16"),
)


def number_format(name: str) -> str | None:
    """Format of the model for a format as measurements name it.

    Examples
    --------
    >>> number_format("bfloat16"), number_format("fp8_ootb"), number_format("w4afp8")
    ('bf16', 'fp8', 'fp8')
    """
    name = name.strip().lower()
    if name in DTYPES:
        return DTYPES[name]
    return next((dtype for part, dtype in ALIKE if part in name), None)


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
    from gpuscale.evidence.rows.hardware import gpu_preset
    from gpuscale.io.hardware import load_gpu

    try:
        return load_gpu(name)
    except GpuscaleError:
        preset = gpu_preset(name)
    return load_gpu(preset) if preset else None


def parse_row(row: Row, index: int) -> GemmRow | str:
    """Read one row; a text tells why it cannot be predicted."""
    from gpuscale.evidence.rows.measurements import number

    dims = [number(row.get(c)) for c in ("m", "n", "k")]
    if any(d is None or d < 1 for d in dims):
        return "m, n or k is missing or below 1"
    m, n, k = (float(d) for d in dims if d is not None)
    gpu = measured_gpu(row.get("gpu", ""))
    if gpu is None:
        return f"unknown GPU {row.get('gpu', '')[:40]!r}"
    dtype = number_format(row.get("dtype", ""))
    if dtype is None:
        return f"unknown number format {row.get('dtype', '')[:40]!r}"
    peak = gpu.flop_per_s("fp8" if dtype == "fp8-block" else dtype)
    if peak is None:
        return f"{gpu.name} offers no {dtype}"
    library = row.get("kernel", "")
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
        weight_bytes=_weight_only_bytes(row.get("dtype", "").lower()),
    )


def _weight_only_bytes(name: str) -> float | None:
    """Bytes of a stored weight where only the weights are narrow. [byte]."""
    return element_bytes(WEIGHT_ONLY[name]) if name in WEIGHT_ONLY else None


def read_gemm(rows: Rows) -> list[Row]:
    """Rows of a CSV file, or the rows themselves."""
    if isinstance(rows, (str, Path)):
        from gpuscale.io.tables import read_rows

        return list(read_rows(rows))
    return list(rows)


def predict_gemm_rows(path_or_rows: Rows, calibration: str | Path | None = None) -> list[ScoredRow]:
    """Predict every row of a gemm.csv, in order; what cannot be predicted says why.

    `path_or_rows`: CSV with the columns m, n, k, dtype, gpu, time_us, kernel, includes, source.
    `calibration`: overlay that `gpuscale calibrate` wrote. Returns: quantity `time_us`; classes
    dtype, architecture, kernel, size, source.
    """
    from gpuscale.io.calibration import load_arch

    scored = []
    for index, row in enumerate(read_gemm(path_or_rows), 1):
        parsed = parse_row(row, index)
        if isinstance(parsed, str):
            scored.append(_unpredicted(row, index, parsed))
            continue
        arch = load_arch(measured_gpu(row.get("gpu", "")) or parsed.architecture, calibration)
        expected_s = parsed.expected_s(arch)
        low_s, high_s = matmul_interval_s(expected_s, parsed.dtype, arch, parsed.kernels)
        scored.append(
            ScoredRow(
                id=parsed.id,
                gpu=parsed.gpu,
                quantity="time_us",
                measured=None if parsed.time_s is None else parsed.time_s * 1e6,
                predicted=expected_s * 1e6,
                low=low_s * 1e6,
                high=high_s * 1e6,
                reason="" if parsed.time_s else "no measured time",
                classes={
                    "dtype": parsed.dtype,
                    "architecture": parsed.architecture,
                    "kernel": parsed.library,
                    "size": size_class(parsed),
                    "source": short_source(parsed.source),
                },
            )
        )
    return scored


def _unpredicted(row: Row, index: int, reason: str) -> ScoredRow:
    from gpuscale.evidence.rows.measurements import number

    return ScoredRow(
        id=row.get("id") or f"row-{index}",
        gpu=row.get("gpu", ""),
        quantity="time_us",
        measured=number(row.get("time_us")),
        reason=reason,
        classes={
            "dtype": row.get("dtype", ""),
            "kernel": row.get("kernel", ""),
            "source": short_source(row.get("source", "")),
        },
    )


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
