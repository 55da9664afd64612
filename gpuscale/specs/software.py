"""A framework family: its kernels, overlap and recipe; calibrated figures with origin."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from gpuscale.core.bounds import Keys, Within, ZeroStage
from gpuscale.core.capabilities import Capabilities
from gpuscale.core.finetune.parameters import FinetuneParameters
from gpuscale.core.memory.parameters import FamilyMemory
from gpuscale.core.step.records import ALWAYS_FITTED, FITTED, FamilyStep
from gpuscale.specs.fields import Name, Spec


class FittedValue(Spec):
    """One fitted physical parameter: its value, the prior of the fit, and where both are from."""

    value: Annotated[float, Within(0, 1e15)]
    prior: Annotated[float, Within(0, 1e15)]
    prior_spread: Annotated[float, Within(0, 3)] = 0.0  # of ln(value); 0: held at the prior
    spread: Annotated[float, Within(1, 100)] | None = None  # bootstrap factor over sources
    tie: str = ""  # parameters of one tie are fitted as one
    source: str = ""


Maturities = Literal["tuned", "as-it-comes", "script"]

BEFORE_FLASH = ("pascal", "volta", "turing")
"""Architectures without kernels of FlashAttention 2 (README: Ampere, Ada, Hopper) or Transformer
Engine's fused attention (compute capability 8.0 and above)."""


class ExpertsRecipe(Spec):
    """What published recipes of a framework set for a mixture on some architectures."""

    architectures: tuple[str, ...]
    formats: tuple[str, ...] = ()  # of the products; none: any
    swiglu: bool = False  # for gated experts without biases alone
    fabrics: tuple[str, ...] = ("infiniband", "roce")  # that its dispatcher's kernels take (DeepEP,
    # README: NVSHMEM over InfiniBand, RoCE in theory); inside a rack the network does not matter
    dispatcher: Literal["alltoall", "deepep", "hybridep"]
    moe_kernels: Literal["2025", "2026a", "2026b"] | None = None
    overlap_ep: bool | None = None
    cuda_graphs: Literal["none", "layer", "full"] | None = None
    source: str


class SoftwareSpec(Spec, FamilyStep):
    """A framework family as a named preset."""

    name: Name
    title: str = ""
    frameworks: tuple[str, ...] = ()  # what belongs to the family
    experts_recompute: tuple[str, ...] = ()  # modules that recipes of mixtures compute again
    sdpa: bool = False  # attention by PyTorch's own function, which has kernels for every GPU
    flash_generation: Literal["1", "2", "best"] = "best"  # FlashAttention 1, 2; cuDNN and FA3
    flash_best_on: tuple[str, ...] = ()  # architectures whose best it takes in any case: cuDNN's
    gradient_bytes_fp16: Annotated[float, Within(1, 8)] | None = None
    loss: Literal["eager", "chunked", "fused"] = "eager"  # whole logits, in chunks, or none kept
    zero_stage: ZeroStage = 1  # the family's habit
    sequence_parallel: bool = True
    recompute: Literal["none", "selective", "full", "per-op"] = "none"
    experts: tuple[ExpertsRecipe, ...] = ()  # tuned; a planned layout takes their dispatcher
    stack: Literal["fused", "eager", "ready"] = "fused"  # see `core.maturity.STACKS`
    maturity: Maturities = "as-it-comes"  # of a job of which nobody says it
    fitted_on: Maturities = "tuned"  # jobs that the parameters were fitted to
    capabilities: Capabilities | str = ""  # or the preset that has them; "": everything
    refuses: tuple[str, ...] = ()  # tables of `data/refused.toml`: its own, and its engine's
    calibration: Annotated[dict[str, FittedValue], Keys(FITTED, ALWAYS_FITTED)]
    memory: FamilyMemory = field(default_factory=FamilyMemory)
    finetune: FinetuneParameters | None = None  # None: nobody fine-tunes with it
    finetune_as: str = ""  # preset that stands for a pretraining family where it fine-tunes
    rl: dict[str, Any] = field(default_factory=dict)  # of `RlCosts`, and where they are from
    trainer: str = ""  # preset that trains by RL or tunes where the layout has TP, PP or EP
    notes: str = ""
    sources: dict[str, str] = field(default_factory=dict)

    def attention_on(self, architecture: str) -> str:
        """Kernel of attention on an architecture: the library's begin with Ampere."""
        return "unfused" if architecture in BEFORE_FLASH and not self.sdpa else self.attention
