"""Look-ups that expressions may use: the documents' hardware, models, recipes, rules, layouts."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpuscale.core.kernel.chip import UnitLayout
from gpuscale.core.layout import Layout
from gpuscale.core.memory.parameters import RECIPES, Recipe
from gpuscale.core.model.mixers import Attention
from gpuscale.core.network.hierarchy import Level, network_levels
from gpuscale.io import hardware
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.models import load_model
from gpuscale.io.text import read_toml
from gpuscale.specs.hardware import ClusterSpec, GpuSpec
from gpuscale.specs.model import ModelSpec

DOCUMENTS = "documents"


@lru_cache(maxsize=1)
def figures() -> dict[str, Any]:
    """Figures and rules of the documents that are no preset: `data/figures.toml`."""
    return read_toml(Path(__file__).parent / "data" / "figures.toml")


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


def link(name: str) -> SimpleNamespace:
    """Link between devices, one direction."""
    return SimpleNamespace(**figures()["link"][name])


def rule(name: str) -> SimpleNamespace:
    """Rule of thumb."""
    found = figures()["rule"][name]
    return SimpleNamespace(**found | ({"span": tuple(found["span"])} if "span" in found else {}))


def nvlink(generation: int) -> tuple[float, int]:
    """Bandwidth of one NVLink one way [byte/s] and links per GPU."""
    each, n = figures()["nvlink"][str(generation)]
    return each, n


def pod(name: str) -> tuple[Level, ...]:
    """Network levels of a cluster of the documents, the node first."""
    return network_levels(node(name))


def rate(name: str, dtype: str) -> float | str:
    """Dense peak of a number format, or ``unsupported``. [FLOP/s]."""
    return gpu(name).flop_per_s(dtype) or "unsupported"


@lru_cache(maxsize=16)
def model(name: str) -> ModelSpec:
    """Model preset."""
    return load_model(name).spec


def attention(name: str) -> Attention:
    """Softmax attention of a model preset."""
    return next(m for m in model(name).mixers.values() if m.kind == "attention")


def unit_layout(architecture: str) -> UnitLayout | None:
    """Contents of one SM of an architecture."""
    return hardware.unit_layout(architecture)


def recipe(name: str) -> Recipe:
    """Bytes per parameter of a training recipe."""
    return RECIPES[name]


def layout(tp: int = 1, cp: int = 1, pp: int = 1, dp: int = 1, ep: int = 1) -> Layout:
    """Parallel layout by its degrees."""
    return Layout(seq_len=1, global_batch_size=dp, tp=tp, cp=cp, pp=pp, dp=dp, ep=ep)
