"""Renting or owning: price of a GPU-hour, break-even, price of tokens.

Capital recovery: Short, Packey and Holt 1995, NREL/TP-462-5173.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpuscale.core.run.time import SECONDS_PER_HOUR

W_PER_KW = 1e3
MILLION = 1e6

HOURS_PER_YEAR = 8760.0
MONTHS_PER_YEAR = 12.0


@dataclass(frozen=True, slots=True)
class Owned:
    """What owning a cluster costs; every figure is an input, none is hidden."""

    n_gpus: int
    node_usd: float  # of one node
    gpus_per_node: int
    node_power_w: float  # mean draw of one node
    life_years: float
    utilisation_frac: float  # of all hours that are used
    network_usd: float = 0.0  # switches, cables, optics, all of them
    facility_usd: float = 0.0  # building, cooling, storage
    interest_frac: float = 0.0  # per year
    residual_usd: float = 0.0  # at the end, all of it
    pue: float = 1.0
    usd_per_kwh: float = 0.0
    colocation_usd_per_kw_month: float = 0.0
    staff_usd_per_year: float = 0.0
    maintenance_frac: float = 0.0  # of the capital, per year

    @property
    def capital_usd(self) -> float:
        """Price of everything bought. [USD]."""
        nodes = self.n_gpus / self.gpus_per_node
        return nodes * self.node_usd + self.network_usd + self.facility_usd

    @property
    def power_w(self) -> float:
        """Draw of the nodes, before the site's overhead. [W]."""
        return self.n_gpus / self.gpus_per_node * self.node_power_w


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


def own_cost(owned: Owned) -> OwnCost:
    """Price of a used GPU-hour of an owned cluster.

    ``(CRF * capital - residual annuity + power * PUE * e * 8760 + colo * kW * 12 + staff +
    maintenance) / (8760 * GPUs * utilisation)``

    >>> cluster = Owned(1024, 310e3, 8, 8e3, 4, 0.8, network_usd=4.35e6, usd_per_kwh=0.1, pue=1.3)
    >>> round(own_cost(cluster).total_usd_per_gpu_hour, 2)
    1.7
    """
    o = owned
    factor = capital_recovery_frac(o.interest_frac, o.life_years)
    growth = (1 + o.interest_frac) ** o.life_years
    yearly = o.capital_usd * factor - o.residual_usd * factor / growth
    kw = o.power_w * o.pue / W_PER_KW
    hours = HOURS_PER_YEAR * o.n_gpus * o.utilisation_frac
    parts = (
        yearly / hours,
        kw * HOURS_PER_YEAR * o.usd_per_kwh / hours,
        o.power_w / W_PER_KW * o.colocation_usd_per_kw_month * MONTHS_PER_YEAR / hours,
        o.staff_usd_per_year / hours,
        o.capital_usd * o.maintenance_frac / hours,
    )
    return OwnCost(*parts, math.fsum(parts))


def break_even_utilisation(owned: Owned, rent_usd_per_gpu_hour: float) -> float:
    """Share of the hours to be used for owning to cost as much as renting; may exceed 1. [1].

    >>> cluster = Owned(1024, 310e3, 8, 8e3, 4, 0.8, usd_per_kwh=0.1, pue=1.3)
    >>> round(break_even_utilisation(cluster, 2.5), 2)
    0.49
    """
    always = own_cost(replace(owned, utilisation_frac=1.0)).total_usd_per_gpu_hour
    return always / rent_usd_per_gpu_hour


def usd_per_million_tokens(usd_per_gpu_hour: float, n_gpus: float, tokens_per_s: float) -> float:
    """Price of a million tokens at a rate. [USD].

    ``p G / (rate * 3600) * 1e6``

    >>> round(usd_per_million_tokens(2.30, 96, 288e3), 2)  # Kimi K2 on 96 H200: 0.21
    0.21
    """
    return usd_per_gpu_hour * n_gpus / (tokens_per_s * SECONDS_PER_HOUR) * MILLION
