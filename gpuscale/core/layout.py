"""How a training job is laid out over GPUs, and kinds of context parallelism, one row each.

Each rank of CP holds ``seq_len / cp`` tokens of every sequence, in two chunks so that a causal mask
gives all the same work. Weights, activations and memory do not depend on the kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Among, NonNegativeInt, PositiveInt, ZeroStage
from gpuscale.core.records import NamedTuple, dataclass, replace
from gpuscale.core.schedules import SCHEDULES


class Exchange(NamedTuple):
    """One collective of the forward pass of a layer; the backward pass takes two of each."""

    op: str  # "gather": all-gather of `n_bytes` together; "all-to-all": `n_bytes` sent by a rank
    ranks: int
    apart: int  # distance of its ranks, in ranks of the context-parallel group
    n_bytes: float


class ContextShape(NamedTuple):
    """What a kind needs to know of a layer and its layout."""

    cp: int
    tp: int
    cp_ranks_in_domain: int  # of one group, that the scale-up domain joins
    tokens: float  # of one rank
    hidden_size: int
    kv_bytes: float  # K and V of one token, of one tensor rank


@dataclass(frozen=True, slots=True)
class ContextKind:
    """One kind; a row with a column left out cannot be made."""

    name: str
    needs: Callable[[int, int, Sequence[int], Sequence[int]], str]
    """(cp, tp, heads, KV heads of the mixers that have fewer): what is missing, or ""."""
    exchanges: Callable[[ContextShape], tuple[Exchange, ...]]
    by_block: bool  # keys come rank by rank, each behind a kernel; else the core waits for all
    source: str


def _nothing(cp: int, tp: int, heads: Sequence[int], kv_heads: Sequence[int]) -> str:
    return ""


def _heads(cp: int, tp: int, heads: Sequence[int], kv_heads: Sequence[int]) -> str:
    for n in heads:
        if (n // tp) % cp:
            return f"Ulysses cp={cp} does not divide {n}/{tp} heads"
    for n in kv_heads:
        if max(1, n // tp) % cp:
            return f"Ulysses cp={cp} does not divide {n}/{tp} KV heads"
    return ""


def _gathered(x: ContextShape) -> tuple[Exchange, ...]:
    """K and V of all ranks pass every rank."""
    return (Exchange("gather", x.cp, 1, x.tokens * x.cp * x.kv_bytes),)


def _resharded(x: ContextShape) -> tuple[Exchange, ...]:
    """Reshard queries and outputs, two bytes an element, and K and V, by heads and back."""
    n_bytes = x.tokens / x.tp * (2.0 * x.hidden_size * 2.0) + x.tokens * x.kv_bytes
    return (Exchange("all-to-all", x.cp, 1, n_bytes),)


CONTEXT_KINDS = {
    k.name: k
    for k in (
        ContextKind(
            name="ring",
            needs=_nothing,
            exchanges=_gathered,
            by_block=True,
            source="Liu et al. 2023, Ring Attention, arXiv:2310.01889",
        ),
        ContextKind(
            name="all-gather",
            needs=_nothing,
            exchanges=_gathered,
            by_block=False,
            source="The Llama 3 Herd of Models, arXiv:2407.21783, section 3.3.2",
        ),
        ContextKind(
            name="ulysses",
            needs=_heads,
            exchanges=_resharded,
            by_block=False,
            source="Jacobs et al. 2023, DeepSpeed Ulysses, arXiv:2309.14509",
        ),
    )
}
"""Kinds by name; the first is the default, allowed wherever another is."""

DEFAULT_CONTEXT = next(iter(CONTEXT_KINDS))


RECOMPUTE = ("none", "selective", "full", "per-op")
PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4")
ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp")
"""Orders of the dimensions on the network, innermost first; EP splits the ranks of a stage."""
DEFAULT_ORDER = ORDERS[0]


def hides_exchange(recompute: str, pp: int, vpp: int) -> bool:
    """Whether a layout lets another micro-batch hide the experts' exchange.

    Megatron-Core, transformer_config.py, overlap_moe_expert_parallel_comm: stages that are
    interleaved, or none, and no full recomputation.
    """
    return recompute != "full" and (pp == 1 or vpp > 1)


def meant_recompute(recompute: str, selective_per_op: bool) -> str:
    """Way to recompute as a family means it: torchtitan's `selective` is per operator.

    >>> meant_recompute("selective", True), meant_recompute("selective", False)
    ('per-op', 'selective')
    """
    return "per-op" if recompute == "selective" and selective_per_op else recompute


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout: parallel degrees, batch, recompute, schedule, precision.

    Ranks are numbered in `order`, innermost first; EP splits the tp*cp*dp ranks of a stage, after
    expert tensor parallelism. `shard_group_size` is the ZeRO/FSDP shard group; None means dp*cp,
    fewer means HSDP.
    """

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT
    seq_len: PositiveInt
    global_batch_size: PositiveInt  # sequences
    micro_batch_size: PositiveInt = 1
    tp: PositiveInt = 1
    cp: PositiveInt = 1
    ep: PositiveInt = 1
    etp: PositiveInt = 1
    pp: PositiveInt = 1
    vpp: PositiveInt = 1
    dp: PositiveInt = 1
    zero_stage: ZeroStage = 1  # 0 DDP, 1 optimizer, 2 + gradients, 3 + weights (FSDP)
    shard_group_size: PositiveInt | None = None
    sequence_parallel: bool = True
    recompute: Annotated[str, Among(RECOMPUTE)] = "none"
    recompute_layers: PositiveInt | None = None  # layers per stage; None: all
    schedule: Annotated[str, Among(tuple(SCHEDULES))] = "1f1b"
    precision: Annotated[str, Among(PRECISIONS)] = "bf16"
    cp_kind: Annotated[str, Among(tuple(CONTEXT_KINDS))] = DEFAULT_CONTEXT
    overlap_tp: bool = True
    overlap_dp: bool = True
    overlap_pp: bool = True
    offload_optimizer: bool = False
    offload_activations: bool = False
    order: Annotated[str, Among(ORDERS)] = DEFAULT_ORDER
    stage_layers: tuple[NonNegativeInt, ...] | None = (
        None  # of each stage, or of each chunk in model order
    )

    @property
    def n_gpus(self) -> int:
        """GPUs used: tp * cp * pp * dp (EP lies inside)."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def schedule_name(self) -> str:
        """Schedule as it runs: 1F1B with chunks is interleaved."""
        return "interleaved" if self.vpp > 1 and self.schedule == "1f1b" else self.schedule

    @property
    def n_micro_batches(self) -> int:
        """Micro-batches per pipeline and step; a partial last one costs a whole one."""
        return math.ceil(self.global_batch_size / (self.dp * self.micro_batch_size))

    def as_set(self, values: Mapping[str, str]) -> Layout:
        """Return it with open settings set (`core.verdict`), the micro-batches as many."""
        micro = int(values.get("micro_batch", self.micro_batch_size))
        return replace(
            self,
            recompute=values.get("recompute", self.recompute),
            micro_batch_size=micro,
            global_batch_size=max(1, self.n_micro_batches) * self.dp * micro,
            seq_len=max(1, round(self.seq_len * float(values.get("seq_len", 1.0)))),
            zero_stage=int(values.get("zero_stage", self.zero_stage)),
        )


def layout_chunks(text: str) -> list[int]:
    """Count the transformer layers of each chunk: numbers, or a layout string of Megatron-Core.

    Raises ValueError if it is neither.

    >>> layout_chunks("Et|(tt|)*2,t|L"), layout_chunks("16, 15, 15")
    ([1, 2, 2, 1, 0], [16, 15, 15])
    """
    if re.fullmatch(r"[\d\s,]+", text):
        return [int(part) for part in re.findall(r"\d+", text)]
    found = re.sub(r"[\s,]", "", text)
    while match := re.search(r"\(([^()]*)\)\*(\d{1,4})", found):
        found = found[: match.start()] + match[1] * int(match[2]) + found[match.end() :]
    found = re.sub(r"(\w)\*(\d{1,4})", lambda m: m[1] * int(m[2]), found)
    if not re.fullmatch(r"[EtmL|]+", found):
        raise ValueError(f"{text[:60]!r} is no list of layers and no layout such as Et*3|tt|mL")
    return [part.count("t") for part in found.split("|")]


@dataclass(frozen=True, slots=True)
class Settled:
    """What every answer about a job says: its layout, its memory, and who said what."""

    fits: bool
    layout: Layout
    peak_bytes: float
    capacity_bytes: float
    memory_interval_factor_80: float  # of the family, all settings known
    taken: tuple[str, ...]  # what nobody said, and the option that says it
    said_by: Mapping[str, str]  # value -> option, file and line, habit, search or default
