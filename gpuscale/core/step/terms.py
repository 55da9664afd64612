"""Terms of a training step: each part as the arithmetic of `core.step.step` over what it took.

Pipeline: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2; exchange and states of data
parallelism: ZeRO (arXiv:1910.02054), section 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.records import Term
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.step.data_parallel import exchanges_s, shards_of
from gpuscale.core.step.dispatch import dispatched
from gpuscale.core.step.maturity import WORDS
from gpuscale.core.step.parallel_comm import point_to_point_s
from gpuscale.core.step.ranks import strides
from gpuscale.core.step.step import model_stages, shape_of, stage_times, step_terms, transfer_bytes

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.step.records import Breakdown, Hardware, LayerTime, Software
    from gpuscale.core.step.step import StageTimes, StepTerms
    from gpuscale.specs.model import ModelSpec

OF_A_STAGE = (
    "matmul_s",
    "attention_s",
    "elementwise_s",
    "moe_s",
    "tp_comm_s",
    "cp_comm_s",
    "ep_comm_s",
    "recompute_s",
    "offload_s",
)
"""Parts that every micro-batch adds on the heaviest stage."""


class _Made(NamedTuple):
    """What a step was put together from."""

    hw: Hardware
    sw: Software
    layout: Layout
    every: StageTimes
    steps: StepTerms
    parts: Breakdown

    def term(
        self, name: str, formula: str, inputs: dict[str, float], source: str
    ) -> tuple[Term, ...]:
        """Term of a part; nothing where the step has none of it."""
        value = getattr(self.parts, name)
        return (Term(name, value, "s", formula, inputs, source),) if value else ()


def part_terms(
    model: ModelSpec, hw: Hardware, software: Software, layout: Layout, parts: Breakdown
) -> tuple[Term, ...]:
    """Explain the parts of an expected step, those that are not zero."""
    sw = dispatched(software, layout.schedule, model.has_experts)
    stages = model_stages(model, hw, sw, layout, shape_of(layout, hw, sw))
    every, heaviest = stage_times(stages)
    steps = step_terms(every, hw, sw, layout, model.hidden_size)
    made = _Made(hw, sw, layout, every, steps, parts)
    where = f"stage {heaviest + 1} of {layout.pp}, the heaviest"
    return (
        *_of_stage(made, stages[heaviest].time, where),
        *_pipeline(made, model.hidden_size),
        *_exchange(made),
        *_stragglers(made),
    )


def _of_stage(made: _Made, time: LayerTime, where: str) -> tuple[Term, ...]:
    """Part of one micro-batch on the heaviest stage, times the micro-batches."""
    m = {"micro_batches": float(made.layout.n_micro_batches)}
    source = f"{where}: its layers of one micro-batch, forward and backward (core/step/layer.py)"
    found: tuple[Term, ...] = ()
    for name in OF_A_STAGE:
        inputs = m | {f"stage_{name}": getattr(time, name)}
        found += made.term(name, f"micro_batches * stage_{name}", inputs, source)
    host = m | {"stage_host_s": time.host_s, "step_host_s": made.sw.step_host_s}
    formula = "micro_batches * stage_host_s + step_host_s"
    return found + made.term("host_s", formula, host, f"{where}: launches that the GPU waits for")


def _pipeline(made: _Made, hidden: int) -> tuple[Term, ...]:
    """Bubble, and the transfers between stages."""
    layout, sw, every = made.layout, made.sw, made.every
    bubble = {
        "all_stages_s": every.all_stages_s,
        "heaviest_stage_s": every.seconds,
        "bubble_share": SCHEDULES[layout.schedule].bubble,
        "vpp": float(layout.vpp),
    }
    hop = {
        "micro_batches": float(layout.n_micro_batches),
        "vpp": float(layout.vpp),
        "pp": float(layout.pp),
        "hop_s": point_to_point_s(
            made.hw,
            strides(layout, made.hw.scaleup_domain_gpus).pp,
            transfer_bytes(sw, layout, hidden),
        ),
        "exposed_frac": sw.pp_exposed_frac if layout.overlap_pp else 1.0,
    }
    return (
        *made.term(
            "bubble_s",
            "max(0, all_stages_s - heaviest_stage_s) * bubble_share / vpp",
            bubble,
            f"Narayanan et al. 2021, section 2.2; schedule {layout.schedule_name}",
        ),
        *made.term(
            "pp_comm_s",
            "2 * (micro_batches * vpp + pp - 1) * hop_s * exposed_frac",
            hop,
            "activations and gradients between stages",
        ),
    )


def _exchange(made: _Made) -> tuple[Term, ...]:
    """Exposed exchange of data parallelism, and the optimizer."""
    layout, every, hw = made.layout, made.every, made.hw
    shards = shards_of(layout, every.dense_params, every.expert_params, hw.scaleup_domain_gpus)
    each, once = exchanges_s(
        hw,
        made.sw,
        layout=layout,
        shards=shards,
        forward_s=every.fwd_s,
        backward_s=every.bwd_s,
        n_layers=every.n_layers,
    )
    m = {"micro_batches": float(layout.n_micro_batches)}
    inputs = m | {"micro_batch_exchange_s": each, "step_exchange_s": once}
    found = made.term(
        "dp_comm_s",
        "micro_batches * micro_batch_exchange_s + step_exchange_s",
        inputs,
        f"ZeRO-{layout.zero_stage}, what its windows do not hide (core/step/data_parallel.py)",
    )
    source = "one pass over weights, gradients and states of a rank (core/step/optimizer.py)"
    return found + made.term("optimizer_s", "", {}, source)


def _stragglers(made: _Made) -> tuple[Term, ...]:
    """Explain what waiting for the slowest host adds, and what nobody tuned."""
    steps, hw = made.steps, made.hw
    beside = {
        "steady_s": steps.steady_s,
        "bubble_s": steps.bubble_s,
        "pp_comm_s": steps.pp_comm_s,
        "dp_comm_s": steps.dp_comm_s,
        "optimizer_s": steps.optimizer_s,
        "step_host_s": steps.host_s,
    }
    hosts = max(1.0, made.layout.n_gpus / hw.gpus_per_node)
    inputs = beside | {
        "per_log2_hosts": hw.straggler_per_log2_hosts,
        "hosts": hosts,
        "site_factor": hw.site_factor,
    }
    late = f"({' + '.join(beside)}) * ((1 + per_log2_hosts * log2(hosts)) * site_factor - 1)"
    found = made.term(
        "straggler_s", late, inputs, "wait for the slowest host, presets/software; site's own step"
    )
    ready = beside | {"straggler_s": steps.straggler_s, "maturity_factor": made.sw.maturity.factor}
    more = f"({' + '.join((*beside, 'straggler_s'))}) * (maturity_factor - 1)"
    source = f"median of jobs {WORDS[made.sw.maturity.name]}, presets/train/intervals.toml"
    return found + made.term("untuned_s", more, ready, source)
