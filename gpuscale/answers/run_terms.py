"""Terms of a run's life: time with failures, checkpoints, money, energy and carbon."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

from gpuscale.core.records import Term, dataclass, term_of
from gpuscale.core.run.checkpoint import GPUS_PER_NODE, Saver, SaveTime, Store, exact_interval_s
from gpuscale.core.run.time import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from gpuscale.core.run.bill import Bill
    from gpuscale.core.run.goodput import Outlook, RunConditions

DALY = "Daly 2006, doi:10.1016/j.future.2004.11.016, exponential failures"


@dataclass(frozen=True, slots=True)
class BilledTime:
    """What a bill was made of."""

    time_s: float
    n_gpus: float
    work_frac: float = 1.0


def outlook_terms(found: Outlook, met: RunConditions) -> tuple[Term, ...]:
    """Explain the expected time: the ideal over the part that is useful."""
    why = "time without failures over goodput"
    expected = "ideal_s / goodput_frac"
    stops, while_ = "expected_s / mtbf_s", "stops while the run lasts"
    return (
        term_of("expected_s", "s", expected, why, found, _goodput(found, met)),
        term_of("n_interruptions", "count", stops, while_, found, found.goodput),
    )


def _goodput(found: Outlook, met: RunConditions) -> Term:
    g = found.goodput
    share = " * (1 - straggler_frac) * (1 - debug_frac)"
    if isinf(g.mtbf_s):
        useful = "1" if isinf(g.interval_s) else "interval_s / (interval_s + blocking_s)"
        return term_of("goodput_frac", "frac", useful + share, DALY, met, g)
    each = {"stops_per_node_day": met.per_node_day, "other_stops_per_s": met.other_per_s}
    mtbf = term_of(
        "mtbf_s",
        "s",
        f"1 / (n_gpus / {GPUS_PER_NODE} * stops_per_node_day / {SECONDS_PER_DAY:g}"
        " + other_stops_per_s)",
        "stops of an 8-GPU machine and day: --fleet, presets/run/fleets.toml",
        g,
        met,
        **each,
    )
    why = "detect, restart (--recovery, presets/run/recovery.toml) and load"
    restart = term_of("restart_s", "s", "recovery_s + load_s", why, met)
    formula = (
        "interval_s / (mtbf_s * exp(restart_s / mtbf_s)"
        " * expm1((interval_s + blocking_s) / mtbf_s))" + share
    )
    own = {"straggler_frac": met.straggler_frac, "debug_frac": met.debug_frac}
    given = (mtbf, restart, _interval(found, met), g, met)
    return term_of("goodput_frac", "frac", formula, DALY, *given, **own)


def _interval(found: Outlook, met: RunConditions) -> Term:
    from gpuscale.core.run.goodput import MOST_SAVES

    g = found.goodput
    if met.interval_s:
        return Term("interval_s", g.interval_s, "s", source="as given: --interval")
    if not met.blocking_s:
        formula, why = f"max(mtbf_s / {MOST_SAVES:g}, write_s)", "saves that cost nothing"
        return term_of("interval_s", "s", formula, why, g, met)
    best = Term(
        "best_interval_s",
        exact_interval_s(met.blocking_s, g.mtbf_s),
        "s",
        source="root of ln(1 - x) + x + blocking_s / mtbf_s with x = interval / mtbf_s, "
        "by bisection (Daly 2006)",
    )
    why = "the best, not below the time until a save is safe"
    given = (best, g, met)
    return term_of("interval_s", "s", "max(best_interval_s, write_s)", why, *given)


def save_terms(
    saved: SaveTime, saver: Saver, store: Store, n_nodes: int, n_writers: int
) -> tuple[Term, ...]:
    """Explain the times of one checkpoint."""
    copied = "bytes_per_gpu / (host_link_bytes_per_s * host_copy_frac)"
    puts = [] if saver.kind == "memory" else ["checkpoint_bytes / store_bytes_per_s"]
    reads = ["checkpoint_bytes / store_read_bytes_per_s"]
    if not isinf(store.node_bytes_per_s):
        puts.append("checkpoint_bytes / (writing_nodes * node_bytes_per_s)")
        reads.append("checkpoint_bytes / (n_nodes * node_bytes_per_s)")
    where = f"way to save `{saver.name}`, presets/run/savers.toml; store: --store"
    more = {
        "checkpoint_bytes": saved.total_bytes,
        "store_bytes_per_s": store.write_bytes_per_s,
        "store_read_bytes_per_s": store.read_bytes_per_s,
        "writing_nodes": float(min(n_nodes, n_writers)),
        "n_nodes": float(n_nodes),
    }
    waits = f"min(write_s, fixed_s + {copied} + interference_frac * (write_s - fixed_s))"
    formulas = {
        "write_s": f"fixed_s + max({', '.join([*puts, copied, '0'])})",
        "blocking_s": "write_s" if saver.kind == "blocking" else waits,
        "load_s": f"fixed_s + max({', '.join([*reads, copied])})",
    }
    return tuple(
        term_of(name, "s", formula, where, *(saved, saver, store), **more)
        for name, formula in formulas.items()
    )


def bill_terms(bill: Bill, held: BilledTime) -> tuple[Term, ...]:
    """Explain the sums of a bill."""
    c = bill.charge
    hours = f"n_gpus * time_s / {SECONDS_PER_HOUR:g}"
    why = "GPUs held for the elapsed time, failures included"
    found = [term_of("gpu_hours", "", hours, why, c, held)]
    if c.usd is not None and bill.rate is not None:
        from gpuscale.answers.money import rate_text

        formula, said = "gpu_hours * usd_per_gpu_hour", rate_text(bill.rate)
        found.append(term_of("usd", "usd", formula, said, *(c, bill.rate, *_own(bill))))
    return (*found, *_energy(bill, held))


def _own(bill: Bill) -> tuple[Term, ...]:
    if bill.own is None:
        return ()
    parts = "capital_usd + energy_usd + colocation_usd + staff_usd + maintenance_usd"
    why = "owned cluster: annuity, electricity, colocation, staff, maintenance a used GPU-hour"
    value = bill.own.total_usd_per_gpu_hour
    return (
        term_of("usd_per_gpu_hour", "usd_per_hour", parts, why, bill.own, usd_per_gpu_hour=value),
    )


def _energy(bill: Bill, held: BilledTime) -> list[Term]:
    c, draw, site = bill.charge, bill.draw, bill.site
    if c.energy_j is None or c.power_w is None or draw is None:
        return []
    formula = "n_gpus / gpus_per_node * (work_w * work_frac + idle_w * (1 - work_frac)) * pue"
    pue = site.pue if site else 1.0
    power = term_of("power_w", "w", formula, draw.source, *(held, draw, c), pue=pue)
    why = "power at the meter over the elapsed time"
    found = [term_of("energy_j", "j", "power_w * time_s", why, *(power, held, c))]
    if c.carbon_kg is not None and site is not None:
        formula = "energy_j / 3.6e6 * grid_g_per_kwh / 1000"
        found.append(term_of("carbon_kg", "", formula, site.source, c, site))
    return found
