"""What is searched: model, hardware, software, memory limit; time and memory of one layout.

The formulas are those of `core.step` and `core.memory`, assembled from memoised blocks.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from gpuscale.core.layout import Layout
from gpuscale.core.memory.peak import layout_activations, one_stage
from gpuscale.core.records import NamedTuple, dataclass, field, replace
from gpuscale.core.rules import RuleFacts
from gpuscale.core.stages import StageParams, distinct_stages, stage_params, widest_stage
from gpuscale.core.step.attention import MixerTime, mixer_s
from gpuscale.core.step.data_parallel import copies_s, offloads
from gpuscale.core.step.layer import BareLayer, LayerParts, bare_layer, head_time, recomputing
from gpuscale.core.step.moe import DUALPIPE_DISPATCH, FfnTime, ffn_s, unable
from gpuscale.core.step.records import Hardware, LayerTime, Shape, Software, StageTimes
from gpuscale.core.step.step import after_passes_s, recomputed, step_terms

if TYPE_CHECKING:
    from gpuscale.core.memory.facts import ModelFacts
    from gpuscale.core.memory.parameters import MemoryParameters
    from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One job on one cluster; the caches hold blocks that depend on few dimensions.

    None of them has the batch, the capacity or the space in it.
    """

    model: ModelSpec
    hardware: Hardware
    software: Software
    memory_facts: ModelFacts
    memory_parameters: MemoryParameters
    capacity_bytes: float
    facts: RuleFacts
    fit_factor: float = 1.0  # a layout is offered where its memory times this fits
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)
    kernel_cache: dict[Any, Any] = field(default_factory=dict, repr=False)  # no network in it
    memory_cache: dict[Any, Any] = field(default_factory=dict, repr=False)  # no hardware in it

    @property
    def room_bytes(self) -> float:
        """Expected memory up to which a layout is offered. [byte]."""
        return self.capacity_bytes / self.fit_factor

    @property
    def late(self) -> float:
        """Factor of stragglers, of the site and of the maturity on the whole step. [1]."""
        hw = self.hardware
        hosts = max(1.0, self.facts.n_gpus / hw.gpus_per_node)
        met = (1.0 + hw.straggler_per_log2_hosts * math.log2(hosts)) * hw.site_factor
        return met * self.software.maturity.factor


def problem_for(problem: Problem, schedule: str) -> Problem:
    """Problem as a schedule sees it: experts under DualPipe have their own dispatch."""
    if schedule != "dualpipe" or not problem.facts.n_experts or problem.software.dualpipe:
        return problem
    software = replace(problem.software, **DUALPIPE_DISPATCH)
    return replace(problem, software=software, cache=problem.cache.setdefault("dualpipe", {}))


def exposed(problem: Problem, recompute: str = "none") -> Problem:
    """Problem of stages without interleaving and of a recomputation: without what they exclude."""
    old = problem.software
    new = old if old.dualpipe else unable(old, recompute, 2, 1)
    if new is old or not problem.facts.n_experts:
        return problem
    cache = problem.cache.setdefault(("exposed", recompute), {})
    return replace(problem, software=new, cache=cache)


def _mixer(p: Problem, name: str, tokens: float, shape: Shape) -> MixerTime:
    key = ("mixer", name, tokens, shape.tp, shape.precision, shape.rounds)
    found: MixerTime | None = p.kernel_cache.get(key)
    if found is None:
        mixer, hidden = p.model.mixers[name], p.model.hidden_size
        long = shape._replace(seq_len=p.facts.seq_len)
        found = mixer_s(mixer, hidden, p.hardware, p.software, tokens=tokens, shape=long)
        p.kernel_cache[key] = found
    return found


def _ffn(p: Problem, name: str, tokens: float, shape: Shape) -> FfnTime:
    key = ("ffn", name, tokens, shape.tp, shape.ep, shape.etp, shape.precision)
    found: FfnTime | None = p.kernel_cache.get(key)
    if found is None:
        ffn, hidden = p.model.ffns[name], p.model.hidden_size
        found = ffn_s(ffn, hidden, p.hardware, p.software, tokens=tokens, shape=shape)
        p.kernel_cache[key] = found
    return found


