"""Renting or owning: price of a GPU-hour, break-even, price of tokens.

Capital recovery: Short, Packey and Holt 1995, NREL/TP-462-5173.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Fraction, Pue, Share, Usd, UsdPerKwh, Watts, Within
from gpuscale.core.dataclasses import dataclass, replace
from gpuscale.core.run.time import SECONDS_PER_HOUR

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
