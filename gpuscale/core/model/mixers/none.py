"""No mixing of tokens: the layers of Nemotron-H that are an FFN alone (arXiv:2504.03624)."""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.model.mixers.kind import CacheShape, Kept, Linear, Work
from gpuscale.core.model.mixers.recurrent import Recurrent


@dataclass(frozen=True, kw_only=True)
class NoMixer(Recurrent):
    """A layer without token mixing (the FFN-only layers of Nemotron-H)."""

    measured: ClassVar[bool] = True
    kind: Literal["none"] = "none"

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """None."""
        return 0, 0

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """None."""
        return ()

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """None."""
        return 0.0

    def cache(self) -> CacheShape:
        """None."""
        return CacheShape()

    def kept(self) -> Kept:
        """None."""
        return Kept()

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """None."""
        return Work((), None, 0.0, 0.0)

    def heads(self) -> tuple[int, int]:
        """None."""
        return 0, 0

    def words(self) -> str:
        """No mixer."""
        return "no mixer"
