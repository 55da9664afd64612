"""Framework families: loaded, habits of a version filling blanks, the flat record of the step."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuscale.core.formats import number_format
from gpuscale.core.habits import ANY, Capabilities, Habit, Refusal, habits_of, version_at
from gpuscale.core.layout import DEFAULT_CONTEXT, Layout
from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.records import fields, replace
from gpuscale.core.step.records import Software
from gpuscale.errors import GpuscaleError
from gpuscale.io.calibration import merged
from gpuscale.io.presets import checked, find_preset, looks_like_path, preset_aliases, preset_path
from gpuscale.io.text import Table, read_toml
from gpuscale.specs.software import FrameworkFile, SoftwareSpec

if TYPE_CHECKING:
    from gpuscale.io.step import Calibration


_DATE = r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?"
_VERSION = r"(?i)v?\d+(\.\d+)*([.-]?(a|b|rc|post|dev)\.?\d+)*"


class Named(NamedTuple):
    """A software or engine as a person names it."""

    name: str
    version: str = ""  # or a date, 2025-06 or 2025-06-30


def named(arg: str) -> Named:
    """Read ``NAME[:VERSION]``.

    Raises GpuscaleError for what is neither a version nor a date.

    >>> named("trl:0.24"), named("vllm:2025-06").version, named("./own.toml").name
    (Named(name='trl', version='0.24'), '2025-06', './own.toml')
    """
    name, colon, version = arg.rpartition(":")
    if not colon or looks_like_path(arg):
        return Named(arg)
    if not (re.fullmatch(_DATE, version) or re.fullmatch(_VERSION, version)) or not name:
        raise GpuscaleError(
            f"`{arg[:80]}`: neither a version nor a date behind the colon",
            f"for example {name[:40] or 'trl'}:0.24 or {name[:40] or 'trl'}:2025-06",
        )
    return Named(name, version.removeprefix("v"))


def load_framework(name: str) -> FrameworkFile | None:
    """File of a framework by its name or that of its software preset; None where there is none."""
    other = preset_aliases("software").get(name.strip().lower(), "")
    path = find_preset("framework", name) or (find_preset("framework", other) if other else None)
    return _read(path, path.stat().st_mtime_ns) if path else None


@lru_cache(maxsize=64)
def _read(path: Path, _stamp: int) -> FrameworkFile:
    return checked(FrameworkFile, read_toml(path), str(path))


def framework_habits(arg: str, facts: Mapping[str, str]) -> dict[str, Habit]:
    """Field -> habit of ``NAME[:VERSION]``, those of what the framework is like below its own.

    Raises GpuscaleError where a version, and no date, is named of a framework whose versions are
    not known.
    """
    name, version = named(arg)
    own = None if looks_like_path(name) else _with_habits(name)
    if own is None and version and not re.fullmatch(_DATE, version):
        raise GpuscaleError(
            f"what {name[:60]} does by version is not known here", f"--software {name[:60]}"
        )
    if own is None:
        return {}
    day = day_of(arg)
    at = version_at(own.dates, version) if re.fullmatch(_DATE, version) else version
    base = framework_habits(f"{own.like}:{day}" if day else own.like, facts) if own.like else {}
    inherited = {k: replace(h, note=h.note or f"from {own.like}") for k, h in base.items()}
    return {**inherited, **habits_of(own.habit, facts, at)}


def _with_habits(name: str) -> FrameworkFile | None:
    """File with the habits of a name: its own, or its engine's where it is a dialect alone."""
    other = preset_aliases("software").get(name.strip().lower(), "")
    found = (load_framework(n) for n in (name, other) if n)
    return next((own for own in found if own and (own.habit or own.like)), None)


def without_dates(arg: str) -> list[str]:
    """Say that the date of ``NAME:DATE`` changes nothing, where no versions of it are known."""
    found = named(arg) if "," not in arg else Named("")
    if not found.version or _with_habits(found.name):
        return []
    what, then = found.name[:60], found.version
    return [f"what {what} did in {then} is not known here: it is taken as it is today"]


def day_of(arg: str) -> str:
    """Day of the version that ``NAME[:VERSION]`` names; empty where none is, or it is not known."""
    name, version = named(arg)
    own = load_framework(name)
    return version if re.fullmatch(_DATE, version) else own.dates.get(version, "") if own else ""


STACKS = ((0.25, 1), (0.15, 2))
"""Share of jobs whose stack is so many years old, where no version is said: prior."""


def years_before(day: str, years: int) -> str:
    """Month so many years before an ISO day."""
    return f"{int(day[:4]) - years}{day[4:7]}"


