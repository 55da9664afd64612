"""Power, energy and carbon of a run.

References
----------
.. [1] Measured node power: MLPerf Training v4.1 and v5.0 power logs, see `presets/power`.
.. [2] GHG Protocol, scope 2: location-based and market-based figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.core.run.time import SECONDS_PER_HOUR

J_PER_KWH = 3.6e6
G_PER_KWH_OF_KG_PER_J = 1e-3 / J_PER_KWH


def power_w(
    n_gpus: float, gpu_power_w: float, host_power_w: float = 0.0, pue: float = 1.0
) -> float:
    """Power of the GPUs and their hosts, with the data centre's overhead. [W].

    `n_gpus`: GPUs [1]. `gpu_power_w`: power of one GPU; its TDP is the upper bound [W].
    `host_power_w`: CPUs, switches, NICs and fans of all hosts together [W]. `pue`: power usage
    effectiveness of the site, 1 or more [1].
    """
    if pue < 1:
        raise ValueError(f"pue must be at least 1, got {pue}")
    return (n_gpus * gpu_power_w + host_power_w) * pue


def mean_power_w(work_w: float, idle_w: float, work_frac: float) -> float:
    """Power over a run that works `work_frac` of the time and idles the rest. [W]."""
    return work_w * work_frac + idle_w * (1 - work_frac)


@dataclass(frozen=True, slots=True)
class Site:
    """Where the machines stand."""

    name: str
    grid_g_per_kwh: float  # CO2e of the electricity, location-based
    pue: float
    usd_per_kwh: float | None = None
    market_g_per_kwh: float | None = None  # by contracts, as a second line
    source: str = ""


def carbon_kg(energy_j: float, g_per_kwh: float) -> float:
    """CO2e of electricity. [kg].

    >>> round(carbon_kg(433.2e3 * 3.6e6, 57) / 1e3, 1)  # BLOOM, arXiv:2211.02001: 24.7 t
    24.7
    """
    return energy_j * g_per_kwh * G_PER_KWH_OF_KG_PER_J


def embodied_kg(
    gpu_hours: float, kg_per_gpu: float, life_s: float, utilisation_frac: float
) -> float:
    """Share of the making of the machines, by the hours used of those of their life. [kg].

    >>> round(embodied_kg(1e6, 164, 4 * 365.25 * 86400, 0.8))
    5846
    """
    return kg_per_gpu * gpu_hours / (life_s / SECONDS_PER_HOUR * utilisation_frac)
