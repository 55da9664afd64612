"""Loading what the serving model computes with: hardware, fabric, framework, kernel parameters."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpuscale.core.memory.fit import usable_bytes
from gpuscale.core.serving.power import PowerParameters
from gpuscale.core.serving.records import Kernels, ServingSite, ServingSoftware
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.calibration import load_arch, load_fabric
from gpuscale.io.presets import preset_roots
from gpuscale.io.toml import read_toml

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.fields import Spec

FRAMEWORKS = ("trtllm", "vllm", "sglang", "llamacpp")
DEFAULT_FRAMEWORK = "trtllm"
FORMATS = ("bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4", "int8")
MEASURED = (
    "ada",
    "ampere",
    "ada-geforce",
    "ampere-ga102",
    "ampere-geforce",
    "hopper",
    "blackwell",
    "blackwell-ultra",
    "cdna3",
    "cdna4",
)
"""Architectures with rows behind the stated intervals."""

SpecT = TypeVar("SpecT", bound="Spec")


def serving_folder() -> Path:
    """Folder of the serving parameters."""
    for root in preset_roots():
        if (root / "serving").is_dir():
            return root / "serving"
    raise GpuscaleError("the parameters of the serving model are not installed")


def _read(model: type[SpecT], name: str) -> SpecT:
    import pydantic

    from gpuscale.io.spec_errors import spec_error

    path = serving_folder() / f"{name}.toml"
    try:
        return model.model_validate(read_toml(path))
    except pydantic.ValidationError as error:
        raise spec_error(str(path), error, list(model.model_fields)) from None


@lru_cache(maxsize=32)
def load_serving_kernels(architecture: str = "") -> Kernels:
    """Parameters that hold for all frameworks, with those that an architecture has of its own."""
    from gpuscale.specs.serving import KernelsSpec

    return _read(KernelsSpec, "kernels").to_core(architecture)


@lru_cache(maxsize=32)
def load_framework(
    name: str = DEFAULT_FRAMEWORK,
    hbm_bytes: float = math.inf,
    architecture: str = "",
    version: str = "",
) -> ServingSoftware:
    """Framework family by name, with its settings for GPUs of so much memory, in a version.

    Raises GpuscaleError for an unknown name.

    Examples
    --------
    >>> load_framework("sglang").mixed
    False
    """
    from gpuscale.specs.serving import FrameworkSpec

    if name not in FRAMEWORKS:
        raise unknown_name("serving framework", name, FRAMEWORKS)
    found = _read(FrameworkSpec, name)
    return (found.at(version) if version else found).to_core(hbm_bytes, architecture)


def known_versions(name: str) -> tuple[str, ...]:
    """Versions of a framework from which on its settings changed.

    >>> known_versions("sglang")
    ()
    """
    from gpuscale.specs.serving import FrameworkSpec

    return tuple(_read(FrameworkSpec, name).before)


def serving_site(
    cluster: ClusterSpec,
    framework: str = DEFAULT_FRAMEWORK,
    calibration: str | Path | None = None,
    *,
    kernels: Kernels | None = None,
    software: ServingSoftware | None = None,
    version: str = "",
) -> ServingSite:
    """Hardware record of a cluster with the calibration of a framework.

    `cluster`: its GPU, links and domain. `framework`: one of `FRAMEWORKS`. `calibration`: overlay
    of matmul and collective constants. `kernels, software`: parameters instead of the shipped ones.
    `version`: of the framework; none is the versions that were measured.
    """
    gpu = cluster.gpu
    bf16 = gpu.bf16_flop_per_s or gpu.fp16_flop_per_s or gpu.fp32_flop_per_s or 1e13
    peaks = {"bf16": bf16}
    for name in FORMATS:
        rate = gpu.flop_per_s("fp8" if name == "fp8-block" else name)
        if rate:
            peaks.setdefault(name, rate)
    peaks.setdefault("fp16", bf16)
    return ServingSite(
        name=cluster.name,
        vector_flop_per_s=gpu.fp32_flop_per_s or bf16,
        arch_name=gpu.architecture,
        arch=load_arch(gpu, calibration),
        peaks=peaks,
        hbm_bytes=usable_bytes(gpu.hbm_bytes, gpu.usable_hbm_bytes),
        hbm_bytes_per_s=gpu.hbm_bytes_per_s,
        n_units=gpu.n_compute_units,
        l2_bytes=max(gpu.l2_bytes or 0.0, gpu.last_level_cache_bytes or 0.0) or None,
        fabric=load_fabric(cluster, calibration),
        domain=cluster.scaleup_domain_gpus,
        scaleup_bytes_per_s=cluster.scaleup_bytes_per_s
        or gpu.scaleup_bytes_per_s
        or gpu.pcie_bytes_per_s
        or 25e9,
        scaleout_bytes_per_s=cluster.egress_bytes_per_s_per_gpu or 12.5e9,
        kernels=kernels or load_serving_kernels(gpu.architecture),
        software=software or load_framework(framework, gpu.hbm_bytes, gpu.architecture, version),
    )


@lru_cache(maxsize=1)
def load_power() -> PowerParameters:
    """Power of a serving GPU over its TDP."""
    table = read_toml(serving_folder() / "power.toml")
    return PowerParameters(**{name: float(table[name]) for name in PowerParameters.__slots__})


@lru_cache(maxsize=1)
def serving_intervals() -> dict[str, float]:
    """Kind of load and quantity -> half width of ln(value) that holds 80 % of the rows."""
    table = read_toml(serving_folder() / "intervals.toml")
    return {name: float(value["width"]) for name, value in table["class"].items()}
