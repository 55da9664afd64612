"""What a training framework offers, as the rules of a layout ask it, and what it does unasked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from gpuscale.core.bounds import STRICT, Among, Filled, Several, Share, ZeroStage
from gpuscale.core.layout import CONTEXT_KINDS, ORDERS, RECOMPUTE
from gpuscale.core.records import dataclass, field
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


FIELDS = (
    # of training: as `memory` and `plan` call them; `fp32_logits`: the loss takes an fp32 copy
    *"seq_len micro_batch eval_batch accumulation recompute loss attention optimizer".split(),
    *"fused_optimizer weights zero_stage offload compiled rank targets fp32_logits".split(),
    *"whole_base compiled_loss dispatcher expert_kernel experts on_experts cuda_graphs".split(),
    # of RL: where rollouts are made, what an engine takes and what leaves the GPU while it runs
    *"reference offload_when engine engine_share engine_sleeps states_leave rollout_tp".split(),
    *"prompts group max_response micro_prompts".split(),
    # of engines: `chunk_tokens` of a pass, `mixed` with decoding, `host_s` of a pass [s]
    *"small_factor grouped_factor compiled_s compiled_prompts".split(),
    *"inner_multiple hidden_multiple".split(),
    *"memory_share max_sequences chunk_tokens mixed whole_prompts chunks_beyond".split(),
    *"async_scheduling host_s host_per_sequence_s prefix_cache graph_sequences".split(),
    *"cache_format attention_backend expert_backend drafts async_drafts counts_states".split(),
    "plain_blocks",
)
"""What a habit may be of, in the words of a job."""

Names = Annotated[tuple[str, ...], Several()]
Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Habit:
    """One setting as a framework has it from a version on, where its conditions hold."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    field: Annotated[str, Among(FIELDS)]
    value: Value
    source: Annotated[str, Filled()]  # package==version class.field, or repository@commit path
    since: str = ""  # first version that has it; "": from the start
    before: str = ""  # first version that has it no more; "": to this day
    date: str = ""  # ISO date of `since`
    when: Mapping[str, Names] | None = None  # fact of the job -> values that it may have
    note: str = ""
    said: str = ""  # the value as the source has it, for re-reading
    shares: Mapping[str, Share] | None = None  # value -> share of the framework's own examples


@lru_cache(maxsize=1024)
def version_key(version: str) -> tuple[int, ...]:
    """Order of versions: their numbers.

    >>> version_key("0.9.6") < version_key("0.24") < version_key("v1.0.0rc1")
    True
    """
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0]))


def version_at(releases: Mapping[str, str], date: str) -> str:
    """Newest version of a day (ISO, or the start of one); the oldest known where it is earlier.

    >>> version_at({"0.1": "2024-01-05", "0.2": "2024-07-01"}, "2024-06"), version_at({}, "2024")
    ('0.1', '')
    """
    known = sorted(releases.items(), key=lambda item: item[1])
    until = [v for v, day in known if day <= date or day.startswith(date)]
    return until[-1] if until else known[0][0] if known else ""


def _covers(habit: Habit, version: str) -> bool:
    if not version:
        return not habit.before
    at = version_key(version)
    after = not habit.since or version_key(habit.since) <= at
    return after and (not habit.before or at < version_key(habit.before))


def habits_of(
    habits: Iterable[Habit], facts: Mapping[str, str], version: str = ""
) -> dict[str, Habit]:
    """Field -> the habit that a version has of it; without a version, today's.

    Of several that hold, the one with most conditions is taken, then the one that stands last.
    `facts`: what is known of the job (method, architecture, ...), as conditions name it.

    >>> old = Habit("loss", "eager", "x==1", before="2")
    >>> new = Habit("loss", "fused", "x==2", since="2", when={"method": ("lora",)})
    >>> found = habits_of([old, new], {"method": "lora"})
    >>> found["loss"].value, habits_of([old, new], {}, "1.9")["loss"].value
    ('fused', 'eager')
    """
    found: dict[str, Habit] = {}
    for habit in habits:
        met = all(facts.get(name) in values for name, values in (habit.when or {}).items())
        if met and _covers(habit, version):
            own = found.get(habit.field)
            if own is None or len(habit.when or ()) >= len(own.when or ()):
                found[habit.field] = habit
    return found
