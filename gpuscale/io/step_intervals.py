"""Widths of the stated intervals of step times and of memory, from `presets/train`."""

from __future__ import annotations

from functools import lru_cache

from gpuscale.io.step_calibration import train_folder
from gpuscale.io.toml import Table, read_toml


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
