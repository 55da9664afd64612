"""What a serving question answers. Field names are the JSON keys."""

from __future__ import annotations

from collections.abc import Mapping

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.run.bill import Bill
from gpuscale.core.serving.memory import CacheRoom
from gpuscale.core.serving.percentiles import Latency
from gpuscale.core.serving.records import Replica


@dataclass(frozen=True, slots=True)
class Served:
    """What a layout gives under the load that is shown."""

    engine: str
    weights: str
    label: str  # its layout in words
    replicas: int
    n_gpus: int
    at_most_per_s: float | None  # requests within the limits, all replicas
    requests_per_s: float | None
    output_tokens_per_s: float | None
    total_tokens_per_s: float | None
    tokens_per_s_per_user: float | None
    tokens_per_s_per_gpu: float | None  # output
    usd_per_million_output_tokens: float | None
    usd_per_million_tokens: float | None  # prompts counted too
    j_per_output_token: float | None


@dataclass(frozen=True, slots=True)
class ServeRow(Served):
    """One layout of the table."""

    ttft: Latency | None  # None where the queue would grow without end
    tpot: Latency | None
    verdict: str


@dataclass(frozen=True, slots=True)
class PoolLine:
    """One pool of a disaggregated service."""

    role: str
    workers: int
    label: str  # its layout in words
    n_gpus: int
    at_most_per_s: float  # requests that all workers could take
    idle_frac: float  # at the rate shown
    tokens_per_s_per_gpu: float  # prompt tokens read, or tokens made, at most
    usd_per_million_tokens: float | None  # of those, this pool alone


@dataclass(frozen=True, slots=True)
class ServeAnswer(Served):
    """The answer: the best layout, its latencies, and the others."""

    meets: bool
    fits: bool
    layout: Replica | None  # of a replica; pools are in `pools`
    peak_bytes: float  # of a GPU, its cache full
    capacity_bytes: float
    taken: tuple[str, ...]  # what nobody said, and the option that says it
    said_by: Mapping[str, str]  # value -> the option that says it; others are defaults
    kv: str
    gather_passes: int  # that a prompt waits at most until each attention rank has one
    engine_settings: str  # version of the engine, and what it does by itself
    as_it_comes: str  # how new the architecture is to that version; empty where it is settled
    rate_per_s: float | None  # asked for
    binding: str
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    ttft_low_s: float | None  # 80 % interval of the mean
    ttft_high_s: float | None
    tpot_mean_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    tpot_p99_s: float | None
    tpot_low_s: float | None
    tpot_high_s: float | None
    end_to_end_mean_s: float | None
    alone_ttft_s: float | None  # of a request that meets no other
    alone_tpot_s: float | None
    ttft_error_frac: float | None  # of the 95th percentile, one standard error of the simulation
    tpot_error_frac: float | None
    time_s: float | None  # of all requests of a closed loop or burst
    usd_per_gpu_hour: float | None
    bill: Bill | None  # of an hour at this rate
    kv_tokens: float  # that the cache of one attention rank holds
    sequences_with_room: float
    n_requests: int
    n_preempted: int
    memory: CacheRoom
    pools: tuple[PoolLine, ...]
    rows: tuple[ServeRow, ...]
    no_room: tuple[str, ...]
    launch: tuple[str, ...]
    benchmark: str
