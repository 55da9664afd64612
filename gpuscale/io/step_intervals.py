"""Widths of the stated intervals of step times, from `presets/train/intervals.toml`."""

from __future__ import annotations

from functools import lru_cache

from gpuscale.io.step_calibration import train_folder
from gpuscale.io.toml import read_toml


@lru_cache(maxsize=1)
def interval_widths() -> dict[str, float]:
    """Class -> half width of ln(time) that holds 80 % of the validation rows of the class."""
    table = read_toml(train_folder() / "intervals.toml")
    return {name: float(value["width"]) for name, value in table["class"].items()}
