"""How far measured peaks lie from predicted ones, from `presets/train/verdicts.toml`."""

from __future__ import annotations

from functools import lru_cache

from gpuscale.core.verdict import Spread
from gpuscale.io.step_calibration import train_folder
from gpuscale.io.toml import read_toml


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
