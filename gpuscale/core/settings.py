"""What a run sets beside its layout: graphs, dispatcher, modules recomputed, bytes of the states.

One record for every question, for launch files and for rows of measurements; `JobSettings.options`
is what `core.step` and `core.memory` read of it. How far a job was tuned: on top of what the terms
of a step charge, a median and a width each, two halves of a normal distribution
(https://dlmf.nist.gov/7.2) in the ln of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, fsum, log
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from gpuscale.core.bounds import STRICT, Among, PositiveInt
from gpuscale.core.numeric import Z80, below, reached
from gpuscale.core.records import NamedTuple, dataclass, fields

if TYPE_CHECKING:
    from gpuscale.core.habits import Capabilities


MATURITIES = ("tuned", "as-it-comes", "script")
"""Somebody searched layout and kernels on this stack; a framework with its defaults and a sensible
layout; an own training loop."""

STACKS = ("fused", "eager", "ready")
"""What a framework's defaults leave to tune: fused or compiled layers, modules of PyTorch called
one by one, or nothing much: its defaults are the benchmark's."""

MATURITY_WORDS = {
    "tuned": "tuned",
    "as-it-comes": "as it comes",
    "script": "by an own script",
    "measured": "by the site's measured factor",  # which takes the place of a maturity's
    "unsaid": "of unsaid maturity",
}


class Way(NamedTuple):
    """Time of jobs over what the terms of a step give, in ln: median and reach of the 80 %."""

    median: float
    faster: float
    slower: float

    def share_below(self, x: float) -> float:
        """Share of the jobs below a value: half a normal distribution on either side. [1]."""
        reach = self.faster if x < self.median else self.slower
        return below(Z80 * (x - self.median) / max(reach, 1e-9))


FAR = 5.0
"""Ln of a factor beyond which no job lies."""


def mixed(tuned: Way, other: Way, tuned_share: float) -> Way:
    """Median and reach of jobs of which a share is tuned.

    >>> [round(x, 2) for x in mixed(Way(0.0, 0.2, 0.2), Way(0.6, 0.2, 0.7), 0.5)]
    [0.3, 0.43, 0.76]
    """

    def share_below(x: float) -> float:
        return tuned_share * tuned.share_below(x) + (1.0 - tuned_share) * other.share_below(x)

    low, median, high = (
        reached(share_below, share, -FAR, FAR) for share in (below(-Z80), 0.5, below(Z80))
    )
    return Way(median, median - low, high - median)


def tuned_probability(weights: Mapping[str, float], said: Iterable[str], n_gpus: int) -> float:
    """Probability that a job was tuned, by what is said of it and by its size. [1].

    `weights`: log odds of nothing said (``base``), of each of `said`, and of each doubling of the
    GPUs (``doubling``).

    >>> tuned_probability({"base": 0.0, "doubling": 0.0, "layout": log(3.0)}, ["layout"], 8)
    0.75
    """
    odds = weights["base"] + weights["doubling"] * log(n_gpus, 2)
    return 1.0 / (1.0 + exp(-odds - fsum(weights[name] for name in said)))


@dataclass(frozen=True, slots=True)
class Maturity:
    """Time of jobs of one maturity over what the terms of a step give, and its spread.

    The 80 % interval is from the median over ``exp(faster)`` to the median times ``exp(slower)``,
    where the class of the job is not wider already.
    """

    name: str = "tuned"
    factor: float = 1.0  # median
    faster: float = 0.0
    slower: float = 0.0
    tuned_probability: float | None = None  # where nobody said it

    def interval_s(self, low_s: float, expected_s: float, high_s: float) -> tuple[float, float]:
        """Interval of a class widened to that of the maturity. [s].

        >>> Maturity("script", 1.2, log(2.0), log(4.0)).interval_s(0.6, 1.0, 1.5)
        (0.5, 4.0)
        """
        return (
            min(low_s, expected_s / exp(self.faster)),
            max(high_s, expected_s * exp(self.slower)),
        )


TUNED = Maturity()
"""As the published recipes that the parameters are fitted to."""


GRAPHS = ("none", "layer", "full")
"""CUDA graphs: of the parts of a layer (attention, router), or of the whole iteration."""

DISPATCHERS: dict[str, dict[str, bool]] = {
    "alltoall": {"deduplicated_all_to_all": False, "rdma_dispatch": False},
    "deepep": {"deduplicated_all_to_all": True, "rdma_dispatch": True},
    "hybridep": {"deduplicated_all_to_all": True, "rdma_dispatch": True},
}
"""Exchange of the experts' tokens -> fields of `Software`. DeepEP (github.com/deepseek-ai/DeepEP)
and its branch Hybrid-EP send a token once to a node and fan it out there, with kernels of their
own; NCCL's all-to-all sends every copy."""

