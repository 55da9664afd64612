"""What is trained, on which maps, over which base; and the job of it that memory and time take."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.model.layer_shape import model_maps
from gpuscale.core.model.mixers.kind import Linear
from gpuscale.core.model.params import count_params, head_params
from gpuscale.core.records import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuscale.core.finetune.parameters import FinetuneParameters
    from gpuscale.core.finetune.states import Optimizer
    from gpuscale.core.layout import Layout
    from gpuscale.specs.model import ModelSpec


BASES = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "int8": "int8",
    "int4-g128": "int4-g128",
    "nf4": "nf4-dq",
    "nf4-nodq": "nf4",
    "mxfp4": "mxfp4",
}
"""Names of a frozen base -> number format; `nf4` is double-quantised, as QLoRA has it."""


GPTQ = ("int4-g128",)
"""Bases that GPTQ's and AWQ's kernels unpack."""

UNSHARDED = (*GPTQ, "int8")
"""Bases that ZeRO-3 and FSDP do not take: LLaMA-Factory, model_utils/quantization.py ("Only 4-bit
quantized model can use fsdp+qlora", of bitsandbytes), and the Qwen README of GPTQ."""

CAST = ("nf4", "nf4-nodq", "int8")
"""Bases of bitsandbytes, of linear maps alone; PEFT casts what else there is to fp32 (not beside
GPTQ, AWQ): peft/utils/other.py, prepare_model_for_kbit_training."""

ALL = "all-linear"

MERGED = {"merged": (4.0, 6.0), "delta": (14.0, 14.0)}
"""How adapters are added to stacked experts -> bytes of a weight moved (forward, backward).

PEFT's `ParamWrapper` makes whole weights in each pass: in one product (0.21), by an einsum, scaling
and a sum (0.20); backward writes their gradient and reads it for either factor."""

SYNONYMS = {
    word: name
    for name, words in {
        "q": "query wq",
        "k": "key wk",
        "v": "value wv",
        "o": "projection proj out output dense wo linear_proj",
        "gate": "w1",
        "up": "w3 fc1",
        "down": "w2 linear_fc2 fc2",
        "qkv": "linear_qkv query_key_value c_attn w_pack attention_qkv",
        "gate_up": "linear_fc1",
    }.items()
    for word in words.split()
}
"""Names of maps in frameworks and checkpoints -> the names here (beside `*_proj`)."""

FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
"""Maps that some frameworks keep as one matrix: one adapter over their joint output."""


@dataclass(frozen=True, slots=True)
class Method:
    """What a fine-tuning job trains, and how the rest is stored."""

    kind: str = "lora"  # full | lora | dora
    rank: int = 16
    targets: tuple[str, ...] = (ALL,)
    base: str = "bf16"  # key of BASES: format of the frozen weights
    train_embeddings: bool = False  # input embedding and head trained in full, beside adapters
    frozen_layers: int = 0  # lowest layers left as they are (in full training the embedding too)
    embeddings_frozen: bool = False  # full training without embedding and head
    whole_base: bool = False  # of a time when no shards took a base of bitsandbytes
    on_experts: str = "each"  # adapters of each expert's maps, or a key of `MERGED`, or "none"

    @property
    def shardable(self) -> bool:
        """ZeRO-3 and FSDP take the base: bitsandbytes' 4 bits can be told their storage."""
        return not self.adapts or not (self.whole_base or self.base in UNSHARDED)

    @property
    def adapts(self) -> bool:
        """Whether adapters are trained over a frozen base."""
        return self.kind != "full"

    @property
    def quantised(self) -> bool:
        """Whether the base must be unpacked before it is multiplied."""
        return BASES[self.base] not in ("bf16", "fp16", "fp8")

    @property
    def base_bytes(self) -> float:
        """Bytes per weight of the frozen linear maps. [byte]."""
        return element_bytes(BASES[self.base])

    @property
    def stacked(self) -> bool:
        """Whether experts are parameters of a module, which bitsandbytes does not quantise."""
        return self.on_experts != "each" and self.base in CAST


def canonical(target: str) -> str:
    """Name of a target here: `q_proj`, `Query` -> `q`.

    >>> canonical("q_proj"), canonical("linear_qkv"), canonical("all linear")
    ('q', 'qkv', 'all-linear')
    """
    name = target.strip().lower().replace(" ", "-")
    if name in ("all", "all-linear", "all-linears", "all-layers", "all_linear"):
        return ALL
    name = name.replace("-", "_")
    name = SYNONYMS.get(name, name)
    bare = name.removesuffix("_proj")
    return SYNONYMS.get(bare, bare)


def chosen(maps: tuple[Linear, ...], targets: tuple[str, ...]) -> tuple[Linear, ...]:
    """Choose the maps of one layer that get an adapter; fused ones are joined.

    >>> maps = tuple(Linear(n, 8, 8, "x") for n in "qkv")
    >>> [m.n_out for m in chosen(maps, ("qkv",))], len(chosen(maps, ("q", "v")))
    ([24], 2)
    """
    found: dict[str, Linear] = {}
    for target in targets:
        parts = FUSED.get(target)
        if parts:
            joint = [m for m in maps if m.name in parts]
            if joint:
                found[target] = joint[0]._replace(name=target, n_out=sum(m.n_out for m in joint))
            continue
        for m in maps:
            bare = m.name.removeprefix("shared_").removeprefix("dense_")
            if target in (ALL, m.part, m.name, bare):
                found[m.name] = m
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class LayerCounts:
    """One kind of layer: parameters by what becomes of them, and inputs that adapters keep."""

    n_layers: int
    linear_params: float  # quantisable, experts included
    expert_params: float  # of the linear ones, those of routed experts
    other_params: float  # norms, routers, biases
    adapter_params: float  # DoRA's magnitudes included
    expert_adapter_params: float
    n_adapted: int
    adapter_inputs: float  # elements per token read by adapted maps, each counted
    distinct_inputs: float  # the same, each input once, without what attention keeps anyway
    adapter_outputs: float  # elements per token that adapters add to
    trained_inputs: float  # of all maps, counted like `distinct_inputs`
    largest_matrix: float  # weights of the largest single map
    merged_params: float  # of stacked experts, made with their adapters in each pass
    merged_inputs: float  # elements per token that their weight gradients read
    merged_bytes: tuple[float, float]  # moved of each: see `MERGED`
    maps: tuple[Linear, ...]
    adapted: tuple[Linear, ...]
    n_norms: int
    rms_norm: bool


@dataclass(frozen=True, slots=True)
class MethodCounts:
    """A model under a method: parameters of its groups. [1]."""

    kinds: tuple[LayerCounts, ...]
    embedding_params: float
    head_params: float  # 0 where tied
    top_params: float  # final norm and what else is outside the layers
    total_params: float
    adapter_params: float
    trained_params: float


KEPT_ANYWAY = "attention out"
"""Input that the attention core keeps for its own backward pass."""


def _inputs(maps: tuple[Linear, ...]) -> float:
    """Elements per token that the maps read, each input once."""
    read = {m.reads: m.n_in * m.per_token for m in maps if m.reads != KEPT_ANYWAY}
    return sum(read.values())


def _adapter_params(maps: Collection[Linear], method: Method) -> float:
    """Parameters of adapters; stacked gate and up are one map, of twice the rank."""
    magnitudes, joint = float(method.kind == "dora"), method.on_experts in MERGED
    wide = [1.0 + (joint and m.copies > 1 and m.name in FUSED["gate_up"]) for m in maps]
    return sum(
        (method.rank * (m.n_in + times * m.n_out) + magnitudes * m.n_out) * m.copies
        for m, times in zip(maps, wide, strict=True)
    )


@lru_cache(maxsize=512)
def _counts(model_key: _Key, method: Method) -> MethodCounts:
    model = model_key.model
    whole = count_params(model)
    kinds = []
    for group, (n, maps) in zip(whole.groups, model_maps(model), strict=True):
        linear = sum(m.params for m in maps)
        reached = tuple(m for m in maps if m.copies == 1 or method.on_experts != "none")
        adapted = chosen(reached, method.targets) if method.adapts else ()
        merged = tuple(m for m in adapted if m.copies > 1 and method.on_experts in MERGED)
        apart = tuple(m for m in adapted if m not in merged)
        kinds.append(
            LayerCounts(
                n_layers=n,
                linear_params=linear,
                other_params=max(0.0, group.layer_params - linear),
                expert_params=sum(m.params for m in maps if m.copies > 1),
                adapter_params=_adapter_params(adapted, method),
                expert_adapter_params=_adapter_params([m for m in adapted if m.copies > 1], method),
                n_adapted=len(adapted),
                adapter_inputs=sum(m.n_in * m.per_token for m in apart),
                distinct_inputs=_inputs(apart),
                adapter_outputs=sum(m.n_out * m.per_token for m in apart),
                trained_inputs=_inputs(maps),
                largest_matrix=max((m.n_in * m.n_out for m in maps), default=0.0),
                merged_params=sum(m.params for m in merged),
                merged_inputs=_inputs(merged),
                merged_bytes=MERGED.get(method.on_experts, (0.0, 0.0)),
                maps=maps,
                adapted=adapted,
                n_norms=model.norms_per_layer,
                rms_norm=model.norm == "rmsnorm",
            )
        )
    head = head_params(model)
    layers = sum(k.n_layers * (k.linear_params + k.other_params) for k in kinds)
    share = trained_frac(model.n_layers, method)
    adapters = share * sum(k.n_layers * k.adapter_params for k in kinds)
    edges = whole.embedding_params + head
    if method.adapts:
        trained = adapters + (edges if method.train_embeddings else 0.0)
    else:
        frozen = method.embeddings_frozen or method.frozen_layers > 0
        trained = layers * share + (0.0 if frozen else edges)
    return MethodCounts(
        kinds=tuple(kinds),
        embedding_params=whole.embedding_params,
        head_params=head,
        top_params=max(0.0, whole.total_params - layers - edges),
        total_params=whole.total_params,
        adapter_params=adapters,
        trained_params=trained,
    )


def trained_frac(n_layers: int, method: Method) -> float:
    """Layers from the lowest that is trained up: only they have a backward pass. [1]."""
    return 1.0 - min(method.frozen_layers, n_layers) / n_layers


class _Key:
    """A model, hashed by identity: presets are cached, so counts are too."""

    __slots__ = ("model",)

    def __init__(self, model: ModelSpec) -> None:
        self.model = model

    def __hash__(self) -> int:
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.model is self.model


def counts(model: ModelSpec, method: Method) -> MethodCounts:
    """Count a model's parameters by what a method makes of them.

    LoRA has r (in + out) parameters a map (arXiv:2106.09685, section 4.1), on every expert where
    its maps are targets; DoRA adds a magnitude per output (arXiv:2402.09353, section 4).

    >>> from gpuscale.io.models import load_model
    >>> counts(load_model("llama3-8b").spec, Method(rank=16)).adapter_params
    41943040.0
    """
    return _counts(_Key(model), method)


def check(model: ModelSpec, method: Method) -> None:
    """Refuse a method that no framework can run on the model."""
    if method.kind == "full":
        if BASES[method.base] not in ("bf16", "fp16"):
            raise ValueError(f"a base in {method.base} cannot be trained in full")
        return
    every = [m for _, maps in model_maps(model) for m in maps]
    names = sorted({m.name for m in every})
    for target in method.targets:
        if not chosen(tuple(every), (target,)):
            raise ValueError(f"target `{target[:40]}` is in no layer: {', '.join(names)}")
    width, name = min((min(m.n_in, m.n_out), m.name) for m in chosen(tuple(every), method.targets))
    if method.rank > width:
        raise ValueError(f"rank {method.rank:,} is above the width {width:,.0f} of {name}")


@dataclass(frozen=True, slots=True)
class Job:
    """One fine-tuning job: what is trained, how, and over how many GPUs."""

    method: Method
    optimizer: Optimizer
    layout: Layout  # seq_len is the longest sequence of a micro-batch
    loss: str = "eager"  # eager, chunked or fused; pairs: eager, log-probabilities of DPO
    offload: frozenset[str] = frozenset()  # of parameters, gradients, optimizer, activations
    attention: str = "best"  # "best" kernel of the GPU, "flash2" (FlashAttention-2), "eager"
    eval_batch: int = 0  # sequences of an evaluation that runs between the steps; 0: none
    logits_frac: float = 1.0  # share of the tokens whose logits are made
    compiled: bool = False  # norms and activations fused by a compiler
    weights: str = ""  # format that 16-bit weights are loaded in: bf16 or fp32; "": the software's
    experts: str = "loop"  # one by one ("leaf": gathered together), "grouped", or "all" of them

    @property
    def facts(self) -> dict[str, object]:
        """What is trained, as conditions of `core.habits.Refusal` name it."""
        parts = ("parameters", "gradients", "optimizer", "activations")
        return {
            **{f"offload_{part}": part in self.offload for part in parts},
            "method": self.method.kind,
            "base": self.method.base if self.method.adapts else "",
            "weights": self.weights,
            "optimizer": self.optimizer.name,
            "in_backward": self.optimizer.in_backward,
            "attention": self.attention,
            "loss": self.loss,
            "frozen": self.method.frozen_layers > 0,
            "train_embeddings": self.method.train_embeddings,
        }

    def fuses_norms(self, p: FinetuneParameters) -> bool:
        """Norms and activations run fused: by a compiler, or by what fuses the loss (Liger)."""
        return self.compiled or (self.loss == "fused" and p.fused_loss_norms)

    def on_host(self, moved: frozenset[str]) -> Job:
        """Return the job with these parts on the host."""
        layout = replace(
            self.layout,
            offload_optimizer="optimizer" in moved,
            offload_activations="activations" in moved,
        )
        return replace(self, offload=moved, layout=layout)
