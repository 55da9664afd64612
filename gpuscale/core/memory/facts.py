"""What the memory of a model depends on, activations of one layer, and parts of a stage's peak.

Korthikanti et al. 2022 (arXiv:2205.05198), section 4, by element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.core.memory.parameters import MemoryParameters
from gpuscale.core.model.layer_shape import ffn_maps
from gpuscale.core.model.mixers.kind import Kept
from gpuscale.core.model.params import ModelWeights, model_weights
from gpuscale.core.records import NamedTuple, dataclass

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


class ActivationSplit(NamedTuple):
    """What of a job the activations of a layer depend on: micro-batch, CP, TP, recomputation.

    `tokens`: of the micro-batch on this context-parallel rank [1]. `context_tokens`: whole
    sequence, the length of a row of the score matrix [1]. `tp, etp`: tensor and expert-tensor
    parallel degree [1]. `sequence_parallel`: norms and residuals are split along the sequence over
    TP. `recompute`: ``none``, ``selective`` (the software's modules recomputed), ``full`` (only the
    input kept), ``per-op`` (input, and what `saved_elements` counts; `exchanged`: also the tokens
    that all-to-alls brought to experts and back). `eight_bit`: inputs of linears are kept in 8 bits
    (Transformer Engine, fp8 and narrower formats): one byte less for each norm output, FFN input of
    the down projection, expert input.
    """

    tokens: float
    context_tokens: float
    tp: int = 1
    sequence_parallel: bool = False
    etp: int = 1
    recompute: str = "none"
    eight_bit: bool = False
    exchanged: bool = False


def layer_bytes(
    layer: LayerFacts, hidden_size: int, software: MemoryParameters, of: ActivationSplit
) -> float:
    """Activation bytes that one layer keeps for one micro-batch on one GPU.

    Korthikanti's count, generalised: per token ``hidden + latent`` (split by TP only with
    sequence parallelism), attention and FFN elements (split by TP), score matrices of unfused
    attention, and the copies of the token that experts of this GPU receive.

    `layer`: elements per token. `hidden_size`: model width [1]. `software`: bytes per element of
    the family, modules of ``selective``, whether score matrices are stored, tokens of the busiest
    expert rank over the mean. Returns: bytes [byte].

    .. [1] V. Korthikanti et al., arXiv:2205.05198, section 4.
    """
    tokens, tp, recompute = of.tokens, of.tp, of.recompute
    whole = tp if of.sequence_parallel else 1
    if recompute == "full":
        return 2.0 * hidden_size * tokens / whole
    if recompute == "per-op":
        routed = 2.0 * software.expert_imbalance * layer.top_k * layer.expert_width * of.exchanged
        split = (layer.saved_split + routed) / tp
        return 2.0 * (hidden_size / whole + split + layer.saved_width) * tokens
    drop = software.recompute_modules if recompute == "selective" else ()
    narrow = 1.0 if of.eight_bit else 0.0
    ffn_bytes = software.ffn_bytes * (1 - narrow / 6)  # a third of the elements at half the bytes
    hidden = (software.hidden_bytes / 2 - narrow) * layer.n_sublayers
    if "layernorm" in drop:
        hidden -= (2.0 - narrow) * layer.n_sublayers
    if "attn_proj" in drop:  # and with it the input of the second sublayer
        hidden -= 2.0 * (layer.n_sublayers - 1)
    split = layer.mixer.split - (layer.mixer.up_projected if "mla_up_proj" in drop else 0.0)
    per_token = max(0.0, hidden) * hidden_size / whole + 2.0 * layer.mixer.latent / whole
    per_token += software.attention_bytes * split / tp
    if "mlp" not in drop:
        per_token += ffn_bytes * layer.ffn * (2 / 3 if "mlp_act" in drop else 1.0) / tp
    if software.unfused_attention and "core_attn" not in drop:  # a window masks what is there
        per_token += software.scores_bytes * layer.mixer.score_heads * of.context_tokens / tp
    if layer.top_k and "moe" not in drop:
        ffn = ffn_bytes * layer.expert_ffn * (2 / 3 if "moe_act" in drop else 1.0)
        width = layer.expert_width * of.etp
        copy = software.expert_hidden_bytes * (1 - narrow / 2) * width + ffn
        per_token += software.expert_imbalance * layer.top_k * copy / tp
    return per_token * tokens


class Counted:
    """Memory of a GPU in the three ways of counting it; what it is made of is its own."""

    __slots__ = ()
    fragmentation_bytes: float
    context_bytes: float

    @property
    def allocated_bytes(self) -> float:
        """What tensors and workspaces take. [byte]."""
        raise NotImplementedError

    @property
    def reserved_bytes(self) -> float:
        """Allocated and fragmentation: what the allocator holds. [byte]."""
        return self.allocated_bytes + self.fragmentation_bytes

    @property
    def total_bytes(self) -> float:
        """Reserved and context: what the device shows (nvidia-smi). [byte]."""
        return self.reserved_bytes + self.context_bytes

    def kind_bytes(self, kind: str) -> float:
        """Bytes in one way of counting: allocated, reserved or nvidia-smi. [byte]."""
        by_kind = {
            "allocated": self.allocated_bytes,
            "reserved": self.reserved_bytes,
            "nvidia-smi": self.total_bytes,
        }
        if kind not in by_kind:
            raise ValueError(f"memory kind must be one of {', '.join(by_kind)}, got {kind!r}")
        return by_kind[kind]


@dataclass(frozen=True, slots=True)
class StageMemory(Counted):
    """Memory of one GPU of a pipeline stage at its peak, by part. [byte]."""

    SHOWN: ClassVar[tuple[str, ...]] = ("total_bytes",)  # properties that answers hold too

    stage: int
    n_layers: int
    params: float
    in_flight_micro_batches: float
    weights_bytes: float
    gradients_bytes: float
    master_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    logits_bytes: float
    working_bytes: float  # live layer, gathers, unsharded buffers, workspaces
    fragmentation_bytes: float
    context_bytes: float

    @property
    def states_bytes(self) -> float:
        """Weights, gradients, master weights and optimizer. [byte]."""
        return self.weights_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes

    @property
    def allocated_bytes(self) -> float:
        """What the framework's allocator has handed out. [byte]."""
        return self.states_bytes + self.activations_bytes + self.logits_bytes + self.working_bytes
