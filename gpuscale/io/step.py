"""Fitted parameters of the step model, flat and of a cluster; how far measured figures lie off.

Flat they are named `arch.hopper.gemm_bf16_eff` and so on; all are from `presets/train`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.core.kernel.calibration import clock_frac
from gpuscale.core.network.expected import reduces_in_switch
from gpuscale.core.records import fields, made_of
from gpuscale.core.step.records import Hardware, StepForm
from gpuscale.core.verdict import Spread
from gpuscale.io.calibration import arch_spec, board_of, load_arch, load_fabric
from gpuscale.io.presets import checked, shipped
from gpuscale.io.text import Table, read_toml
from gpuscale.specs.software import FittedValue

if TYPE_CHECKING:
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec

FILES = {
    "kernels": "kernels.toml",
    "arch": "architectures.toml",
    "fabric": "fabrics.toml",
    "form": "form.toml",
}


class Calibration(dict[str, float]):
    """Parameter path -> value, with the fallbacks of architectures and fabrics."""

    def arch(self, architecture: str, name: str, gpu: str = "") -> float:
        """Value for a GPU, else its architecture, else the default architecture."""
        family = architecture.split("-")[0]
        for key in (gpu, architecture, family, "default"):
            value = self.get(f"arch.{key}.{name}")
            if value is not None:
                return value
        return 1.0

    def fabric(self, fabric_class: str, name: str) -> float:
        """Value for a fabric class, else the default."""
        return self.get(f"fabric.{fabric_class}.{name}", self[f"fabric.default.{name}"])


def train_folder() -> Path:
    """Folder of the calibration files."""
    return shipped("train")


def calibrated_tables() -> Iterator[tuple[str, FittedValue]]:
    """Every fitted parameter outside the software presets: (path, table)."""
    folder = train_folder()
    for prefix, file in FILES.items():
        yield from _tables(folder, prefix, read_toml(folder / file))


def _tables(
    folder: Path, prefix: str, table: Mapping[str, Any]
) -> Iterator[tuple[str, FittedValue]]:
    for key, value in table.items():
        path = f"{prefix}.{key}"
        if isinstance(value, dict) and "value" in value:
            yield path, checked(FittedValue, value, f"{folder}: {path}")
        elif isinstance(value, dict):
            yield from _tables(folder, path, value)


@lru_cache(maxsize=1)
def load_calibration() -> Calibration:
    """Return the shipped parameters of kernels, architectures and fabrics."""
    return Calibration({path: table.value for path, table in calibrated_tables()})


@lru_cache(maxsize=1)
def interval_table() -> Table:
    """Tables of `intervals.toml`: widths of classes, medians and widths of maturities."""
    return read_toml(train_folder() / "intervals.toml")


def interval_widths() -> dict[str, float]:
    """Class -> half width of ln(time) that holds 80 % of the validation rows of the class."""
    return {name: float(row["width"]) for name, row in interval_table()["class"].items()}


def memory_interval_factor(software: str) -> float:
    """Factor on the expected memory of a framework family that holds 80 % of measured peaks. [1].

    >>> memory_interval_factor("megatron-core"), memory_interval_factor("my-own")
    (1.08, 1.25)
    """
    return _memory_factors().get(software, _memory_factors()["unknown"])


@lru_cache(maxsize=1)
def _memory_factors() -> dict[str, float]:
    table = read_toml(train_folder() / "memory_intervals.toml")
    return {name: float(value["factor"]) for name, value in table["family"].items()}


@lru_cache(maxsize=1)
def spread() -> Spread:
    """Widths of verdicts."""
    table = read_toml(train_folder() / "verdicts.toml")
    far = {name: float(value["width"]) for name, value in table["distance"].items()}
    odd = {f"odd_{name}": float(v) for name, v in table["odd"].items() if name != "source"}
    bias, (floor, host) = float(table["bias"]["value"]), (table[n] for n in ("floor", "host"))
    widths = {"floor": float(floor["width"]), "host_width": float(host["width"])}
    return Spread(bias, distance=far, **widths, **odd)


def one_peak(
    peak_bytes: float, usable_bytes: float, family_factor_80: float = 1.0, *, served: bool = False
) -> float:
    """Probability that a job fits whose settings are all said, or a server's, which never are. [1].

    >>> one_peak(60e9, 85e9) > 0.9 > one_peak(84e9, 85e9)
    True
    """
    how = spread()
    width = how.width(family_factor_80)
    return how.chance([(1.0, peak_bytes)], usable_bytes, width, settled=not served, served=served)


UNITS_DEFAULT = 148
"""Compute units where the data sheet does not say."""


def step_hardware(
    cluster: ClusterSpec, calibration: Calibration | None = None, overlay: str | Path | None = None
) -> Hardware:
    """Hardware record of a cluster.

    `cluster`: GPU, node and network. `calibration`: parameters of a step; default: those shipped.
    `overlay`: a person's own measurements of products and collectives, as `gpuscale calibrate`
    wrote them; they change the step through the same functions as `matmul-time` and `collective`.
    """
    gpu, cal, domain = cluster.gpu, calibration or load_calibration(), cluster.scaleup_domain_gpus
    fabric_class = cluster.fabric_class
    arch = gpu.architecture
    named = (f.name for f in fields(Hardware))
    kernels = {name: cal[f"kernels.{name}"] for name in named if f"kernels.{name}" in cal}
    kernels_alone = load_arch(arch, overlay)  # a step has a power factor of its own, below
    fabric = load_fabric(cluster, overlay)
    power = _power_factor(gpu, cal)
    bf16 = gpu.bf16_flop_per_s or gpu.fp16_flop_per_s or gpu.fp32_flop_per_s or 1e13
    aqt = gpu.int8_flop_per_s if arch.startswith("tpu") else None  # takes the place of fp8
    return made_of(
        Hardware,
        cluster,
        gpu,
        bf16_flop_per_s=bf16,
        fp8_flop_per_s=max(gpu.fp8_flop_per_s or 0.0, aqt or 0.0),
        fp4_flop_per_s=gpu.fp4_flop_per_s or 0.0,
        n_compute_units=gpu.n_compute_units or UNITS_DEFAULT,
        scaleup_bytes_per_s=cluster.scaleup_bytes_per_s or gpu.scaleup_bytes_per_s or 25e9,
        scaleout_bytes_per_s=cluster.egress_bytes_per_s_per_gpu or 12.5e9,
        host_link_bytes_per_s=gpu.c2c_bytes_per_s or gpu.pcie_bytes_per_s or 25e9,
        form=StepForm(**{f.name: cal[f"form.{f.name}"] for f in fields(StepForm)}),
        l2_bytes=max(gpu.l2_bytes or 0.0, gpu.last_level_cache_bytes or 0.0),
        in_switch_reduction=reduces_in_switch(fabric, domain),
        arch=kernels_alone,
        fabric=fabric,
        hbm_eff=kernels_alone.for_dtype("bf16").memory_eff_frac * cal["kernels.stream_frac"],
        product_bf16_frac=cal.arch(arch, "product_bf16_frac", gpu.name) * power,
        product_fp8_frac=cal.arch(arch, "product_fp8_frac", gpu.name) * power,
        product_fp4_frac=cal.arch(arch, "product_fp4_frac", gpu.name) * power,
        attention_ramp_tokens=cal.arch(arch, "attention_ramp_tokens", gpu.name),
        attention_eff=cal.arch(arch, "attention_eff", gpu.name) * power,
        scaleup_frac=cal.arch(arch, "scaleup_frac", gpu.name),
        scaleout_frac=cal.fabric(fabric_class, "scaleout_frac"),
        scaleout_latency_factor=cal.fabric(fabric_class, "latency_factor"),
        **kernels,
    )


def _power_factor(gpu: GpuSpec, cal: Calibration) -> float:
    """Share of the rates that a board keeps with less power than that of the measurements. [1].

    Watts of whole boards are compared for boards of one architecture's own fit; else watts of a
    compute unit, as for products alone: a small chip needs less.
    """
    own, family = (f"arch.{key}.reference_tdp_w" for key in (gpu.name, gpu.architecture))
    reference = cal.get(own) or cal.get(family)
    if reference and gpu.tdp_w:
        return float(min(1.0, gpu.tdp_w / reference) ** cal["kernels.power_exponent"])
    board, power = board_of(gpu), arch_spec(gpu.architecture).power
    return min(1.0, clock_frac(board, power)) if board and power else 1.0
