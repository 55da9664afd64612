"""State space mixer Mamba-2: Dao and Gu 2024 (arXiv:2405.21060), as in Nemotron-H."""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.bounds import PositiveInt
from gpuscale.core.dataclasses import dataclass
from gpuscale.core.model.mixers.kind import CacheShape, Kept, Linear, Product, Scan, Work
from gpuscale.core.model.mixers.recurrent import Recurrent

CHUNK_TOKENS = 256
"""Tokens of one chunk of the kernels (state-spaces/mamba, `chunk_size` of the released configs)."""


@dataclass(frozen=True, kw_only=True)
class Mamba2(Recurrent):
    """Mamba-2 state space mixer (Nemotron-H)."""

    measured: ClassVar[bool] = False
    kind: Literal["mamba2"] = "mamba2"
    n_heads: PositiveInt
    head_dim: PositiveInt
    state_size: PositiveInt
    n_groups: PositiveInt
    conv_kernel: PositiveInt = 4
    conv_bias: bool = True
    proj_bias: bool = False

    @property
    def inner(self) -> int:
        """Width of the heads."""
        return self.n_heads * self.head_dim

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """Gate, x, B, C and time step, output; convolution, decay, skip and norm vectors."""
        conv = self.inner + 2 * self.n_groups * self.state_size
        projected = self.inner + conv + self.n_heads
        vectors = conv * (self.conv_kernel + int(self.conv_bias)) + 3 * self.n_heads + self.inner
        bias = projected + hidden_size if self.proj_bias else 0
        return hidden_size * projected + self.inner * hidden_size, vectors + bias

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """in_proj (gate, x, B, C, time step) and out_proj."""
        projected = 2 * self.inner + 2 * self.n_groups * self.state_size + self.n_heads
        return (
            Linear("in_proj", hidden_size, projected, "x"),
            Linear("out_proj", self.inner, hidden_size, "attention out"),
        )

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """Write and read of the state: 4 FLOP per element."""
        return 4.0 * self.inner * self.state_size

    def cache(self) -> CacheShape:
        """State, and last inputs of the convolution."""
        width = self.inner + 2 * self.n_groups * self.state_size
        return CacheShape(
            state_elements=self.inner * self.state_size,
            conv_elements=(self.conv_kernel - 1) * width,
        )

    def kept(self) -> Kept:
        """Input projection, output and its norm; the scan is recomputed by its kernel."""
        projected = 2 * self.inner + 2 * self.n_groups * self.state_size + self.n_heads
        return Kept(split=projected + 2.0 * self.inner)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """State space duality in chunks (section 6)."""
        inner, state = self.inner / tp, max(1.0, self.n_groups / tp) * self.state_size
        core = Scan(
            CHUNK_TOKENS * (state + inner) + 4.0 * inner * self.state_size,
            2.0 * (3 * inner + 2 * state),
        )
        width = 2 * inner + 2 * state
        products = (
            Product("Mamba in", width + self.n_heads / tp, hidden_size),
            Product("Mamba out", hidden_size, inner),
        )
        return Work(products, core, width, 0.0)

    def heads(self) -> tuple[int, int]:
        """Heads, and groups that share B and C."""
        return self.n_heads, self.n_groups

    def words(self) -> str:
        """Heads and state."""
        return f"Mamba-2, {self.n_heads} heads, state {self.head_dim} x {self.state_size}"
