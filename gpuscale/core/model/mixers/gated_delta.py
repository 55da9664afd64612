"""Gated delta rule: Yang et al. 2024 (arXiv:2412.06464), as in Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.bounds import PositiveInt
from gpuscale.core.dataclasses import dataclass
from gpuscale.core.model.mixers.kind import CacheShape, Kept, Linear, Product, Scan, Work
from gpuscale.core.model.mixers.recurrent import Recurrent

CHUNK_TOKENS = 64
"""Tokens of one chunk of the kernels (flash-linear-attention, `chunk_gated_delta_rule`)."""


@dataclass(frozen=True, kw_only=True)
class GatedDelta(Recurrent):
    """Gated linear attention (Gated DeltaNet of Qwen3-Next and Qwen3.5)."""

    measured: ClassVar[bool] = False
    kind: Literal["gated-delta"] = "gated-delta"
    n_k_heads: PositiveInt
    n_v_heads: PositiveInt
    k_head_dim: PositiveInt
    v_head_dim: PositiveInt
    conv_kernel: PositiveInt = 4

    @property
    def key(self) -> int:
        """Width of the keys."""
        return self.n_k_heads * self.k_head_dim

    @property
    def value(self) -> int:
        """Width of the values."""
        return self.n_v_heads * self.v_head_dim

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """q, k, v, gate, beta and decay, output; convolution, decay and norm vectors."""
        k, v = self.key, self.value
        matrices = hidden_size * (2 * k + 2 * v + 2 * self.n_v_heads) + v * hidden_size
        return matrices, (2 * k + v) * self.conv_kernel + 2 * self.n_v_heads + self.v_head_dim

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """in_proj (q, k, v, gate, beta, decay) and out_proj."""
        projected = 2 * self.key + 2 * self.value + 2 * self.n_v_heads
        return (
            Linear("in_proj", hidden_size, projected, "x"),
            Linear("out_proj", self.value, hidden_size, "attention out"),
        )

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """Read, correct and write a state of k x v per head: 6 FLOP per element."""
        return 6.0 * self.value * self.k_head_dim

    def cache(self) -> CacheShape:
        """State, and last inputs of the convolution."""
        return CacheShape(
            state_elements=self.value * self.k_head_dim,
            conv_elements=(self.conv_kernel - 1) * (2 * self.key + self.value),
        )

    def kept(self) -> Kept:
        """Projections before and after the convolution, gate, output, norm, chunk matrices."""
        chunk = CHUNK_TOKENS * self.n_v_heads  # one row of the chunk matrices
        return Kept(split=2.0 * (2 * self.key + self.value) + 3.0 * self.value + chunk)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """Projections, products inside a chunk, updates of the state (section 3.3)."""
        key, value = self.key / tp, self.value / tp
        width = 2 * key + 2 * value
        core = Scan(2.0 * CHUNK_TOKENS * width + 6.0 * value * self.k_head_dim, 2.0 * width)
        products = (
            Product("QKV and gate", width, hidden_size),
            Product("delta out", hidden_size, value),
        )
        return Work(products, core, width, 0.0)

    def heads(self) -> tuple[int, int]:
        """Value heads, and key heads."""
        return self.n_v_heads, self.n_k_heads

    def words(self) -> str:
        """Heads and state."""
        return f"gated delta, {self.n_v_heads} heads, state {self.k_head_dim} x {self.v_head_dim}"
