"""Serving parameters, as presets/serving/*.toml holds them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpuscale.core.serving.records import Kernels, ServingSoftware
from gpuscale.specs.fields import Seconds, Spec

_K, _S = Kernels(), ServingSoftware("")
Efficiency = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(ge=1, le=10)]


class KernelsSpec(Spec):
    """Parameters that hold for all frameworks; see `core.serving.records.Kernels`."""

    linear_factor: Factor = _K.linear_factor
    grouped_memory_eff: Efficiency = _K.grouped_memory_eff
    grouped_compute_eff: Efficiency = _K.grouped_compute_eff
    prefill_attention_eff: Efficiency = _K.prefill_attention_eff
    prefill_ramp_tokens: float = Field(default=_K.prefill_ramp_tokens, ge=0, le=1e5)
    decode_attention_eff: Efficiency = _K.decode_attention_eff
    decode_flop_eff: Efficiency = _K.decode_flop_eff
    small_kernel_s: Seconds = _K.small_kernel_s
    stream_passes: float = Field(default=_K.stream_passes, ge=0, le=100)
    all_reduce_factor: Factor = _K.all_reduce_factor
    queue_factor: float = Field(default=_K.queue_factor, ge=0, le=10)
    origin: dict[str, str] = Field(default_factory=dict)
    source: str = ""

    def to_core(self) -> Kernels:
        """Record for the formulas."""
        return Kernels(**self.model_dump(exclude={"origin", "source"}))


class FrameworkSpec(Spec):
    """One framework family; see `core.serving.records.ServingSoftware`."""

    name: str
    notes: str = ""
    host_s: Seconds = _S.host_s
    host_per_sequence_s: Seconds = _S.host_per_sequence_s
    prompt_layer_s: Seconds = _S.prompt_layer_s
    prompt_expert_layer_s: Seconds = _S.prompt_expert_layer_s
    request_s: Seconds = _S.request_s
    mixed: bool = _S.mixed
    chunk_tokens: float = Field(default=_S.chunk_tokens, ge=1, le=1e7)
    burst_frac: float = Field(default=_S.burst_frac, ge=0, le=1)
    max_sequences: float = Field(default=_S.max_sequences, ge=1, le=1e6)
    kv_memory_frac: Efficiency = _S.kv_memory_frac
    origin: dict[str, str] = Field(default_factory=dict)
    source: str = ""

    def to_core(self) -> ServingSoftware:
        """Record for the formulas."""
        return ServingSoftware(**self.model_dump(exclude={"origin", "source", "notes"}))
