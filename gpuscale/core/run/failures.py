"""How often a job is stopped, and how many spare machines to keep.

Spares of Poisson demand in a repair time: Palm 1938; Sherbrooke 2004, chapter 2.
"""

from __future__ import annotations

import math

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.run.time import SECONDS_PER_DAY

GPUS_PER_NODE = 8
"""GPUs of the machines that published rates count; other machines are scaled by their GPUs."""

SECONDS_PER_MONTH = 365.25 / 12 * SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Fleet:
    """Failure rate of a fleet of 8-GPU machines, with the range of published fleets."""

    name: str
    per_node_day: float  # events per machine and day that stop a job
    low_per_node_day: float
    high_per_node_day: float
    source: str = ""


def mtbf_s(n_gpus: float, per_node_day: float, other_per_s: float = 0.0) -> float:
    """Mean time between stops of a job over all its machines.

    ``M = 1 / (n_gpus / 8 * rate + other)``; infinite where nothing fails.

    `n_gpus`: GPUs of the job [1]. `per_node_day`: stops per 8-GPU machine and day [1/day].
    `other_per_s`: further stops of the whole job: links, switches, pre-emption, software [1/s].

    >>> round(mtbf_s(16384, 6.5e-3) / 3600, 2)  # RSC-1, arXiv:2410.21680: 1.8 h
    1.8
    """
    rate = n_gpus / GPUS_PER_NODE * per_node_day / SECONDS_PER_DAY + other_per_s
    return 1 / rate if rate else math.inf


def network_stops_per_s(
    n_links: float, n_switches: float, link_per_month: float, switch_per_month: float
) -> float:
    """Count the stops by failing links and switches. [1/s].

    >>> round(network_stops_per_s(16384, 512, 0.00057, 0.00051) * 86400, 3)  # Alibaba HPN
    0.315
    """
    return (n_links * link_per_month + n_switches * switch_per_month) / SECONDS_PER_MONTH


def interruptions(elapsed_s: float, mtbf_s: float) -> float:
    """Count the stops to expect in a time. [1].

    >>> round(interruptions(54 * 86400, 24 * 3600 / (2048 * 4.21e-3)))  # Llama 3: 466
    466
    """
    return elapsed_s / mtbf_s


NOTHING_LEFT = 1e-15
"""Rest of a probability that is rounding."""


def poisson_quantile(mean: float, quantile: float) -> int:
    """Smallest count that a Poisson number of this mean exceeds with at most 1 - quantile. [1].

    >>> poisson_quantile(0.18, 0.99), poisson_quantile(0.7, 0.99), poisson_quantile(0.0, 0.99)
    (2, 3, 0)
    """
    count, left = 0, quantile
    while True:
        left -= math.exp((count * math.log(mean) if count else 0.0) - mean - math.lgamma(count + 1))
        if left <= NOTHING_LEFT:
            return count
        count += 1


def spare_machines(
    n_machines: int, per_machine_day: float, repair_s: float, quantile: float = 0.99
) -> int:
    """Spare machines that cover the machines down at once. [1].

    The smallest s with ``Poisson(s; n * rate * repair) >= quantile``.

    `n_machines`: machines of the job [1]. `per_machine_day`: failures of one machine [1/day].
    `repair_s`: time until a failed machine is back [s]. `quantile`: availability wanted, 0 to 1
    [1].

    >>> spare_machines(128, 0.0014, 86400), spare_machines(512, 0.0014, 86400)  # ByteRobust: 2, 3
    (2, 3)
    """
    mean = n_machines * per_machine_day * repair_s / SECONDS_PER_DAY
    return poisson_quantile(mean, quantile)
