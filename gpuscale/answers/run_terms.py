"""Terms of a run's life: time with failures, checkpoints, money, energy and carbon."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING

from gpuscale.core.records import Term
from gpuscale.core.run.failures import GPUS_PER_NODE
from gpuscale.core.run.time import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from gpuscale.core.run.bill import Bill
    from gpuscale.core.run.checkpoint import Saver, SaveTime, Store
    from gpuscale.core.run.goodput import Conditions, Outlook

DALY = "Daly 2006, doi:10.1016/j.future.2004.11.016, exponential failures"


@dataclass(frozen=True, slots=True)
class Held:
    """What a bill was made of."""

    time_s: float
    n_gpus: float
    work_frac: float = 1.0


def outlook_terms(found: Outlook, met: Conditions) -> tuple[Term, ...]:
    """Explain the expected time: the ideal over the part that is useful."""
    return (
        Term(
            name="expected_s",
            value=found.expected_s,
            unit="s",
            formula="ideal_s / goodput_frac",
            inputs={"ideal_s": found.ideal_s, "goodput_frac": found.goodput.goodput_frac},
            source="time without failures over goodput",
            children=(_goodput(found, met),),
        ),
        Term(
            "n_interruptions",
            found.n_interruptions,
            "count",
            "expected_s / mtbf_s",
            {"expected_s": found.expected_s, "mtbf_s": found.goodput.mtbf_s},
            "stops while the run lasts",
        ),
    )


def _goodput(found: Outlook, met: Conditions) -> Term:
    g = found.goodput
    rest = {"straggler_frac": met.straggler_frac, "debug_frac": met.debug_frac}
    waits = {"interval_s": g.interval_s, "blocking_s": met.blocking_s}
    share = " * (1 - straggler_frac) * (1 - debug_frac)"
    if isinf(g.mtbf_s):
        never = isinf(g.interval_s)
        useful = "1" if never else "interval_s / (interval_s + blocking_s)"
        given = rest if never else waits | rest
        return Term("goodput_frac", g.goodput_frac, "frac", useful + share, given, DALY)
    return Term(
        name="goodput_frac",
        value=g.goodput_frac,
        unit="frac",
        formula="interval_s / (mtbf_s * exp(restart_s / mtbf_s)"
        " * expm1((interval_s + blocking_s) / mtbf_s))" + share,
        inputs={"mtbf_s": g.mtbf_s, "restart_s": met.restart_s} | waits | rest,
        source=DALY,
        children=(
            Term(
                "mtbf_s",
                g.mtbf_s,
                "s",
                f"1 / (n_gpus / {GPUS_PER_NODE} * stops_per_node_day / {SECONDS_PER_DAY:g}"
                " + other_stops_per_s)",
                {
                    "n_gpus": float(met.n_gpus),
                    "stops_per_node_day": met.per_node_day,
                    "other_stops_per_s": met.other_per_s,
                },
                "stops of an 8-GPU machine and day: --fleet, presets/run/fleets.toml",
            ),
            Term(
                "restart_s",
                met.restart_s,
                "s",
                "recovery_s + load_s",
                {"recovery_s": met.recovery_s, "load_s": met.load_s},
                "detect, restart (--recovery, presets/run/recovery.toml) and load",
            ),
            _interval(found, met),
        ),
    )


def _interval(found: Outlook, met: Conditions) -> Term:
    from gpuscale.core.run.checkpoint import exact_interval_s
    from gpuscale.core.run.goodput import MOST_SAVES

    g = found.goodput
    if met.interval_s:
        return Term("interval_s", g.interval_s, "s", source="as given: --interval")
    if not met.blocking_s:
        inputs = {"mtbf_s": g.mtbf_s, "write_s": met.write_s}
        formula = f"max(mtbf_s / {MOST_SAVES:g}, write_s)"
        return Term("interval_s", g.interval_s, "s", formula, inputs, "saves that cost nothing")
    best = {"best_interval_s": exact_interval_s(met.blocking_s, g.mtbf_s)}
    return Term(
        name="interval_s",
        value=g.interval_s,
        unit="s",
        formula="max(best_interval_s, write_s)",
        inputs=best | {"write_s": met.write_s},
        source="the best, not below the time until a save is safe",
        children=(
            Term(
                "best_interval_s",
                best["best_interval_s"],
                "s",
                source="root of ln(1 - x) + x + blocking_s / mtbf_s with x = interval / mtbf_s, "
                "by bisection (Daly 2006)",
            ),
        ),
    )


def save_terms(
    saved: SaveTime, saver: Saver, store: Store, n_nodes: int, n_writers: int
) -> tuple[Term, ...]:
    """Explain the times of one checkpoint."""
    total = {"checkpoint_bytes": saved.total_bytes}
    copy = {
        "bytes_per_gpu": saved.bytes_per_gpu,
        "host_link_bytes_per_s": store.host_link_bytes_per_s,
        "host_copy_frac": saver.host_copy_frac,
    }
    copied = "bytes_per_gpu / (host_link_bytes_per_s * host_copy_frac)"
    node = {} if isinf(store.node_bytes_per_s) else {"node_bytes_per_s": store.node_bytes_per_s}
    writing = {"writing_nodes": float(min(n_nodes, n_writers))} | node if node else {}
    put = {} if saver.kind == "memory" else {"store_bytes_per_s": store.write_bytes_per_s}
    ways = ["checkpoint_bytes / store_bytes_per_s"] * bool(put)
    ways += ["checkpoint_bytes / (writing_nodes * node_bytes_per_s)"] * bool(node)
    fixed = {"fixed_s": saver.fixed_s}
    where = f"way to save `{saver.name}`, presets/run/savers.toml; store: --store"
    terms = [
        Term(
            "write_s",
            saved.write_s,
            "s",
            f"fixed_s + max({', '.join([*ways, copied, '0'])})",
            fixed | (total if ways else {}) | put | writing | copy,
            where,
        )
    ]
    if saver.kind != "blocking":
        terms.append(
            Term(
                "blocking_s",
                saved.blocking_s,
                "s",
                f"min(write_s, fixed_s + {copied} + interference_frac * (write_s - fixed_s))",
                fixed
                | copy
                | {"interference_frac": saver.interference_frac, "write_s": saved.write_s},
                where,
            )
        )
    else:
        waits = {"write_s": saved.write_s}
        terms.append(Term("blocking_s", saved.blocking_s, "s", "write_s", waits, where))
    read = {"store_read_bytes_per_s": store.read_bytes_per_s}
    ways = ["checkpoint_bytes / store_read_bytes_per_s"]
    ways += ["checkpoint_bytes / (n_nodes * node_bytes_per_s)"] * bool(node)
    inputs = fixed | total | read | ({"n_nodes": float(n_nodes)} | node if node else {}) | copy
    formula = f"fixed_s + max({', '.join([*ways, copied])})"
    return (*terms, Term("load_s", saved.load_s, "s", formula, inputs, where))


def bill_terms(bill: Bill, held: Held) -> tuple[Term, ...]:
    """Explain the sums of a bill."""
    found = [_gpu_hours(bill, held)]
    c = bill.charge
    if c.usd is not None and bill.rate is not None:
        from gpuscale.answers.money import rate_text

        usd = {"gpu_hours": c.gpu_hours, "usd_per_gpu_hour": bill.rate.usd_per_gpu_hour}
        found.append(
            Term(
                name="usd",
                value=c.usd,
                unit="usd",
                formula="gpu_hours * usd_per_gpu_hour",
                inputs=usd,
                source=rate_text(bill.rate),
                children=_own(bill),
            )
        )
    return (*found, *_energy(bill, held))


def _gpu_hours(bill: Bill, held: Held) -> Term:
    return Term(
        "gpu_hours",
        bill.charge.gpu_hours,
        "",
        f"n_gpus * time_s / {SECONDS_PER_HOUR:g}",
        {"n_gpus": held.n_gpus, "time_s": held.time_s},
        "GPUs held for the elapsed time, failures included",
    )


def _own(bill: Bill) -> tuple[Term, ...]:
    if bill.own is None:
        return ()
    o = bill.own
    parts = {
        "capital_usd": o.capital_usd,
        "energy_usd": o.energy_usd,
        "colocation_usd": o.colocation_usd,
        "staff_usd": o.staff_usd,
        "maintenance_usd": o.maintenance_usd,
    }
    source = "owned cluster: annuity, electricity, colocation, staff, maintenance a used GPU-hour"
    name, value = "usd_per_gpu_hour", o.total_usd_per_gpu_hour
    return (Term(name, value, "usd_per_hour", " + ".join(parts), parts, source),)


def _energy(bill: Bill, held: Held) -> list[Term]:
    c, draw, site = bill.charge, bill.draw, bill.site
    if c.energy_j is None or c.power_w is None or draw is None:
        return []
    inputs = {
        "n_gpus": held.n_gpus,
        "gpus_per_node": float(draw.gpus_per_node),
        "work_w": draw.work_w,
        "work_frac": held.work_frac,
        "idle_w": draw.idle_w,
        "pue": site.pue if site else 1.0,
    }
    node = "(work_w * work_frac + idle_w * (1 - work_frac))"
    power = Term(
        "power_w", c.power_w, "w", f"n_gpus / gpus_per_node * {node} * pue", inputs, draw.source
    )
    found = [
        Term(
            name="energy_j",
            value=c.energy_j,
            unit="j",
            formula="power_w * time_s",
            inputs={"power_w": c.power_w, "time_s": held.time_s},
            source="power at the meter over the elapsed time",
            children=(power,),
        )
    ]
    if c.carbon_kg is not None and site is not None:
        carbon = {"energy_j": c.energy_j, "grid_g_per_kwh": site.grid_g_per_kwh}
        formula = "energy_j / 3.6e6 * grid_g_per_kwh / 1000"
        found.append(Term("carbon_kg", c.carbon_kg, "", formula, carbon, site.source))
    return found
