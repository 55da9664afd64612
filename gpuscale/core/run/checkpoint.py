"""How often a job is stopped, spare machines; checkpoints: size, time, the best interval.

Spares of Poisson demand in a repair time: Palm 1938; Sherbrooke 2004, chapter 2.

.. [1] J. Young, CACM 17(9), 1974, doi:10.1145/361147.361115.
.. [2] J. Daly, FGCS 22(3), 2006, doi:10.1016/j.future.2004.11.016.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Among, Fraction, Seconds, Share
from gpuscale.core.numeric import reached
from gpuscale.core.records import dataclass
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


KINDS = ("blocking", "asynchronous", "memory")
"""Ways to save: the job waits for the store; it waits for a copy to the host's memory, the rest
goes on beside it; copies stay in the memory of the host and of a peer."""


@dataclass(frozen=True, slots=True)
class CheckpointParts:
    """Checkpoint by part. [byte]."""

    weights_bytes: float
    master_bytes: float
    optimizer_bytes: float

    @property
    def total_bytes(self) -> float:
        """Sum of the parts. [byte]."""
        return self.weights_bytes + self.master_bytes + self.optimizer_bytes


def checkpoint_parts(
    n_params: float,
    weights_bytes: float = 2.0,
    master_bytes: float = 4.0,
    optimizer_bytes: float = 8.0,
    trainable: float | None = None,
) -> CheckpointParts:
    """Size of a full checkpoint: weights, fp32 master weights and optimizer states.

    Gradients are not saved. 14 byte per parameter with Adam in mixed precision.

    `n_params`: parameters saved [1]. `weights_bytes, master_bytes, optimizer_bytes`: per parameter;
    the last two only for what is trained [byte]. `trainable`: trained parameters (adapters); all if
    not given [1].

    >>> round(checkpoint_parts(8.03e9).total_bytes / 2**30)  # DeepSpeed issue 6598: 105 GiB
    105
    """
    trained = n_params if trainable is None else trainable
    return CheckpointParts(
        n_params * weights_bytes, trained * master_bytes, trained * optimizer_bytes
    )


@dataclass(frozen=True, slots=True)
class Saver:
    """How a piece of software saves; constants with their source are in the presets."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT
    name: str
    kind: Annotated[str, Among(KINDS)]
    fixed_s: Seconds = 0.0  # planning, metadata, barriers: whatever the size
    host_copy_frac: Fraction = 0.5  # of the host link's bandwidth that the copy reaches
    interference_frac: Share = 0.0  # of a background save's time that is lost all the same
    source: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    """Where checkpoints go, as the job sees it. Bandwidths one direction, [byte/s]."""

    write_bytes_per_s: float  # of the store, all clients together
    read_bytes_per_s: float
    node_bytes_per_s: float = math.inf  # of one node towards the store
    host_link_bytes_per_s: float = 64e9  # GPU to host memory, one GPU


@dataclass(frozen=True, slots=True)
class SaveTime:
    """Time of one checkpoint. [s]."""

    total_bytes: float
    write_s: float  # until it is safe
    blocking_s: float  # that the job waits, interference counted
    load_s: float
    bytes_per_gpu: float
    bound: str  # what sets the write time: store, node or host link


def save_time(
    total_bytes: float,
    n_gpus: int,
    n_nodes: int,
    saver: Saver,
    store: Store,
    writers: int | None = None,
) -> SaveTime:
    """Time to save and to load one checkpoint.

    ``write = fixed + bytes / min(store, nodes * node, writers * host link)``; an asynchronous
    save blocks for the copy to the host, and a fraction of the write time is lost to the
    bandwidth that it takes.

    `total_bytes`: of the checkpoint [byte]. `n_gpus, n_nodes`: of the job [1]. `saver`: the
    software. `store`: bandwidths. `writers`: GPUs that hold distinct shards; all if not given [1].

    >>> bloom = save_time(2.3e12, 384, 48, Saver("sync", "blocking"), Store(57.5e9, 57.5e9))
    >>> bloom.write_s, bloom.bound
    (40.0, 'store')
    """
    writers = min(n_gpus, writers or n_gpus)
    per_gpu = total_bytes / writers
    copy_s = per_gpu / (store.host_link_bytes_per_s * saver.host_copy_frac)
    link_s = total_bytes / (min(n_nodes, writers) * store.node_bytes_per_s)
    limits = {"store": total_bytes / store.write_bytes_per_s, "node link": link_s}
    if saver.kind == "memory":  # a peer's memory takes the copy over the network
        limits = {"node link": link_s}
    limits["host link"] = copy_s
    bound = max(limits, key=lambda name: limits[name])
    write_s = saver.fixed_s + limits[bound]
    blocking_s = write_s
    if saver.kind != "blocking":
        blocking_s = saver.fixed_s + copy_s + saver.interference_frac * limits[bound]
    load_s = saver.fixed_s + max(
        total_bytes / store.read_bytes_per_s,
        total_bytes / (n_nodes * store.node_bytes_per_s),
        copy_s,
    )
    return SaveTime(total_bytes, write_s, min(blocking_s, write_s), load_s, per_gpu, bound)


def young_interval_s(blocking_s: float, mtbf_s: float) -> float:
    """Best interval to first order [1]_, ``sqrt(2 d M)``. [s].

    >>> round(young_interval_s(40, 7 * 86400) / 3600, 1)  # BLOOM: they used about 3 h
    1.9
    """
    return math.sqrt(2 * blocking_s * mtbf_s)


def daly_interval_s(blocking_s: float, mtbf_s: float) -> float:
    """Best interval to higher order [2]_; the mean time between failures where saving is slow. [s].

    ``sqrt(2 d M) (1 + sqrt(d/2M)/3 + d/18M) - d`` for ``d < 2 M``.

    >>> round(daly_interval_s(60, 10_000)), daly_interval_s(60, 20)
    (1056, 20)
    """
    if blocking_s >= 2 * mtbf_s:
        return mtbf_s
    part = blocking_s / (2 * mtbf_s)
    return young_interval_s(blocking_s, mtbf_s) * (1 + math.sqrt(part) / 3 + part / 9) - blocking_s


def exact_interval_s(blocking_s: float, mtbf_s: float) -> float:
    """Interval that makes `core.run.goodput.effective_frac` largest. [s].

    The root of ``ln(1 - x) + x + d/M = 0`` with ``x = tau/M``, by bisection.

    >>> round(exact_interval_s(60, 10_000))
    1056
    """
    if math.isinf(mtbf_s) or blocking_s == 0:
        return math.inf if blocking_s else 0.0
    return reached(lambda x: -math.log1p(-x) - x, blocking_s / mtbf_s, 0.0, 1.0) * mtbf_s
