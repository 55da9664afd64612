"""Habits of a framework: what it does when nobody says, by version or by date."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from gpuscale.core.bounds import STRICT, Among, Filled, Several, Share

FIELDS = {
    "seq_len": "tokens of the longest row",
    "micro_batch": "sequences of a micro-batch on one GPU",
    "eval_batch": "the same of an evaluation",
    "accumulation": "micro-batches of a step",
    "recompute": "activations computed again: none, selective or full",
    "loss": "kernel of the loss: eager (whole logits), chunked or fused",
    "attention": "kernel of attention: best, flash2, sdpa or eager",
    "optimizer": "optimizer, as --optimizer has it",
    "fused_optimizer": "AdamW steps in place, without temporaries of all parameters",
    "weights": "format of weights trained in full: fp32 or bf16",
    "zero_stage": "ZeRO stage of data-parallel ranks; FSDP's full shard is 3",
    "offload": "parts on the host",
    "compiled": "torch.compile",
    "rank": "rank of the adapters",
    "targets": "maps with an adapter",
    "fp32_logits": "the loss is taken of an fp32 copy of the logits",
    "dispatcher": "exchange of tokens between ranks of experts",
    "expert_kernel": "kernel of the experts' products",
    "cuda_graphs": "passes captured as CUDA graphs",
    "reference": "a reference model is held (RL)",
    "offload_when": "when what is offloaded is on the host: always, or while an engine rolls out",
    "engine": "where rollouts are made (RL): colocated, split, async, hf",
    "engine_share": "share of a GPU's memory that a colocated engine takes",
    "engine_sleeps": "what of the engine leaves the GPU while it trains: none or all",
    "states_leave": "training states that leave the GPU while the engine runs: none or all",
    "rollout_tp": "GPUs of one replica of the engine (RL)",
    "prompts": "prompts of a step (RL)",
    "group": "responses to a prompt (RL)",
    "max_response": "tokens of the longest response (RL)",
    "memory_share": "share of a GPU's memory that an engine takes",
    "max_sequences": "sequences that an engine runs at a time",
    "chunk_tokens": "prompt tokens of one pass of an engine",
    "mixed": "prompt tokens share a pass with decoding sequences",
    "whole_prompts": "a pass reads a prompt as a whole",
    "chunks_beyond": "longest context up to which prompts are read whole",
    "async_scheduling": "the host prepares a pass while the one before runs",
    "host_s": "host time of a pass of an engine [s]",
    "host_per_sequence_s": "host time of a pass for each sequence [s]",
    "prefix_cache": "blocks of the cache are shared by prompts that begin alike",
    "graph_sequences": "sequences of the largest pass captured as a CUDA graph",
    "cache_format": "number format of the KV cache",
    "attention_backend": "kernels of an engine's attention",
    "expert_backend": "kernels of an engine's experts",
    "drafts": "speculative decoding that starts by itself",
}
"""What a habit may be of, in the words of a job."""

Names = Annotated[tuple[str, ...], Several()]
Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Habit:
    """One setting as a framework has it from a version on, where its conditions hold."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    field: Annotated[str, Among(tuple(FIELDS))]
    value: Value
    source: Annotated[str, Filled()]  # package==version class.field, or repository@commit path
    since: str = ""  # first version that has it; "": from the start
    before: str = ""  # first version that has it no more; "": to this day
    date: str = ""  # ISO date of `since`
    when: Mapping[str, Names] | None = None  # fact of the job -> values that it may have
    note: str = ""
    said: str = ""  # the value as the source has it, for re-reading
    shares: Mapping[str, Share] | None = None  # value -> share of the framework's own examples


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
