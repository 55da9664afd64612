"""Loading calibration: architectures and fabrics from presets, and a person's own overlay."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import find_preset
from gpuscale.io.toml import read_toml

if TYPE_CHECKING:
    from gpuscale.core.expected_matmul import ArchCalibration
    from gpuscale.specs.arch import ArchSpec
    from gpuscale.specs.gpu import GpuSpec

GENERAL_ARCH = "general"
"""Preset of an architecture without figures of its own."""


@lru_cache(maxsize=8)
def load_calibration(path: str | Path | None) -> dict[str, Any]:
    """Read an overlay: tables `arch.NAME`, `fabric.NAME`, `site`; {} for None.

    Raises
    ------
    GpuscaleError
        If the file cannot be read or holds other keys.
    """
    if path is None:
        return {}
    table = read_toml(path)
    for key in table:
        if key not in ("arch", "fabric", "site", "made_by", "source"):
            raise GpuscaleError(
                f"{path}: unknown key `{key}`",
                "a calibration file has [arch.NAME], [fabric.NAME] and [site]; "
                "`gpuscale calibrate` writes one",
            )
    return table


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Tables of `over` laid over those of `base`, key by key."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        out[key] = merged(out[key], value) if both else value
    return out


def overlay_of(kind: str, name: str, calibration: str | Path | None) -> dict[str, Any]:
    """Part of an overlay for one preset of a kind ("arch", "fabric")."""
    tables = load_calibration(calibration).get(kind, {})
    if not isinstance(tables, dict) or not isinstance(tables.get(name, {}), dict):
        raise GpuscaleError(f"{calibration}: [{kind}.{name}] must be a table")
    return dict(tables.get(name, {}))


def load_arch(gpu: GpuSpec | str, calibration: str | Path | None = None) -> ArchCalibration:
    """Calibration of a GPU's architecture; the nearest or the general one where there is none.

    Parameters
    ----------
    gpu : GpuSpec or str
        A GPU, or the name of its architecture.
    calibration : path, optional
        Overlay file (`--calibration`).

    Examples
    --------
    >>> load_arch("hopper").for_dtype("bf16").compute_eff_frac > 0.5
    True
    """
    return _load_arch(gpu if isinstance(gpu, str) else gpu.architecture, calibration)


@lru_cache(maxsize=64)
def _load_arch(name: str, calibration: str | Path | None) -> ArchCalibration:
    return arch_spec(name, calibration).to_core()


def arch_spec(name: str, calibration: str | Path | None = None) -> ArchSpec:
    """Spec of an architecture with its `nearest` one's tables and the overlay merged in."""
    import pydantic

    from gpuscale.io.spec_errors import spec_error
    from gpuscale.specs.arch import ArchSpec

    table = merged(_arch_table(name, 0), overlay_of("arch", name, calibration))
    table["name"] = name
    try:
        return ArchSpec.model_validate(table)
    except pydantic.ValidationError as error:
        raise spec_error(f"architecture {name}", error, list(ArchSpec.model_fields)) from None


def _arch_table(name: str, depth: int) -> dict[str, Any]:
    path = find_preset("arch", name) or find_preset("arch", GENERAL_ARCH)
    if path is None:
        return {"name": name}
    table = read_toml(path)
    nearest = str(table.get("nearest", ""))
    if nearest and depth < 4:
        return merged(_arch_table(nearest, depth + 1), table)
    return table
