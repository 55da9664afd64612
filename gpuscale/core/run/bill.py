"""Power, energy, carbon and money of anything that has a duration or a rate; all commands call it.

.. [1] Measured node power: MLPerf Training v4.1 and v5.0 power logs, see `presets/power`.
.. [2] GHG Protocol, scope 2: location-based and market-based figures.
"""

from __future__ import annotations

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.run.ownership import OwnCost, usd_per_million_tokens
from gpuscale.core.run.time import SECONDS_PER_HOUR, gpu_hours

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


@dataclass(frozen=True, slots=True)
class Rate:
    """Price of a GPU-hour: the one taken, and the range of the offers it was taken from."""

    usd_per_gpu_hour: float
    low_usd: float
    high_usd: float
    kind: str  # given, preset, on-demand, spot, own
    origin: str = ""
    as_of: str = ""
    age_days: int | None = None


@dataclass(frozen=True, slots=True)
class Draw:
    """Power of a node of a kind, and how far published readings are from it."""

    work_w: float  # of one node at work, AC input
    idle_w: float
    low_frac: float  # measured over expected, lowest and highest of the kind
    high_frac: float
    gpus_per_node: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class Charge:
    """Money, energy and carbon of a duration."""

    gpu_hours: float
    usd: float | None
    usd_low: float | None
    usd_high: float | None
    usd_per_million_tokens: float | None
    power_w: float | None  # at the meter, PUE counted
    energy_j: float | None
    energy_low_j: float | None
    energy_high_j: float | None
    energy_usd: float | None  # of the electricity alone; part of an owned price
    carbon_kg: float | None  # location-based
    carbon_market_kg: float | None
    embodied_kg: float | None


@dataclass(frozen=True, slots=True)
class Making:
    """Carbon of making a GPU's share of a node, and over what it is spread."""

    kg_per_gpu: float
    life_s: float
    utilisation_frac: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class Bill:
    """What a duration costs: all inputs beside the sums."""

    rate: Rate | None
    charge: Charge
    site: Site | None
    draw: Draw | None
    own: OwnCost | None = None  # of a GPU-hour of the cluster that is owned
    rent: Rate | None = None  # offers beside an owned cluster
    break_even_utilisation: float | None = None  # above 1: renting is always cheaper


def charge(
    time_s: float,
    n_gpus: float,
    rate: Rate | None = None,
    draw: Draw | None = None,
    site: Site | None = None,
    work_frac: float = 1.0,
    tokens: float | None = None,
    making: Making | None = None,
) -> Charge:
    """Bill of `time_s` on `n_gpus`; what is not known is None.

    `time_s`: elapsed time, failures and waits included [s]. `n_gpus`: GPUs held, spares included
    [1]. `rate`: price of a GPU-hour. `draw`: power of a node. `site`: PUE, carbon of the grid,
    price of electricity. `work_frac`: of the time at work; the rest draws the idle power [1].
    `tokens`: tokens that the time makes. `making`: for embodied carbon.

    >>> site = Site("us", 369.473, 1.09)
    >>> node = Draw(8 * 700.0, 0.0, 1.0, 1.0, 8)  # the card's own accounting: GPU TDP alone
    >>> run = charge(30.84e6 / 16384 * 3600, 16384, None, node, site)
    >>> round(run.carbon_kg / 1e3)  # Llama 3.1 405B: 8930 t printed
    8694
    """
    hours = gpu_hours(n_gpus, time_s)
    usd = usd_low = usd_high = None
    if rate is not None:
        usd = hours * rate.usd_per_gpu_hour
        usd_low, usd_high = hours * rate.low_usd, hours * rate.high_usd
    per_million = None
    if rate is not None and tokens and time_s > 0:
        per_million = usd_per_million_tokens(rate.usd_per_gpu_hour, n_gpus, tokens / time_s)
    joule = joule_low = joule_high = meter_w = paid = carbon = market = None
    if draw is not None:
        node_w = mean_power_w(draw.work_w, draw.idle_w, work_frac)
        meter_w = n_gpus / draw.gpus_per_node * node_w * (site.pue if site else 1.0)
        joule = meter_w * time_s
        joule_low, joule_high = joule * draw.low_frac, joule * draw.high_frac
        if site is not None:
            carbon = carbon_kg(joule, site.grid_g_per_kwh)
            if site.market_g_per_kwh is not None:
                market = carbon_kg(joule, site.market_g_per_kwh)
            if site.usd_per_kwh is not None:
                paid = joule / J_PER_KWH * site.usd_per_kwh
    made = None
    if making is not None:
        made = embodied_kg(hours, making.kg_per_gpu, making.life_s, making.utilisation_frac)
    return Charge(
        gpu_hours=hours,
        usd=usd,
        usd_low=usd_low,
        usd_high=usd_high,
        usd_per_million_tokens=per_million,
        power_w=meter_w,
        energy_j=joule,
        energy_low_j=joule_low,
        energy_high_j=joule_high,
        energy_usd=paid,
        carbon_kg=carbon,
        carbon_market_kg=market,
        embodied_kg=made,
    )
