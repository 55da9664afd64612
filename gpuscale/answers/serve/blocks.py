"""The serving answer in words and tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gpuscale.answers.money import bill_rows
from gpuscale.answers.serve import reading
from gpuscale.answers.serve.case import ServeCase
from gpuscale.answers.serve.measured import Price, itself, widths
from gpuscale.answers.serve.records import PoolLine, ServeAnswer, ServeRow
from gpuscale.answers.summary import changed, figures_of
from gpuscale.core.serving.capacity import LatencyLimit
from gpuscale.core.serving.choose import Choice, FoundReplica, Wanted, copies_needed
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.extras import HOST_READ_EFF
from gpuscale.render.document import Block, Column, Point, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve


def details_of(
    said: list[Point], case: ServeCase, wanted: Wanted, choice: Choice, r: ServeAnswer, price: Price
) -> dict[str, list[Block]]:
    """Verdict, table of layouts, what it rests on, lines to start and to check it."""
    layouts: list[Block] = [Text(said[0].value), table(case, wanted, r, price)]
    layouts += [Text(ratios(choice))] if ": " in r.label else []  # kinds of GPUs
    layouts += [Text(rest)] if (rest := others(choice)) else []
    one = [f"# one of {r.replicas} servers, and its share of the load"] * (r.replicas > 1)
    pools: list[Block] = [pool_table(r.pools)] if r.pools else []
    pools += [Text(waiting)] if r.pools and (waiting := idle_pool(r.pools)) else []
    widths_known = widths(case, choice.found[0], wanted)
    footed = (*footing(case, r, price, widths_known), *on_host(choice.found[0]))
    return {
        "layouts": layouts,
        "figures": [
            figures_of(said, *facts(wanted, r)),
            *pools,
            Text("\n".join(footed)),
            *changed(case.loaded),
        ],
        "launch": [Text("\n".join((*one, *r.launch, r.benchmark)))],
    }


# --- words -------------------------------------------------------------------------------------


def ms(value: float | None) -> str:
    """Time in milliseconds, or seconds from ten on.

    >>> ms(0.01234), ms(0.4567), ms(12.34), ms(None)
    ('12.3', '457', '12,340', '-')
    """
    if value is None:
        return "-"
    value *= 1e3
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def figure(value: float | None) -> str:
    """Show a number with three digits that count.

    >>> figure(0.0123), figure(5.87), figure(312.4), figure(12345.6)
    ('0.0123', '5.87', '312', '12,346')
    """
    if value is None:
        return "-"
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def rate_text(per_s: float | None) -> str:
    """``1 request/s``, ``2.5 requests/s``."""
    shown = figure(per_s)
    return f"{shown} request{'s' * (shown != '1')}/s"


def limit_text(name: str, limit: LatencyLimit | None) -> str:
    """``TTFT p95 500 ms``."""
    return f"{name} {limit.statistic} {ms(limit.at_most_s)} ms" if limit else ""


def limits_text(wanted: Wanted) -> str:
    """All limits in words."""
    both = (limit_text("TTFT", wanted.limits.ttft), limit_text("TPOT", wanted.limits.tpot))
    return " and ".join(t for t in both if t)


def copies_text(r: ServeAnswer | ServeRow) -> str:
    """``2 x (TP 4 x PP 2)``, ``TP 8``."""
    inner = f"({r.label})" if " x " in r.label or " + " in r.label else r.label
    return r.label if r.replicas == 1 else f"{r.replicas} x {inner}"


def head(case: ServeCase, wanted: Wanted, choice: Choice, r: ServeAnswer) -> str:
    """First line: what was asked is answered, and whether the model is new to the engine."""
    age, said = r.as_it_comes, _head(case, wanted, choice, r)
    return f"{said} {age[0].upper()}{age[1:]}." if age else said


def _head(case: ServeCase, wanted: Wanted, choice: Choice, r: ServeAnswer) -> str:
    name = f"{case.model.name}, {r.weights} on {r.n_gpus:,} {case.loaded.gpu.name}, {r.engine}"
    limits, laid = limits_text(wanted), f"{name}: {copies_text(r)}"
    if wanted.concurrency is not None or wanted.burst is not None:
        load = f"{wanted.concurrency or wanted.burst:,} "
        load += "in flight" if wanted.concurrency else "at once"
        kept = f", {'meets' if r.meets else 'misses'} {limits}" if limits else ""
        if wanted.concurrency == 1:
            user, first = figure(r.tokens_per_s_per_user), ms(r.ttft_mean_s)
            return f"{laid} gives one user {user} tokens/s, the first after {first} ms{kept}."
        return f"{laid} gives {figure(r.output_tokens_per_s)} output tokens/s with {load}{kept}."
    if r.meets:
        means = {"TTFT": r.ttft_mean_s, "TPOT": r.tpot_mean_s}
        waits = " and ".join(f"{name} {ms(mean)}" for name, mean in means.items() if mean)
        within = f" within {limits}" if limits else waits and f" at mean {waits} ms"
        if wanted.rate_per_s is None:
            most = rate_text(r.at_most_per_s)
            return f"{laid} serves up to {most}{within} (bound by {r.binding})."
        spare = (r.at_most_per_s or 0.0) / wanted.rate_per_s
        return (
            f"{laid} serves {rate_text(wanted.rate_per_s)}{within}; "
            f"up to {figure(r.at_most_per_s)} (bound by {r.binding}), {spare:.1f} times the rate."
        )
    kept = f"keeps {limits}" if limits else "takes the rate"
    return f"{name}: no layout {kept}. {remedy(wanted, choice)}"


def remedy(wanted: Wanted, choice: Choice) -> str:
    """Say what would do: more GPUs, or a limit that can be kept."""
    able = [f for f in choice.found if f.at_most_per_s > 0.0]
    if able:
        most = max(able, key=lambda f: f.at_most_per_s)
        text = f"At most {rate_text(most.at_most_per_s)} ({most.candidate.label})"
        if wanted.rate_per_s is None:
            return text + "."
        rate = wanted.rate_per_s
        needed = min(
            copies_needed(rate, f.at_most_per_s / f.copies) * f.candidate.what.n_gpus for f in able
        )
        return text + f"; {needed:,.0f} GPUs would do."
    texts = []
    for name, limit in (("ttft", wanted.limits.ttft), ("tpot", wanted.limits.tpot)):
        loads = [(f, f.load) for f in choice.found if f.load is not None]
        if limit is None or not loads:
            continue
        best, load = min(loads, key=lambda one: getattr(one[1], name).at(limit.statistic))
        fastest = getattr(load, name).at(limit.statistic)
        if fastest > limit.at_most_s:
            texts.append(
                f"the fastest {name.upper()} {limit.statistic} without load is {ms(fastest)} ms "
                f"({best.candidate.label})"
            )
    found = "; ".join(texts) or "no layout keeps both limits at once, even without load"
    return found[0].upper() + found[1:] + "."


# --- tables ------------------------------------------------------------------------------------


def table(case: ServeCase, wanted: Wanted, r: ServeAnswer, price: Price) -> Table:
    """Layouts, best first."""
    several = len({(row.engine, row.weights) for row in r.rows}) > 1
    columns = [Column("label", "layout", right=False)]
    if several:
        columns += [Column("engine", "engine", right=False), Column("weights", "", right=False)]
    columns += [
        Column("n_gpus", "GPUs", lambda v: f"{v:,}"),
        Column("at_most_per_s", "at most", lambda v: f"{figure(v)}/s"),
        Column("ttft_p50_s", "TTFT p50", ms),
        Column("ttft_p95_s", "p95 ms", ms),
        Column("tpot_p50_s", "TPOT p50", ms),
        Column("tpot_p95_s", "p95 ms", ms),
        Column("tokens_per_s_per_user", "tok/s/user", figure),
        Column("tokens_per_s_per_gpu", "tok/s/GPU", figure),
    ]
    priced = price.usd_per_gpu_hour is not None
    if priced:
        columns.append(Column("usd_per_million_output_tokens", "USD/Mtok", figure))
    if any(row.j_per_output_token is not None for row in r.rows):
        columns.append(Column("j_per_output_token", "J/tok", figure))
    columns.append(Column("verdict", "verdict", right=False))
    return Table(columns, [[_cell(row, c.key) for c in columns] for row in r.rows])


def _cell(row: ServeRow, key: str) -> Any:
    if key == "label":
        return copies_text(row)
    name, _, rest = key.partition("_")
    if name in ("ttft", "tpot"):
        found = getattr(row, name)
        return None if found is None else getattr(found, rest)
    return getattr(row, key)


def pool_table(pools: tuple[PoolLine, ...]) -> Table:
    """Pools, their share of the GPUs, how idle they are, and what each could do alone."""
    columns: tuple[Column, ...] = (
        Column("role", "pool", right=False),
        Column("workers", "workers", lambda v: f"{v:,}"),
        Column("label", "layout", right=False),
        Column("n_gpus", "GPUs", lambda v: f"{v:,}"),
        Column("at_most_per_s", "at most", lambda v: f"{figure(v)}/s"),
        Column("idle_frac", "idle", lambda v: f"{100 * v:.0f} %"),
        Column("tokens_per_s_per_gpu", "at most tok/s/GPU", figure),
    )
    if any(p.usd_per_million_tokens is not None for p in pools):
        columns = (*columns, Column("usd_per_million_tokens", "USD/Mtok alone", figure))
    return Table.of(columns, pools)


MOSTLY_IDLE = 0.5
"""Share of the time from which a pool that waits for the other is worth a sentence."""


def idle_pool(pools: tuple[PoolLine, ...]) -> str:
    """Say which pool waits for the other, and what it would make by itself."""
    idlest = max(pools, key=lambda p: p.idle_frac)
    if idlest.idle_frac < MOSTLY_IDLE:
        return ""
    other = next(p for p in pools if p is not idlest)
    usd = idlest.usd_per_million_tokens
    price = "" if usd is None else f", {usd:.3g} USD a million"
    return (
        f"The pools do not match: {idlest.role} waits {100 * idlest.idle_frac:.0f} % of the time "
        f"for {other.n_gpus:,} GPUs of {other.role}; by itself it makes "
        f"{figure(idlest.tokens_per_s_per_gpu)} tokens/s a GPU{price}."
    )


def others(choice: Choice) -> str:
    """Say what was left out, and why."""
    lines = []
    if choice.no_room:
        labels = ", ".join(dict.fromkeys(c.label for c in choice.no_room))
        lines.append(f"{labels}: no room for the cache.")
    hidden = len(choice.bounded) + max(0, len(choice.found) - 6)
    if hidden:
        lines.append(f"{hidden} more layouts are worse.")
    return " ".join(lines)


def ratios(choice: Choice) -> str:
    """Compare the best of each kind of GPU with the slowest of them."""
    best: dict[str, FoundReplica] = {}
    for found in choice.found:
        best.setdefault(found.candidate.label.partition(":")[0], found)
    rated = sorted(best.items(), key=lambda one: one[1].at_most_per_s)
    if len(rated) < 2 or rated[0][1].at_most_per_s <= 0.0:
        return "One kind of GPU alone holds it."
    slowest = rated[0][1].at_most_per_s
    parts = [
        f"{f.n_gpus:,} {name} {f.at_most_per_s / slowest:.2f} times" for name, f in rated[:0:-1]
    ]
    return f"Throughput over that of {rated[0][1].n_gpus:,} {rated[0][0]}: {', '.join(parts)}."


def facts(wanted: Wanted, r: ServeAnswer) -> list[tuple[str, str, str]]:
    """Throughput, times, cache."""
    rows = []
    if r.output_tokens_per_s is not None and r.total_tokens_per_s is not None:
        usd, note = r.usd_per_million_tokens, f"{figure(r.requests_per_s)} requests/s"
        note += f", {usd:.3g} USD per million tokens" if usd else ""
        rows.append(("p99", f"TTFT {ms(r.ttft_p99_s)} ms", f"TPOT {ms(r.tpot_p99_s)} ms"))
        rows.append(("with prompts", f"{figure(r.total_tokens_per_s)} tokens/s", note))
    if r.alone_tpot_s and r.alone_ttft_s and wanted.concurrency != 1:
        note = f"the first after {ms(r.alone_ttft_s)} ms"
        rows.append(("one user alone", f"{figure(1.0 / r.alone_tpot_s)} tokens/s", note))
    if r.time_s is not None:
        rows.append(("all requests", f"{figure(r.time_s)} s", f"{r.n_requests:,} simulated"))
    room = f"{r.kv_tokens:,.0f} tokens" if math.isfinite(r.kv_tokens) else "no limit"
    held = f"{figure(r.sequences_with_room)} sequences of the mean length in a replica"
    rows.append(("cache", room, f"of an attention rank, {r.kv}; {held}"))
    return rows


def footing(
    case: ServeCase, r: ServeAnswer, price: Price, known_to: tuple[float, float]
) -> list[str]:
    """Say what the numbers rest on: simulation, intervals, price."""
    lines = []
    if r.n_requests and r.ttft_error_frac is not None and r.tpot_error_frac is not None:
        error = max(r.ttft_error_frac, r.tpot_error_frac)
        waits = f", {r.n_preempted:,} pre-emptions" if r.n_preempted else ""
        lines.append(
            f"{r.n_requests:,} requests simulated{waits}; p95 +- {math.ceil(100 * error)} %."
        )
    lines.append(r.engine_settings)
    ttft, tpot = (math.exp(w) for w in known_to)
    kind = f"{case.loaded.gpu.architecture}, {r.engine}"
    own = itself(case, case.engine_of(r.engine))
    known = "" if own else "; not measured on such a GPU in such a version"
    lines.append(
        f"80 % of such estimates: TPOT x/÷ {tpot:.2f}, TTFT x/÷ {ttft:.2f} ({kind}{known})."
    )
    if price.usd_per_gpu_hour is not None:
        lines.append(f"{price.usd_per_gpu_hour:.2f} USD a GPU-hour ({price.origin}).")
    if r.bill is not None and r.bill.charge.energy_j is not None:
        rows = [row for row in bill_rows(r.bill) if row[0] in ("energy", "carbon")]
        lines += [f"An hour at this rate: {value}; {note}." for _, value, note in rows]
    return lines


def on_host(found: FoundReplica) -> list[str]:
    """Say what the host keeps, and the speed of its memory that is counted on."""
    what = found.candidate.what
    extras = None if isinstance(what, PooledService) else what.tuning.extras
    if extras is None or extras.offload is None:
        return []
    kept, rate = extras.offload, extras.offload.host_bytes_per_s
    share, read = f"{100 * kept.frac:.0f} %", f"{HOST_READ_EFF * rate / 1e9:.0f} GB/s"
    return [
        f"{'Experts' if kept.kind == 'experts' else 'Weights'} of {share} of the layers are on the "
        f"host, read at {read}: {100 * HOST_READ_EFF:.0f} % of its memory's {rate / 1e9:.0f} GB/s "
        "(--host-bandwidth; two channels of DDR5 have 80 to 100)."
    ]


# --- inputs ------------------------------------------------------------------------------------


def inputs_of(asked: Serve, case: ServeCase) -> dict[str, object]:
    """Repeat what was asked, with the defaults filled in."""
    shown = [reading.SHOWN.get(e, e) for e in case.engines]
    return case.loaded.inputs(
        catalogue=asked.catalogue,
        engine=shown,
        weights=list(case.weights),
        kv=case.cache_format(case.engines[0], case.weights[0]),
        input=str(asked.prompts),
        output=str(asked.output_len),
        rate_per_s=asked.rate,
        concurrency=asked.concurrency,
        burst=asked.burst,
        trace=asked.trace,
        ttft=limit_text("", asked.ttft).strip() or None,
        tpot=limit_text("", asked.tpot).strip() or None,
        n_gpus=asked.gpus,
        prefix_frac=asked.prefix_hit,
        seed=asked.seed,
    )
