"""Serving parameters, as presets/serving/*.toml holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from gpuscale.core.bounds import STRICT, Within
from gpuscale.core.habits import Habit
from gpuscale.core.records import dataclass, field, fields, replace
from gpuscale.core.serving.memory import EngineMemory
from gpuscale.core.serving.records import Kernels, ServingSoftware
from gpuscale.specs.fields import Spec

WARP_LEVEL = ("blackwell-geforce", "blackwell-gb202")
"""Parts whose matrix units have warp-level instructions alone. On datacenter Blackwell those, which
kernels that unpack weights are written in (Marlin), reach a fraction of the rate."""

TILES = ("inner_multiple", "hidden_multiple")
"""Of the memory, what kernels pad experts in mxfp4 to."""

Efficiency = Annotated[float, Within(0, 1, above=True)]
Factor = Annotated[float, Within(1, 10)]
Months = Annotated[float, Within(0, 60)]


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


class MaturitySpec(Spec):
    """How long engines take to settle on an architecture; see `core.serving.maturity`."""

    first_months: Months
    settled_months: Months
    new: dict[str, Factor]  # engine -> attention, experts, small kernels over settled ones
    first: Factor  # the same of the days of the release, over new ones
    at_once: tuple[str, ...] = ()  # architectures whose kernels came with them
    released: dict[str, str] = field(default_factory=dict)  # family or model -> ISO day
    source: str = ""


@dataclass(frozen=True, slots=True)
class EngineMemorySpec(EngineMemory):
    """How an engine divides the memory, with its source."""

    source: str = ""


@dataclass(frozen=True, slots=True)
class FrameworkSpec(ServingSoftware):
    """One framework family: what differs between frameworks, and where it is from."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    notes: str = ""
    integer_eff: Efficiency = 0.3
    integer_over_fp32: Mapping[str, float] = field(default_factory=dict)  # by architecture
    memory: EngineMemorySpec = EngineMemorySpec()
    origin: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    def with_habits(self, habits: Mapping[str, Habit]) -> FrameworkSpec:
        """Return the settings with those that a version has by habit."""
        own = {f.name for f in fields(self)}
        found: dict[str, Any] = {k: h.value for k, h in habits.items() if k in own}
        if "async_scheduling" in habits:
            found["serial_host"] = not habits["async_scheduling"].value
        if "async_drafts" in habits:
            found["serial_drafts"] = not habits["async_drafts"].value
        words = {"memory_share": "utilisation_frac"} | {name: name for name in TILES}
        memory: dict[str, Any] = {own: habits[k].value for k, own in words.items() if k in habits}
        found["memory"] = replace(self.memory, **memory)
        return replace(self, **found)

    def to_core(self, architecture: str = "") -> ServingSoftware:
        """Record for the formulas."""
        values = {f.name: getattr(self, f.name) for f in fields(ServingSoftware)}
        values["integer_rate"] = self.integer_eff * self.integer_over_fp32.get(architecture, 0.0)
        memory = {f.name: getattr(self.memory, f.name) for f in fields(EngineMemory)}
        memory |= {"chunk_tokens": self.chunk_tokens, "sampler_sequences": self.max_sequences}
        return ServingSoftware(**(values | {"memory": EngineMemory(**memory)}))
