"""What a training framework offers, as the rules of a layout ask it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from gpuscale.core.bounds import STRICT, Among, Filled, ZeroStage
from gpuscale.core.dataclasses import dataclass, field
from gpuscale.core.layout import CONTEXT_KINDS, ORDERS, RECOMPUTE
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.settings import DISPATCHERS, GRAPHS, MOMENT_BYTES

Schedule = Annotated[str, Among(tuple(SCHEDULES))]
ContextKind = Annotated[str, Among(tuple(CONTEXT_KINDS))]
Recompute = Annotated[str, Among(RECOMPUTE)]
KvHeads = Annotated[str, Among(("repeat", "divide"))]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Settings that a framework refuses together, when it starts."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    when: Mapping[str, Any] = field(hash=False)  # fact of a job -> `holds`; all of them
    why: str
    source: str  # file and line, or function, of the framework


def holds(condition: Any, value: Any) -> bool:
    """Whether a fact of a job is as a condition says; what nobody says is not.

    >>> holds(">1", 2), holds("<3", 3), holds(["nf4", "int8"], "int8"), holds("not full", "none")
    (True, False, True, True)
    >>> holds(True, 1), holds("not full", None)
    (True, False)
    """
    if value is None:
        return False
    if isinstance(condition, list | tuple):
        return any(holds(one, value) for one in condition)
    sign = str(condition)[:1]
    if sign in ("<", ">"):
        limit = int(condition[1:])
        return bool(value < limit if sign == "<" else value > limit)
    if sign == "n" and (other := str(condition).removeprefix("not ")) != condition:
        return str(value) != other
    return bool(value == condition)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a framework offers, the `[capabilities]` of its preset; `ANY`: all there is."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    version: str
    zero_stages: Annotated[tuple[ZeroStage, ...], Filled()]
    recompute: tuple[Recompute, ...]
    sources: Mapping[str, str] = field(hash=False)  # field -> source
    name: str = "any"
    tensor_parallel: bool = True
    adapters_split: bool = True  # adapters are trained with it too
    kv_heads: KvHeads = "repeat"  # KV heads fewer than tp: repeat them, or tp must divide them
    sequence_parallel: tuple[bool, ...] = (True, False)  # with TP
    experts_need_sequence_parallel: bool = False  # with TP
    cp_kinds: tuple[ContextKind, ...] = ()  # empty: no CP
    cp_asked: bool = False  # CP is taken where it is asked for
    pipeline: bool = True
    schedules: tuple[Schedule, ...] = ("1f1b",)
    uneven_stages: bool = False
    lone_ends: bool = False  # a first stage of the embedding alone, a last one of the head alone
    stages_by_length: bool = False  # the number of stages follows from the layers of one
    tied_pipeline: bool = True  # tied embedding and head with a pipeline
    zero_asked: tuple[ZeroStage, ...] = ()  # those of them that are taken where they are asked for
    recompute_asked: tuple[Recompute, ...] = ()  # the same of the ways to recompute
    zero_pipeline: tuple[ZeroStage, ...] = (0, 1)  # stages that go with a pipeline
    zero_pipeline_asked: tuple[ZeroStage, ...] = ()  # those of them, the same
    hybrid_shards: bool = False
    expert_parallel: bool = False
    expert_tensor_parallel: bool = False  # of a degree of its own
    experts_as_tp: bool = False  # where nobody says it
    experts_over_data: bool = False  # EP over data ranks alone; TP splits experts as the rest
    biased_experts_split: bool = True  # experts with a bias, by TP of their own
    selective_per_op: bool = False  # `selective` is `per-op` by another name
    recompute_layers: bool = False  # full recompute of some layers
    recompute_modules: tuple[str, ...] = ()  # what `selective` can name
    offload_optimizer: bool = False
    offload_activations: bool = False
    orders: tuple[Annotated[str, Among(ORDERS)], ...] = ("tp-cp-dp-pp",)
    cuda_graphs: tuple[Annotated[str, Among(GRAPHS)], ...] = ()
    dispatchers: tuple[Annotated[str, Among(tuple(DISPATCHERS))], ...] = ()
    moments: tuple[Annotated[str, Among(tuple(MOMENT_BYTES))], ...] = ()
    sharded_moments: bool = False  # moments below fp32 with ZeRO-1 and above alone
    overlap_ep: bool = False  # exchange of the experts beside another micro-batch
    refused: tuple[Refusal, ...] = ()  # of the tables that a preset's `refuses` names


ANY = Capabilities(
    version="",
    cp_kinds=tuple(CONTEXT_KINDS),
    schedules=tuple(SCHEDULES),
    uneven_stages=True,
    lone_ends=True,
    zero_stages=(0, 1, 2, 3),
    zero_pipeline=(0, 1, 3),
    hybrid_shards=True,
    expert_parallel=True,
    expert_tensor_parallel=True,
    recompute=RECOMPUTE,
    recompute_layers=True,
    offload_optimizer=True,
    offload_activations=True,
    orders=ORDERS,
    cuda_graphs=GRAPHS,
    dispatchers=tuple(DISPATCHERS),
    moments=tuple(MOMENT_BYTES),
    overlap_ep=True,
    sources={},
)
"""No framework in particular."""
