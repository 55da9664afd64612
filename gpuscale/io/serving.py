"""Loading what the serving model computes with: hardware, fabric, framework, kernel parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from gpuscale.core.habits import Habit, version_at, version_key
from gpuscale.core.records import replace
from gpuscale.core.serving.maturity import SETTLED, Ages, EngineMaturity, maturity, needs_kernels
from gpuscale.core.serving.power import PowerParameters
from gpuscale.core.serving.records import Kernels, ServingSite, ServingSoftware
from gpuscale.errors import unknown_name
from gpuscale.io.calibration import load_arch, load_fabric
from gpuscale.io.presets import checked, shipped
from gpuscale.io.text import read_toml
from gpuscale.specs.hardware import ClusterSpec
from gpuscale.specs.model import ModelSpec
from gpuscale.specs.serving import FrameworkSpec, KernelsSpec, MaturitySpec

FRAMEWORKS = ("trtllm", "vllm", "sglang", "llamacpp")
DEFAULT_FRAMEWORK = "trtllm"
FORMATS = ("bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4", "int8")
GIB = 2.0**30
SpecT = TypeVar("SpecT")


def serving_folder() -> Path:
    """Folder of the serving parameters."""
    return shipped("serving")


def _read(model: type[SpecT], name: str) -> SpecT:
    path = serving_folder() / f"{name}.toml"
    return checked(model, read_toml(path), str(path))


@lru_cache(maxsize=32)
def load_serving_kernels(architecture: str = "") -> Kernels:
    """Parameters that hold for all frameworks, with those that an architecture has of its own."""
    return _read(KernelsSpec, "kernels").to_core(architecture)


MEMORY_CLASSES = (20, 35, 60, 70, 90, 160)
"""GiB of a GPU at which engines change their settings (vLLM `arg_utils.py`: 70, 160; SGLang
`server_args.py`: 20, 35, 60, 90, 160)."""


def memory_class(hbm_bytes: float) -> str:
    """Class of a GPU's memory, as conditions of habits name it.

    >>> memory_class(24 * 2**30), memory_class(80 * 2**30), memory_class(math.inf)
    ('20-35', '70-90', '160-')
    """
    gib = hbm_bytes / GIB
    low = max((c for c in MEMORY_CLASSES if c <= gib), default=0)
    high = min((c for c in MEMORY_CLASSES if c > gib), default="")
    return f"{low}-{high}"


def engine_habits(
    engine: str,
    version: str = "",
    hbm_bytes: float = math.inf,
    architecture: str = "",
    **facts: str,
) -> dict[str, Habit]:
    """Find what a version of an engine does when nobody says; today's without a version.

    >>> engine_habits("vllm", "0.12")["memory_share"].value
    0.9
    """
    from gpuscale.io.software import framework_habits

    facts |= {"architecture": architecture, "memory": memory_class(hbm_bytes)}
    return framework_habits(f"{engine}:{version}" if version else engine, facts)


@lru_cache(maxsize=64)
def load_framework(
    name: str = DEFAULT_FRAMEWORK,
    hbm_bytes: float = math.inf,
    architecture: str = "",
    version: str = "",
) -> ServingSoftware:
    """Framework family by name, with its settings for GPUs of so much memory, in a version.

    Raises GpuscaleError for an unknown name.
    """
    if name not in FRAMEWORKS:
        raise unknown_name("serving framework", name, FRAMEWORKS)
    found = _read(FrameworkSpec, name)
    habits = engine_habits(name, version, hbm_bytes, architecture)
    return found.with_habits(habits).to_core(architecture)


def serving_site(
    cluster: ClusterSpec,
    framework: str = DEFAULT_FRAMEWORK,
    calibration: str | Path | None = None,
    *,
    version: str = "",
) -> ServingSite:
    """Hardware record of a cluster with the calibration of a framework.

    `cluster`: its GPU, links and domain. `framework`: one of `FRAMEWORKS`. `calibration`: overlay
    of matmul and collective constants. `version`: of the framework; none is the versions that were
    measured.
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
        hbm_bytes=gpu.process_bytes,
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
        kernels=load_serving_kernels(gpu.architecture),
        software=load_framework(framework, gpu.hbm_bytes, gpu.architecture, version),
    )


