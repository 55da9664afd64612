"""Options that several questions have: each is said once, so it means the same everywhere.

A question takes a group by inheriting it, or one option by calling its function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, overload

from gpuscale.answers.ask import (
    SERVE,
    TASKS,
    TRAIN,
    Asked,
    Converted,
    Question,
    Value,
    amount,
    flag,
    text,
    whole,
)
from gpuscale.core.records import dataclass
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.specs.hardware import ClusterSpec
    from gpuscale.specs.model import ModelSpec

DEFAULT_CLUSTER = "dgx-h100"
DEFAULT_SEQ_LEN = 8192

CLUSTER = "Cluster preset, GPU name (its usual node), file or -."
MODEL = "Model preset, TOML file, Hugging Face config.json or folder, or -."
SEQ_LEN = f"Tokens of a sequence; 32k is 32,768. [default: the model's own, else {DEFAULT_SEQ_LEN}]"
GPU = "GPU instead of a cluster: its usual node is taken."
PRECISIONS = "bf16, fp16, fp8, mxfp8 or nvfp4"

SERVED: dict[str, Any] = {"group": "serving", "tasks": SERVE}
"""What is of serving alone, in `plan` and `memory`."""

# --- single options ----------------------------------------------------------------------------


def catalogue() -> Asked[str]:
    """Which hardware figures."""
    return text(
        "Hardware figures: vendor, or documents (as they round).", "vendor", group="machines"
    )


@overload
def model(default: EllipsisType) -> Asked[str]: ...


@overload
def model(default: None = None) -> Asked[str | None]: ...


def model(default: Any = None) -> Any:
    """Model, as an argument."""
    return text(MODEL, default, group="machines", tasks=tuple(t for t in TASKS if t != "params"))


@overload
def seq_len(default: int, **more: Any) -> Asked[int]: ...


@overload
def seq_len(default: None = None, **more: Any) -> Asked[int | None]: ...


def seq_len(default: Any = None, **more: Any) -> Any:
    """Tokens of a sequence; of positions, k is 1,024."""
    help = SEQ_LEN if default is None else SEQ_LEN.partition(" [")[0]
    usual: dict[str, Any] = {"group": "batch", "common": True, "tasks": TRAIN, "flags": ("--seq",)}
    return whole(help, default, dim="positions", most=2**30, **usual | more)


def usual_seq_len(asked: int | None, model: ModelSpec) -> int:
    """Tokens of a sequence where none are asked for: the model's own, else usual or longest."""
    usual = model.training_seq_len or DEFAULT_SEQ_LEN
    return asked or min(usual, model.max_position or usual)


def length_words(seq_len: int, model: ModelSpec) -> str:
    """Say a length that nobody said: usual, or that of the model's own pretraining."""
    own = ", as it was pretrained" if seq_len == model.training_seq_len else ""
    return f"sequences of {seq_len:,}{own}"


def too_long(tokens: float, model: ModelSpec) -> list[str]:
    """Warn of a request longer than the model was made for, unless its positions reach on."""
    most = model.max_position or tokens
    if tokens <= most or model.position in ("alibi", "none"):
        return []
    why = "an engine refuses more unless positions are stretched (rope scaling)"
    return [f"{model.name} was made for {most:,} tokens, a request has {tokens:,.0f}: {why}"]


def software(fine_tuning: str = "") -> Asked[str | None]:
    """Framework of a training job."""
    tuned = f"; fine-tuning: {fine_tuning}" if fine_tuning else ""
    return text(
        f"Framework family preset. [default: megatron-core; TPUs: jax{tuned}]",
        group="machines",
        common=1,
        tasks=TRAIN,
    )


def params() -> Asked[float | None]:
    """Bare number of parameters."""
    help = "Number of parameters instead of a model, as 70e9 or 70B."
    return amount(help, "count", most=1e16, group="machines", tasks=("params", "serve"))


def context() -> Asked[float | None]:
    """Tokens that a served sequence has in its cache."""
    help = "Tokens in the cache of a sequence; 32k is 32,768. [default: 8192]"
    return amount(help, "positions", least=1.0, most=1e9, **SERVED)


def serve(common: int = 0) -> Asked[bool]:
    """Whether it is served instead of trained."""
    hint = "leave --method out"
    return flag(
        "Serving instead of training.", group="serving", tasks=SERVE, common=common, instead=hint
    )


def weights() -> Asked[str | None]:
    """Format of served weights."""
    return text(
        "Format of served weights: bf16, fp8, awq, q4_k_m, ... [default: as published]", **SERVED
    )


def concurrency() -> Asked[int | None]:
    """Sequences served together."""
    return whole("Sequences served at once. [default: 1]", most=1e9, **SERVED)


def memory_frac(**more: Any) -> Asked[float | None]:
    """Share of a GPU's memory that a serving engine takes."""
    help = "Share of the GPU's memory that the engine takes. [default: the engine's]"
    return amount(help, "frac", least=0.01, most=0.99, **more)


# --- several values ----------------------------------------------------------------------------


def parts(value: Any) -> list[Any]:
    """Values of a list, or of a text with commas."""
    if isinstance(value, str):
        found = value.split(",")
        if any(re.fullmatch(r"0\d\d", part.strip()) for part in found[1:]):  # 8,000 is no list
            return [value]
        return found
    return list(value) if isinstance(value, (list, tuple)) else [value]


def doubled(value: Any, read: Any) -> tuple[Any, ...]:
    """One number, a list, or a range ``512..16384`` in which it doubles."""
    found: list[Any] = []
    for part in parts(value):
        low, dots, high = str(part).partition("..")
        first = read(low if dots else part)
        last = read(high) if dots else first
        if last < first:
            raise ValueError(str(part).strip()[:40])
        while first < last:
            found.append(first)
            first *= 2
        found.append(last)
    return tuple(sorted(set(found)))