def layer_of(p: Problem, mixer: str, ffn: str, shape: Shape) -> LayerTime:
    """Time of one kind of layer, as `core.step.layer.layer_time`, from memoised operators."""
    if p.model.ffns[ffn].kind != "moe":
        shape = shape._replace(ep=1, etp=1, ep_stride=1)
    key = (mixer, ffn, shape)
    found: LayerTime | None = p.cache.get(key)
    if found is None:
        tokens = shape.micro_batch_size * shape.seq_len / shape.cp
        mix = _mixer(p, mixer, tokens, shape)
        mlp = _ffn(p, ffn, tokens, shape)
        parts = LayerParts.of(
            p.model.mixers[mixer], p.model.ffns[ffn], p.model.hidden_size, mix, mlp
        )
        alike = ("bare", mixer, ffn, shape._replace(recompute="none"))
        bare: BareLayer | None = p.cache.get(alike)
        if bare is None:
            bare = p.cache[alike] = bare_layer(parts, p.hardware, p.software, shape)
        found = recomputing(bare, parts, shape.recompute, p.hardware, p.software)
        p.cache[key] = found
    return found


def head_of(p: Problem, shape: Shape) -> LayerTime:
    """Head and loss of one micro-batch, as `core.step.layer.head_time`, memoised."""
    tokens = shape.micro_batch_size * shape.seq_len / shape.cp
    key = ("head", shape.tp, tokens, shape.overlap_tp)
    found: LayerTime | None = p.cache.get(key)
    if found is None:
        found = p.cache[key] = head_time(
            p.model.hidden_size, p.model.vocab_size, p.hardware, p.software, shape
        )
    return found


def without_cp(shape: Shape) -> Shape:
    """One sequence of a rank's tokens: what CP exchanges, and its rounds, only add to its time."""
    tokens = shape.micro_batch_size * shape.seq_len // shape.cp
    return shape._replace(cp=1, cp_stride=1, micro_batch_size=1, seq_len=tokens)


def micro_batch_s(p: Problem, shape: Shape) -> float:
    """All layers and the head for one micro-batch, with their exposed communication. [s]."""
    key = ("micro", shape)
    found: float | None = p.cache.get(key)
    if found is not None:
        return found
    total = 0.0
    for (mixer, ffn), n in _layer_counts(p):
        layer = layer_of(p, mixer, ffn, shape)
        total += n * (layer.fwd_s + layer.bwd_s)
    head = head_of(p, shape)
    total += (1 + p.model.n_mtp_layers) * (head.fwd_s + head.bwd_s)
    p.cache[key] = total
    return total


def _layer_counts(p: Problem) -> list[tuple[tuple[str, str], int]]:
    """Layers by kind; those of prediction are of the last kind."""
    found: list[tuple[tuple[str, str], int]] | None = p.cache.get("layers")
    if found is None:
        counts = Counter(p.model.layer_sequence)
        counts[p.model.layer_sequence[-1]] += p.model.n_mtp_layers
        found = p.cache["layers"] = list(counts.items())
    return found


class _KindTimes(NamedTuple):
    """Forward and backward of one micro-batch: each kind of layer, and what the last stage adds."""

    layers: tuple[tuple[float, float, float], ...]  # (forward, backward, recomputation in it)
    head_fwd_s: float
    head_bwd_s: float


def _kind_times(p: Problem, shape: Shape) -> _KindTimes:
    key = ("kinds", shape)
    found: _KindTimes | None = p.cache.get(key)
    if found is None:
        weights, mtp = p.memory_facts.weights, p.model.n_mtp_layers
        kinds = [layer_of(p, mixer, ffn, shape) for mixer, ffn in weights.names]
        head = head_of(p, shape)
        last = kinds[weights.sequence[-1]]
        found = p.cache[key] = _KindTimes(
            tuple((t.fwd_s, t.bwd_s, t.recompute_s) for t in kinds),
            (1 + mtp) * head.fwd_s + mtp * last.fwd_s,
            (1 + mtp) * head.bwd_s + mtp * last.bwd_s,
        )
    return found


