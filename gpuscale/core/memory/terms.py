"""Terms of a training memory: the formulas of `core.memory.peak` with the inputs that they took."""

from __future__ import annotations

from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import ModelFacts, StageMemory
from gpuscale.core.memory.fit import DEVICE_RESERVED_FRAC
from gpuscale.core.memory.parameters import MemoryParameters
from gpuscale.core.memory.peak import (
    held_params,
    kept_share,
    layout_activations,
    narrow_weights,
    shards_of_state,
    state_rules,
)
from gpuscale.core.records import Term, term_of, total_of
from gpuscale.core.stages import StageParams, layout_stages
from gpuscale.core.words import MEMORY_PARTS

ZERO = "ZeRO (arXiv:1910.02054) section 3.1; recipe of the software preset"
KORTHIKANTI = "Korthikanti et al. 2022 (arXiv:2205.05198), by element and kind of layer"


def stage_terms(
    facts: ModelFacts, layout: Layout, p: MemoryParameters, peak: StageMemory
) -> tuple[Term, ...]:
    """States, activations and fragmentation of the stage of `peak`."""
    stage = layout_stages(facts.weights, p.stage_split, layout)[peak.stage]
    return (
        *_states(stage, layout, p, peak),
        _activations(facts, stage, layout, p, peak),
        term_of(
            "fragmentation_bytes",
            "bytes",
            "(reserved_over_allocated - 1) * allocated_bytes",
            "software preset, [memory.sources]",
            peak,
            reserved_over_allocated=p.fragmentation,
        ),
    )


def peak_term(facts: ModelFacts, layout: Layout, p: MemoryParameters, peak: StageMemory) -> Term:
    """Memory of the fullest stage by part."""
    parts = {key: getattr(peak, key) for key in MEMORY_PARTS}
    source, children = "sum of the parts of the fullest stage", stage_terms(facts, layout, p, peak)
    return total_of("peak_bytes", peak.total_bytes, "bytes", parts, source, children)


def usable_term(stated_bytes: float | None, hbm_bytes: float, usable_bytes: float) -> Term:
    """Memory that a process can have: as the preset states it, or the HBM without its reserve."""
    reserved = {"hbm_bytes": hbm_bytes, "reserved_frac": DEVICE_RESERVED_FRAC}
    return Term(
        "capacity_bytes",
        usable_bytes,
        "bytes",
        "" if stated_bytes else "hbm_bytes * (1 - reserved_frac)",
        {} if stated_bytes else reserved,
        "stated in the GPU's preset: `usable_hbm_bytes`"
        if stated_bytes
        else "memory that PyTorch reports of the nominal HBM",
    )


def _states(
    stage: StageParams, layout: Layout, p: MemoryParameters, peak: StageMemory
) -> list[Term]:
    dense, experts = held_params(stage, layout)
    linears, more = narrow_weights(stage, layout, p)
    held = {"dense_params": dense, "expert_params": experts}
    held |= {"linear_params": linears, "narrow_bytes_more": more}
    found = []
    for name, (bytes_per_param, sharded) in state_rules(layout, p).items():
        n_dense, n_expert = shards_of_state(name, layout, p)
        given = {
            "bytes_per_param": bytes_per_param,
            "dense_shards": n_dense if sharded else 1,
            "expert_shards": n_expert if sharded else 1,
        }
        formula = "bytes_per_param * (dense_params / dense_shards + expert_params / expert_shards)"
        if name == "weights_bytes" and more:
            formula += " + linear_params * narrow_bytes_more"
        found.append(term_of(name, "bytes", formula, ZERO, peak, **given, **held))
    return found


def _activations(
    facts: ModelFacts, stage: StageParams, layout: Layout, p: MemoryParameters, peak: StageMemory
) -> Term:
    acts = layout_activations(facts, p, layout)
    recomputed, on_gpu = kept_share(stage, layout, p.offloaded_layers)
    inputs = {"in_flight": peak.in_flight_micro_batches}
    sums = []
    for i, (kind, n) in enumerate(stage.layers, 1):
        inputs |= {f"layers_{i}": float(n), f"layer_bytes_{i}": acts[kind].kept_bytes}
        one = f"layer_bytes_{i}"
        if recomputed < 1.0:
            inputs |= {"recomputed_frac": recomputed, f"whole_bytes_{i}": acts[kind].whole_bytes}
            one = f"(recomputed_frac * {one} + (1 - recomputed_frac) * whole_bytes_{i})"
        sums.append(f"layers_{i} * {one}")
    formula = f"in_flight * ({' + '.join(sums) or '0'})"
    if on_gpu < 1.0:
        inputs["on_gpu_frac"] = on_gpu
        formula = formula.replace("in_flight", "in_flight * on_gpu_frac")
    if stage.has_head and facts.n_mtp_layers:
        last = acts[facts.weights.sequence[-1]].kept_bytes
        inputs |= {"mtp_layers": float(facts.n_mtp_layers), "mtp_layer_bytes": last}
        formula += " + mtp_layers * mtp_layer_bytes"
    return Term("activations_bytes", peak.activations_bytes, "bytes", formula, inputs, KORTHIKANTI)
