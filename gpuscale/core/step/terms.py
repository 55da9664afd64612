"""Terms of a training step: each part as the arithmetic of `core.step.step` over what it took.

Pipeline: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2; exchange and states of data
parallelism: ZeRO (arXiv:1910.02054), section 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.core.records import Term, term_of
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.settings import MATURITY_WORDS
from gpuscale.core.step.data_parallel import exchanges_s, shards_of
from gpuscale.core.step.moe import dispatched
from gpuscale.core.step.parallel_comm import point_to_point_s, strides
from gpuscale.core.step.records import Breakdown, Hardware, LayerTime, Software
from gpuscale.core.step.step import model_stages, shape_of, stage_times, step_terms, transfer_bytes

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.specs.model import ModelSpec

OF_A_STAGE = tuple(name for name in LayerTime._fields[2:] if name != "host_s")
"""Parts that every micro-batch adds on the heaviest stage."""

BASE = "steady_s + bubble_s + pp_comm_s + dp_comm_s + optimizer_s + step_host_s"


def part_terms(
    model: ModelSpec, hw: Hardware, software: Software, layout: Layout, parts: Breakdown
) -> tuple[Term, ...]:
    """Explain the parts of an expected step, those that are not zero."""
    sw = dispatched(software, layout, model.has_experts)
    stages = model_stages(model, hw, sw, layout, shape_of(layout, hw, sw))
    every, heaviest = stage_times(stages)
    shards = shards_of(layout, every, hw.scaleup_domain_gpus)
    each, once = exchanges_s(hw, sw, layout, shards, every)
    stride = strides(layout, hw.scaleup_domain_gpus).pp
    known = {f"stage_{name}": value for name, value in stages[heaviest].time._asdict().items()}
    known |= {
        "micro_batches": layout.n_micro_batches,
        "step_host_s": sw.step_host_s,
        "heaviest_stage_s": every.seconds,
        "bubble_share": SCHEDULES[layout.schedule].bubble,
        "hop_s": point_to_point_s(hw, stride, transfer_bytes(sw, layout, model.hidden_size)),
        "exposed_frac": sw.pp_exposed_frac if layout.overlap_pp else 1.0,
        "micro_batch_exchange_s": each,
        "step_exchange_s": once,
        "per_log2_hosts": hw.straggler_per_log2_hosts,
        "hosts": max(1.0, layout.n_gpus / hw.gpus_per_node),
        "maturity_factor": sw.maturity.factor,
    }
    rows = _rows(f"stage {heaviest + 1} of {layout.pp}, the heaviest", layout, sw)
    made = parts, step_terms(every, hw, sw, layout, model.hidden_size), every, layout, hw
    return tuple(
        term_of(name, "s", formula, source, *made, **known)
        for name, formula, source in rows
        if getattr(parts, name)
    )


def _rows(where: str, layout: Layout, sw: Software) -> list[tuple[str, str, str]]:
    """List (part, formula, source) of a step; `where`: its heaviest stage."""
    layers = f"{where}: its layers of one micro-batch, forward and backward (core/step/layer.py)"
    rows = [(name, f"micro_batches * stage_{name}", layers) for name in OF_A_STAGE]
    return rows + [
        (
            "host_s",
            "micro_batches * stage_host_s + step_host_s",
            f"{where}: launches that the GPU waits for",
        ),
        (
            "bubble_s",
            "max(0, all_stages_s - heaviest_stage_s) * bubble_share / vpp",
            f"Narayanan et al. 2021, section 2.2; schedule {layout.schedule_name}",
        ),
        (
            "pp_comm_s",
            "2 * (micro_batches * vpp + pp - 1) * hop_s * exposed_frac",
            "activations and gradients between stages",
        ),
        (
            "dp_comm_s",
            "micro_batches * micro_batch_exchange_s + step_exchange_s",
            f"ZeRO-{layout.zero_stage}, what its windows do not hide (core/step/data_parallel.py)",
        ),
        (
            "optimizer_s",
            "",
            "one pass over weights, gradients and states of a rank (core/step/data_parallel.py)",
        ),
        (
            "straggler_s",
            f"({BASE}) * ((1 + per_log2_hosts * log2(hosts)) * site_factor - 1)",
            "wait for the slowest host, presets/software; site's own step",
        ),
        (
            "untuned_s",
            f"({BASE} + straggler_s) * (maturity_factor - 1)",
            f"median of jobs {MATURITY_WORDS[sw.maturity.name]}, presets/train/intervals.toml",
        ),
    ]