Sizes = Converted[tuple[int, ...], Value | Sequence[int]]
Amounts = Converted[tuple[float, ...], Value | Sequence[float]]
Names = Converted[tuple[str, ...], str | Sequence[str]]


def sizes(help: str, most: float, dim: str = "count", **more: Any) -> Sizes:
    """Field of whole numbers: one, a list, or a range in which they double."""

    def read(value: Any, label: str) -> tuple[int, ...]:
        from gpuscale.answers.values import whole

        return several(value, label, lambda v: whole(v, label, most=most, dim=dim))

    return Converted(help, (), read, **more)


def amounts(help: str, dim: str, most: float, **more: Any) -> Amounts:
    """Field of quantities: one, a list, or a range in which they double."""

    def read(value: Any, label: str) -> tuple[float, ...]:
        from gpuscale.answers.values import quantity

        return several(value, label, lambda v: quantity(v, dim, label, least=1.0, most=most))

    return Converted(help, (), read, **more)


def several(value: Any, label: str, read: Any) -> tuple[Any, ...]:
    """Read values: one, a list, or a range in which they double."""
    try:
        return doubled(value, read)
    except ValueError as error:
        raise GpuscaleError(f"{label} {error}: write the smaller number first") from None


def names(help: str, default: Sequence[str] = (), **more: Any) -> Names:
    """Field of names, comma-separated."""

    def read(value: Any, label: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(str(part).strip() for part in parts(value)))
        if not all(found):
            raise GpuscaleError(f"{label} {str(value)[:60]!r}: an empty name")
        return found

    return Converted(help, tuple(default), read, **more)


# --- the machine -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Machine(Question):
    """Cluster or GPU, and whose figures of it."""

    GROUP: ClassVar[str] = "machines"
    cluster: Asked[str | None] = text(f"{CLUSTER} [default: {DEFAULT_CLUSTER}]", common=1)
    gpu: Asked[str | None] = text(GPU, common=1)
    catalogue: Asked[str] = catalogue()

    @property
    def where(self) -> str:
        """Cluster that is meant.

        Raises GpuscaleError if it is given twice.
        """
        if self.cluster is not None and self.gpu is not None:
            raise GpuscaleError("give --cluster or --gpu, not both")
        return self.cluster or self.gpu or DEFAULT_CLUSTER


PEERS = ("p2p", "host", "bridge")


@dataclass(kw_only=True)
class Wired(Question):
    """How the nodes are built, where they are not a preset's."""

    GROUP: ClassVar[str] = "machines"
    OF_TASKS: ClassVar[tuple[str, ...]] = (*TRAIN, *SERVE)
    RAIL_BYTES_PER_S: ClassVar[float] = 12.5e9  # slowest of nodes with several: DGX-1, p4d.24xlarge
    gpus_per_node: Asked[int | None] = whole("GPUs of a node.", most=4096)
    nics: Asked[int | None] = whole("NICs of a node (rails).", most=256)
    link: Asked[float | None] = amount("Speed of one port of a NIC, e.g. 400Gb/s.", "bytes_per_s")
    peer: Asked[str | None] = text(
        "How cards on PCIe reach each other: p2p, host (no peer access: through host memory) or "
        "bridge (NVLink bridges of pairs). [default: as the card's driver allows]",
        known=PEERS,
    )

    def wires(self, cluster: ClusterSpec) -> tuple[list[str], list[str]]:
        """List the settings that stand for nodes as they are asked for, and warnings.

        NICs keep their number or speed where not said (slow ports come one a node); they pass what
        the GPUs' own slots pass, as measured (`nic_eff_frac` of presets/fabric/pcie.toml).
        Raises GpuscaleError if the NICs are changed of a cluster that has none.
        """
        from gpuscale.io.calibration import load_link

        own: list[str] = []
        if self.peer is not None:
            own.append("gpu.bridged=true" if self.peer == "bridge" else f"gpu.peer={self.peer}")
        if self.gpus_per_node:
            own.append(f"cluster.gpus_per_node={self.gpus_per_node}")
            if cluster.scaleup_domain_gpus <= cluster.gpus_per_node:
                own.append(f"cluster.scaleup_domain_gpus={self.gpus_per_node}")
        if not (self.nics or self.link):
            return own, []
        before = cluster.nics_per_node or cluster.gpus_per_node
        slow = not self.nics and 0.0 < (self.link or 0.0) < self.RAIL_BYTES_PER_S
        nics, egress = 1 if slow else self.nics or before, cluster.node_egress_bytes_per_s
        link = self.link or (egress / before if egress else None)
        if link is None:
            raise GpuscaleError(f"{cluster.name} has no network of its own", "give --link too")
        passed, told = nics * link, ["one such --link a node is taken (--nics)"] * slow
        slot, n_gpus = cluster.gpu.pcie_bytes_per_s, self.gpus_per_node or cluster.gpus_per_node
        slot = (slot or 0.0) * load_link("pcie").nic_eff_frac
        if 0.0 < slot * n_gpus < passed and (cluster.egress_bytes_per_s_per_gpu or 0.0) <= slot:
            shown = f"{n_gpus} GPU{'s' * (n_gpus > 1)}"
            told += [
                f"{nics} NICs of {link / 1e9:g} GB/s are more than the PCIe slots of {shown} pass: "
                f"{slot * n_gpus / 1e9:g} GB/s is counted out of a node"
            ]
            passed = slot * n_gpus
        own.append(f"cluster.nics_per_node={nics}")
        own.append(f"cluster.node_egress_bytes_per_s={passed:.17g} B/s")
        return own, told
