"""The linear maps of a model by name: what adapters can be put on and what gets quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.model.mixers.kind import Linear

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec


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
