"""A planning job as a file: model, cluster, batch, and what of the layout is pinned."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from gpuscale.specs.fields import Spec


def _text(value: Any) -> Any:
    """Numbers, booleans and lists as the text that the flag of the same name takes."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:.15g}"
    if isinstance(value, list) and all(isinstance(v, str | int | bool) for v in value):
        return ",".join(str(_text(v)) for v in value)
    return value


Value = Annotated[str, BeforeValidator(_text), Field(max_length=400)]
"""A value as typed behind the flag: `8`, `"4..16"`, `[1, 3]`, `true`."""


class LayoutPins(Spec):
    """Dimensions that are pinned or ranged; what is absent is searched."""

    tp: Value | None = None
    cp: Value | None = None
    cp_kind: Value | None = None
    pp: Value | None = None
    vpp: Value | None = None
    dp: Value | None = None
    ep: Value | None = None
    etp: Value | None = None
    zero: Value | None = None
    shard_group: Value | None = None
    micro_batch: Value | None = None
    sequence_parallel: Value | None = None
    recompute: Value | None = None
    recompute_layers: Value | None = None
    schedule: Value | None = None
    pipeline_layout: Value | None = None
    order: Value | None = None
    overlap_tp: Value | None = None
    overlap_dp: Value | None = None
    overlap_pp: Value | None = None
    offload: Value | None = None


class JobSpec(Spec):
    """`plan.toml`: every key is the flag of `gpuscale plan` of the same name."""

    model: Value | None = None
    cluster: Value | None = None
    gpus: Value | None = None
    catalogue: Value | None = None
    seq_len: Value | None = None
    batch_tokens: Value | None = None
    global_batch: Value | None = None  # sequences
    tokens: Value | None = None
    precision: Value | None = None
    software: Value | None = None
    objective: Value | None = None
    fit: Value | None = None
    price: Value | None = None
    deadline: Value | None = None
    budget: Value | None = None
    fleet: Value | None = None
    failure_rate: Value | None = None
    mtbf: Value | None = None
    recovery: Value | None = None
    saver: Value | None = None
    store: Value | None = None
    interval: Value | None = None
    stragglers: Value | None = None
    spot: Value | None = None
    preemptions: Value | None = None
    site: Value | None = None
    pue: Value | None = None
    own: Value | None = None
    cuda_graphs: Value | None = None
    dispatcher: Value | None = None
    overlap_ep: Value | None = None
    moe_kernels: Value | None = None
    recompute_modules: Value | None = None
    offload_layers: Value | None = None
    moments: Value | None = None
    gradients: Value | None = None
    fp8_param_gather: Value | None = None
    recipe: Value | None = None
    attention: Value | None = None
    loss: Value | None = None
    balance: Value | None = None
    maturity: Value | None = None
    mfu_at_least: Value | None = None
    max_step_time: Value | None = None
    gpus_per_node: Value | None = None
    nics: Value | None = None
    link: Value | None = None
    peer: Value | None = None
    layout: LayoutPins = Field(default_factory=LayoutPins)
