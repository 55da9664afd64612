"""Whether a pretraining job fits, over the settings that its question leaves open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.core.memory.peak import peak_stage, stage_memories
from gpuscale.core.verdict import LENGTHS, Open, between, probability, ways
from gpuscale.io.verdict import spread

if TYPE_CHECKING:
    from gpuscale.answers.memory import Memory
    from gpuscale.core.layout import Layout
    from gpuscale.core.memory.facts import ModelFacts
    from gpuscale.core.memory.parameters import MemoryParameters

STATES_SPREAD = 0.05
"""Spread of ln of weights, gradients and optimizer states: counted, whatever else is left open."""


def chance_of(
    asked: Memory,
    layout: Layout,
    usable_bytes: float,
    factor: float,
    facts: ModelFacts,
    parameters: MemoryParameters,
) -> tuple[float, tuple[float, float]]:
    """Probability that the job fits, and 80 % interval of its peak [byte], over what is open.

    `factor`: of the family's interval.
    """
    settings = []
    if asked.recompute is None and asked.recompute_layers is None:
        other = "none" if layout.recompute == "full" else "full"
        settings.append(Open("recompute", "", ((0.75, layout.recompute), (0.25, other))))
    if asked.micro_batch is None:
        settings.append(Open("micro_batch", "", ((0.8, "1"), (0.2, "2"))))
    if asked.seq_len is None:
        settings.append(Open("seq_len", "", LENGTHS))
    cases = []
    for weight, values in ways(settings):
        micro = int(values.get("micro_batch", layout.micro_batch_size))
        at = replace(
            layout,
            recompute=values.get("recompute", layout.recompute),
            micro_batch_size=micro,
            global_batch_size=layout.n_micro_batches * layout.dp * micro,
            seq_len=max(1, round(layout.seq_len * float(values.get("seq_len", 1.0)))),
        )
        cases.append((weight, peak_stage(stage_memories(facts, at, parameters))))
    peaks = [(w, m.total_bytes) for w, m in cases]
    how = spread()
    width = how.width(factor, [] if asked.software else ["unnamed"])
    p = how.chance(peaks, usable_bytes, width, settled=True)  # what else is open is listed above
    states = probability([(w, m.states_bytes) for w, m in cases], usable_bytes, STATES_SPREAD)
    return min(p, states), between(peaks, width)
