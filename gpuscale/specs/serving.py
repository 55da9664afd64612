"""Serving parameters, as presets/serving/*.toml holds them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuscale.core.memory.engine import EngineMemory
from gpuscale.core.serving.records import Kernels, ServingSoftware
from gpuscale.specs.fields import Bytes, Seconds, Spec

_K, _S, _M = Kernels(), ServingSoftware(""), EngineMemory()
Efficiency = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(ge=1, le=10)]


class KernelsSpec(Spec):
    """Parameters that hold for all frameworks; see `core.serving.records.Kernels`."""

    linear_factor: Factor = _K.linear_factor
    grouped_memory_eff: Efficiency = _K.grouped_memory_eff
    grouped_compute_eff: Efficiency = _K.grouped_compute_eff
    grouped_ramp_rows: float = Field(default=_K.grouped_ramp_rows, ge=0, le=1e4)
    widened_compute_eff: Efficiency = _K.widened_compute_eff
    widened_memory_eff: Efficiency = _K.widened_memory_eff
    expert_skew: float = Field(default=_K.expert_skew, ge=0, le=5)
    prefill_attention_eff: Efficiency = _K.prefill_attention_eff
    prefill_ramp_tokens: float = Field(default=_K.prefill_ramp_tokens, ge=0, le=1e5)
    decode_attention_eff: Efficiency = _K.decode_attention_eff
    decode_flop_eff: Efficiency = _K.decode_flop_eff
    small_kernel_s: Seconds = _K.small_kernel_s
    stream_passes: float = Field(default=_K.stream_passes, ge=0, le=100)
    all_reduce_factor: Factor = _K.all_reduce_factor
    queue_factor: float = Field(default=_K.queue_factor, ge=0, le=10)
    host_blend: float = Field(default=_K.host_blend, ge=1, le=20)
    exchange_overlap: float = Field(default=_K.exchange_overlap, ge=0, le=1)
    origin: dict[str, str] = Field(default_factory=dict)
    source: str = ""

    def to_core(self) -> Kernels:
        """Record for the formulas."""
        return Kernels(**self.model_dump(exclude={"origin", "source"}))


class EngineMemorySpec(Spec):
    """How an engine divides the memory; see `core.memory.engine.EngineMemory`."""

    rule: Literal["device", "static", "free", "all"] = "device"
    utilisation_frac: Efficiency = _M.utilisation_frac
    context_bytes: Bytes = _M.context_bytes
    collective_bytes: Bytes = _M.collective_bytes
    sampler_sequences: float = Field(default=_M.sampler_sequences, ge=0, le=1e6)
    chunk_tokens: float = Field(default=_M.chunk_tokens, ge=1, le=1e7)
    source: str = ""

    def to_core(self) -> EngineMemory:
        """Record for the formulas."""
        return EngineMemory(**self.model_dump(exclude={"source"}))


class FrameworkSpec(Spec):
    """One framework family; see `core.serving.records.ServingSoftware`."""

    name: str
    notes: str = ""
    host_s: Seconds = _S.host_s
    host_per_sequence_s: Seconds = _S.host_per_sequence_s
    step_s: Seconds = _S.step_s
    linear_factor: float = Field(default=_S.linear_factor, ge=0.5, le=10)
    prompt_layer_s: Seconds = _S.prompt_layer_s
    prompt_expert_layer_s: Seconds = _S.prompt_expert_layer_s
    request_s: Seconds = _S.request_s
    mixed: bool = _S.mixed
    chunk_tokens: float = Field(default=_S.chunk_tokens, ge=1, le=1e7)
    burst_frac: float = Field(default=_S.burst_frac, ge=0, le=1)
    max_sequences: float = Field(default=_S.max_sequences, ge=1, le=1e6)
    memory: EngineMemorySpec = Field(default_factory=lambda: EngineMemorySpec())
    origin: dict[str, str] = Field(default_factory=dict)
    source: str = ""

    def to_core(self) -> ServingSoftware:
        """Record for the formulas."""
        values = self.model_dump(exclude={"origin", "source", "notes", "memory"})
        return ServingSoftware(**values, memory=self.memory.to_core())
