"""The fitted parameters of the step model, flat: `arch.hopper.gemm_bf16_eff` and so on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.io.presets import shipped
from gpuscale.io.toml import read_toml
from gpuscale.specs.software import FittedValue

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
    for prefix, file in FILES.items():
        yield from _tables(prefix, read_toml(train_folder() / file))


def _tables(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, FittedValue]]:
    for key, value in table.items():
        if not isinstance(value, dict):
            continue
        if "value" in value:
            yield f"{prefix}.{key}", FittedValue.model_validate(value)
        else:
            yield from _tables(f"{prefix}.{key}", value)


@lru_cache(maxsize=1)
def load_calibration() -> Calibration:
    """Return the shipped parameters of kernels, architectures and fabrics."""
    return Calibration({path: table.value for path, table in calibrated_tables()})
