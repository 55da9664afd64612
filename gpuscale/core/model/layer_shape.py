"""Layers of a model: widths, operators as work and memory traffic, maps, caches, model FLOP.

Traffic of a fused core: Dao et al. 2022 (FlashAttention, arXiv:2205.14135), section 3. FLOP: PaLM
(arXiv:2204.02311), appendix B; Narayanan et al. 2021 (arXiv:2104.04473), appendix. A multiply-add
is 2 FLOP; recomputation is not counted.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Any

from gpuscale.core.kernel.roofline import matmul_bytes, matmul_flop
from gpuscale.core.model.mixers.kind import CacheShape, Linear
from gpuscale.core.records import NamedTuple, dataclass

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.specs.model import AnyFfn, ModelSpec


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


STATE_BYTES_PER_ELEMENT = 4.0
"""Recurrent states are kept in fp32 (`mamba_ssm_dtype` of the released configs)."""


def kv_bytes_per_token(model: ModelSpec, bytes_per_element: float = 2.0) -> float:
    """Cache that one more token adds while no window is full.

    `bytes_per_element`: 2 for bf16, 1 for fp8 [byte]. Returns: of all layers, one copy of the model
    [byte per token].
    """
    return bytes_per_element * cached_elements(model)


def cached_elements(model: ModelSpec) -> float:
    """Elements that one more token adds to the caches of all layers. [1]."""
    shapes = _shapes(model)
    return fsum(n * (c.elements_per_token + c.window_elements_per_token) for n, c in shapes)


def kv_cache_bytes(
    model: ModelSpec, context_tokens: float, bytes_per_element: float = 2.0
) -> float:
    """Cache of one sequence of `context_tokens` tokens, windows filled, states included.

    `context_tokens`: tokens in the cache [1]. `bytes_per_element`: 2 for bf16, 1 for fp8; recurrent
    states stay at `STATE_BYTES_PER_ELEMENT` [byte]. Returns: of all layers, one copy of the model,
    one sequence [byte].
    """
    if context_tokens < 0:
        raise ValueError(f"context_tokens must not be negative, got {context_tokens}")
    elements = fsum(
        n
        * (
            c.elements_per_token * context_tokens
            + c.window_elements_per_token * min(context_tokens, c.window_tokens)
        )
        for n, c in _shapes(model)
    )
    return bytes_per_element * elements + state_bytes(model, bytes_per_element)


def state_bytes(model: ModelSpec, bytes_per_element: float = 2.0) -> float:
    """Constant recurrent and convolution state of one sequence, all layers. [byte]."""
    return fsum(
        n * (c.state_elements * STATE_BYTES_PER_ELEMENT + c.conv_elements * bytes_per_element)
        for n, c in _shapes(model)
    )


def _shapes(model: ModelSpec) -> list[tuple[int, CacheShape]]:
    return [(group.n, group.mixer.cache()) for group in model.layer_groups]


BACKWARD_PER_FORWARD = 2.0
"""Gradients with respect to input and weight: two products for each of the forward pass."""


@dataclass(frozen=True, slots=True)
class ModelFlops:
    """Forward FLOP of one token, mean over the positions of a sequence."""

    mixer_linear_flop: float  # projections of all mixers
    attention_flop: float  # scores and values, indexers, recurrences: what grows with the context
    ffn_flop: float  # chosen and shared experts, routers
    head_flop: float
    other_flop: float = 0.0  # hyper-connections, per-layer embeddings

    @property
    def forward_flop(self) -> float:
        """All of the forward pass."""
        mixers = self.mixer_linear_flop + self.attention_flop
        return mixers + self.ffn_flop + self.head_flop + self.other_flop

    @property
    def backward_flop(self) -> float:
        """All of the backward pass."""
        return BACKWARD_PER_FORWARD * self.forward_flop

    @property
    def training_flop(self) -> float:
        """Forward and backward."""
        return self.forward_flop + self.backward_flop


def flop_per_token(model: ModelSpec, seq_len: int, causal: bool = True) -> ModelFlops:
    """FLOP per token, operator by operator.

    `seq_len`: tokens of a training sequence, or of a prompt [1]. `causal`: count only the keys that
    the mask leaves, `(s + 1) / 2` on average; False counts all `s`, the convention of PaLM appendix
    B and of Megatron-LM. Returns: of one token, forward [FLOP]. Raises ValueError if `seq_len` < 1.
    """
    if seq_len < 1:
        raise ValueError(f"seq_len must be at least 1, got {seq_len}")
    h = model.hidden_size
    linear = attention = ffn = 0.0
    for group in model.layer_groups:
        linear += group.n * 2 * group.mixer.weights(h)[0]
        attention += group.n * group.mixer.flop(seq_len, causal)
        ffn += group.n * 2 * ffn_matrix_weights(group.ffn, h)
    other = 0.0
    if model.hc_mult:
        mixes = (2 + model.hc_mult) * model.hc_mult
        other += 2 * (2 * mixes * model.n_layers + model.hc_mult) * model.hc_mult * h
    if model.ple_hidden_size:
        other += 2 * 3 * model.ple_hidden_size * h * model.n_layers
    return ModelFlops(linear, attention, ffn, 2.0 * model.vocab_size * h, other)


def six_p_flop_per_token(params: float) -> float:
    """Training FLOP per token by the rule 6P: forward 2P, backward 4P.

    `params` is the active count; Kaplan et al. 2020 leave the embedding out, Hoffmann et al. 2022
    (Chinchilla, appendix F) count it.
    """
    return 6.0 * params


def ffn_matrix_weights(ffn: AnyFfn, hidden_size: int) -> float:
    """Matrix weights of one FFN that one token meets: chosen and shared experts, router."""
    mlps = fsum(m.n_in * m.n_out * m.per_token for m in ffn_maps(ffn, hidden_size))
    if ffn.kind != "moe":
        return mlps
    return mlps + hidden_size * (2 * (ffn.latent_size or 0) + ffn.n_experts + ffn.shared_gate)


def model_flop_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward FLOP of one token, causal, prediction layers included. [FLOP]."""
    flops = flop_per_token(model, seq_len)
    per_layer = (flops.forward_flop - flops.head_flop) / model.n_layers
    mtp = model.n_mtp_layers * (per_layer + flops.head_flop + 4.0 * model.hidden_size**2)
    return flops.training_flop + 3.0 * mtp
