"""What `gpuscale calibrate --measure` runs, on any backend that can time four kinds of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

MATMUL_M = (1, 16, 64, 256, 1024, 4096, 16384)
MATMUL_NK = (
    (256, 256),
    (1024, 4096),
    (4096, 1024),
    (4096, 4096),
    (8192, 8192),
    (28672, 8192),
    (8192, 28672),
)
"""From launch-bound to compute-bound; the largest takes 0.01 s on an H100."""

COPY_BYTES = (2**20, 2**26, 2**30)
ATTENTION = ((1, 2048, 16, 128), (1, 8192, 16, 128))  # batch, sequence, heads, head_dim
COLLECTIVE_BYTES = tuple(2**p for p in range(10, 31, 2))
COLLECTIVE_OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


class Backend(Protocol):
    """A device that can time work; all times in seconds."""

    gpu: str  # as the driver names it
    dtypes: tuple[str, ...]
    n_ranks: int
    gpus_per_node: int

    def matmul_s(self, m: int, n: int, k: int, dtype: str) -> float:
        """Time of (m, k) @ (k, n)."""

    def copy_s(self, size_bytes: int) -> float:
        """Time to copy `size_bytes` within device memory (as much read as written)."""

    def attention_s(self, batch: int, seq_len: int, n_heads: int, head_dim: int) -> float:
        """Time of causal attention forward in bf16."""

    def collective_s(self, op: str, size_bytes: int) -> float:
        """Time of a collective over all ranks; sizes as nccl-tests count them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows in the columns of gemm.csv and collectives.csv, and two further rates."""

    gemm: list[dict[str, str]]
    collectives: list[dict[str, str]]
    copy_bytes_per_s: float  # read and written, largest size
    attention_flop_per_s: float  # causal, so half of the full square


def measure(
    backend: Backend, fabric: str = "", report: Callable[[str], None] = lambda _: None
) -> Measured:
    """Time everything; `report` is told what is being timed."""
    gemm = []
    for m, n, k, dtype in _shapes(backend.dtypes):
        report(f"matmul {m} x {n} x {k} {dtype}")
        gemm.append(_gemm_row(backend, m, n, k, dtype))
    report("copies")
    copy = max(2.0 * size / backend.copy_s(size) for size in COPY_BYTES)
    report("attention")
    attention = max(
        2.0 * b * h * s * s * d / backend.attention_s(b, s, h, d) for b, s, h, d in ATTENTION
    )
    collectives = []
    for op in COLLECTIVE_OPS if backend.n_ranks > 1 else ():
        for size in COLLECTIVE_BYTES:
            report(f"{op} {size} bytes")
            collectives.append(_collective_row(backend, op, size, fabric))
    return Measured(gemm, collectives, copy, attention)


def _shapes(dtypes: tuple[str, ...]) -> Iterator[tuple[int, int, int, str]]:
    return ((m, n, k, dtype) for dtype in dtypes for n, k in MATMUL_NK for m in MATMUL_M)


def _gemm_row(backend: Backend, m: int, n: int, k: int, dtype: str) -> dict[str, str]:
    return {
        "m": str(m),
        "n": str(n),
        "k": str(k),
        "dtype": dtype,
        "gpu": backend.gpu,
        "time_us": f"{1e6 * backend.matmul_s(m, n, k, dtype):.4g}",
        "kernel": "torch",
        "includes": "gemm_only",
        "source": "gpuscale calibrate --measure",
    }


def _collective_row(backend: Backend, op: str, size: int, fabric: str) -> dict[str, str]:
    return {
        "op": op,
        "gpu": backend.gpu,
        "n_gpus": str(backend.n_ranks),
        "gpus_per_node": str(backend.gpus_per_node),
        "fabric": fabric,
        "size_bytes": str(size),
        "time_us": f"{1e6 * backend.collective_s(op, size):.4g}",
        "algorithm": "auto",
        "note": "",
        "source": "gpuscale calibrate --measure",
    }
