"""Attention of DeepSeek-V4: one shared K=V head, a window, and a compressed far context.

Shape and key names: config.json and model code of deepseek-ai/DeepSeek-V4-Flash.

Public copy of the config: github.com/ai-dynamo/aiconfigurator @095f58a.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.bounds import PositiveInt
from gpuscale.core.model.mixers.kind import (
    CacheShape,
    Indexed,
    Kept,
    Linear,
    Plain,
    Product,
    Work,
    low_rank_query,
    mean_context_tokens,
)
from gpuscale.core.records import dataclass


@dataclass(frozen=True, kw_only=True)
class CompressedAttention(Indexed):
    """Attention of DeepSeek-V4: one shared K=V head, a window, and a compressed far context."""

    measured: ClassVar[bool] = False
    kind: Literal["compressed"] = "compressed"
    head_dim: PositiveInt
    q_lora_rank: PositiveInt
    o_lora_rank: PositiveInt
    o_groups: PositiveInt
    window_tokens: PositiveInt
    compress_rate: PositiveInt | None = None  # tokens per compressed entry; None: window only

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """Low-rank queries, one key, grouped low-rank output, compressor and indexer."""
        h, q, d = hidden_size, self.n_heads * self.head_dim, self.head_dim
        matrices = (h + q) * self.q_lora_rank + h * d
        matrices += q * self.o_lora_rank + self.o_groups * self.o_lora_rank * h
        vectors = self.q_lora_rank + d + self.n_heads  # two norms, sinks
        if self.compress_rate:
            width = d * (2 if self.index_n_heads else 1)  # two overlapping windows if indexed
            matrices += 2 * h * width
            vectors += self.compress_rate * width + d
        if self.index_n_heads and self.compress_rate:
            width = 2 * self.index_head_dim
            matrices += 2 * h * width + self.q_lora_rank * self.index_n_heads * self.index_head_dim
            matrices += h * self.index_n_heads
            vectors += self.compress_rate * width + self.index_head_dim
        return matrices, vectors

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """q_a, q_b, kv, and the grouped output's two factors."""
        h, q = hidden_size, self.n_heads * self.head_dim
        latent = self.o_groups * self.o_lora_rank
        return (
            *low_rank_query(h, self.q_lora_rank, q),
            Linear("kv", h, self.head_dim, "x"),
            Linear("o_a", q / self.o_groups, latent, "attention out"),
            Linear("o_b", latent, h, "o latent"),
        )

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """Keys of the window, and of the compressed entries that the indexer leaves."""
        near = mean_context_tokens(seq_len, self.window_tokens, causal)
        far = index = 0.0
        if self.compress_rate:
            far = mean_context_tokens(seq_len, None, causal) / self.compress_rate
            index = self.index_flop * far
            far = min(far, self.sparse_top_k_tokens or far)
        return self.flop_per_key(False) * (near + far) + index

    def cache(self) -> CacheShape:
        """Keys of the window; one entry, and the indexer's, per `compress_rate` tokens."""
        rate = self.compress_rate
        far = (self.head_dim + self.index_head_dim) / rate if rate else 0.0
        return CacheShape(far, self.head_dim, self.window_tokens)

    def kept(self) -> Kept:
        """Query latents, keys and compressed entries; queries, outputs and their groups."""
        q = self.n_heads * self.head_dim
        latent = 2.0 * self.q_lora_rank + 3.0 * self.head_dim
        return Kept(latent=latent, split=2.0 * q + self.o_groups * self.o_lora_rank)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """All projections as one product; the core by its FLOP."""
        width = self.weights(hidden_size)[0] / hidden_size / tp
        return Work((Product("projections", width, hidden_size),), Plain(), width, 0.0)

    def met_keys(self, context: float) -> float:
        """Window and compressed entries."""
        far = context / self.compress_rate if self.compress_rate else 0.0
        return min(context, float(self.window_tokens)) + far

    def read_tokens(self, context: float) -> float:
        """Every entry: an entry is counted as its share of a token."""
        return context

    def flop_per_key(self, decoding: bool) -> float:
        """One head of keys that are the values too."""
        return 4.0 * self.n_heads * self.head_dim

    def cache_shards(self, tp: int) -> int:
        """One head of keys for all: every GPU keeps it."""
        return 1

    def heads(self) -> tuple[int, int]:
        """Query heads; the one head of keys is on every GPU."""
        return self.n_heads, 0

    def words(self) -> str:
        """Heads, window, rate."""
        far = f", 1 of {self.compress_rate} beyond" if self.compress_rate else ""
        return f"{self.n_heads} heads, {self.head_dim} wide, window {self.window_tokens}{far}"
