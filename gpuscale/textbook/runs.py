"""Runs and their cost: formulas that only the documents ask for."""

from __future__ import annotations

from gpuscale.core.run.energy import energy_j
from gpuscale.core.run.time import SECONDS_PER_HOUR, require_positive


def run_time_s(step_s: float, n_steps: float) -> float:
    """Time of a run. [s].

    Examples
    --------
    >>> run_time_s(0.2, 1e6)
    200000.0
    """
    return step_s * n_steps


def difference(dearer: float, cheaper: float) -> float:
    """Price of the dearer minus that of the cheaper, in their unit.

    Examples
    --------
    >>> difference(200_000, 120_000)
    80000
    """
    return dearer - cheaper


def premium_frac(dearer: float, cheaper: float) -> float:
    """Price difference as a fraction of the cheaper. [1].

    Examples
    --------
    >>> round(premium_frac(200_000, 120_000), 4)
    0.6667
    """
    if cheaper <= 0:
        raise ValueError(f"cheaper must be positive, got {cheaper}")
    return (dearer - cheaper) / cheaper


def saved_frac(slower_s: float, faster_s: float) -> float:
    """Fraction of the slower time that is saved. [1].

    Examples
    --------
    >>> round(saved_frac(0.200, 0.110), 4)
    0.45
    """
    if slower_s <= 0:
        raise ValueError(f"slower_s must be positive, got {slower_s}")
    return (slower_s - faster_s) / slower_s


def break_even_usd_per_hour(premium_usd: float, saved_time_s: float) -> float:
    """Value of an hour of the machine at which the time it saves pays its premium. [USD/h].

    Examples
    --------
    >>> break_even_usd_per_hour(80_000, 9e6)  # 100 runs of 25 h
    32.0
    """
    if saved_time_s <= 0:
        raise ValueError(f"saved_time_s must be positive, got {saved_time_s}")
    return premium_usd / (saved_time_s / SECONDS_PER_HOUR)


def energy_usd(power_w: float, time_s: float, usd_per_kwh: float) -> float:
    """Price of the electricity of a run. [USD].

    Examples
    --------
    >>> round(energy_usd(3200, 110_000, 0.10), 2)
    9.78
    """
    return energy_j(power_w, time_s) / (1e3 * SECONDS_PER_HOUR) * usd_per_kwh


def speed_up(base_s: float, parallel_s: float) -> float:
    """Time on one device over time on many. [1].

    Examples
    --------
    >>> speed_up(0.85, 0.2)
    4.25
    """
    require_positive(parallel_s=parallel_s)
    return base_s / parallel_s


def strong_scaling_efficiency(base_s: float, parallel_s: float, n: float) -> float:
    """Speed-up over the number of devices, the same problem on all. [1].

    Examples
    --------
    >>> strong_scaling_efficiency(0.85, 0.2, 8)
    0.53125
    """
    require_positive(n=n)
    return speed_up(base_s, parallel_s) / n


def part_s(step_s: float, *fractions: float) -> float:
    """Time of those parts of a step that make these fractions of it. [s].

    Examples
    --------
    >>> round(part_s(0.110, 0.40, 0.45), 4)
    0.0935
    """
    return step_s * sum(fractions)


def sync_frequency(accumulation_steps: int) -> float:
    """Gradient synchronisations per micro-step with gradient accumulation. [1].

    Examples
    --------
    >>> sync_frequency(8)
    0.125
    """
    require_positive(accumulation_steps=accumulation_steps)
    return 1 / accumulation_steps
