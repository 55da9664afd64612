"""Scans: several sizes, clusters, batches or sequence lengths, and the smallest that will do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpuscale.answers.money import rate_of
from gpuscale.answers.progress import Progress
from gpuscale.answers.training import plan_case
from gpuscale.answers.training.plan_answer import risks_of
from gpuscale.answers.training.plan_request import (
    GlobalBatch,
    Request,
    batches_of,
    seq_len_of,
    sizes_of,
    suited,
)
from gpuscale.answers.training.plan_text import degrees, seconds
from gpuscale.core.model.layer_shape import model_flop_per_token
from gpuscale.core.plan.records import ScanRow, estimate
from gpuscale.core.plan.scan import (
    SizeVerdict,
    choose,
    doubled_sizes,
    excess,
    largest,
    least_gpus,
    shortfalls,
    smallest,
    with_efficiency,
    with_pareto,
)
from gpuscale.core.records import dataclass, field, made_of, replace
from gpuscale.core.search.results import SearchResult
from gpuscale.errors import GpuscaleError
from gpuscale.io.inputs import Loaded
from gpuscale.io.step import memory_interval_factor
from gpuscale.render.document import Document

LARGEST = 131_072

LEAST_EFFICIENCY = 2 / 3
"""Throughput of a GPU, against the best size, below which more of them are not proposed for a
budget: nobody splits 512 sequences over 32,768 GPUs because the money would do."""


@dataclass(slots=True)
class PlanScan:
    """Rows so far, with the case of each."""

    request: Request
    progress: Progress
    rows: list[ScanRow] = field(default_factory=list)
    cases: list[plan_case.PlanCase] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    like: dict[tuple[str, int], plan_case.PlanCase] = field(default_factory=dict)  # share blocks
    gaps: bool = False  # whether sizes were left out that might have been the answer
    interrupted: bool = False


def scan_plan(request: Request) -> Document:
    """Answer a question over several cases."""
    from gpuscale.answers.training.plan_scan_answer import scan_document

    _check(request)
    scan = PlanScan(request, Progress(request.n_cases))
    for cluster in request.asked.clusters:
        loaded = plan_case.load_case(request, cluster)
        _check_prices(request, loaded)
        for seq_len in seq_len_of(request, loaded.model):
            for batch in batches_of(request, loaded.model, seq_len):
                _sizes(scan, loaded, seq_len, batch)
    scan.progress.clear()
    if not scan.rows:
        if scan.interrupted:
            raise KeyboardInterrupt
        raise GpuscaleError(scan.skipped[0] if scan.skipped else "nothing was searched")
    chosen = choose(scan.rows, request.asked.objective, request.size_wanted)
    at = scan.rows.index(chosen) if chosen else 0
    if chosen and request.size_wanted and not scan.interrupted:
        scan.rows[at] = _settled(scan, at)
    rows = with_pareto(with_efficiency(scan.rows))
    return scan_document(scan, rows, at if chosen else None)


def _settled(scan: PlanScan, at: int) -> ScanRow:
    """Row of the size that was found, with the best layout of those that meet the conditions."""
    case, row = scan.cases[at], scan.rows[at]
    limit_s = _slowest_s(scan, case, against=())
    result = _solved(scan, case, limit_s=limit_s)
    scan.interrupted = result.interrupted
    if result.best is None:
        return row
    found = _row(scan.request, case, estimate(case.problem, result.best.layout), row.counts)
    row = found if found.fits and found.meets else row
    usual = _solved(scan, case).best
    if usual is not None and usual.step_s > row.step_s * (1 + 1e-3):
        avoided = ", ".join(risks_of(case, row.layout, usual.layout)) or "its burden"
        alone = f"plan --gpus {row.n_gpus} takes {degrees(usual.layout)}, {seconds(usual.step_s)}"
        scan.skipped.append(f"{alone}, too slow for what is asked: experts avoid {avoided}")
    return row


def _solved(scan: PlanScan, case: plan_case.PlanCase, **how: Any) -> SearchResult:
    """Search for the best layout of a case alone."""
    return plan_case.solve(case, 0, scan.progress, follow_families=False, **how)


def _check(request: Request) -> None:
    asked = request.asked
    if asked.scaling is not None and len(asked.gpus) < 2:
        raise GpuscaleError("--scaling needs several sizes", "for example --gpus 512..16384")
    if asked.show_job:
        raise GpuscaleError("--show-job is for one case, not for a scan")
    several = (asked.seq_len, asked.batch_tokens, asked.global_batch)
    many = sum(map(len, several)) > 2
    if not request.asked.gpus and not request.conditions.any and many:
        raise GpuscaleError("missing option `--gpus`", "for example --gpus 4096")


def _check_prices(request: Request, loaded: Loaded) -> None:
    """Refuse to compare prices that are not known."""
    asked = request.asked
    wanted = asked.budget is not None or asked.objective == "tokens-per-dollar"
    if wanted and rate_of(loaded.cluster, plan_case.given_price(request, loaded.cluster)) is None:
        raise GpuscaleError(
            f"no price of {loaded.cluster.name} is known", "give one, as --price '2.5 USD/h'"
        )
    if request.conditions.deadline_s or request.conditions.budget_usd:
        if request.asked.tokens is None and loaded.model.training_tokens is None:
            raise GpuscaleError(
                f"the token budget of {loaded.model.name} is not known", "give one, as --tokens 15T"
            )


def _sizes(scan: PlanScan, loaded: Loaded, seq_len: int, batch: GlobalBatch) -> None:
    """Every size that is asked for, or the smallest that meets the conditions."""
    request = scan.request
    if not request.size_wanted or len(request.asked.gpus) > 1:
        scan.gaps, n_before = bool(request.size_wanted), len(scan.rows)
        for n in sizes_of(request, loaded.cluster):
            if scan.interrupted:
                return
            scaled = _scaled(batch, scan.request.asked.scaling, n, request.asked.gpus, seq_len)
            _try(scan, loaded, n, seq_len, scaled)
        node = loaded.cluster.gpus_per_node
        scan.rows[n_before:] = [_worth_it(scan, row, node) for row in scan.rows[n_before:]]
        return
    limit = loaded.cluster.n_gpus if loaded.cluster.kind in plan_case.WHOLE else None
    most = request.asked.gpus[0] if request.asked.gpus else (limit or LARGEST)
    node = loaded.cluster.gpus_per_node
    if request.size_wanted == "fewest":
        seeking = smallest(node, most, _least_gpus(request, loaded, seq_len))
    else:
        seeking = largest(node, most, fastest=request.size_wanted == "fastest")
    try:
        n, shown = next(seeking)
        while True:
            row = _try(scan, loaded, n, seq_len, batch, limited=not shown and bool(scan.rows))
            if scan.interrupted:
                return
            n, shown = seeking.send(_verdict(request, row))
    except StopIteration as end:
        scan.gaps |= end.value
    if request.size_wanted != "fewest" and not any(row.meets for row in scan.rows):
        _nearest(scan, loaded, doubled_sizes(node, most), seq_len, batch)


def _nearest(
    scan: PlanScan, loaded: Loaded, sizes: Iterator[int], seq_len: int, batch: GlobalBatch
) -> None:
    """Sizes around the one that misses the conditions by least, where none meets them."""
    tried = {row.n_gpus for row in scan.rows}
    least = float("inf")
    for n in sizes:
        row = _try(scan, loaded, n, seq_len, batch) if n not in tried else None
        by = excess(row, scan.request.conditions) if row else float("inf")
        if scan.interrupted or by > 2.0 * least:
            return
        least = min(least, by)


def _verdict(request: Request, row: ScanRow | None) -> SizeVerdict:
    """Whether a size meets the conditions; one that only costs too much is too large."""
    if row is not None and row.meets:
        return SizeVerdict.MEETS
    c = request.conditions
    slow = row is None or shortfalls(row, replace(c, budget_usd=None, mfu_at_least=None))
    return SizeVerdict.MORE if slow else SizeVerdict.FEWER


def _slowest_s(scan: PlanScan, case: plan_case.PlanCase, against: Sequence[ScanRow]) -> float:
    """Longest step with which a case can be the answer: it meets, and is not slower than one. [s].

    Where the fastest is wanted, rows that it stands `against` bound it too.
    """
    request = scan.request
    c, model, n = request.conditions, case.loaded.model, case.n_gpus
    tokens = request.asked.tokens or model.training_tokens
    limits = [c.max_step_s] if c.max_step_s is not None else []
    if c.deadline_s is not None and tokens:
        limits.append(c.deadline_s * case.batch_tokens / tokens)
    price = plan_case.price_of(case, request)
    if c.budget_usd is not None and tokens and price:
        limits.append(c.budget_usd / (n * price / 3600) * case.batch_tokens / tokens)
    if c.mfu_at_least is not None:
        limits.append(_step_at_s(case, case.problem.hardware.bf16_flop_per_s * c.mfu_at_least))
    if request.size_wanted == "fastest":
        limits += [case.batch_tokens / row.tokens_per_s for row in against if row.meets]
    return min(limits, default=float("inf")) * (1 + 1e-9)


def _step_at_s(case: plan_case.PlanCase, flop_per_s: float) -> float:
    """Step of a case at a rate of each GPU. [s]."""
    flop = model_flop_per_token(case.loaded.model, case.problem.facts.seq_len) * case.batch_tokens
    return flop / (case.n_gpus * flop_per_s)


def _least_gpus(request: Request, loaded: Loaded, seq_len: int) -> float:
    """Size below which the peak rate alone misses the deadline. [1]."""
    tokens = request.asked.tokens or loaded.model.training_tokens
    deadline = request.conditions.deadline_s
    if deadline is None or tokens is None:
        return 0.0
    rates = [loaded.gpu.flop_per_s(p) or 0.0 for p in plan_case.precisions(request, loaded)]
    flop = model_flop_per_token(loaded.model, seq_len)
    return least_gpus(tokens, flop, max(rates), deadline)


def _scaled(
    batch: GlobalBatch, scaling: str | None, n: int, sizes: tuple[int, ...], seq_len: int
) -> GlobalBatch:
    """Batch of one size: grown with the GPUs for weak scaling."""
    if scaling != "weak":
        return batch
    sequences = max(1, batch.sequences * n // sizes[0])
    origin = f"{batch.origin}, grown with GPUs"
    return GlobalBatch(batch.asked_tokens * n / sizes[0], sequences, origin)


def _try(
    scan: PlanScan,
    loaded: Loaded,
    n: int,
    seq_len: int,
    batch: GlobalBatch,
    *,
    limited: bool = False,
) -> ScanRow | None:
    """One case; what cannot be laid out at all is told, not fatal.

    `limited`: only whether it meets the conditions matters; None where it does not.
    """
    scan.progress.case_done() if scan.rows or scan.skipped else None
    like = scan.like.get((loaded.cluster.name, seq_len))
    try:
        suit = suited(scan.request, batch, seq_len, n)
        case = plan_case.make_case(loaded, scan.request, n, seq_len, suit, like)
        limit_s = _slowest_s(scan, case, against=scan.rows) if limited else float("inf")
        peak = max(loaded.gpu.flop_per_s(p) or 0.0 for p in case.space.precision)
        if limit_s < _step_at_s(case, peak):
            return None
        result = safe = _solved(scan, case, limit_s=limit_s, weigh=not limited)
        if result.best is None and scan.request.asked.fit is None and not result.interrupted:
            bold = plan_case.less_safe(case)
            result = _solved(scan, bold, limit_s=limit_s, weigh=not limited)
            if limit_s < float("inf") and result.best is not None and not result.interrupted:
                safe = _solved(scan, case, weigh=False)
            if safe.best is not None:  # too slow: no reason to be less safe
                return None
            case = bold
    except GpuscaleError as error:
        asked = scan.request
        if asked.n_cases == 1 and asked.asked.gpus and not asked.conditions.any:
            raise
        if not limited:
            scan.skipped.append(f"{n:,} GPUs of {loaded.cluster.name}: {error.message}")
        return None
    scan.like.setdefault((loaded.cluster.name, seq_len), case)
    scan.interrupted = result.interrupted
    if limited and result.best is None:
        return None
    layout = plan_case.best_or_closest(case, result)
    if layout is None:
        return None
    row = _row(scan.request, case, estimate(case.problem, layout), result.counts)
    limit_s = _slowest_s(scan, case, against=())
    able = row.fits and not (row.meets or limited) and limit_s >= _step_at_s(case, peak)
    if scan.request.size_wanted and able:
        result = _solved(scan, case, limit_s=limit_s, weigh=False)
        if result.best is not None:  # it meets with a layout that experts avoid
            row = _row(scan.request, case, estimate(case.problem, result.best.layout), row.counts)
    if len(scan.request.asked.gpus) <= 1:  # sizes grow; those of a list are in any order
        row = _worth_it(scan, row, loaded.cluster.gpus_per_node)
    scan.rows.append(row)
    scan.cases.append(case)
    return row


def _worth_it(scan: PlanScan, row: ScanRow, node: int) -> ScanRow:
    """Row of a size; where the fastest for some money is wanted, too large a one does not meet.

    It stands against the doubled sizes below it, which are tried whichever way sizes are asked
    for; against all below it where a list names none of those.
    """
    if scan.request.size_wanted != "fastest" or not row.meets:
        return row
    fewer = {
        r.n_gpus: r.tokens_per_s_per_gpu
        for r in scan.rows
        if r.fits and (r.cluster, r.seq_len) == (row.cluster, row.seq_len) and r.n_gpus < row.n_gpus
    }
    rates = [fewer[n] for n in doubled_sizes(node, row.n_gpus) if n in fewer] or fewer.values()
    share = row.tokens_per_s_per_gpu / max(rates, default=row.tokens_per_s_per_gpu)
    if share >= LEAST_EFFICIENCY:
        return row
    why = f"a GPU trains {100 * share:.0f} % of what it does among fewer"
    return replace(row, meets=False, why_not=why)


def _row(request: Request, case: plan_case.PlanCase, best: Any, counts: Any) -> ScanRow:
    ahead = plan_case.prospect_of(case, request, best)
    run = ahead.run if ahead else None
    price = plan_case.price_of(case, request)
    per_usd = best.step.tokens_per_s * 3600 / (price * case.n_gpus) if price else None
    row = made_of(
        ScanRow,
        best,
        best.step,
        case.problem.facts,
        cluster=case.cluster.name,
        n_gpus=case.n_gpus,
        fits=best.peak_bytes <= best.room_bytes,
        meets=True,
        step_s=best.step_s,
        ideal_days=run.days if run else None,
        days=run.expected_days if run else None,
        gpu_hours=run.gpu_hours if run else None,
        usd=run.usd if run else None,
        tokens_per_usd=per_usd,
        scaling_efficiency=None,
        pareto=False,
        why_not="",
        counts=counts,
        memory_interval_factor_80=memory_interval_factor(case.loaded.specs["software"].name),
    )
    failed = shortfalls(row, request.conditions)
    return replace(row, meets=not failed, why_not="; ".join(failed))
