"""Kinds of mixer, one file each: keys, weights, FLOP, cache, activations, work, words."""

from gpuscale.core.model.mixers.attention import Attention
from gpuscale.core.model.mixers.compressed import CompressedAttention
from gpuscale.core.model.mixers.gated_delta import GatedDelta
from gpuscale.core.model.mixers.lightning import LightningAttention
from gpuscale.core.model.mixers.mamba2 import Mamba2
from gpuscale.core.model.mixers.mla import Mla
from gpuscale.core.model.mixers.none import NoMixer
from gpuscale.core.model.mixers.short_conv import ShortConv

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
