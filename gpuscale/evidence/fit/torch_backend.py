"""Timing on a GPU with PyTorch; imported only by `gpuscale calibrate --measure`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from gpuscale.errors import GpuscaleError

TARGET_S = 0.05
"""Time spent on each measurement after the warm-up."""


def torch_backend() -> TorchBackend:
    """Backend on this process's GPU.

    Raises GpuscaleError: without PyTorch, or without a GPU that it can use.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise GpuscaleError(
            "--measure needs PyTorch, which is not installed",
            "install it with `pip install gpuscale[gpu]`, or give --gemm or --collectives a file",
        ) from None
    if not torch.cuda.is_available():
        raise GpuscaleError(
            "--measure needs a GPU, and PyTorch finds none",
            "run it on the machine to be calibrated, or give --gemm or --collectives a file",
        )
    return TorchBackend(torch)


class TorchBackend:
    """CUDA or ROCm device; several ranks when started by torchrun."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.n_ranks = int(os.environ.get("WORLD_SIZE", "1"))
        self.gpus_per_node = int(os.environ.get("LOCAL_WORLD_SIZE", str(self.n_ranks)))
        self.rank = int(os.environ.get("RANK", "0"))
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if self.n_ranks > 1:
            torch.distributed.init_process_group("nccl")
        self.gpu = str(torch.cuda.get_device_name())
        float8 = hasattr(torch, "float8_e4m3fn") and torch.cuda.get_device_capability() >= (8, 9)
        self.dtypes: tuple[str, ...] = ("bf16", "fp8") if float8 else ("bf16",)

    def _time_s(self, run: Callable[[], object]) -> float:
        """Mean time of a call, from events around a loop that keeps the device busy."""
        cuda = self.torch.cuda
        for _ in range(3):
            run()
        n = 3
        while True:
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            cuda.synchronize()
            start.record()
            for _ in range(n):
                run()
            end.record()
            end.synchronize()
            total_s = 1e-3 * float(start.elapsed_time(end))
            if total_s >= TARGET_S or n >= 2000 or self.n_ranks > 1:
                return total_s / n
            n = min(2000, max(n + 1, int(n * TARGET_S / max(total_s, 1e-6)) + 1))

    def _graph_time_s(self, run: Callable[[], object]) -> float:
        """Time of a call replayed from a graph of ten, so that the host's launch is left out."""
        cuda = self.torch.cuda
        run()
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(10):
                run()
        return self._time_s(graph.replay) / 10

    def matmul_s(self, m: int, n: int, k: int, dtype: str) -> float:
        """Time of (m, k) @ (k, n) in bf16, or in fp8 with per-tensor scales."""
        torch = self.torch
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        if dtype == "bf16":
            return self._graph_time_s(lambda: torch.nn.functional.linear(a, b))
        one = torch.ones((), device="cuda")
        rows = -(-m // 16) * 16  # the fp8 kernels want multiples of 16
        a8 = torch.nn.functional.pad(a, (0, 0, 0, rows - m)).to(torch.float8_e4m3fn)
        b8 = b.to(torch.float8_e4m3fn).t()
        return self._graph_time_s(
            lambda: torch._scaled_mm(a8, b8, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        )

    def copy_s(self, size_bytes: int) -> float:
        """Time of a copy within device memory."""
        a = self.torch.empty(size_bytes, device="cuda", dtype=self.torch.uint8)
        b = self.torch.empty_like(a)
        return self._graph_time_s(lambda: b.copy_(a))

    def attention_s(self, batch: int, seq_len: int, n_heads: int, head_dim: int) -> float:
        """Time of causal attention forward in bf16."""
        shape = (batch, n_heads, seq_len, head_dim)
        q, k, v = (
            self.torch.randn(shape, device="cuda", dtype=self.torch.bfloat16) for _ in range(3)
        )
        run = self.torch.nn.functional.scaled_dot_product_attention
        return self._graph_time_s(lambda: run(q, k, v, is_causal=True))

    def collective_s(self, op: str, size_bytes: int) -> float:
        """Time of a collective over all ranks, sizes as nccl-tests count them."""
        torch, dist, n = self.torch, self.torch.distributed, self.n_ranks
        whole = torch.empty(max(n, size_bytes // 2 // n * n), device="cuda", dtype=torch.bfloat16)
        part = torch.empty(whole.numel() // n, device="cuda", dtype=torch.bfloat16)
        other = torch.empty_like(whole)
        run: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: dist.all_reduce(whole),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "alltoall": lambda: dist.all_to_all_single(other, whole),
        }
        return self._time_s(run[op])

    def close(self) -> None:
        """Leave the process group."""
        if self.n_ranks > 1:
            self.torch.distributed.destroy_process_group()
