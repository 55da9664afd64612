"""Whether a pretraining job fits: over the settings that the question leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuscale.core import verdict
from gpuscale.core.memory.peak import peak_stage, stage_memories
from gpuscale.core.records import replace
from gpuscale.core.settings import LOSSES
from gpuscale.io.step import spread

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Memory
    from gpuscale.core.layout import Layout
    from gpuscale.core.memory.facts import ModelFacts, StageMemory
    from gpuscale.core.memory.parameters import MemoryParameters

STATES_SPREAD = 0.05
"""Spread of ln of weights, gradients and optimizer states: counted, whatever else is left open."""

OTHER_LOSS = {"eager": "fused", "chunked": "eager", "fused": "eager"}
"""Loss kernel -> what it is where somebody set it otherwise."""


def loss_open(p: MemoryParameters, named: bool) -> verdict.Open:
    """Loss kernel that nobody said: the family's, or another. Weights: priors.

    A fused softmax of whole logits (Megatron's) is none of `--loss`'s kernels, and off by default
    there.
    """
    taken = "fused" if p.fused_linear_ce else p.loss
    whole = taken == "eager" and p.fused_cross_entropy
    other = "eager" if whole else OTHER_LOSS[taken]
    share = 0.85 if named else 0.75
    return verdict.Open(
        "loss", "--loss", ((share, "a fused softmax" if whole else taken), (1 - share, other))
    )


def open_settings(
    asked: Memory, layout: Layout, p: MemoryParameters, ep: int
) -> list[verdict.Open]:
    """List settings of a job that nobody said, with the weight of what was taken and of the rest.

    The weights are priors. `ep`: ranks that experts may lie on where nobody spread them.
    """
    found = []
    if ep != layout.ep:
        found.append(verdict.Open("ep", "--ep", ((0.5, str(layout.ep)), (0.5, str(ep)))))
    if asked.recompute is None and asked.recompute_layers is None:
        other = "none" if layout.recompute == "full" else "full"
        found.append(
            verdict.Open("recompute", "--recompute", ((0.75, layout.recompute), (0.25, other)))
        )
    if asked.micro_batch is None:
        found.append(verdict.Open("micro_batch", "--micro-batch", ((0.8, "1"), (0.2, "2"))))
    if asked.seq_len is None:
        found.append(verdict.Open("seq_len", "--seq-len", verdict.LENGTHS))
    if asked.job_settings.loss is None:
        found.append(loss_open(p, bool(asked.software)))
    return found


def as_set(
    layout: Layout, p: MemoryParameters, values: Mapping[str, str]
) -> tuple[Layout, MemoryParameters]:
    """Return a layout and memory parameters with open settings set."""
    at = layout.as_set(values)
    if (ep := int(values.get("ep", layout.ep))) != layout.ep:
        at = replace(at, ep=ep, etp=1)
    kernel = LOSSES.get(values.get("loss", ""))
    return at, replace(p, **kernel, fused_linear_ce=False) if kernel else p


def loss_moves(
    facts: ModelFacts, layout: Layout, p: MemoryParameters, named: bool
) -> list[tuple[verdict.Open, verdict.Peaks]]:
    """Peak of a layout by its loss kernel alone, as `moving` has it. [byte]."""

    def peak(values: Mapping[str, str]) -> float:
        return peak_stage(stage_memories(facts, *as_set(layout, p, values))).total_bytes

    return verdict.moving([loss_open(p, named)], peak)


def verdict_of(
    asked: Memory,
    layout: Layout,
    usable_bytes: float,
    factor: float,
    facts: ModelFacts,
    parameters: MemoryParameters,
    *,
    ep: int,
) -> verdict.Verdict:
    """Verdict of a pretraining job, with the interval of its peak over what is open.

    `factor`: of the family's interval. `ep`: as in `open_settings`.
    """

    def memory(values: Mapping[str, str]) -> StageMemory:
        return peak_stage(stage_memories(facts, *as_set(layout, parameters, values)))

    settings = open_settings(asked, layout, parameters, ep)
    moves = verdict.moving(settings, lambda values: memory(values).total_bytes)
    cases = [(w, memory(values)) for w, values in verdict.ways([s for s, _ in moves])]
    peaks = [(w, m.total_bytes) for w, m in cases]
    how = spread()
    width = how.width(factor, [] if asked.software else ["unnamed"])
    p = how.chance(peaks, usable_bytes, width, settled=True)  # what else is open is listed above
    states = verdict.probability(
        [(w, m.states_bytes) for w, m in cases], usable_bytes, STATES_SPREAD
    )
    asks = verdict.deciding(moves, cases[0][1].total_bytes, usable_bytes, layout.seq_len)
    return verdict.Verdict(min(p, states), *verdict.between(peaks, width), asks)
