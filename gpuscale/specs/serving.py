"""Serving parameters, as presets/serving/*.toml holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from gpuscale.core.habits import Habit
from gpuscale.core.serving.memory import EngineMemory
from gpuscale.core.serving.records import Kernels, ServingSoftware
from gpuscale.specs.fields import Bytes, Seconds, Spec

WARP_LEVEL = ("blackwell-geforce", "blackwell-gb202")
"""Parts whose matrix units have warp-level instructions alone. On datacenter Blackwell those, which
kernels that unpack weights are written in (Marlin), reach a fraction of the rate."""

_S, _M = ServingSoftware(""), EngineMemory()
Efficiency = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(ge=1, le=10)]


@dataclass(frozen=True, slots=True)
class KernelsSpec(Kernels):
    """Parameters that hold for all frameworks, and what an architecture has of its own."""

    architecture: Mapping[str, dict[str, float]] = field(default_factory=dict)  # where they differ
    origin: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse an architecture's parameter that is not known."""
        for name, table in self.architecture.items():
            if set(table) - set(Kernels.__slots__):
                raise ValueError(f"architecture.{name}: {sorted(set(table))}: unknown parameter")

    def to_core(self, architecture: str = "") -> Kernels:
        """Record for the formulas, with what an architecture (or its family) has of its own."""
        values = {name: getattr(self, name) for name in Kernels.__slots__}
        own = self.architecture.get(architecture) or self.architecture.get(
            architecture.split("-")[0], {}
        )
        if architecture in WARP_LEVEL:
            own = {name: value for name, value in own.items() if not name.startswith("widened")}
        return Kernels(**{**values, **own})


class EngineMemorySpec(Spec):
    """How an engine divides the memory; see `core.serving.memory.EngineMemory`."""

    rule: Literal["device", "static", "free", "all"] = "device"
    utilisation_frac: Efficiency = _M.utilisation_frac
    context_bytes: Bytes = _M.context_bytes
    collective_bytes: float = Field(default=_M.collective_bytes, ge=0, le=1e11)
    embedding_on_host: bool = _M.embedding_on_host
    source: str = ""

    def to_core(self, chunk_tokens: float, sequences: float) -> EngineMemory:
        """Record for the formulas."""
        values = self.model_dump(exclude={"source"})
        return EngineMemory(**values, chunk_tokens=chunk_tokens, sampler_sequences=sequences)


class MaturitySpec(Spec):
    """How long engines take to settle on an architecture; see `core.serving.maturity`."""

    first_months: float = Field(ge=0, le=60)
    settled_months: float = Field(ge=0, le=60)
    new: dict[str, Factor]  # engine -> attention, experts, small kernels over settled ones
    first: Factor  # the same of the days of the release, over new ones
    at_once: tuple[str, ...] = ()  # architectures whose kernels came with them
    released: dict[str, str] = Field(default_factory=dict)  # family or model -> ISO day
    source: str = ""


class FrameworkSpec(Spec):
    """One framework family; see `core.serving.records.ServingSoftware`."""

    name: str
    notes: str = ""
    host_s: Seconds = _S.host_s
    host_per_sequence_s: Seconds = _S.host_per_sequence_s
    step_s: Seconds = _S.step_s
    linear_factor: float = Field(default=_S.linear_factor, ge=0.5, le=10)
    grouped_factor: float = Field(default=_S.grouped_factor, ge=0.3, le=10)
    small_factor: float = Field(default=_S.small_factor, ge=0.1, le=10)
    adds_experts: bool = _S.adds_experts
    vector_rows: float = Field(default=_S.vector_rows, ge=0, le=1024)
    vector_rate: float = Field(default=_S.vector_rate, ge=0, le=100)
    ramp_factor: float = Field(default=_S.ramp_factor, ge=0.01, le=10)
    vector_factor: float = Field(default=_S.vector_factor, ge=0.001, le=10)
    integer_eff: Efficiency = 0.3
    integer_over_fp32: dict[str, float] = Field(default_factory=dict)  # by architecture
    prompt_layer_s: Seconds = _S.prompt_layer_s
    prompt_expert_layer_s: Seconds = _S.prompt_expert_layer_s
    request_s: Seconds = _S.request_s
    intake_s: Seconds = _S.intake_s
    serial_host: bool = _S.serial_host
    whole_prompts: bool = _S.whole_prompts
    chunks_beyond: float = Field(default=_S.chunks_beyond, ge=1)
    mixed: bool = _S.mixed
    reserve_output: bool = _S.reserve_output
    gathers_prompts: bool = _S.gathers_prompts
    chunk_tokens: float = Field(default=_S.chunk_tokens, ge=1, le=1e7)
    max_sequences: float = Field(default=_S.max_sequences, ge=1, le=1e6)
    memory: EngineMemorySpec = Field(default_factory=lambda: EngineMemorySpec())
    origin: dict[str, str] = Field(default_factory=dict)
    source: str = ""

    def with_habits(self, habits: Mapping[str, Habit]) -> FrameworkSpec:
        """Return the settings with those that a version has by habit."""
        found = {k: h.value for k, h in habits.items() if k in type(self).model_fields}
        if "async_scheduling" in habits:
            found["serial_host"] = not habits["async_scheduling"].value
        memory = self.memory
        if "memory_share" in habits:
            share = float(str(habits["memory_share"].value))
            memory = memory.model_copy(update={"utilisation_frac": share})
        return self.model_copy(update={**found, "memory": memory})

    def to_core(self, architecture: str = "") -> ServingSoftware:
        """Record for the formulas."""
        values = self.model_dump(include=set(ServingSoftware.__slots__) - {"memory"})
        values["integer_rate"] = self.integer_eff * self.integer_over_fp32.get(architecture, 0.0)
        memory = self.memory.to_core(values["chunk_tokens"], values["max_sequences"])
        return ServingSoftware(**values, memory=memory)
