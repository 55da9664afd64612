"""What a framework does when nobody says, laid over the figures of its family."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuscale.answers.finetune.asked import RL
from gpuscale.io.frameworks import framework_habits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuscale.core.habits import Habit
    from gpuscale.core.rl.step import RlCosts
    from gpuscale.specs.software import SoftwareSpec

OWN = (
    "loss",
    "recompute",
    "compiled",
    "zero_stage",
    "optimizer",
    "rank",
    "targets",
    "seq_len",
    "micro_batch",
)
"""Habits that are keys of a family's `[finetune]` table too."""

WEIGHTS = {"fp32": 4.0, "bf16": 2.0}
"""Format of trained weights -> bytes of each, of its gradient and of its moments."""


def job_facts(trained: str, method: str | None, n_gpus: int) -> dict[str, str]:
    """Facts of a job as conditions of habits name them.

    >>> job_facts("lora", "grpo", 8)
    {'method': 'lora', 'task': 'grpo', 'devices': 'many'}
    """
    task = method if method in RL else "sft"
    return {"method": trained, "task": task, "devices": "one" if n_gpus == 1 else "many"}


def with_habits(
    family: SoftwareSpec, named: str, facts: Mapping[str, str], base: str | None = None
) -> tuple[SoftwareSpec, dict[str, Habit]]:
    """Family with the habits of the framework and version that were named, and those habits.

    `family`: whose figures hold. `named`: NAME[:VERSION]. `facts`: of the job, as conditions of
    habits name them. `base`: format of frozen weights that was asked for.
    """
    found = framework_habits(named, facts) if family.finetune else {}
    if family.finetune is None or not found:
        return family, found
    update: dict[str, Any] = {k: h.value for k, h in found.items() if k in OWN}
    if "targets" in update:
        update["targets"] = tuple(update["targets"])
    if "offload" in found:
        update["offload_inputs"] = "activations" in str(found["offload"].value)
    if "weights" in found:
        each = WEIGHTS[base if base in WEIGHTS else str(found["weights"].value)]
        update |= _weights(each, facts, base)
        if facts["method"] == "full" and family.finetune.step_bytes:  # of a foreach optimizer
            update["step_bytes"] = each
    flash = {"flash2": "2", "best": "best"}.get(str(getattr(found.get("attention"), "value", "")))
    tuned = replace(family.finetune, **update)
    more = {"flash_generation": flash} if flash else {}
    return family.model_copy(update={"finetune": tuned, **more}), found


def _weights(each: float, facts: Mapping[str, str], base: str | None) -> dict[str, float]:
    """Bytes of a weight by the format that a framework loads it in."""
    if facts["method"] == "full":
        names = ("full_weights_bytes", "full_gradients_bytes", "full_moment_bytes")
        return dict.fromkeys(names, each)
    return {} if base else {"frozen_bytes": each}


RL_OWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "engine": ("engine", str),
    "engine_frac": ("engine_share", float),
    "engine_sleeps": ("engine_sleeps", lambda value: value == "all"),
    "states_leave": ("states_leave", lambda value: value == "all"),
    "reference": ("reference", bool),
    "group": ("group", int),
    "prompts": ("prompts", int),
    "max_response": ("max_response", float),
}
"""Field of `RlCosts` -> (habit, how it is read)."""


def with_rl_habits(costs: RlCosts, habits: Mapping[str, Habit]) -> RlCosts:
    """Costs and habits of an RL framework, with those of the version that was named."""
    own = {k: read(habits[h].value) for k, (h, read) in RL_OWN.items() if h in habits}
    return replace(costs, **own)
