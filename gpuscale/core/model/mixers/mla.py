"""Multi-head latent attention: DeepSeek-V2 (arXiv:2405.04434), section 2.1.

`index_*` describe the sparse indexer of DeepSeek-V3.2 (its report, section 2.1).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.bounds import Count, NonNegativeInt, PositiveInt
from gpuscale.core.dataclasses import dataclass
from gpuscale.core.model.mixers.kind import (
    CacheShape,
    Indexed,
    Kept,
    Linear,
    Product,
    Softmax,
    Work,
    low_rank_query,
    mean_context_tokens,
)


@dataclass(frozen=True, kw_only=True)
class Mla(Indexed):
    """Multi-head latent attention (DeepSeek-V2); `index_*` describe the sparse indexer of V3.2."""

    measured: ClassVar[bool] = True
    kind: Literal["mla"] = "mla"
    q_lora_rank: PositiveInt | None = None
    kv_lora_rank: PositiveInt
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: NonNegativeInt
    v_head_dim: PositiveInt
    bias: bool = False  # on the two down projections and the output
    output_gate: bool = False  # as wide as the output of all heads
    extra_params: Count = 0

    @property
    def qk_dim(self) -> int:
        """Width of a head's queries and keys, the rotary part included."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def latent(self) -> int:
        """Elements of a token's compressed K and V, with the rotary key."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """Down and up projections of queries and of the latent, output; two norms; indexer."""
        h, rank = hidden_size, self.q_lora_rank
        queries = self.n_heads * self.qk_dim
        matrices = (h + queries) * rank if rank else h * queries
        matrices += h * self.latent
        matrices += self.kv_lora_rank * self.n_heads * (self.qk_nope_head_dim + self.v_head_dim)
        matrices += self.n_heads * self.v_head_dim * h * (2 if self.output_gate else 1)
        vectors = (rank or 0) + self.kv_lora_rank  # the two norms
        if self.index_n_heads:
            index = self.index_n_heads * self.index_head_dim
            matrices += (rank or h) * index + h * self.index_head_dim + h * self.index_n_heads
            vectors += 2 * self.index_head_dim  # LayerNorm of the key
        if self.bias:
            vectors += (rank or 0) + self.latent + h
        return matrices, vectors + self.extra_params

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """Q (or q_a, q_b), kv_a, kv_b, o."""
        h, up = hidden_size, self.n_heads * (self.qk_nope_head_dim + self.v_head_dim)
        return (
            *low_rank_query(h, self.q_lora_rank, self.n_heads * self.qk_dim),
            *((Linear("g", h, self.n_heads * self.v_head_dim, "x"),) if self.output_gate else ()),
            Linear("kv_a", h, self.latent, "x"),
            Linear("kv_b", self.kv_lora_rank, up, "kv latent"),
            Linear("o", self.n_heads * self.v_head_dim, h, "attention out"),
        )

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """As trained, with expanded heads; the indexer scores all keys."""
        context = mean_context_tokens(seq_len, None, causal)
        kept = mean_context_tokens(seq_len, self.sparse_top_k_tokens, causal)
        index = self.index_flop * context
        return self.flop_per_key(False) * min(context, kept) + index

    def cache(self) -> CacheShape:
        """Latent and rotary key (section 2.1.2), and the indexer's key."""
        return CacheShape(self.latent + self.index_head_dim / self.index_pool_tokens)

    def kept(self) -> Kept:
        """Latents before and after their norms, q, k and v of each head, the output."""
        up = float(self.n_heads * (2 * self.qk_dim + self.v_head_dim))  # q, k, v
        return Kept(
            latent=2.0 * ((self.q_lora_rank or 0) + self.kv_lora_rank) + self.qk_rope_head_dim,
            split=up + self.n_heads * self.v_head_dim,
            up_projected=up,
            score_heads=float(self.n_heads),
        )

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """Training form: latents expanded, heads split by TP, down projections on every rank."""
        heads, rank, dv = self.n_heads / tp, self.q_lora_rank or 0, self.v_head_dim
        both = heads * (self.qk_nope_head_dim + dv)
        gate = heads * dv if self.output_gate else 0.0
        return Work(
            products=(
                Product("Q and KV down", rank + self.latent + gate, hidden_size),
                Product("Q up", heads * self.qk_dim, rank or hidden_size, from_latent=True),
                Product("KV up", both, self.kv_lora_rank, from_latent=True, absorbed=True),
                Product("attention out", hidden_size, heads * dv),
            ),
            core=Softmax(
                heads, self.qk_dim, dv, None, self.sparse_top_k_tokens, self.index_flop, whole=False
            ),
            streamed=heads * (2 * self.qk_dim + dv),
            exchanged=heads * (self.qk_dim + dv),
        )

    def met_keys(self, context: float) -> float:
        """No more than the indexer leaves."""
        return min(context, float(self.sparse_top_k_tokens or context))

    def read_tokens(self, context: float) -> float:
        """Each key that is met."""
        return self.met_keys(context)

    def flop_per_key(self, decoding: bool) -> float:
        """Heads expanded; decoding scores and sums the latent itself (section 2.1.2)."""
        width = self.latent + self.kv_lora_rank if decoding else self.qk_dim + self.v_head_dim
        return 2.0 * self.n_heads * width

    def cache_shards(self, tp: int) -> int:
        """One latent for all heads: every GPU keeps it."""
        return 1

    def heads(self) -> tuple[int, int]:
        """Query heads; the latent has no heads."""
        return self.n_heads, 0

    def words(self) -> str:
        """Heads and latent."""
        sparse = f", top {self.sparse_top_k_tokens:,}" if self.sparse_top_k_tokens else ""
        return (
            f"MLA, {self.n_heads} heads, latent {self.kv_lora_rank}+{self.qk_rope_head_dim}{sparse}"
        )