def older_ways(arg: str, facts: Mapping[str, str]) -> dict[str, tuple[float, dict[str, str]]]:
    """Older stack -> share of jobs, what it has otherwise; none where ``arg`` has a version."""
    name, version = named(arg)
    own = None if version or looks_like_path(name) else load_framework(name)
    newest = max(own.dates.values(), default="") if own else ""
    found: dict[str, tuple[float, dict[str, str]]] = {}
    now = framework_habits(name, facts) if newest else {}
    for share, years in STACKS if newest else ():
        stack = f"{name}:{years_before(newest, years)}"
        then = framework_habits(stack, facts)
        other = {f: str(h.value) for f, h in then.items() if f in now and h.value != now[f].value}
        if other:
            found[stack] = (share, other)
    return found


DEFAULT_SOFTWARE = "megatron-core"
ANY_SOFTWARE = "any"
PRETRAIN = "pretrain"
"""Method of a habit that is of pre-training alone."""
FUSED_EXPERTS = ("blackwell", "blackwell-ultra")
"""Architectures whose grouped products, SwiGLU and casts are one kernel, in formats with scales of
blocks: elsewhere the kernels of 2026b are those of before (no row of Hopper gained)."""
FLASH_FACTORS = {"1": "flash1_factor", "2": "flash2_factor"}
"""Parameter of an architecture for each generation of FlashAttention; the best kernel is 1."""


FIELDS = {f.name for f in fields(SoftwareSpec)}


def load_software(arg: str = DEFAULT_SOFTWARE) -> SoftwareSpec:
    """Framework family by preset name or TOML path; ``any``: the default's numbers, no rules.

    A version behind a colon chooses habits (`io.frameworks`), not another family; those of
    pre-training are the family's own fields.

    Raises GpuscaleError for an unknown name (with the closest one), or a file that cannot be read
    or understood.
    """
    if arg == ANY_SOFTWARE:
        return load_software().model_copy(update={"capabilities": "", "refuses": ()})
    own = named(arg)
    path = Path(arg) if looks_like_path(arg) else preset_path("software", own.name)
    spec = _load(path, path.stat().st_mtime_ns if os.path.exists(path) else 0)
    if not own.version:
        return spec
    then = framework_habits(arg, {"method": PRETRAIN})  # raises where its versions are not known
    known = {k: h.value for k, h in then.items() if h.when and k in FIELDS}
    return spec.model_copy(update=known)


def usual_software(*clusters: str, catalogue: str | None = None) -> str:
    """Name the family taken where none is named: JAX where all the machines are TPUs.

    `clusters`: as `load_cluster` takes them. Raises GpuscaleError as that does.

    >>> usual_software("tpu-v6e"), usual_software("dgx-h100", "tpu-v6e")
    ('jax', 'megatron-core')
    """
    from gpuscale.io.hardware import load_cluster

    read = (c for c in clusters if c not in ("-", "auto"))
    kinds = {load_cluster(c, catalogue or "vendor").kind for c in read}
    return "jax" if kinds == {"tpu-pod"} else DEFAULT_SOFTWARE


def capabilities_of(spec: SoftwareSpec) -> Capabilities:
    """Make the record of what a family can run, as the rules of a layout take it.

    Raises GpuscaleError if the family names another one that has none.
    """
    found = spec.capabilities
    if isinstance(found, str) and found:
        found = load_software(found).capabilities
        if isinstance(found, str):
            raise GpuscaleError(f"software {spec.name}: {spec.capabilities} has no capabilities")
    if isinstance(found, str):
        return ANY
    rows = (*found.refused, *(row for name in spec.refuses for row in _refused(name)))
    per_op = spec.memory.selective_per_op
    return replace(found, name=spec.name, selective_per_op=per_op, refused=rows)


@cache
def _refused(name: str) -> tuple[Refusal, ...]:
    """Rows of one table of `data/refused.toml`."""
    from gpuscale.meant import packaged

    return tuple(Refusal(**row) for row in packaged("refused.toml")[name])


def split_by(spec: SoftwareSpec, *, adapters: bool) -> SoftwareSpec:
    """Family as it trains adapters or all weights: some split a model for the latter alone."""
    soft = capabilities_of(spec)
    if not adapters or soft.adapters_split:
        return spec
    told = {**soft.sources, "tensor_parallel": soft.sources["adapters_split"]}
    return spec.model_copy(
        update={"capabilities": replace(soft, tensor_parallel=False, sources=told)}
    )


def _table(path: Path, above: tuple[str, ...] = ()) -> Table:
    """Table of a family; with `like` on top of another preset's, table by table.

    `above`: presets that are like this one. Raises GpuscaleError for a `like` that names no preset,
    or one that is like this.
    """
    own = read_toml(path)
    like = own.pop("like", None)
    if like is None:
        return own
    if like in above:
        raise GpuscaleError(f"{path}: like = {like!r}: a circle of presets that are like others")
    base = _table(preset_path("software", str(like)), (*above, str(like)))
    if isinstance(base.get("capabilities"), dict) and "capabilities" not in own:
        base["capabilities"] = str(like)
    return merged(base, own)


