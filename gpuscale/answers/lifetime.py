"""What happens to a run: failures, recovery and checkpoints, asked and put together."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers.ask import PRETRAIN, Asked, Converted, Question, amount, text
from gpuscale.core.records import dataclass, made_of
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.core.run.checkpoint import Fleet, SaveTime, Store
    from gpuscale.core.run.goodput import Outlook, RunConditions
    from gpuscale.specs.hardware import ClusterSpec


def _store(value: Any, label: str) -> float | str:
    """Kind of a store, or a bandwidth. [byte/s]."""
    from gpuscale.answers import values
    from gpuscale.io.run import names

    if isinstance(value, str) and value.strip().lower() in names("stores"):
        return value.strip().lower()
    return values.quantity(value, "bytes_per_s", label)


SMALL_GPUS = 2048
"""Below this, jobs also die of causes that no machine rate counts (RSC, arXiv:2410.21680)."""


@dataclass(kw_only=True)
class Failing(Question):
    """Options of a run that takes long enough to fail."""

    GROUP: ClassVar[str] = "money"
    OF_TASKS: ClassVar[tuple[str, ...]] = PRETRAIN
    fleet: Asked[str] = text(
        "Whose failure rate: general, llama3-h100, rsc1-a100, crusoe-h200, byterobust-hopper, "
        "bloom-a100, opt-a100.",
        "general",
    )
    failure_rate: Asked[float | None] = amount(
        "Stops per 1,000 days of an 8-GPU machine, instead of a fleet's.", "count", most=1e6
    )
    mtbf: Asked[float | None] = amount(
        "Mean time between stops of the job, e.g. 3h, instead of a fleet's rate.", "s", most=1e12
    )
    recovery: Asked[str] = text("How the job comes back: requeue, hot or manual.", "requeue")
    saver: Asked[str] = text(
        "How it saves: sync, async, dcp-async, memory, memory-overlapped.", "async"
    )
    store: Converted[float | str | None, float | str] = Converted(
        "Where it saves: lustre, object, nvme, 3fs, or the bandwidth for all nodes together. "
        "[default: 1 GB/s a node, 0.22 to 3.4]",
        None,
        _store,
        metavar="KIND|BANDWIDTH",
    )
    interval: Asked[float | None] = amount(
        "Time between checkpoints. [default: the best]", "s", most=1e12
    )
    stragglers: Asked[float] = amount(
        "Part of the time lost to slow machines beyond what the step counts.",
        "frac",
        0.0,
        most=0.9,
        zero=True,
    )
    debugging: Asked[float | None] = amount(
        "Part of the time lost to people: debugging, restarts by hand. [default: 0 to 27 %]",
        "frac",
        most=0.9,
        zero=True,
    )

    def check(self) -> None:
        """Look the fleet, the recovery and the saver up."""
        from gpuscale.io.run import load_fleet, load_saver, recovery_s

        super().check()
        load_fleet(self.fleet)
        recovery_s(self.recovery, 1)
        load_saver(self.saver)


def fleet_of(asked: Failing, n_gpus: int) -> Fleet:
    """Failure rate with its range: as given, else of a fleet.

    Raises GpuscaleError if both a rate and a mean time are given, or the fleet is not known.
    """
    from gpuscale.core.run.checkpoint import GPUS_PER_NODE, Fleet
    from gpuscale.core.run.time import SECONDS_PER_DAY
    from gpuscale.io.run import load_fleet

    if asked.mtbf is not None and asked.failure_rate is not None:
        raise GpuscaleError("give --mtbf or --failure-rate, not both")
    if asked.mtbf is None and asked.failure_rate is None:
        return load_fleet(asked.fleet)
    rate, said = (asked.failure_rate or 0.0) / 1e3, "--failure-rate"
    if asked.mtbf is not None:
        rate, said = SECONDS_PER_DAY / asked.mtbf / (n_gpus / GPUS_PER_NODE), "--mtbf"
    return Fleet("given", rate, rate, rate, said)


def store_of(asked: Failing, cluster: ClusterSpec, n_gpus: int, end: str = "write") -> Store:
    """Store of a job: as given, else what 8 GPUs have of its kind; `end`: write, low or high."""
    from gpuscale.core.run.checkpoint import GPUS_PER_NODE, Store
    from gpuscale.io.run import row
    from gpuscale.specs.run import StoreRow

    bandwidth = asked.store
    if not isinstance(bandwidth, float):
        share = row("stores", bandwidth or "general", StoreRow, "store")
        bandwidth = max(1.0, n_gpus / GPUS_PER_NODE) * getattr(share, f"{end}_bytes_per_s")
    node = cluster.node_egress_bytes_per_s or float("inf")
    if asked.store == "nvme":
        node = float("inf")
    return Store(bandwidth, bandwidth, node, cluster.gpu.pcie_bytes_per_s or 32e9)


def save_of(
    asked: Failing,
    cluster: ClusterSpec,
    total_bytes: float,
    n_gpus: int,
    writers: int | None,
    end: str = "write",
) -> SaveTime:
    """Time of one checkpoint of a job; `end`: that of its store, as of `store_of`."""
    from gpuscale.core.run.checkpoint import save_time
    from gpuscale.io.run import load_saver

    n_nodes = -(-n_gpus // cluster.gpus_per_node)
    store = store_of(asked, cluster, n_gpus, end)
    return save_time(total_bytes, n_gpus, n_nodes, load_saver(asked.saver), store, writers)


def restart_s(asked: Failing, n_gpus: int, saved: SaveTime) -> float:
    """From a stop until the job goes on: detect, restart, load. [s]."""
    from gpuscale.io.run import recovery_s

    return recovery_s(asked.recovery, n_gpus)[0] + saved.load_s


def conditions_of(
    asked: Failing, n_gpus: int, saved: SaveTime, other_per_s: float = 0.0, end: str = ""
) -> RunConditions:
    """Say what a run meets: stops by the fleet's rate and `other_per_s` more, recovery, saves.

    `end`: "", or "low" or "high" of what is lost, of what nobody said.
    """
    from gpuscale.core.run.goodput import RunConditions
    from gpuscale.io.run import recovery_s, row
    from gpuscale.specs.run import PeopleRow

    people = row("people", "debugging", PeopleRow, "loss")
    given = asked.debugging is not None
    return made_of(
        RunConditions,
        saved,
        n_gpus=n_gpus,
        per_node_day=getattr(fleet_of(asked, n_gpus), f"{end}_per_node_day".lstrip("_")),
        recovery_s=recovery_s(asked.recovery, n_gpus)[0],
        interval_s=asked.interval,
        other_per_s=other_per_s,
        straggler_frac=asked.stragglers,
        debug_frac=(asked.debugging or 0.0) if given else getattr(people, end or "frac"),
    )


def life_of(
    asked: Failing,
    cluster: ClusterSpec,
    total_bytes: float,
    ideal_s: float,
    n_gpus: int,
    *,
    writers: int | None,
    other_per_s: float = 0.0,
) -> tuple[SaveTime, Outlook]:
    """One checkpoint of a run, how long it takes with failures, and what would help.

    `asked`: rates, recovery, interval. `total_bytes`: of a checkpoint [byte]. `ideal_s`: time
    without failures [s]. `n_gpus`: GPUs of the job [1]. `writers`: those with distinct shards [1].
    `other_per_s`: further stops, as pre-emptions [1/s].
    """
    from gpuscale.core.run.goodput import outlook

    quick, saved, slow = (
        save_of(asked, cluster, total_bytes, n_gpus, writers, end)
        for end in ("high", "write", "low")
    )
    met = conditions_of(asked, n_gpus, saved, other_per_s)
    best = conditions_of(asked, n_gpus, quick, other_per_s, "low")
    found = outlook(ideal_s, met, best, conditions_of(asked, n_gpus, slow, other_per_s, "high"))
    if not isfinite(found.high_s):
        raise GpuscaleError(
            f"with a stop every {met.mtbf_s:.3g} s and {met.restart_s:.3g} s to come back the run "
            "never ends",
            "--recovery hot comes back sooner; --mtbf and --failure-rate say how often it stops",
        )
    return saved, found


def outlook_rows(found: Outlook, n_gpus: int) -> list[tuple[str, str, str]]:
    """Lines of an outlook: expected time, interruptions, where the time goes, what would help."""
    from gpuscale.core.quantity import format_time

    g = found.goodput
    span = f"{format_time(found.low_s, 3)} to {format_time(found.high_s, 3)}"
    stops = f"{_count(found.n_interruptions)} interruptions"
    range_ = f"{_count(found.n_interruptions_low)} to {_count(found.n_interruptions_high)}"
    rows = [
        ("time, expected", format_time(found.expected_s), f"{span} by published runs and stores"),
        (
            "goodput",
            f"{100 * g.goodput_frac:.1f} %",
            f"{stops} ({range_}), one in {format_time(g.mtbf_s, 3)}",
        ),
    ]
    if n_gpus < SMALL_GPUS:
        note = "jobs this small also stop of causes that no rate of machines counts"
        rows.append(("", "", f"{note} (RSC, 1,024 GPUs: every 7.9 h)"))
    lost = {
        "saving": g.saving_frac,
        "work done again": g.rework_frac,
        "recovery": g.recovery_frac,
        "slow machines": g.straggler_frac,
        "debugging": g.debug_frac,
    }
    text_ = ", ".join(f"{name} {100 * v:.1f} %" for name, v in lost.items() if v >= 5e-4)
    if text_:
        rows.append(("time lost", f"{100 * (1 - g.goodput_frac):.1f} %", text_))
    if found.helps:
        best = found.helps[0]
        rows.append(("would help most", best.lever, f"saves {format_time(best.saved_s, 3)}"))
    return rows


def save_row(saved: SaveTime, found: Outlook, n_gpus: int) -> tuple[str, str, str]:
    """Line of the checkpoints: how often, how long, how large."""
    from gpuscale.core.quantity import format_time

    every = format_time(found.goodput.interval_s, 3)
    text_ = f"blocks {format_time(saved.blocking_s, 3)}, safe after {format_time(saved.write_s, 3)}"
    gb, writers = (
        f"{saved.total_bytes / 1e9:,.0f} GB",
        round(saved.total_bytes / saved.bytes_per_gpu),
    )
    gb += f" from {writers:,} of the GPUs (--writers)" if writers < n_gpus else ""
    return ("checkpoint every", every, f"{text_}; {gb}, loaded in {format_time(saved.load_s, 3)}")


def _count(n: float) -> str:
    """Write a number of stops; a fraction where there may be none.

    >>> _count(1130.4), _count(0.12)
    ('1,130', '0.12')
    """
    return f"{n:,.0f}" if n >= 10 else f"{n:.2g}"
