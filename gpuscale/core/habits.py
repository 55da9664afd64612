"""Habits of a framework: what it does when nobody says, by version or by date."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Among, Filled, Several, Share
from gpuscale.core.dataclasses import dataclass

FIELDS = (
    # of training: as `memory` and `plan` call them; `fp32_logits`: the loss takes an fp32 copy
    *"seq_len micro_batch eval_batch accumulation recompute loss attention optimizer".split(),
    *"fused_optimizer weights zero_stage offload compiled rank targets fp32_logits".split(),
    *"compiled_loss dispatcher expert_kernel experts on_experts cuda_graphs".split(),
    # of RL: where rollouts are made, what an engine takes and what leaves the GPU while it runs
    *"reference offload_when engine engine_share engine_sleeps states_leave rollout_tp".split(),
    *"prompts group max_response".split(),
    # of engines: `chunk_tokens` of a pass, `mixed` with decoding, `host_s` of a pass [s]
    *"small_factor compiled_s compiled_prompts".split(),
    *"memory_share max_sequences chunk_tokens mixed whole_prompts chunks_beyond".split(),
    *"async_scheduling host_s host_per_sequence_s prefix_cache graph_sequences".split(),
    *"cache_format attention_backend expert_backend drafts async_drafts".split(),
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


def _holds(habit: Habit, facts: Mapping[str, str]) -> bool:
    return all(facts.get(name) in values for name, values in (habit.when or {}).items())


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
        if _covers(habit, version) and _holds(habit, facts):
            own = found.get(habit.field)
            if own is None or len(habit.when or ()) >= len(own.when or ()):
                found[habit.field] = habit
    return found