DEEPEP_RANKS = 160
"""Ranks that DeepEP's buffers take: 8 NVLink peers in each of 20 nodes (`csrc/kernels/configs.cuh`,
`NUM_MAX_NVL_PEERS`, `NUM_MAX_RDMA_PEERS`)."""

MOE_KERNELS = ("untuned", "2024", "2025", "2026a", "2026b")
"""Generations of the kernels of experts: permutation, grouped products (docs/accuracy.md); those of
2026b come with CUDA graphs of the whole iteration."""

ATTENTION: dict[str, dict[str, str]] = {
    "best": {"attention": "flash", "flash_generation": "best"},
    "flash2": {"attention": "flash", "flash_generation": "2"},
    "flash1": {"attention": "flash", "flash_generation": "1"},
    "eager": {"attention": "unfused"},
}
"""Attention kernel -> what it sets: the best of the GPU (cuDNN, FlashAttention 3 and 4), that of
2023, that of 2022, or score matrices in memory."""

ATTENTION_WORDS = dict.fromkeys(("flash", "flash-attention", "fa2", "sdpa"), "flash2") | {
    "fa3": "best",
    "unfused": "eager",
}
"""What else people call them."""

LOSSES: dict[str, dict[str, Any]] = {
    "eager": {"loss": "eager", "fused_cross_entropy": False},
    "chunked": {"loss": "chunked", "fused_cross_entropy": False},
    "fused": {"loss": "fused", "fused_cross_entropy": True},
}
"""Cross entropy -> what it sets: whole logits, those of a part of the sequence, or none kept."""

MODULES = ("core_attn", "attn_proj", "layernorm", "mla_up_proj", "mlp_act", "moe_act", "mlp", "moe")
"""Modules that selective recomputation can name (Megatron-Core, `--recompute-modules`; MaxText's
policies compute the output projection of attention and dense activation functions again)."""

MOMENT_BYTES = {"fp32": 8.0, "bf16": 4.0, "fp8": 2.0}
"""Format of Adam's two moments -> their bytes per parameter."""

GRADIENT_BYTES = {"fp32": 4.0, "bf16": 2.0}
"""Format that gradients are kept and reduced in -> bytes per parameter."""

WORDS: dict[str, str | Mapping[Any, str]] = {
    "cuda_graphs": {
        "none": "",
        "layer": "CUDA graphs of layers",
        "full": "CUDA graphs of the iteration",
    },
    "dispatcher": {"alltoall": "all-to-all", "deepep": "DeepEP", "hybridep": "HybridEP"},
    "overlap_ep": {True: "expert exchange overlapped", False: ""},
    "moe_kernels": "expert kernels {}",
    "recompute_modules": "selective means {}",
    "offload_layers": "activations of {} layers on the host",
    "moments": "moments in {}",
    "gradients": "gradients in {}",
    "attention": "{} attention",
    "loss": "{} loss",
    "fp8_param_gather": {True: "weights kept in 8 bits", False: "weights in 16 bits too"},
    "balance": "busiest experts {:g} times the mean",
    "maturity": MATURITY_WORDS,
    "bucket_params": "buckets of {:,} parameters",
}
"""Settings in words: of each value, or of all; one that is not here is said by its name."""

_CALLED = {"fp8_param_gather": "low_precision_gather", "balance": "expert_imbalance"}
"""Settings that `Software` has under another name."""

_ALONE = {"bucket_params": {"bucket_params_per_rank": 0.0}}
"""Settings that leave another of `Software` no say -> that one."""