def stages_of(p: Problem, layout: Layout, shape: Shape, dealt: int | None = None) -> StageTimes:
    """Find what `core.step.step.model_stages` says of the stages, for one micro-batch.

    With `dealt` the layers are dealt as for so many chunks, whatever the schedule of the layout.
    """
    vpp = dealt or layout.vpp
    weights, rule = p.memory_facts.weights, p.software.stage_split
    times = _kind_times(p, shape)
    limit = layout.recompute_layers if layout.recompute != "none" else None
    total = heaviest = 0.0
    heavy = (0.0, 0.0, 0)
    given = layout.stage_layers
    unlike = distinct_stages(weights, rule, layout.pp, vpp, given)
    acts = (
        layout_activations(p.memory_facts, p.memory_parameters, layout)
        if offloads(p.software, layout)
        else ()
    )
    for layers, n_layers, head, alike in unlike:
        fwd, bwd = (times.head_fwd_s, times.head_bwd_s) if head else (0.0, 0.0)
        for kind, n, again in recomputed(layers, limit):
            kind_fwd, kind_bwd, kind_again = times.layers[kind]
            fwd += n * kind_fwd
            bwd += n * kind_bwd - (n - again) * kind_again
        if acts:
            out, back = copies_s(
                p.hardware, p.software, layout, layers, acts, forward_s=fwd, backward_s=bwd
            )
            fwd, bwd = fwd + out, bwd + back
        total += alike * (fwd + bwd)
        if fwd + bwd > heaviest:
            heaviest, heavy = fwd + bwd, (fwd, bwd, n_layers)
    dense, experts = widest_stage(
        weights,
        rule,
        tp=layout.tp,
        pp=layout.pp,
        vpp=vpp,
        experts_split=layout.ep * layout.etp,
        given=given,
    )
    return StageTimes(*heavy, total, dense, experts)


def step_s(p: Problem, layout: Layout, stages: StageTimes) -> float:
    """Assemble the expected time of a step from its stages. [s]."""
    return math.fsum(step_terms(stages, p.hardware, p.software, layout, p.model.hidden_size))


def exchange_s(p: Problem, layout: Layout, stages: StageTimes) -> float:
    """Exposed data-parallel exchange and optimizer of a step, as `step_s` counts them. [s]."""
    return math.fsum(after_passes_s(p.hardware, p.software, layout, stages))


def peak_bytes(p: Problem, layout: Layout, dealt: int | None = None) -> float:
    """Find the expected memory of the fullest GPU. [byte].

    The peak of `core.memory.peak.stage_memories`: of stages with equal layers only the first can
    be the fullest, since micro-batches in flight never grow from one stage to the next. With
    `dealt` the layers are dealt as for so many chunks, whatever the schedule of the layout.
    """
    parameters = p.memory_parameters
    stages = stages_dealt(p, layout, dealt or layout.vpp)
    acts = layout_activations(p.memory_facts, parameters, layout)
    return max(
        one_stage(p.memory_facts, stages[i], i, layout, parameters, acts).total_bytes
        for i in unlike_stages(p, stages)
    )


def stages_dealt(p: Problem, layout: Layout, vpp: int) -> tuple[StageParams, ...]:
    """Stages of a layout, with its layers dealt in `vpp` chunks."""
    return stage_params(
        p.memory_facts.weights,
        p.memory_parameters.stage_split,
        tp=layout.tp,
        pp=layout.pp,
        vpp=vpp,
        experts_split=layout.ep * layout.etp,
        given=p.facts.stages_given(layout.pp, vpp),
    )


def unlike_stages(p: Problem, stages: tuple[StageParams, ...]) -> list[int]:
    """First stage of each kind."""
    key = ("first", id(stages))
    found: list[int] | None = p.memory_cache.get(key)
    if found is None:
        first: dict[StageParams, int] = {}
        for i, stage in enumerate(stages):
            first.setdefault(stage, i)
        found = p.memory_cache[key] = list(first.values())
        p.memory_cache[("stages", id(stages))] = stages  # keeps the id alive
    return found
