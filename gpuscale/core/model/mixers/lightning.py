"""Linear attention with decay: MiniMax-01 (arXiv:2501.08313), section 2.2."""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.bounds import PositiveInt
from gpuscale.core.dataclasses import dataclass
from gpuscale.core.model.mixers.kind import CacheShape, Kept, Linear, Plain, Product, Work
from gpuscale.core.model.mixers.recurrent import Recurrent


@dataclass(frozen=True, kw_only=True)
class LightningAttention(Recurrent):
    """Linear attention with decay (MiniMax-01): QKV, an output gate and a norm."""

    measured: ClassVar[bool] = False
    kind: Literal["lightning"] = "lightning"
    n_heads: PositiveInt
    head_dim: PositiveInt

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """q, k, v, gate, output; a norm."""
        width = self.n_heads * self.head_dim
        return 5 * width * hidden_size, width

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """q, k, v, gate, o."""
        width = self.n_heads * self.head_dim
        inputs = (Linear(name, hidden_size, width, "x") for name in ("q", "k", "v", "g"))
        return (*inputs, Linear("o", width, hidden_size, "attention out"))

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """Write and read of a state of d x d per head."""
        return 4.0 * self.n_heads * self.head_dim**2

    def cache(self) -> CacheShape:
        """State of all heads."""
        return CacheShape(state_elements=self.n_heads * self.head_dim**2)

    def kept(self) -> Kept:
        """q, k, v, gate, output, its norm."""
        return Kept(split=6.0 * self.n_heads * self.head_dim)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """All projections as one product; the core by its FLOP."""
        width = self.weights(hidden_size)[0] / hidden_size / tp
        return Work((Product("projections", width, hidden_size),), Plain(), width, 0.0)

    def heads(self) -> tuple[int, int]:
        """Heads, each with its state."""
        return self.n_heads, 0

    def words(self) -> str:
        """Heads and state."""
        return f"lightning, {self.n_heads} heads, state {self.head_dim} x {self.head_dim}"
