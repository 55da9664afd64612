"""Orders of layers: the kind of mixer of each, and which have experts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from gpuscale.io.hf_keys import Keys
from gpuscale.io.hf_parts import FamilyRow
from gpuscale.specs.model import MAX_LAYERS

SLIDING = ("sliding_attention", "chunked_attention", "sliding", "local", "hybrid_sliding")


def n_layers(k: Keys) -> int:
    """Read the number of layers, refused when absurd."""
    n = k.integer("num_hidden_layers")
    if n > MAX_LAYERS:
        raise k.error("num_hidden_layers", f"more than {MAX_LAYERS} layers, got {n}")
    return n


def layer_types(k: Keys, n: int, full: Callable[[int], Any] = lambda i: True) -> list[str]:
    """`layer_types` of the file, or by whether layer i is full attention."""
    given = k.per_layer("layer_types", n)
    if given is None:
        return ["full_attention" if full(i) else "sliding_attention" for i in range(n)]
    if not all(isinstance(kind, str) for kind in given):
        raise k.error("layer_types", "a list of names is wanted")
    return given


def names_of(layer_types: Iterable[str]) -> list[str]:
    """`sliding` or `full` for each layer."""
    return ["sliding" if kind in SLIDING else "full" for kind in layer_types]


def _window(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """One window for all layers, if any."""
    return ["sliding" if k.optional("sliding_window") else "full"] * n


def _max_window(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """Windows from a layer on, where they are switched on (Qwen)."""
    start = k.integer("max_window_layers", 0, least=0)
    slides = k.flag("use_sliding_window") and k.optional("sliding_window") is not None
    return names_of(layer_types(k, n, lambda i: not (slides and i >= start)))


def turns(k: Keys, n: int, row: FamilyRow, slides: bool = True) -> list[str]:
    """One full layer in so many; a pattern such as LLLG is gone through."""
    key, default = row.every
    pattern = k.find(key)
    if isinstance(pattern, str) and re.fullmatch("[LG]+", pattern):
        return names_of(layer_types(k, n, lambda i: pattern[i % len(pattern)] == "G"))
    every = k.integer(key, default)
    return names_of(layer_types(k, n, lambda i: not slides or (i + 1) % every == 0))


def _every(k: Keys, n: int, row: FamilyRow) -> list[str]:
    return turns(k, n, row, k.optional("sliding_window") is not None)


def _no_rope(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """Layers without rotary positions are full (Llama 4)."""
    rope = k.per_layer("no_rope_layers", n)
    interval = k.integer("no_rope_layer_interval", 4)
    return names_of(layer_types(k, n, lambda i: not (rope[i] if rope else (i + 1) % interval)))


def _mimo(k: Keys, n: int, row: FamilyRow) -> list[str]:
    order = k.per_layer("hybrid_layer_pattern", n)
    return names_of(
        layer_types(k, n, lambda i: not order[i] if order else i == 0 or (i + 1) % 6 == 0)
    )


def _block_sparse(k: Keys, n: int, row: FamilyRow) -> list[str]:
    types = layer_types(k, n)
    freq = k.below("sparse_attention_config").per_layer("sparse_attention_freq", n)
    if freq is not None and k.table.get("layer_types") is None:
        return ["sparse" if f else "full" for f in freq]
    return ["full" if kind == "full_attention" else "sparse" for kind in types]


LINEAR = ("linear_attention", "mamba", "conv")


def _either(k: Keys, n: int, name: str, full: Callable[[int], Any]) -> list[str]:
    """Layers of a kind by `name`, the others as ever; where no types are given, by `full`."""
    if k.table.get("layer_types") is None:
        return ["full" if full(i) else name for i in range(n)]
    types = layer_types(k, n)
    return [name if t in LINEAR else names_of([t])[0] for t in types]


def _delta(k: Keys, n: int, row: FamilyRow) -> list[str]:
    every = k.integer("full_attention_interval", 4)
    return _either(k, n, "delta", lambda i: (i + 1) % every == 0)


def _kda(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """Kimi Delta Attention, and latent attention by a list or every so many layers."""
    chosen = k.below("linear_attn_config").sequence("full_attn_layers")  # counted from one
    every = k.integer("layer_group_size", 4)
    kinds = _either(k, n, "kda", lambda i: i + 1 in chosen if chosen else (i + 1) % every == 0)
    latent = "dsa" if k.find("index_topk") else "mla"
    return [latent if kind == "full" else kind for kind in kinds]


def _conv(k: Keys, n: int, row: FamilyRow) -> list[str]:
    full = k.layer_numbers("full_attn_idxs") or set()
    return _either(k, n, "conv", full.__contains__)


def _lightning(k: Keys, n: int, row: FamilyRow) -> list[str]:
    old = k.per_layer("attn_type_list", n)
    if k.given("layer_types"):
        return ["full" if t == "full_attention" else "lightning" for t in layer_types(k, n)]
    return ["full" if (old[i] if old else i % 2 == 0) else "lightning" for i in range(n)]


def _indexed(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """Layers with an indexer of their own, and those that share that of one before."""
    order: Any = k.per_layer("indexer_types", n)
    short = k.table.get("index_topk_pattern")
    if order is None and isinstance(short, str | list) and len(short) >= n:
        order = ["shared" if c == "S" else c for c in short[:n]]
    if order is None:
        freq = k.integer("index_topk_freq", 1)
        offset = k.integer("index_skip_topk_offset", 2, least=0)
        order = ["shared" if max(i - offset + 1, 0) % freq else "full" for i in range(n)]
    return ["dsa-shared" if str(kind) == "shared" else "dsa" for kind in order]


_V4 = {"sliding_attention": "window", "compressed_sparse_attention": "csa"}
_V4 |= {"heavily_compressed_attention": "hca"}
_V4_RATIOS = {0: "window", 4: "csa", 128: "hca"}


def _compressed(k: Keys, n: int, row: FamilyRow) -> list[str]:
    ratios, types = k.per_layer("compress_ratios", n), k.per_layer("layer_types", n)
    if types is None and ratios is None:
        first = min(n, 2)
        return ["csa" if i >= first and (i - first) % 2 else "hca" for i in range(n)]
    known, said = (_V4, types) if types is not None else (_V4_RATIOS, ratios)
    for kind in said or ():
        if not isinstance(kind, str | int) or kind not in known:
            raise k.error("layer_types", f"unknown kind of layer {str(kind)[:40]!r}")
    return [known[kind] for kind in said or ()]


Order = Callable[[Keys, int, FamilyRow], list[str]]

LAYERS: dict[str, Order] = {
    "full": lambda k, n, row: ["full"] * n,
    "given": lambda k, n, row: names_of(layer_types(k, n)),
    "window": _window,
    "max_window": _max_window,
    "every": _every,
    "turns": turns,
    "no_rope": _no_rope,
    "mimo": _mimo,
    "block_sparse": _block_sparse,
    "delta": _delta,
    "kda": _kda,
    "conv": _conv,
    "mamba": lambda k, n, row: _either(k, n, "mamba", lambda i: False),
    "lightning": _lightning,
    "latent": lambda k, n, row: ["mla"] * n,
    "indexed": _indexed,
    "compressed": _compressed,
}
"""Order of a row -> kind of mixer of each layer, a key of `parts.MIXERS`."""


def _moe_where(n: int, has: Callable[[int], Any]) -> list[str]:
    return ["moe" if has(i) else "dense" for i in range(n)]


def after_first(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """By mlp_layer_types, or by first_k_dense_replace and a frequency or a list of them."""
    said = "n_routed_experts" in k.table or not k.find("moe_intermediate_size")
    if said and not k.find("num_local_experts"):
        return ["dense"] * n
    kinds = k.per_layer("mlp_layer_types", n)
    if kinds is not None:
        return _moe_where(n, lambda i: kinds[i] != "dense")
    if isinstance(k.table.get("moe_layer_freq"), list):
        freq = k.per_layer("moe_layer_freq", n) or []
        return _moe_where(n, lambda i: freq[i])
    first = k.integer("first_k_dense_replace", row.first_dense, least=0)
    every = k.integer("moe_layer_freq", 1)
    return _moe_where(n, lambda i: i >= first and i % every == 0)


def _sparse_step(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """By mlp_only_layers and decoder_sparse_step (Qwen)."""
    only = k.layer_numbers("mlp_only_layers") or set()
    step = k.integer("decoder_sparse_step", 1)
    experts = k.integer("num_local_experts", 0, least=0)
    return _moe_where(n, lambda i: i not in only and experts and (i + 1) % step == 0)


def _interleaved(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """By a list, or every so many layers (Llama 4)."""
    step = k.integer("interleave_moe_layer_step", 1)
    chosen = k.layer_numbers("moe_layers")
    return _moe_where(n, lambda i: (i + 1) % step == 0 if chosen is None else i in chosen)


def _listed(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """By a list, or all but the first (Step)."""
    kinds, chosen = k.per_layer("mlp_layer_types", n), k.layer_numbers("moe_layers_enum")
    if kinds is not None:
        return _moe_where(n, lambda i: kinds[i] != "dense")
    first = k.integer("first_k_dense_replace", row.first_dense, least=0)
    return _moe_where(n, lambda i: i >= first if chosen is None else i in chosen)


def _range(k: Keys, n: int, row: FamilyRow) -> list[str]:
    """From a first layer to a last one (ERNIE)."""
    start = k.integer("moe_layer_start_index", 1, least=0)
    end = k.find("moe_layer_end_index")
    last = n - 1 if not isinstance(end, int) or end < 0 else end
    step = k.integer("moe_layer_interval", 1)
    return _moe_where(n, lambda i: (i + 1) % step == 0 and start <= i <= last)


EXPERTS: dict[str, Order] = {
    "none": lambda k, n, row: ["dense"] * n,
    "all": lambda k, n, row: ["moe"] * n,
    "after_first": after_first,
    "sparse_step": _sparse_step,
    "interleaved": _interleaved,
    "listed": _listed,
    "range": _range,
}
"""Where a row has experts -> `moe` or `dense` for each layer."""
