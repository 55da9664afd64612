"""Attention with keys and values of every head, or with one latent vector a token (MLA).

arXiv:1706.03762; grouped heads: 2305.13245; windows: 2004.05150; latents: 2405.04434, section 2.1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.bounds import Count, NonNegativeInt, PositiveInt
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
from gpuscale.core.records import dataclass


@dataclass(frozen=True, kw_only=True)
class Attention(Indexed):
    """Softmax attention with grouped heads: MHA, GQA, MQA; full, sliding-window or chunked."""

    measured: ClassVar[bool] = True
    kind: Literal["attention"] = "attention"
    n_kv_heads: PositiveInt
    head_dim: PositiveInt
    v_head_dim: PositiveInt | None = None  # None: as head_dim
    window_tokens: PositiveInt | None = None  # sliding window or chunk; None: full
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"  # weights: head_dim, or the whole width
    output_gate: bool = False  # query projection doubled by a gate
    sinks: bool = False  # one learned logit per head
    shared_kv: bool = False  # V is K: one projection, still two caches
    head_gate: bool = False  # one output gate per head
    q_lora_rank: PositiveInt | None = None  # low-rank query with a norm (Step-3)
    reuses_kv: bool = False  # K and V of an earlier layer: no projections, no cache of its own
    extra_params: Count = 0  # vectors that no other key explains

    @property
    def v_dim(self) -> int:
        """Width of a head's values."""
        return self.v_head_dim or self.head_dim

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """Count queries, keys, values, output; gates, indexer, norms and biases if any."""
        h, q, out = hidden_size, self.n_heads * self.head_dim, self.n_heads * self.v_dim
        k = 0 if self.reuses_kv else self.n_kv_heads * self.head_dim
        v = 0 if self.reuses_kv or self.shared_kv else self.n_kv_heads * self.v_dim
        q_out = 2 * q if self.output_gate else q
        query = (h + q_out) * self.q_lora_rank if self.q_lora_rank else h * q_out
        matrices = query + h * (k + v) + out * h + (h * self.n_heads if self.head_gate else 0)
        vectors = (q_out + k + v if self.qkv_bias else 0) + (h if self.out_bias else 0)
        if self.index_n_heads:  # index queries and one index key, each with a norm
            matrices += h * (self.index_n_heads + 1) * self.index_head_dim
            vectors += 2 * self.index_head_dim
        if self.qk_norm == "head":
            vectors += self.head_dim * (1 if self.reuses_kv else 2)
        elif self.qk_norm == "full":
            vectors += q + k
        vectors += (self.n_heads if self.sinks else 0) + (self.q_lora_rank or 0)
        return matrices, vectors + self.extra_params

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """Q (or its two low-rank factors), k, v, o."""
        h, kv = hidden_size, self.n_kv_heads
        q_out = self.n_heads * self.head_dim * (2 if self.output_gate else 1)
        found = low_rank_query(h, self.q_lora_rank, q_out)
        if not self.reuses_kv:
            found += (Linear("k", h, kv * self.head_dim, "x"),)
            found += () if self.shared_kv else (Linear("v", h, kv * self.v_dim, "x"),)
        return (*found, Linear("o", self.n_heads * self.v_dim, h, "attention out"))

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """``2 heads (qk + v)`` per key met (PaLM, appendix B); the indexer scores all keys."""
        context = mean_context_tokens(seq_len, self.window_tokens, causal)
        kept = mean_context_tokens(seq_len, self.sparse_top_k_tokens, causal)
        index = self.index_flop * context
        return self.flop_per_key(False) * min(context, kept) + index

    def cache(self) -> CacheShape:
        """K and V of each KV head, the indexer's key; a window keeps no more than its tokens."""
        if self.reuses_kv:
            return CacheShape()
        kv = self.n_kv_heads * (self.head_dim + self.v_dim) + self.index_head_dim
        if self.window_tokens:
            return CacheShape(window_elements_per_token=kv, window_tokens=self.window_tokens)
        return CacheShape(elements_per_token=kv)

    def kept(self) -> Kept:
        """q, k, v and output; flash attention keeps nothing else of size."""
        q, out = self.n_heads * self.head_dim, self.n_heads * self.v_dim
        own = self.head_dim + (0 if self.shared_kv else self.v_dim)
        kv = 0 if self.reuses_kv else self.n_kv_heads * own
        return Kept(
            split=float(q + (q if self.output_gate else 0) + kv + out),
            score_heads=float(self.n_heads),
            normed=0.0 if self.qk_norm == "none" else float(q + self.n_kv_heads * self.head_dim),
        )

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """QKV (column split), core, output (row split); KV heads repeat where TP is more."""
        heads, d, dv = self.n_heads / tp, self.head_dim, self.v_dim
        kv = max(1.0, self.n_kv_heads / tp)
        own = 0.0 if self.reuses_kv else kv * (d if self.shared_kv else d + dv)
        query, rank = heads * d * (2 if self.output_gate else 1), self.q_lora_rank
        inputs: tuple[Product, ...] = (Product("QKV", query + own, hidden_size),)
        if rank:
            inputs = (
                Product("Q down and KV", rank + own, hidden_size),
                Product("Q up", query, rank),
            )
        return Work(
            products=(*inputs, Product("attention out", hidden_size, heads * dv)),
            core=Softmax(
                heads,
                d,
                dv,
                self.window_tokens,
                self.sparse_top_k_tokens,
                self.index_flop,
                whole=self.sparse_top_k_tokens is None,
            ),
            streamed=heads * d + kv * (d + dv),
            exchanged=kv * (d + dv),
        )

    def met_keys(self, context: float) -> float:
        """No more than the window, no more than the indexer leaves."""
        most = min(self.window_tokens or context, self.sparse_top_k_tokens or context)
        return min(context, float(most))

    def read_tokens(self, context: float) -> float:
        """Each key that is met."""
        return self.met_keys(context)

    def flop_per_key(self, decoding: bool) -> float:
        """``2 heads (qk + v)``."""
        return 2.0 * self.n_heads * (self.head_dim + self.v_dim)

    def cache_shards(self, tp: int) -> int:
        """KV heads split; a layer that reuses another's cache does not limit."""
        return tp if self.reuses_kv else min(tp, self.n_kv_heads)

    def heads(self) -> tuple[int, int]:
        """Query heads and KV heads."""
        return self.n_heads, self.n_kv_heads

    def words(self) -> str:
        """Heads, KV heads, width, window."""
        size = f"{self.n_heads} heads, {self.n_kv_heads} KV, {self.head_dim} wide"
        window = f", window {self.window_tokens:,}" if self.window_tokens else ""
        sparse = f", top {self.sparse_top_k_tokens:,}" if self.sparse_top_k_tokens else ""
        return size + window + sparse


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
        index = self.index_n_heads * self.index_head_dim  # on every rank
        keys = self.index_head_dim + self.index_n_heads if index else 0
        chosen = (Product("indexer", index, rank or hidden_size),) if index else ()
        return Work(
            products=(
                Product("Q and KV down", rank + self.latent + gate + keys, hidden_size),
                *chosen,
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
