"""The linear maps of a layer by name: what adapters can be put on and what gets quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec


class Linear(NamedTuple):
    """One linear map of a layer, `copies` times (experts), met `per_token` times by a token."""

    name: str
    n_in: float
    n_out: float
    reads: str  # what it reads; maps that read the same keep their input once
    part: str  # attention | mlp
    copies: float = 1.0
    per_token: float = 1.0

    @property
    def params(self) -> float:
        """Weights of all copies. [1]."""
        return self.n_in * self.n_out * self.copies


def _attention(m: Any, h: float) -> list[Linear]:
    v_dim = m.v_head_dim or m.head_dim
    q_out = m.n_heads * m.head_dim * (2 if m.output_gate else 1)
    found = []
    if m.q_lora_rank:
        found.append(Linear("q_a", h, m.q_lora_rank, "x", "attention"))
        found.append(Linear("q_b", m.q_lora_rank, q_out, "q latent", "attention"))
    else:
        found.append(Linear("q", h, q_out, "x", "attention"))
    if not m.reuses_kv:
        found.append(Linear("k", h, m.n_kv_heads * m.head_dim, "x", "attention"))
        if not m.shared_kv:
            found.append(Linear("v", h, m.n_kv_heads * v_dim, "x", "attention"))
    found.append(Linear("o", m.n_heads * v_dim, h, "attention out", "attention"))
    return found


def _mla(m: Any, h: float) -> list[Linear]:
    qk = m.qk_nope_head_dim + m.qk_rope_head_dim
    found = []
    if m.q_lora_rank:
        found.append(Linear("q_a", h, m.q_lora_rank, "x", "attention"))
        found.append(Linear("q_b", m.q_lora_rank, m.n_heads * qk, "q latent", "attention"))
    else:
        found.append(Linear("q", h, m.n_heads * qk, "x", "attention"))
    up = m.n_heads * (m.qk_nope_head_dim + m.v_head_dim)
    return [
        *found,
        Linear("kv_a", h, m.kv_lora_rank + m.qk_rope_head_dim, "x", "attention"),
        Linear("kv_b", m.kv_lora_rank, up, "kv latent", "attention"),
        Linear("o", m.n_heads * m.v_head_dim, h, "attention out", "attention"),
    ]


def _compressed(m: Any, h: float) -> list[Linear]:
    q = m.n_heads * m.head_dim
    return [
        Linear("q_a", h, m.q_lora_rank, "x", "attention"),
        Linear("q_b", m.q_lora_rank, q, "q latent", "attention"),
        Linear("kv", h, m.head_dim, "x", "attention"),
        Linear("o_a", q / m.o_groups, m.o_groups * m.o_lora_rank, "attention out", "attention"),
        Linear("o_b", m.o_groups * m.o_lora_rank, h, "o latent", "attention"),
    ]


def _lightning(m: Any, h: float) -> list[Linear]:
    width = m.n_heads * m.head_dim
    names = ("q", "k", "v", "g")
    maps = [Linear(n, h, width, "x", "attention") for n in names]
    return [*maps, Linear("o", width, h, "attention out", "attention")]


def _gated_delta(m: Any, h: float) -> list[Linear]:
    k, v = m.n_k_heads * m.k_head_dim, m.n_v_heads * m.v_head_dim
    return [
        Linear("in_proj", h, 2 * k + 2 * v + 2 * m.n_v_heads, "x", "attention"),
        Linear("out_proj", v, h, "attention out", "attention"),
    ]


def _mamba2(m: Any, h: float) -> list[Linear]:
    inner = m.n_heads * m.head_dim
    projected = 2 * inner + 2 * m.n_groups * m.state_size + m.n_heads
    return [
        Linear("in_proj", h, projected, "x", "attention"),
        Linear("out_proj", inner, h, "attention out", "attention"),
    ]


_MIXERS = {
    "attention": _attention,
    "mla": _mla,
    "compressed": _compressed,
    "lightning": _lightning,
    "gated-delta": _gated_delta,
    "mamba2": _mamba2,
}


def mixer_linears(mixer: Any, hidden_size: float) -> list[Linear]:
    """Linear maps of a mixer; none for a layer without one."""
    make = _MIXERS.get(mixer.kind)
    return make(mixer, float(hidden_size)) if make else []


def ffn_linears(ffn: Any, hidden_size: float) -> list[Linear]:
    """Linear maps of a feed-forward part: gate, up, down; those of experts have copies."""
    h = float(hidden_size)
    if ffn.kind == "dense":
        return _mlp(h, ffn.ffn_hidden_size, ffn.gated, "y", "", 1.0, 1.0)
    if ffn.kind != "moe":
        return []
    width = float(ffn.latent_size or h)
    n, k = float(ffn.n_experts), float(min(ffn.top_k, ffn.n_experts))
    found = _mlp(width, ffn.expert_ffn_hidden_size, ffn.gated, "expert in", "", n, k)
    for prefix, size in (
        ("shared_", ffn.shared_ffn_hidden_size),
        ("dense_", ffn.dense_ffn_hidden_size),
    ):
        if size:
            found += _mlp(h, size, ffn.gated, "y", prefix, 1.0, 1.0)
    return found


def _mlp(
    n_in: float, width: float, gated: bool, reads: str, prefix: str, copies: float, met: float
) -> list[Linear]:
    up = Linear(f"{prefix}up", n_in, width, reads, "mlp", copies, met)
    down = Linear(f"{prefix}down", width, n_in, f"{reads} act", "mlp", copies, met)
    gate = [up._replace(name=f"{prefix}gate")] if gated else []
    return [*gate, up, down]


def model_linears(model: ModelSpec) -> tuple[tuple[int, tuple[Linear, ...]], ...]:
    """(number of layers, their linear maps) of each kind of layer, in `layer_groups` order.

    Routers, norms, embeddings and the head are no part of it.

    Examples
    --------
    >>> from gpuscale.io.models import load_model
    >>> ((n, maps),) = model_linears(load_model("llama3-8b").spec)
    >>> n, [m.name for m in maps], sum(m.params for m in maps)
    (32, ['q', 'k', 'v', 'o', 'gate', 'up', 'down'], 218103808.0)
    """
    return tuple(
        (
            group.n,
            (
                *mixer_linears(group.mixer, model.hidden_size),
                *ffn_linears(group.ffn, model.hidden_size),
            ),
        )
        for group in model.layer_groups
    )
