"""The documents' hardware, models and recipes for expressions, and formulas they alone ask for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpuscale.core.kernel.chip import UnitLayout
from gpuscale.core.layout import Layout
from gpuscale.core.limits.formulas import ep_min_ffn, tp_limit, tp_max
from gpuscale.core.memory.parameters import RECIPES, Recipe
from gpuscale.core.model.mixers import Attention
from gpuscale.core.network.collective import check_ranks, latency_steps, traffic_factor
from gpuscale.core.network.hierarchy import Level, network_levels
from gpuscale.core.network.ideal import reached_frac
from gpuscale.io import hardware
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.models import load_model
from gpuscale.io.text import read_toml
from gpuscale.specs.hardware import ClusterSpec, GpuSpec
from gpuscale.specs.model import ModelSpec


def round_significant(value: float, digits: int) -> float:
    """Value rounded to a number of significant digits, as documents print it.

    >>> round_significant(989.4e12, 3)
    989000000000000.0
    """
    return float(f"{value:.{digits - 1}e}")


def collective_time_s(
    op: str,
    array_bytes: float,
    n_ranks: int,
    link_bytes_per_s: float,
    hop_s: float = 0.0,
    algorithm: str = "ring",
) -> float:
    """Ideal time of a collective among ranks with equal links. [s].

    ``steps * hop + factor * array / link``, with `latency_steps` and `traffic_factor`. `op`:
    all-gather, reduce-scatter, all-reduce, broadcast or send-recv. `array_bytes`: of the full
    array [byte]. `n_ranks`: 1 takes no time [1]. `link_bytes_per_s`: out of one rank, one direction
    [byte/s]. `hop_s`: latency of one hop [s]. `algorithm`: ring, tree or sharp, of an all-reduce.

    >>> round(collective_time_s("all-gather", 4096 * 65536 * 2, 8, 450e9) * 1e3, 4)  # ms
    1.0439
    >>> round(collective_time_s("all-reduce", 1e9, 8, 450e9, algorithm="sharp") * 1e3, 3)
    2.222
    """
    check_ranks(n_ranks, link_bytes_per_s, array_bytes)
    latency = latency_steps(op, n_ranks, algorithm) * hop_s
    return latency + traffic_factor(op, n_ranks, algorithm) * array_bytes / link_bytes_per_s


def all_to_all_time_s(
    array_bytes: float,
    n_ranks: int,
    link_bytes_per_s: float,
    top_k: int | None = None,
    kind: str = "top-k",
    n_experts: int | None = None,
    hop_s: float = 0.0,
) -> float:
    """Ideal all-to-all among ranks with equal links and full connection. [s].

    ``hop + reached * array (n-1) / (n^2 link)``

    >>> round(all_to_all_time_s(1e9, 8, 450e9) * 1e6, 3)  # us
    243.056
    >>> round(all_to_all_time_s(1e9, 8, 450e9, top_k=4) * 1e6, 3)
    121.528
    """
    check_ranks(n_ranks, link_bytes_per_s, array_bytes)
    if n_ranks == 1:
        return 0.0
    reached = reached_frac(n_ranks, top_k, kind, n_experts)
    return hop_s + reached * array_bytes * (n_ranks - 1) / (n_ranks**2 * link_bytes_per_s)


def korthikanti_layer_bytes(
    seq_len: float,
    micro_batch_size: float,
    hidden_size: float,
    n_heads: float,
    tp: int = 1,
    *,
    sequence_parallel: bool = False,
    recompute: str = "none",
    flash: bool = False,
) -> float:
    """Activation bytes of one transformer layer and micro-batch on one GPU, 16-bit [1]_. [byte].

    GPT layer: layer norms with bias, MHA, two-matrix MLP with ffn 4h, dropout masks of one byte.
    `seq_len, micro_batch_size, hidden_size, n_heads`: s [token], b [sequence], h [1], a [1]. `tp`:
    tensor-parallel degree t [1]. `sequence_parallel`: shard what TP leaves whole.
    `recompute`: ``none``; ``selective`` (attention core recomputed: the 5as/h term goes); ``full``
    (only the layer's input kept: 2sbh, divided by t with sequence parallelism). `flash`: never
    stores the 5as/h term. Raises ValueError if a size is not positive or `recompute` unknown.

    >>> korthikanti_layer_bytes(2048, 1, 12288, 96)
    2868903936.0
    >>> korthikanti_layer_bytes(2048, 1, 12288, 96, 8, sequence_parallel=True)
    358612992.0

    .. [1] V. Korthikanti et al., Reducing activation recomputation in large transformer models,
       arXiv:2205.05198, table 2.
    """
    if min(seq_len, micro_batch_size, hidden_size, n_heads, tp) <= 0:
        raise ValueError("seq_len, micro_batch_size, hidden_size, n_heads and tp must be positive")
    tokens_by_width = float(seq_len * micro_batch_size * hidden_size)
    whole = tp if sequence_parallel else 1
    if recompute == "full":
        return 2 * tokens_by_width / whole
    if recompute not in ("none", "selective"):
        raise ValueError(f"recompute must be none, selective or full, got {recompute!r}")
    core = 0.0 if flash or recompute == "selective" else 5 * n_heads * seq_len / hidden_size
    return tokens_by_width * (10 / whole + 24 / tp + core / tp)


def product_shape(left: Sequence[str], right: Sequence[str]) -> str:
    """Shape of a matrix product, in names: rows of the left by columns of the right.

    Raises ValueError if the inner dimensions differ.

    >>> product_shape(("N", "D"), ("D", "D"))
    '[N x D]'
    """
    if len(left) != 2 or len(right) != 2 or left[1] != right[0]:
        raise ValueError(f"inner dimensions of {tuple(left)} and {tuple(right)} differ")
    return f"[{left[0]} x {right[1]}]"


def bound(have: float, need: float) -> str:
    """``compute`` where there is what a roofline needs, else ``communication``.

    >>> bound(976, 2475)
    'communication'
    """
    return "compute" if have >= need else "communication"


def binding_level(inside_limit: float, over_limit: float) -> str:
    """Level whose limit is the larger one: ``node`` (scale-up) or ``network``.

    >>> binding_level(2500, 625)
    'node'
    """
    return "node" if inside_limit >= over_limit else "network"


def moe_strategy(
    expert_ffn_hidden_size: float,
    top_k: float,
    flop_per_s: float,
    gpu_egress_bytes_per_s: float,
    node_egress_bytes_per_s: float,
    node_gpus: int = 8,
    max_nodes: int = 64,
) -> str:
    """Parallelism of a large mixture of experts whose degrees all clear their rooflines.

    TP up to its limit inside a node; EP over as many nodes as its limit allows, else inside one
    node, else none; the rest PP with ZeRO-1 data parallelism. `expert_ffn_hidden_size`: F of one
    expert [1]. `top_k`: experts per token [1]. `flop_per_s`: dense peak of one GPU [FLOP/s].
    `gpu_egress_bytes_per_s, node_egress_bytes_per_s`: one direction [byte/s]. `node_gpus,
    max_nodes`: GPUs of a node; nodes up to which EP is tried [1].

    >>> moe_strategy(2048, 4, 990e12, 450e9, 400e9)
    'EP 8 inside a node + PP + ZeRO-1 DP'
    >>> moe_strategy(8192, 8, 990e12, 450e9, 400e9)
    'TP 2 + EP 32 over 4 nodes + PP + ZeRO-1 DP'
    """
    f = expert_ffn_hidden_size
    tp = tp_max(tp_limit(f, flop_per_s, gpu_egress_bytes_per_s), node_gpus)
    parts = [f"TP {tp}"] if tp > 1 else []
    fitting = [
        n
        for n in range(2, max_nodes + 1)
        if f > ep_min_ffn(n * node_gpus, top_k, flop_per_s, node_egress_bytes_per_s, node_gpus)
    ]
    if f > ep_min_ffn(node_gpus, top_k, flop_per_s, gpu_egress_bytes_per_s, node_gpus=1):
        nodes = max(fitting, default=1)
        where = "inside a node" if nodes == 1 else f"over {nodes} nodes"
        parts.append(f"EP {nodes * node_gpus} {where}")
    return " + ".join([*parts, "PP", "ZeRO-1 DP"])


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
