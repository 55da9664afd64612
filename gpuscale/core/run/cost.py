"""Money, and when a dearer machine pays back."""

from __future__ import annotations

from gpuscale.core.run.time import SECONDS_PER_HOUR


def run_time_s(step_s: float, n_steps: float) -> float:
    """Time of a run. [s].

    Examples
    --------
    >>> run_time_s(0.2, 1e6)
    200000.0
    """
    return step_s * n_steps


def rental_usd(n_gpus: float, time_s: float, usd_per_gpu_hour: float) -> float:
    """Price of renting GPUs. [USD].

    Examples
    --------
    >>> rental_usd(8, 3600, 2.5)
    20.0
    """
    return n_gpus * time_s / SECONDS_PER_HOUR * usd_per_gpu_hour


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


def saved_s(slower_step_s: float, faster_step_s: float, n_steps: float) -> float:
    """Time saved by a faster step. [s].

    Examples
    --------
    >>> round(saved_s(0.200, 0.110, 1e6))
    90000
    """
    return run_time_s(slower_step_s, n_steps) - run_time_s(faster_step_s, n_steps)


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


def break_even_runs(premium_usd: float, saved_usd_per_run: float) -> float:
    """Count the runs whose savings together pay the premium. [1].

    Examples
    --------
    >>> break_even_runs(80_000, 8.0)
    10000.0
    """
    if saved_usd_per_run <= 0:
        raise ValueError(f"saved_usd_per_run must be positive, got {saved_usd_per_run}")
    return premium_usd / saved_usd_per_run
