"""Look-ups that expressions may use: the documents' hardware, models, recipes, rules, layouts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gpuscale.core.kernel.chip import UNIT_LAYOUTS, UnitLayout
from gpuscale.core.layout import Layout
from gpuscale.core.memory.states import RECIPES, Recipe
from gpuscale.core.network.hierarchy import Level, network_levels
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.textbook.links import Link
from gpuscale.textbook.links import link as link_of_catalogue
from gpuscale.textbook.networks import NVLINK_LINKS
from gpuscale.textbook.rules_of_thumb import Rule
from gpuscale.textbook.rules_of_thumb import rule as rule_of_thumb

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import Attention
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.gpu import GpuSpec
    from gpuscale.specs.model import ModelSpec

DOCUMENTS = "documents"


@lru_cache(maxsize=64)
def gpu(name: str) -> GpuSpec:
    """GPU with the documents' figures."""
    return load_gpu(name, DOCUMENTS)


@lru_cache(maxsize=64)
def vendor_gpu(name: str) -> GpuSpec:
    """GPU with the data sheet's figures."""
    return load_gpu(name)


@lru_cache(maxsize=64)
def node(name: str) -> ClusterSpec:
    """Node with the documents' figures."""
    return load_cluster(name, DOCUMENTS)


def link(name: str) -> Link:
    """Link between devices, one direction."""
    return link_of_catalogue(name)


def pod(name: str) -> tuple[Level, ...]:
    """Network levels of a cluster of the documents, the node first."""
    return network_levels(node(name))


def rate(name: str, dtype: str) -> float | str:
    """Dense peak of a number format, or ``unsupported``. [FLOP/s]."""
    return gpu(name).flop_per_s(dtype) or "unsupported"


@lru_cache(maxsize=16)
def model(name: str) -> ModelSpec:
    """Model preset."""
    from gpuscale.io.models import load_model

    return load_model(name).spec


def attention(name: str) -> Attention:
    """Softmax attention of a model preset."""
    return next(m for m in model(name).mixers.values() if m.kind == "attention")


def nvlink(generation: int) -> tuple[float, int]:
    """Bandwidth of one NVLink one way [byte/s] and links per GPU."""
    return NVLINK_LINKS[generation]


def unit_layout(architecture: str) -> UnitLayout:
    """Contents of one SM of an architecture."""
    return UNIT_LAYOUTS[architecture]


def recipe(name: str) -> Recipe:
    """Bytes per parameter of a training recipe."""
    return RECIPES[name]


def rule(name: str) -> Rule:
    """Rule of thumb."""
    return rule_of_thumb(name)


def layout(tp: int = 1, cp: int = 1, pp: int = 1, dp: int = 1, ep: int = 1) -> Layout:
    """Parallel layout by its degrees."""
    return Layout(seq_len=1, global_batch_size=dp, tp=tp, cp=cp, pp=pp, dp=dp, ep=ep)
