"""Operators of one layer of a model and its head, as work and memory traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.kernel.roofline import matmul_bytes, matmul_flop

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec


class Operator(NamedTuple):
    """One operator: a matrix product (m, k) @ (k, n), or an attention core (m, n, k are 0)."""

    name: str
    flop: float
    moved_bytes: float
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0

    @property
    def intensity(self) -> float:
        """FLOP per byte moved. [FLOP/byte]."""
        return self.flop / self.moved_bytes


def operators(
    model: ModelSpec, n_tokens: float, context_tokens: float, decoding: bool
) -> list[Operator]:
    """Matrix products and attention cores of each kind of layer, forward, on one GPU, 16 bits.

    Parameters
    ----------
    model : ModelSpec
        Softmax and latent attention, dense and expert feed-forward parts are listed; other mixers
        are left out.
    n_tokens : float
        Tokens of one pass; when decoding, the sequences, one token each. [1]
    context_tokens : float
        Tokens of a sequence. [1]
    decoding : bool
        Each token attends to `context_tokens` keys of its own; else causal over the sequence.

    Notes
    -----
    An expert sees ``n_tokens top_k / n_experts`` tokens, at least one. A core moves queries, keys,
    values and outputs once (FlashAttention, arXiv:2205.14135).

    Examples
    --------
    >>> from gpuscale.io.models import load_model
    >>> found = operators(load_model("llama3-70b").spec, 8192.0, 8192.0, False)
    >>> [op.name for op in found]
    ['QKV', 'attention core', 'attention out', 'FFN up', 'FFN down', 'head']
    """
    h, t = float(model.hidden_size), n_tokens
    found: list[Operator] = []

    def product(name: str, n: float, k: float, m: float = t) -> None:
        found.append(Operator(name, matmul_flop(m, k, n), matmul_bytes(m, k, n), m, n, k))

    def core(heads: float, kv: float, qk: float, v: float, cached: float) -> None:
        # cached: elements that keys and values of one token take in the cache
        keys = context_tokens if decoding else context_tokens / 2.0
        flop = 2.0 * t * keys * heads * (qk + v)
        read = t * context_tokens * cached if decoding else t * kv * (qk + v)
        found.append(Operator("attention core", flop, 2.0 * (t * heads * (qk + v) + read)))

    for m in model.mixers.values():
        if m.kind == "attention":
            v = float(m.v_head_dim or m.head_dim)
            width = m.n_heads * m.head_dim + m.n_kv_heads * (m.head_dim + v)
            product("QKV", width, h)
            core(m.n_heads, m.n_kv_heads, m.head_dim, v, m.n_kv_heads * (m.head_dim + v))
            product("attention out", h, m.n_heads * v)
        elif m.kind == "mla":
            qk = float(m.qk_nope_head_dim + m.qk_rope_head_dim)
            latent = float(m.kv_lora_rank + m.qk_rope_head_dim)
            rank = float(m.q_lora_rank or 0)
            if rank:
                product("Q down", rank, h)
            product("Q up", m.n_heads * qk, rank or h)
            product("KV down", latent, h)
            product("KV up", m.n_heads * float(m.qk_nope_head_dim + m.v_head_dim), m.kv_lora_rank)
            if decoding:  # absorbed: scores and sums over the latent itself
                core(m.n_heads, 1, latent, float(m.kv_lora_rank), latent)
            else:
                core(m.n_heads, m.n_heads, qk, float(m.v_head_dim), 0.0)
            product("attention out", h, m.n_heads * float(m.v_head_dim))
    for f in model.ffns.values():
        gated = 2.0 if getattr(f, "gated", False) else 1.0
        if f.kind == "dense":
            product("FFN up", gated * f.ffn_hidden_size, h)
            product("FFN down", h, f.ffn_hidden_size)
        elif f.kind == "moe":
            each = max(1.0, t * f.top_k / f.n_experts)
            product("expert up", gated * f.expert_ffn_hidden_size, f.latent_size or h, each)
            product("expert down", f.latent_size or h, f.expert_ffn_hidden_size, each)
    product("head", model.vocab_size, h)
    unique = {(op.name, op.n, op.k, op.flop): op for op in found}
    return list(unique.values())
