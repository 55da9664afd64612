"""Kinds of mixer, one class each: keys, weights, FLOP, cache, activations, work, words."""

from gpuscale.core.model.mixers.attention import Attention, Mla
from gpuscale.core.model.mixers.compressed import CompressedAttention
from gpuscale.core.model.mixers.recurrent import (
    GatedDelta,
    LightningAttention,
    Mamba2,
    NoMixer,
    ShortConv,
)

AnyMixer = (
    Attention
    | Mla
    | CompressedAttention
    | LightningAttention
    | GatedDelta
    | Mamba2
    | ShortConv
    | NoMixer
)

__all__ = [
    "AnyMixer",
    "Attention",
    "CompressedAttention",
    "GatedDelta",
    "LightningAttention",
    "Mamba2",
    "Mla",
    "NoMixer",
    "ShortConv",
]
