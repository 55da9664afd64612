"""What the memory of a model depends on: weights, and elements of its kinds of layer.

Korthikanti et al. 2022 (arXiv:2205.05198), section 4, by element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.model.layer_shape import ffn_maps
from gpuscale.core.model.mixers.kind import Kept
from gpuscale.core.model.params import ModelWeights, model_weights

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One kind of layer: elements per token that the backward pass needs."""

    n_sublayers: int  # mixer and FFN, those present
    mixer: Kept
    ffn: float  # elements of dense and shared FFN, split by TP
    n_experts: int
    top_k: float  # routed copies of a token
    expert_width: float  # hidden elements of one routed copy
    expert_ffn: float  # FFN elements of one routed copy
    saved_split: float = 0.0  # by a per-operator policy, split by TP: see `saved_elements`
    saved_width: float = 0.0  # the same, whole on every rank


@dataclass(frozen=True, slots=True, eq=False)
class ModelFacts:
    """A model, as far as memory is concerned; compared by identity, so that caches are cheap."""

    hidden_size: int
    vocab_size: int
    weights: ModelWeights
    kinds: tuple[LayerFacts, ...]  # as numbered by `weights.sequence`
    n_mtp_layers: int


def saved_elements(mixer: Any, ffn: Any, hidden_size: int) -> tuple[float, float]:
    """Elements of a token that a per-operator policy saves: (split by TP, whole). [1].

    Saved are the outputs of every second product and of fused attention; grouped products of routed
    experts are computed again. The products back to the model's width end in partial sums of whole
    tokens.

    .. [1] torchtitan 0.2.0, `distributed/activation_checkpoint.py`: `_custom_policy`;
       `models/llama3/infra/parallelize.py`: `_op_sac_save_list`.

    >>> from gpuscale.io.models import load_model
    >>> (llama,) = load_model("llama3-8b").spec.layer_groups  # q, v, output, gate; down
    >>> saved_elements(llama.mixer, llama.ffn, 4096) == (4096 + 1024 + 4096 + 14336, 4096)
    True
    """
    maps = [m for m in (*mixer.maps(hidden_size), *ffn_maps(ffn, hidden_size)) if m.copies == 1]
    back = ("attention out", "y act")
    core = sum(m.n_in for m in maps if m.reads == back[0]) if mixer.kept().score_heads else 0.0
    saved = maps[::2]
    return (
        core + sum(m.n_out for m in saved if m.reads not in back),
        sum(m.n_out for m in saved if m.reads in back),
    )


def layer_facts(mixer: Any, ffn: Any, hidden_size: int) -> LayerFacts:
    """Count one kind of layer from its specs."""
    ffn_elements = top_k = expert_width = expert_ffn = 0.0
    n_experts = 1
    if ffn.kind == "dense":
        ffn_elements = (3.0 if ffn.gated else 2.0) * ffn.ffn_hidden_size
    elif ffn.kind == "moe":
        matrices = 3.0 if ffn.gated else 2.0
        ffn_elements = matrices * (ffn.shared_ffn_hidden_size + ffn.dense_ffn_hidden_size)
        n_experts, top_k = ffn.n_experts, float(min(ffn.top_k, ffn.n_experts))
        expert_width = float(ffn.latent_size or hidden_size)
        expert_ffn = matrices * ffn.expert_ffn_hidden_size
    saved = saved_elements(mixer, ffn, hidden_size)
    return LayerFacts(
        n_sublayers=(mixer.kind != "none") + (ffn.kind != "none"),
        mixer=mixer.kept(),
        ffn=ffn_elements,
        n_experts=n_experts,
        top_k=top_k,
        expert_width=expert_width,
        expert_ffn=expert_ffn,
        saved_split=saved[0],
        saved_width=saved[1],
    )


def model_facts(model: ModelSpec) -> ModelFacts:
    """Count a model once; everything else in this package works on the result."""
    weights = model_weights(model)
    kinds = tuple(
        layer_facts(model.mixers[mixer], model.ffns[ffn], model.hidden_size)
        for mixer, ffn in weights.names
    )
    return ModelFacts(model.hidden_size, model.vocab_size, weights, kinds, model.n_mtp_layers)
