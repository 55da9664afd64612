"""Widths of the stated intervals of step times and of memory, and of verdicts (`presets/train`)."""

from __future__ import annotations

from functools import lru_cache

from gpuscale.core.verdict import Spread
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


@lru_cache(maxsize=1)
def spread() -> Spread:
    """Widths of verdicts."""
    table = read_toml(train_folder() / "verdicts.toml")
    far = {name: float(value["width"]) for name, value in table["distance"].items()}
    odd = table["odd"]
    return Spread(
        bias=float(table["bias"]["value"]),
        floor=float(table["floor"]["width"]),
        distance=far,
        odd_open=float(odd["open"]),
        odd_said=float(odd["said"]),
        odd_bias=float(odd["bias"]),
        odd_width=float(odd["width"]),
    )


def one_peak(peak_bytes: float, usable_bytes: float, family_factor_80: float = 1.0) -> float:
    """Probability that a job fits whose settings are all said. [1].

    >>> one_peak(60e9, 85e9) > 0.9 > one_peak(84e9, 85e9)
    True
    """
    how = spread()
    width = how.width(family_factor_80)
    return how.chance([(1.0, peak_bytes)], usable_bytes, width, settled=True)
