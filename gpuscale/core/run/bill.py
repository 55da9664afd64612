"""Power, energy, carbon and money of anything that has a duration or a rate; all commands call it.

Renting or owning, capital recovery: Short, Packey and Holt 1995, NREL/TP-462-5173.

.. [1] Measured node power: MLPerf Training v4.1 and v5.0 power logs, see `presets/power`.
.. [2] GHG Protocol, scope 2: location-based and market-based figures.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Fraction, Pue, Share, Usd, UsdPerKwh, Watts, Within
from gpuscale.core.records import dataclass, replace
from gpuscale.core.run.time import SECONDS_PER_HOUR, gpu_hours

W_PER_KW = 1e3
MILLION = 1e6

HOURS_PER_YEAR = 8760.0
MONTHS_PER_YEAR = 12.0


@dataclass(frozen=True, slots=True)
class Owned:
    """An owned cluster as `--own FILE` says it; None: told by a table or the site, else refused."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT
    node_usd: Usd | None = None  # of one node
    network_usd: Usd = 0.0  # switches, cables, optics, all of them
    facility_usd: Usd = 0.0  # building, cooling, storage
    residual_usd: Usd = 0.0  # at the end, all of it
    life_years: Annotated[float, Within(0, 50, above=True)] = 4.0
    interest: Share = 0.0  # per year
    utilisation: Fraction = 0.8  # of all hours that are used
    node_power_w: Watts | None = None  # mean draw of one node
    pue: Pue | None = None
    usd_per_kwh: UsdPerKwh | None = None
    colocation_usd_per_kw_month: Usd = 0.0
    staff_usd_per_year: Usd = 0.0
    maintenance: Share = 0.0  # of the capital, per year


@dataclass(frozen=True, slots=True)
class OwnCost:
    """Price of an owned GPU-hour by part; the parts add up. [USD per used GPU-hour]."""

    capital_usd: float
    energy_usd: float
    colocation_usd: float
    staff_usd: float
    maintenance_usd: float
    total_usd_per_gpu_hour: float


def capital_recovery_frac(interest_frac: float, years: float) -> float:
    """Yearly payment per dollar borrowed, ``i (1+i)^n / ((1+i)^n - 1)``; 1/n without interest. [1].

    >>> round(capital_recovery_frac(0.08, 4), 4), capital_recovery_frac(0.0, 4)
    (0.3019, 0.25)
    """
    if interest_frac == 0:
        return 1 / years
    growth = float((1 + interest_frac) ** years)
    return interest_frac * growth / (growth - 1)


def own_cost(owned: Owned, n_gpus: int, gpus_per_node: int) -> OwnCost:
    """Price of a used GPU-hour of an owned cluster.

    `owned`: what is None costs nothing. `n_gpus`: all of them [1].

    ``(CRF * capital - residual annuity + power * PUE * e * 8760 + colo * kW * 12 + staff +
    maintenance) / (8760 * GPUs * utilisation)``

    >>> cluster = Owned(310e3, network_usd=4.35e6, node_power_w=8e3, usd_per_kwh=0.1, pue=1.3)
    >>> round(own_cost(cluster, 1024, 8).total_usd_per_gpu_hour, 2)
    1.7
    """
    o, nodes = owned, n_gpus / gpus_per_node
    capital_usd = nodes * (o.node_usd or 0.0) + o.network_usd + o.facility_usd
    power_w = nodes * (o.node_power_w or 0.0)
    factor = capital_recovery_frac(o.interest, o.life_years)
    growth = (1 + o.interest) ** o.life_years
    yearly = capital_usd * factor - o.residual_usd * factor / growth
    kw = power_w * (o.pue or 1.0) / W_PER_KW
    hours = HOURS_PER_YEAR * n_gpus * o.utilisation
    parts = (
        yearly / hours,
        kw * HOURS_PER_YEAR * (o.usd_per_kwh or 0.0) / hours,
        power_w / W_PER_KW * o.colocation_usd_per_kw_month * MONTHS_PER_YEAR / hours,
        o.staff_usd_per_year / hours,
        capital_usd * o.maintenance / hours,
    )
    return OwnCost(*parts, math.fsum(parts))


def break_even_utilisation(
    owned: Owned, n_gpus: int, gpus_per_node: int, rent_usd_per_gpu_hour: float
) -> float:
    """Share of the hours to be used for owning to cost as much as renting; may exceed 1. [1].

    >>> cluster = Owned(310e3, node_power_w=8e3, usd_per_kwh=0.1, pue=1.3)
    >>> round(break_even_utilisation(cluster, 1024, 8, 2.5), 2)
    0.49
    """
    always = own_cost(replace(owned, utilisation=1.0), n_gpus, gpus_per_node)
    return always.total_usd_per_gpu_hour / rent_usd_per_gpu_hour


def usd_per_million_tokens(usd_per_gpu_hour: float, n_gpus: float, tokens_per_s: float) -> float:
    """Price of a million tokens at a rate. [USD].

    ``p G / (rate * 3600) * 1e6``

    >>> round(usd_per_million_tokens(2.30, 96, 288e3), 2)  # Kimi K2 on 96 H200: 0.21
    0.21
    """
    return usd_per_gpu_hour * n_gpus / (tokens_per_s * SECONDS_PER_HOUR) * MILLION


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
