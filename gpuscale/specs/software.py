"""Frameworks and their families as data: kernels, overlap, recipe, words; with origin."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from gpuscale.core.bounds import Keys, Several, Within, ZeroStage
from gpuscale.core.finetune.parameters import FinetuneParameters
from gpuscale.core.habits import Capabilities, Habit
from gpuscale.core.memory.parameters import FamilyMemory
from gpuscale.core.records import field
from gpuscale.core.records import field as default
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
    keeps: tuple[str, ...] = ()  # of `recompute`, `zero_stage`, `tp`: no plan changes it
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


Kind = Literal["number", "text", "list", "flag", "precision", "sharding", "embeddings"]
Word = bool | int | float | str
Names = Annotated[tuple[str, ...], Several()]
"""One name, or several of which the first is written and all are read."""


class RowSpec(Spec):
    """How a framework says one field of a job; `launch.dialects.rows` walks it both ways."""

    field: str
    option: Names = ()  # none: the words are tables of options
    words: dict[str, Word | tuple[Word, ...] | dict[str, Any]] = default(default_factory=dict)
    nearest: dict[str, Any] = default(default_factory=dict)  # words that are near, and not the same
    kind: Kind = "number"
    join: str = ""  # what stands between the words of a list that is written as one
    single: bool = False  # a list of one is written without its list
    rest: str = ""  # value for which nothing is written, as the framework does so by itself
    when: dict[str, Names] = default(default_factory=dict)  # jobs for which it is written
    written: bool = True  # else it is read alone
    read: bool = True  # else it is written alone
    usual: Word | None = None  # value of a file that does not say it
    also: dict[str, Any] = default(default_factory=dict)  # options that are written with it


class HookSpec(Spec):
    """What no row says: a pair of functions of `launch.dialects.hooks`, tested as a pair."""

    fields: tuple[str, ...]
    python: str  # NAME of read_NAME and write_NAME


class BesideSpec(Spec):
    """A second file, of another framework: DeepSpeed's JSON of a trainer."""

    framework: str
    option: str = ""  # that names it; empty: the launcher does
    when: dict[str, Names] = default(default_factory=dict)


class WritingSpec(Spec):
    """How a job of the framework is written down and started."""

    methods: Names = ()  # what it trains: pretrain, full, lora, dora, grpo, ...
    form: Literal["yaml", "json", "toml", "flags", "values", "overrides", "python"]
    file: str = ""  # name of the file; empty: all stands in the command
    launcher: Literal["torchrun", "accelerate", "tune", "ray", "python", "own"] = "torchrun"
    run: Names = ()  # what each process runs
    ends: dict[str, str] = default(default_factory=dict)  # option -> prefix of its last words
    when: dict[str, Names] = default(default_factory=dict)  # jobs that are written so
    fixed: dict[str, Any] = default(default_factory=dict)  # options that its files have
    under: str | None = None  # path before options, which have underscores then
    beside: tuple[BesideSpec, ...] = ()


class EnvironmentSpec(Spec):
    """A variable that a launch sets; of several of one name the first that is for the job."""

    name: str
    value: str
    when: dict[str, Names] = default(default_factory=dict)
    unless: dict[str, Names] = default(default_factory=dict)


class FrameworkFile(Spec):
    """What is known of one framework."""

    name: str
    title: str = ""
    package: str = ""  # on PyPI, whose classes `tools/habits.py` asks
    version: str = ""  # that was read
    like: str = ""  # framework whose habits it has where it has none of its own
    releases: dict[str, str] = default(default_factory=dict)  # version -> ISO date
    habit: tuple[Habit, ...] = ()
    rows_like: str = ""  # framework whose rows it has, below its own of the same field
    writing: tuple[WritingSpec, ...] = ()
    environment: tuple[EnvironmentSpec, ...] = ()
    fixed: dict[str, Any] = default(default_factory=dict)  # options that every file has
    names: dict[str, str] = default(default_factory=dict)  # model preset -> its name of the model
    unsaid: dict[str, str] = default(default_factory=dict)  # field -> why it cannot say it
    beyond: dict[str, str] = default(default_factory=dict)  # PATH or PATH ~ PATTERN -> what is not
    # predicted of a file that has it; `{}` is its value
    row: tuple[RowSpec, ...] = ()
    hook: tuple[HookSpec, ...] = ()

    @property
    def dates(self) -> dict[str, str]:
        """Version -> date, of releases and of habits."""
        return {**{h.since: h.date for h in self.habit if h.since and h.date}, **self.releases}
