"""Shape of a model as the flags of Megatron say it."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError
from gpuscale.io.text import Table
from gpuscale.launch.found import UNSET, named_model
from gpuscale.specs.model import ModelSpec

if TYPE_CHECKING:
    from gpuscale.launch.dialects.nested import Nested


def model_of(at: Nested, name: str, script: str = "") -> ModelSpec | None:
    """Build the model of the flags, or note what is missing.

    `script`: the program that they start.
    """
    hidden, heads = at.number("hidden-size"), at.number("num-attention-heads")
    hybrid = hybrid_layers(at, script)
    layers = len(hybrid) or at.number("num-layers")
    if not layers or not hidden or not heads:
        return None
    ffns, pattern = _nets(at, layers, hidden)
    used = {"moe" if one else "dense" for one in pattern}
    mixers = {"full": _mixer(at, hidden, heads)}
    if hybrid:
        mixers |= {"mamba": _mamba(at, hidden), "none": {"kind": "none"}}
        ffns["none"] = {"kind": "none"}
        parts = {part for one in hybrid for part in one.split("+")}
        used, mixers = parts, {key: value for key, value in mixers.items() if key in parts}
    each = hybrid or [f"full+{'moe' if one else 'dense'}" for one in pattern]
    spec = {
        "name": name,
        "hidden_size": hidden,
        "vocab_size": _vocabulary(at),
        "layers": ", ".join(f"{len(list(run))} x {one}" for one, run in groupby(each)),
        "norms_per_layer": 1 if hybrid else 2,
        "mixers": mixers,
        "ffns": {key: value for key, value in ffns.items() if key in used},
        "tie_embeddings": not at.has("untie-embeddings-and-output-weights"),
        "norm": "rmsnorm" if at.known("normalization").lower() == "rmsnorm" else "layernorm",
        "position": _position(at),
        "max_position": at.number("max-position-embeddings"),
        "n_mtp_layers": at.number("mtp-num-layers") or 0,
    }
    try:
        return ModelSpec.model_validate(spec)
    except ValueError as error:
        found = at.found
        found.wrong.append(f"the model of the flags: {' '.join(str(error).split())[:160]}")
        return None


def _nets(at: Nested, layers: int, hidden: int) -> tuple[Table, list[int]]:
    """Feed-forward nets by name, and for each layer whether it is of experts."""
    gated = at.has("swiglu") or at.has("quick-geglu")
    width = at.number("ffn-hidden-size") or (8 * hidden // 3 // 64 * 64 if gated else 4 * hidden)
    bias = not at.has("disable-bias-linear")
    ffns: Table = {
        "dense": {"kind": "dense", "ffn_hidden_size": width, "gated": gated, "bias": bias}
    }
    layers -= len(at.known("noop-layers").split(",")) if at.has("noop-layers") else 0
    pattern = [0] * layers
    experts = at.number("num-experts")
    deepspeed = at.found.software == "megatron-deepspeed"
    if experts and experts > 1:
        ffns["moe"] = {
            "kind": "moe",
            "n_experts": experts,
            "top_k": at.number("moe-router-topk") or at.number("topk") or (1 if deepspeed else 2),
            "expert_ffn_hidden_size": at.number("moe-ffn-hidden-size") or width,
            "shared_ffn_hidden_size": at.number("moe-shared-expert-intermediate-size") or 0,
            "gated": gated,
        }
        pattern = _frequency(at.known("moe-layer-freq") or "1", layers)
        if deepspeed:  # one layer in so many, the last of them (Megatron-DeepSpeed: 2)
            every = at.number("expert-interval") or 2
            pattern = [int((i + 1) % every == 0) for i in range(layers)]
        dense_first = at.number("first-k-dense-replace") or 0
        pattern = [0] * dense_first + pattern[dense_first:]
    return ffns, pattern


def _position(at: Nested) -> str:
    """Kind of positions; learned ones are the default (arguments.py)."""
    if at.has("use-rotary-position-embeddings"):
        return "rope"
    said = at.known("position-embedding-type") or "learned"
    return {"learned_absolute": "learned", "relative": "none"}.get(
        said, said if said in ("learned", "alibi", "none") else "rope"
    )


def _mixer(at: Nested, hidden: int, heads: int) -> Table:
    if at.has("multi-latent-attention"):
        return {
            "kind": "mla",
            "n_heads": heads,
            "q_lora_rank": at.number("q-lora-rank"),
            "kv_lora_rank": at.number("kv-lora-rank") or 32,
            "qk_nope_head_dim": at.number("qk-head-dim") or 128,
            "qk_rope_head_dim": at.number("qk-pos-emb-head-dim") or 64,
            "v_head_dim": at.number("v-head-dim") or 128,
        }
    kind = at.known("attention-head-type")  # of bigcode's fork
    grouped = at.has("group-query-attention") or kind.startswith("multiquery")
    grouped |= at.found.software == "megatron-deepspeed" and at.has("num-query-groups")
    window = at.known("window-size")
    return {
        "kind": "attention",
        "n_heads": heads,
        "n_kv_heads": (at.number("num-query-groups") or 1) if grouped else heads,
        "head_dim": at.number("kv-channels") or hidden // heads,
        "qk_norm": "head" if at.has("qk-layernorm") else "none",
        "qkv_bias": at.has("add-qkv-bias") or not at.has("disable-bias-linear"),
        "window_tokens": int(window.strip("()").split(",")[0]) + 1
        if window and not at.has("window-attn-skip-freq")
        else None,
    }


def _vocabulary(at: Nested) -> int:
    """Size of the padded vocabulary: as said, the tokenizer's, or GPT-2's where none is known."""
    if padded := at.number("padded-vocab-size") or at.number("pad-vocab-size-to"):
        return padded
    size = at.number("vocab-size") or _tokens(at)
    if size is None:
        at.found.unresolved.append("size of the vocabulary (the tokenizer's): 50,257 taken")
        size = GPT2
    multiple = (at.number("make-vocab-size-divisible-by") or 128) * at.found.tp
    return -(-size // multiple) * multiple


GPT2 = 50257
TOKENIZERS = {"GPT2BPETokenizer": GPT2, "Llama2Tokenizer": 32000}
"""Tokenizer of Megatron that is of one model -> its entries."""


def _tokens(at: Nested) -> int | None:
    """Entries of the tokenizer that the flags name; None where they name none that is known."""
    from gpuscale.io.models import load_model

    kind = at.known("tokenizer-type")
    if kind in TOKENIZERS or at.has("merge-file"):
        file = (at.known("tokenizer-model") or "").rpartition("/")[2]
        if kind == "Llama2Tokenizer" and file.removesuffix(".model") not in ("", "tokenizer"):
            at.found.unresolved.append(f"size of the vocabulary ({file}'s): 32,000 taken")
        return TOKENIZERS.get(kind, GPT2)
    paths = at.known("tokenizer-name-or-path"), at.known("tokenizer-model")
    path = next((re.sub(r"/[^/]*\.(model|json)$", "", p) for p in paths if p), "")
    for name in (named_model(path), path.rstrip("/").rpartition("/")[2]):
        with suppress(GpuscaleError):
            return load_model(name).spec.vocab_size if name and UNSET not in name else None
    return None


SYMBOLS = {"M": "mamba+none", "*": "full+none", "-": "none+dense", "E": "none+moe"}
"""Symbol of a layer pattern (`mamba_hybrid_layer_allocation.py`) -> mixer and feed-forward net."""


def hybrid_layers(at: Nested, script: str) -> list[str]:
    """Layers of a hybrid of Mamba: by their pattern, or by the shares of attention and nets.

    >>> from gpuscale.launch.found import Found
    >>> from gpuscale.launch.dialects.nested import Nested
    >>> hybrid_layers(Nested(Found(""), {"hybrid-layer-pattern": "M-|M*"}), "")
    ['mamba+none', 'none+dense', 'mamba+none', 'full+none']
    """
    pattern = at.known("hybrid-layer-pattern", "hybrid-override-pattern")
    main = pattern.partition("/")[0].replace("|", "")
    if main:
        return [SYMBOLS[one] for one in main] if set(main) <= set(SYMBOLS) else []
    shares = "hybrid-attention-ratio", "hybrid-mlp-ratio"
    if not script.endswith("pretrain_mamba.py") and not any(map(at.has, shares)):
        return []
    n = at.number("num-layers") or 0
    try:
        attention, nets = (round(float(at.known(name) or 0) * n) for name in shares)
    except ValueError:
        return []
    kinds = ["M"] * n
    for symbol, count in (("*", attention), ("-", nets)):  # spaced evenly between those of Mamba
        free = [i for i, kind in enumerate(kinds) if kind == "M"]
        every = len(free) / count if count else 0
        for i in range(min(count, len(free))):
            kinds[free[int((i + 0.5) * every)]] = symbol
    return [SYMBOLS[kind] for kind in kinds]


def _mamba(at: Nested, hidden: int) -> Table:
    """Build the mixer of Mamba 2 with Megatron's defaults (`mamba_mixer.py`: twice as wide)."""
    head = at.number("mamba-head-dim") or 64
    return {
        "kind": "mamba2",
        "n_heads": at.number("mamba-num-heads") or 2 * hidden // head,
        "head_dim": head,
        "state_size": at.number("mamba-state-dim") or 128,
        "n_groups": at.number("mamba-num-groups") or 8,
    }


def _frequency(text: str, layers: int) -> list[int]:
    """1 for a layer with experts (`--moe-layer-freq`: N for one in N, or a list expression)."""
    if text.isdigit():
        every = max(1, int(text))
        return [1 if i % every == 0 else 0 for i in range(layers)]
    bits: list[int] = []
    for inner, times in re.findall(r"\[([\d,\s]*)\]\)?(?:\*(\d+))?", text):
        bits += [int(b) for b in re.findall(r"\d", inner)] * int(times or 1)
    return (bits * layers)[:layers] if bits else [1] * layers
