"""One layer of a model: its widths, its operators as work and memory traffic, its maps by name.

Traffic of a fused core: Dao et al. 2022 (FlashAttention, arXiv:2205.14135), section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.dataclasses import NamedTuple, dataclass
from gpuscale.core.kernel.roofline import matmul_bytes, matmul_flop
from gpuscale.core.model.flops import ffn_matrix_weights
from gpuscale.core.model.mixers.kind import Linear

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
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

    `model`: the core of a recurrence has no keys and is left out; its products are listed.
    `n_tokens`: tokens of one pass; when decoding, the sequences, one token each [1].
    `context_tokens`: tokens of a sequence [1]. `decoding`: each token attends to `context_tokens`
    keys of its own; else causal over the sequence.

    An expert sees ``n_tokens top_k / n_experts`` tokens, at least one. A core moves queries, keys,
    values and outputs once (FlashAttention, arXiv:2205.14135).

    >>> from gpuscale.io.models import load_model
    >>> found = operators(load_model("llama3-70b").spec, 8192.0, 8192.0, False)
    >>> [op.name for op in found]
    ['QKV', 'attention core', 'attention out', 'FFN up', 'FFN down', 'head']
    """
    h, t = float(model.hidden_size), n_tokens
    found: list[Operator] = []

    def product(name: str, n: float, k: float, m: float = t) -> None:
        found.append(Operator(name, matmul_flop(m, k, n), matmul_bytes(m, k, n), m, n, k))

    for mixer in model.mixers.values():
        work, cache = mixer.work(model.hidden_size), mixer.cache()
        for p in work.products[:-1]:
            product(p.name, p.n, p.k)
        per_key = mixer.flop_per_key(decoding)
        if per_key:  # cached: elements that keys and values of one token take in the cache
            keys = mixer.met_keys(context_tokens)
            cached = cache.elements_per_token + cache.window_elements_per_token
            read = keys * cached if decoding else work.exchanged
            moved = 2.0 * t * (per_key / 2.0 + read)  # queries and outputs, keys and values
            flop = keys * per_key if decoding else mixer.flop(int(context_tokens))
            found.append(Operator("attention core", t * flop, moved))
        for p in work.products[-1:]:
            product(p.name, p.n, p.k)
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


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Widths of the layer that holds most of the model's weights."""

    hidden_size: int
    ffn_hidden_size: int  # of the MLP, or of one expert
    n_matrices: int  # 2, gated 3
    n_experts: int  # 1: dense
    top_k: int
    shared_width: float  # shared experts, beside the routed ones
    n_route_groups: int
    n_layers: int
    mixer_weights: float  # matrix weights of the mixer
    layer_weights: float  # matrix weights that one token meets
    q_width: float  # width of the attention's products; 0: no softmax attention
    kv_width: float  # half the width of what a ring passes on per token


def layer_shape(model: ModelSpec) -> LayerShape:
    """Shape of the layers that hold most FFN weights, and the average layer's matrix weights.

    Raises ValueError if no layer has an FFN.
    """
    h = model.hidden_size
    groups = [g for g in model.layer_groups if g.ffn.kind != "none"]
    if not groups:
        raise ValueError(f"{model.name} has no FFN layer: the MLP's limits do not apply")
    main = max(groups, key=lambda g: g.n * ffn_matrix_weights(g.ffn, h))
    mixers = [g.mixer for g in model.layer_groups]
    weights = sum(
        g.n * (g.mixer.weights(h)[0] + ffn_matrix_weights(g.ffn, h)) for g in model.layer_groups
    )
    q_width, kv_width = max((_attention_widths(m) for m in mixers), default=(0.0, 0.0))
    if main.ffn.kind == "moe":
        width, experts, k = main.ffn.expert_ffn_hidden_size, main.ffn.n_experts, main.ffn.top_k
        shared = float(main.ffn.shared_ffn_hidden_size + main.ffn.dense_ffn_hidden_size)
        groups_chosen, gated = main.ffn.n_route_groups, main.ffn.gated
    elif main.ffn.kind == "dense":
        width, experts, k, shared = main.ffn.ffn_hidden_size, 1, 1, 0.0
        groups_chosen, gated = 0, main.ffn.gated
    return LayerShape(
        hidden_size=h,
        ffn_hidden_size=width,
        n_matrices=3 if gated else 2,
        n_experts=experts,
        top_k=k,
        shared_width=shared,
        n_route_groups=groups_chosen,
        n_layers=model.n_layers,
        mixer_weights=max(float(m.weights(h)[0]) for m in mixers),
        layer_weights=weights / model.n_layers,
        q_width=q_width,
        kv_width=kv_width,
    )


def _attention_widths(mixer: AnyMixer) -> tuple[float, float]:
    """(width of QK and PV products, half the elements cached per token); 0 if not softmax."""
    q_width, cache = mixer.flop_per_key(False) / 4.0, mixer.cache()
    kept = (cache.elements_per_token + cache.window_elements_per_token) / 2.0
    return (q_width, kept) if q_width else (0.0, 0.0)


def ffn_maps(ffn: Any, hidden_size: float) -> tuple[Linear, ...]:
    """Linear maps of a feed-forward part: gate, up, down; those of experts have copies."""
    h = float(hidden_size)
    if ffn.kind == "dense":
        return _mlp(h, ffn.ffn_hidden_size, ffn.gated, "y")
    if ffn.kind != "moe":
        return ()
    width, n, k = float(ffn.latent_size or h), float(ffn.n_experts), float(ffn.top_k)
    found = tuple(
        m._replace(copies=n, per_token=min(k, n))
        for m in _mlp(width, ffn.expert_ffn_hidden_size, ffn.gated, "expert in")
    )
    for prefix, size in (
        ("shared_", ffn.shared_ffn_hidden_size),
        ("dense_", ffn.dense_ffn_hidden_size),
    ):
        own = _mlp(h, size, ffn.gated, "y") if size else ()
        found += tuple(m._replace(name=prefix + m.name) for m in own)
    return found


def _mlp(n_in: float, width: float, gated: bool, reads: str) -> tuple[Linear, ...]:
    up = Linear("up", n_in, width, reads, "mlp")
    down = Linear("down", width, n_in, f"{reads} act", "mlp")
    return (up._replace(name="gate"), up, down) if gated else (up, down)


def model_maps(model: ModelSpec) -> tuple[tuple[int, tuple[Linear, ...]], ...]:
    """Return (number of layers, their linear maps) of each kind of layer, in `layer_groups` order.

    Routers, norms, embeddings and the head are no part of it.

    >>> from gpuscale.io.models import load_model
    >>> ((n, maps),) = model_maps(load_model("llama3-8b").spec)
    >>> n, [m.name for m in maps], sum(m.params for m in maps)
    (32, ['q', 'k', 'v', 'o', 'gate', 'up', 'down'], 218103808.0)
    """
    h = model.hidden_size
    return tuple(
        (group.n, (*group.mixer.maps(h), *ffn_maps(group.ffn, h))) for group in model.layer_groups
    )
