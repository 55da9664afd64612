"""Gated short convolution of LFM2 (Liquid AI, arXiv:2511.23404; transformers `Lfm2ShortConv`)."""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.bounds import PositiveInt
from gpuscale.core.dataclasses import dataclass
from gpuscale.core.model.mixers.kind import CacheShape, Kept, Linear, Product, Scan, Work
from gpuscale.core.model.mixers.recurrent import Recurrent


@dataclass(frozen=True, kw_only=True)
class ShortConv(Recurrent):
    """Gated short convolution (LFM2): two gates around a depthwise convolution."""

    measured: ClassVar[bool] = False
    kind: Literal["short-conv"] = "short-conv"
    width: PositiveInt
    conv_kernel: PositiveInt = 3
    bias: bool = False

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """Both gates and the input, output; the convolution."""
        bias = 4 * self.width + hidden_size if self.bias else 0
        return 4 * self.width * hidden_size, self.conv_kernel * self.width + bias

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """in_proj (two gates and the input) and out_proj."""
        return (
            Linear("in_proj", hidden_size, 3 * self.width, "x"),
            Linear("out_proj", self.width, hidden_size, "attention out"),
        )

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """One multiply-add per tap, and the two gates."""
        return (2.0 * self.conv_kernel + 2.0) * self.width

    def cache(self) -> CacheShape:
        """Last inputs of the convolution."""
        return CacheShape(conv_elements=(self.conv_kernel - 1) * self.width)

    def kept(self) -> Kept:
        """Both gates and the input, the gated input, the convolution's and the gated output."""
        return Kept(split=6.0 * self.width)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """Products of input and output; the convolution is bound by memory: four reads, a write."""
        width = self.width / tp
        products = (
            Product("conv in", 3 * width, hidden_size),
            Product("conv out", hidden_size, width),
        )
        return Work(products, Scan(self.flop(0) / tp, 2.0 * 5.0 * width), 3 * width, 0.0)

    def heads(self) -> tuple[int, int]:
        """None: channels split."""
        return 0, 0

    def words(self) -> str:
        """Width and taps."""
        return f"short convolution, {self.width:,} wide, {self.conv_kernel} taps"