@lru_cache(maxsize=64)
def _load(path: Path, _stamp: int) -> SoftwareSpec:
    spec = checked(SoftwareSpec, _table(path), str(path))
    if not (rl := {key: value for key, value in spec.rl.items() if key != "sources"}):
        return spec.model_copy(update={"rl": {}})
    from gpuscale.core.finetune.rl_step import RlCosts

    made = checked(RlCosts, rl, f"{path}: [rl]")
    return spec.model_copy(update={"rl": {key: getattr(made, key) for key in rl}})


def _kernels(generation: str, architecture: str, precision: str) -> str:
    """Find the generation of the experts' kernels on an architecture, in a format."""
    fused = architecture in FUSED_EXPERTS and number_format(precision).block_scaled
    return "2026a" if generation == "2026b" and not fused else generation


def software_record(
    spec: SoftwareSpec,
    architecture: str,
    options: Mapping[str, object] | None = None,
    *,
    precision: str = "bf16",
    calibration: Calibration | None = None,
    gpu: str = "",
) -> Software:
    """Make the flat record of a family for one architecture, with a run's own settings.

    `spec`: the family. `architecture`: of the GPU; decides how far FlashAttention 1 and 2 are
    behind the best kernel. `options`: what a run sets itself, as
    `core.settings.JobSettings.options` says it: fields of `Software`, and `flash_generation`; other
    keys are of no concern here. `precision`: of the linear layers; fp16 runs of some families
    reduce gradients in 2 bytes. `calibration`: fitted parameters; default: those shipped. `gpu`:
    name of the GPU, which may have parameters of its own.
    """
    from gpuscale.io.step import load_calibration

    cal = calibration or load_calibration()
    chosen: Table = dict(options or {})
    kernels = _kernels(str(chosen.get("moe_kernels", spec.moe_kernels)), architecture, precision)
    fitted = {
        name: cal.get(f"software.{spec.name}.{name}", table.value)
        for name, table in spec.calibration.items()
    }
    usual = "best" if architecture in spec.flash_best_on else spec.flash_generation
    kernel = FLASH_FACTORS.get(str(chosen.get("flash_generation", usual)))
    flash = cal.arch(architecture, kernel, gpu) if kernel else 1.0
    gradients = spec.gradient_bytes
    if precision == "fp16" and spec.gradient_bytes_fp16 is not None:
        gradients = spec.gradient_bytes_fp16
    own = {f.name for f in fields(Software)}
    shared = own & FIELDS - {"maturity"}
    values: Table = {name: getattr(spec, name) for name in shared} | {
        "attention": spec.attention_on(architecture),
        "flash_factor": flash,
        "gradient_bytes": gradients,
        "fused_cross_entropy": spec.fused_cross_entropy or spec.loss == "fused",
        "selective_per_op": spec.memory.selective_per_op,
        "host_tp_factor": cal["kernels.host_tp_factor"],
        "moe_kernels": kernels,
        "grouped_factor": cal.get(f"kernels.moe_grouped_{kernels}", 1.0),
        "dispatch_factor": cal.get(f"kernels.moe_dispatch_{kernels}", 1.0),
        "kept": parameters_of(spec, options, architecture),
        "dp_network_exposed_frac": fitted["dp_exposed_frac"],
    }
    values |= fitted
    values |= {name: value for name, value in chosen.items() if name in own}
    return Software(**values)


def ranks_of(said: Mapping[str, Any], n_gpus: int, named: str = "--gpus {n_gpus}") -> int:
    """Data-parallel ranks of so many GPUs. [1].

    `said`: fields of a layout. `named`: what to call the GPUs. Raises GpuscaleError if the other
    degrees do not divide them.
    """
    split = (said.get("tp") or 1) * (said.get("pp") or 1) * (said.get("cp") or 1)
    if n_gpus % split:
        raise GpuscaleError(
            f"{named.format(n_gpus=n_gpus)} is no multiple of tp*pp*cp = {split}",
            f"{max(1, n_gpus // split) * split} would be",
        )
    return n_gpus // split


def settle(said: Mapping[str, Any], software: SoftwareSpec) -> Layout:
    """Layout of what is said of its fields; None is a blank.

    `software`: whose habits fill ZeRO stage, sequence parallelism, recomputation and the kind of
    context parallelism; other blanks are the defaults of `Layout`.
    """
    habits = {
        "zero_stage": software.zero_stage,
        "sequence_parallel": software.sequence_parallel,
        "recompute": software.recompute,
        "cp_kind": (capabilities_of(software).cp_kinds or (DEFAULT_CONTEXT,))[0],
    }
    whole = habits | {name: value for name, value in said.items() if value is not None}
    whole["sequence_parallel"] = whole["sequence_parallel"] and whole.get("tp", 1) > 1
    return Layout(**whole)