_MEANS: dict[str, Mapping[str, Mapping[str, object]]] = {
    "attention": ATTENTION,
    "loss": LOSSES,
    "dispatcher": DISPATCHERS,
    "moments": {name: {"moment_bytes": n} for name, n in MOMENT_BYTES.items()},
    "gradients": {name: {"gradient_bytes": n} for name, n in GRADIENT_BYTES.items()},
    "maturity": dict.fromkeys(MATURITY_WORDS, {}),
}
"""Settings that stand for other fields, by their value; the rest are fields of their name."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What a run sets itself; None: as the software comes."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT
    cuda_graphs: Annotated[str, Among(GRAPHS)] | None = None
    dispatcher: Annotated[str, Among(tuple(DISPATCHERS))] | None = None
    overlap_ep: bool | None = None  # the experts' exchange beside another micro-batch
    moe_kernels: Annotated[str, Among(MOE_KERNELS)] | None = None
    recompute_modules: tuple[Annotated[str, Among(MODULES)], ...] | None = None  # by selective
    offload_layers: PositiveInt | None = None  # of a stage, whose activations wait on the host
    moments: Annotated[str, Among(tuple(MOMENT_BYTES))] | None = None
    gradients: Annotated[str, Among(tuple(GRADIENT_BYTES))] | None = None
    recipe: str | None = None  # of `core.memory.states.RECIPES`
    attention: Annotated[str, Among(tuple(ATTENTION))] | None = None
    loss: Annotated[str, Among(tuple(LOSSES))] | None = None
    fp8_param_gather: bool | None = None  # weights kept and gathered in the narrow format alone
    balance: float | None = None  # tokens of the busiest rank of experts over the mean
    maturity: Annotated[str, Among(MATURITIES)] | None = None
    bucket_params: int | None = None  # of a call of the gradients' exchange

    @property
    def said(self) -> dict[str, Any]:
        """Those that are set."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    @property
    def options(self) -> dict[str, object]:
        """Fields of `Software` and `MemoryParameters` that they set."""
        found: dict[str, object] = {}
        for name, value in self.said.items():
            found |= _ALONE.get(name, {})
            found |= _MEANS[name][value] if name in _MEANS else {_CALLED.get(name, name): value}
        return found

    @property
    def words(self) -> tuple[str, ...]:
        """What is set, in words."""
        found = []
        for name, value in self.said.items():
            how = WORDS.get(name, f"{name.replace('_', ' ')} {{}}")
            shown = ", ".join(value) if isinstance(value, tuple) else value
            found.append(how.format(shown) if isinstance(how, str) else how[shown])
        return tuple(filter(None, found))

    def refused_by(self, pp: int, vpp: int, ep: int, recompute: str) -> str:
        """Say why a layout does not go with the settings; empty: it does.

        Megatron-Core, transformer_config.py: the experts' exchange is overlapped with experts that
        are spread, interleaved stages and without full recomputation; graphs of layers exclude
        full recomputation, and that of the experts; layers are offloaded without a pipeline,
        without recomputation and without graphs.
        """
        if self.dispatcher == "deepep" and ep > DEEPEP_RANKS:
            return f"DeepEP takes at most {DEEPEP_RANKS} ranks of experts: 20 nodes of 8"
        if self.overlap_ep:
            if ep == 1:
                return "overlapping the exchange of experts needs ep above 1"
            if pp > 1 and vpp == 1:
                return "overlapping the exchange of experts needs interleaved stages (vpp)"
            if recompute == "full" or "moe" in (self.recompute_modules or ()):
                return "overlapping the exchange of experts excludes their recomputation"
        graphs = self.cuda_graphs or "none"
        if graphs == "layer":
            if recompute == "full":
                return "CUDA graphs of layers exclude full recomputation; of the iteration, not"
            if recompute == "selective" and "moe" in (self.recompute_modules or ()):
                return "CUDA graphs of layers, the router in them, exclude recomputing the experts"
        if self.offload_layers and (pp > 1 or recompute != "none"):
            return "offloaded layers go with neither a pipeline nor recomputation"
        if self.offload_layers and graphs != "none":
            return "offloaded layers do not go with CUDA graphs"
        return ""

    def unsharded(self, soft: Capabilities, zero_stage: int, ranks: int) -> str:
        """Say why whole states do not go with the settings; empty: they do."""
        if not soft.sharded_moments or zero_stage or ranks == 1 or self.moments in (None, "fp32"):
            return ""
        return f"{soft.name} keeps moments of {self.moments} where they are sharded: zero 1 or more"

    def against(self, soft: Capabilities) -> str:
        """Say what a framework cannot run of the settings; empty: it can run them all."""
        wanted = (
            ("CUDA graphs", self.cuda_graphs, soft.cuda_graphs),
            ("dispatcher", self.dispatcher, soft.dispatchers),
            ("moments", self.moments, soft.moments),
        )
        for name, value, offered in wanted:
            usual = value in (None, "none", "alltoall", "fp32")
            if not usual and value not in offered:
                have = f"it has {', '.join(offered)}" if offered else "it has none"
                return f"{soft.name} has no {name} `{value}`: {have}"
        if self.overlap_ep and not soft.overlap_ep:
            return f"{soft.name} does not overlap the exchange of the experts"
        for module in self.recompute_modules or ():
            if soft.recompute_modules and module not in soft.recompute_modules:
                have = ", ".join(soft.recompute_modules)
                return f"{soft.name} does not recompute {module} alone: it names {have}"
        if self.offload_layers and not soft.offload_activations:
            return f"{soft.name} does not offload activations"
        return ""


NO_SETTINGS = JobSettings()
"""As the software comes."""