@lru_cache(maxsize=1)
def load_checkpoints() -> dict[str, str]:
    """Read the names on the hub of checkpoints that have another model's layers."""
    return {k: str(v) for k, v in read_toml(serving_folder() / "checkpoints.toml").items()}


@lru_cache(maxsize=2)
def load_words(name: str = "names") -> dict[str, dict[str, str]]:
    """Read what people call the engines, or the words of the `lines` that start them."""
    return {k: dict(v) for k, v in read_toml(serving_folder() / f"{name}.toml").items()}


@lru_cache(maxsize=1)
def load_maturity() -> MaturitySpec:
    """Read how long engines take to settle on an architecture, and when each came."""
    return _read(MaturitySpec, "maturity")


def engine_day(engine: str, version: str = "") -> str:
    """ISO day of an engine's version, of the last one before it where it is not listed; "" unknown.

    >>> engine_day("vllm", "0.12"), engine_day("sglang", "0.5.6.post2"), engine_day("llamacpp")
    ('2025-12-03', '2025-12-03', '')
    >>> engine_day("vllm", "2026-02")
    '2026-02'
    """
    from gpuscale.io.software import load_framework as framework_file

    file = framework_file(engine)
    known = sorted((version_key(v), day) for v, day in file.dates.items()) if file else []
    if re.fullmatch(r"20\d\d(-\d\d){1,2}", version):
        return version
    if not version or not known:
        return max((day for _, day in known), default="")
    at = (*version_key(version), 0, 0)
    return next((day for v, day in reversed(known) if v <= at), "")


def older_engine(model: ModelSpec, engine: str) -> str:
    """Version of two years before the newest, or the first that has the architecture; none: ""."""
    from gpuscale.io import software

    file, known = software.load_framework(engine), load_maturity().released
    released = known.get(model.name) or known.get(model.family, "")
    if not file or not file.dates or (not released and needs_kernels(model)):  # newer than all
        return ""
    years = max(years for _, years in software.STACKS)
    oldest = software.years_before(max(file.dates.values()), years)
    since = sorted((day, v) for v, day in file.dates.items() if day >= released)
    return version_at(file.dates, oldest) if released <= oldest else since[0][1] if since else ""


def maturity_of(model: ModelSpec, engine: str, version: str = "") -> EngineMaturity:
    """How new a model's architecture is to a version of an engine."""
    known = load_maturity()
    if {model.name, model.family, engine} & set(known.at_once):
        return SETTLED
    released = known.released.get(model.name) or known.released.get(model.family, "")
    day = released if version == "nightly" else engine_day(engine, version)
    day = f"{day}-15" if len(day) == len("2026-02") else day
    return maturity(model, released, day, Ages(known.first_months, known.settled_months))


def matured(site: ServingSite, found: EngineMaturity) -> ServingSite:
    """Site whose kernels are those of an architecture as new as found."""
    if not found.new:
        return site
    known = load_maturity()
    factor = known.new.get(site.software.name, 1.0)
    factor *= known.first if found.stage == "first" else 1.0
    return replace(site, software=replace(site.software, kernels_factor=factor))


@lru_cache(maxsize=1)
def load_power() -> PowerParameters:
    """Power of a serving GPU over its TDP."""
    table = read_toml(serving_folder() / "power.toml")
    return PowerParameters(**{name: float(table[name]) for name in PowerParameters.__slots__})


@lru_cache(maxsize=1)
def _intervals() -> Mapping[str, Any]:
    return read_toml(serving_folder() / "intervals.toml")


def serving_intervals() -> dict[str, float]:
    """Kind of load and quantity -> half width of ln(value) that holds 80 % of the rows."""
    return {name: float(value["width"]) for name, value in _intervals()["class"].items()}


def measured(engine: str, version: str, architecture: str) -> bool:
    """Whether an engine has rows on an architecture, none of them of a later version.

    >>> measured("vllm", "0.12", "hopper"), measured("vllm", "0.6.3", "hopper")
    (True, False)
    >>> measured("vllm", "", "ampere-geforce"), measured("llamacpp", "", "ampere-geforce")
    (False, True)
    """
    rows = _intervals()["measured"].get(engine, {})
    old = version != "nightly" and version and engine_day(engine, version) < rows["since"]
    return architecture in rows["architectures"] and not old
