"""What a launch file is written from, and what writing it gives."""

from __future__ import annotations

from typing import Any, ClassVar

from gpuscale.core.bounds import STRICT, NonNegativeInt
from gpuscale.core.dataclasses import dataclass, field
from gpuscale.core.layout import Layout
from gpuscale.core.settings import NO_SETTINGS, JobSettings
from gpuscale.specs.hardware import ClusterSpec
from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class TrainingLaunch:
    """A training job as planned, with everything that a launcher must be told."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT
    model: ModelSpec
    cluster: ClusterSpec
    software: str
    layout: Layout
    stage_layers: tuple[NonNegativeInt, ...]  # of each chunk in model order: pp * vpp numbers
    settings: JobSettings = NO_SETTINGS
    tuning: dict[str, Any] = field(default_factory=dict)  # of fine-tuning and RL, by `told`
    command: str = ""  # the command that gives this file again
    estimate: tuple[str, ...] = ()  # lines on expected time and memory, written as comments

    @property
    def n_gpus(self) -> int:
        """GPUs that train, and those that only roll out or hold a critic."""
        apart = (self.tuning.get(f"rl.{name}_gpus") or 0 for name in ("rollout", "critic"))
        return self.layout.n_gpus + sum(apart)

    @property
    def n_nodes(self) -> int:
        """Machines, the last one perhaps not full."""
        return -(-self.n_gpus // self.cluster.gpus_per_node)

    @property
    def gpus_a_node(self) -> int:
        """Processes that each machine starts."""
        return min(self.n_gpus, self.cluster.gpus_per_node)

    @property
    def even_stages(self) -> bool:
        """Whether every chunk of every stage holds the same number of layers."""
        return len(set(self.stage_layers)) <= 1


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """One file of a launch."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Written:
    """Files of a launch, the version they are for, and what the framework cannot express."""

    framework: str
    version: str
    files: tuple[LaunchFile, ...]
    train: tuple[str, ...]  # what each process runs: a script and its arguments
    unsaid: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    unsaid_fields: tuple[str, ...] = ()  # the same by the names of the fields
    launcher: str = "torchrun"  # what starts the processes of a machine
