"""A plan in words: layouts and quantities; jobs of other maturities; its headline terms."""

from __future__ import annotations

from gpuscale.answers.lifetime import conditions_of
from gpuscale.answers.money import stops_per_s
from gpuscale.answers.options import length_words
from gpuscale.answers.run_terms import BilledTime, bill_terms, outlook_terms
from gpuscale.answers.saved import unsaid
from gpuscale.answers.summary import span
from gpuscale.answers.training.plan_case import PlanCase, kept_by, prospect_of
from gpuscale.answers.training.plan_request import Request
from gpuscale.core.layout import DEFAULT_ORDER, Layout
from gpuscale.core.memory.fit import peak_term, usable_term, why
from gpuscale.core.plan.records import ByMaturity, Estimate, PassedOver, PlanResult, Run, estimate
from gpuscale.core.quantity import format_count, format_si
from gpuscale.core.records import Term, replace, term_of, total_of
from gpuscale.core.run.time import SECONDS_PER_DAY
from gpuscale.core.search.problem import Problem
from gpuscale.core.search.results import Counts
from gpuscale.core.settings import MATURITY_WORDS, JobSettings
from gpuscale.core.step.ideal import NEAR_FULL_FRAC
from gpuscale.core.step.moe import unable
from gpuscale.core.step.terms import part_terms
from gpuscale.core.words import gb
from gpuscale.io.jobs import LeastDegrees, job_problem, step_interval


def seconds(value: float) -> str:
    """Time with three or four digits."""
    return format_si(value, "s", 3 if value >= 1e-3 else 2) if value else "0"


def days(time_s: float) -> str:
    """Duration of a run.

    >>> days(86400 * 54), days(3600)
    ('54.0 days', '60.0 min')
    """
    return f"{time_s / 86400:,.1f} days" if time_s >= 86400 else seconds(time_s)


def number(value: float, digits: int = 4) -> str:
    """Large number: whole below a million, then M, B, T.

    >>> number(514041.7), number(3.576e6)
    ('514,042', '3.576M')
    """
    return f"{value:,.0f}" if value < 1e6 else format_count(value, digits)


def percent(value: float) -> str:
    """Fraction in percent."""
    return f"{100 * value:.1f} %"


def sharding(layout: Layout) -> str:
    """Name how the states are sharded.

    >>> from gpuscale.core.layout import Layout
    >>> sharding(Layout(8, 8, dp=8, zero_stage=3)), sharding(Layout(8, 8, zero_stage=1))
    ('FSDP', 'ZeRO-1')
    """
    if layout.zero_stage == 3:
        group = layout.shard_group_size
        return "FSDP" if group is None else f"HSDP {group}"
    return f"ZeRO-{layout.zero_stage}" if layout.zero_stage else "ZeRO off"


def degrees(layout: Layout) -> str:
    """Degrees of a layout, those of 1 left out.

    >>> from gpuscale.core.layout import Layout
    >>> degrees(Layout(8, 8, tp=8, pp=4, vpp=5, dp=2, schedule="interleaved"))
    'TP 8 x PP 4 x DP 2'
    """
    parts = [f"TP {layout.tp}"] if layout.tp > 1 else []
    parts += [f"CP {layout.cp}"] if layout.cp > 1 else []
    parts += [f"PP {layout.pp}"] if layout.pp > 1 else []
    parts.append(f"DP {layout.dp}")
    text = " x ".join(parts)
    if layout.ep > 1 or layout.etp > 1:
        text += f", EP {layout.ep}" + (f" x ETP {layout.etp}" if layout.etp > 1 else "")
    return text


def recompute(layout: Layout) -> str:
    """Recomputation in words."""
    if layout.recompute == "none":
        return "no recompute"
    if layout.recompute_layers is not None:
        return f"{layout.recompute} recompute of {layout.recompute_layers} layers a stage"
    return f"{layout.recompute} recompute"


def schedule(layout: Layout) -> str:
    """Pipeline schedule in words; empty without a pipeline."""
    if layout.pp == 1:
        return ""
    return layout.schedule + (f" x{layout.vpp}" if layout.vpp > 1 else "")


def details(layout: Layout) -> str:
    """Everything of a layout beside its degrees, what is usual left out."""
    parts = [f"micro-batch {layout.micro_batch_size}", f"{layout.n_micro_batches:,} a rank"]
    parts = [" x ".join(parts), schedule(layout), sharding(layout), recompute(layout)]
    if layout.cp > 1:
        parts.append(f"CP by {layout.cp_kind}")
    if layout.tp > 1 and not layout.sequence_parallel:
        parts.append("no sequence parallelism")
    off = [n for n in ("tp", "dp", "pp") if not getattr(layout, f"overlap_{n}")]
    parts += [f"no overlap of {', '.join(off)}"] if off else []
    parts += ["pipeline inside DP"] if layout.order != DEFAULT_ORDER and layout.pp > 1 else []
    parts += ["optimizer on the host"] if layout.offload_optimizer else []
    parts += ["activations on the host"] if layout.offload_activations else []
    return ", ".join(p for p in parts if p)


def short(layout: Layout) -> str:
    """Layout in one cell.

    >>> from gpuscale.core.layout import Layout
    >>> short(Layout(8, 64, tp=8, pp=4, vpp=5, dp=2, schedule="interleaved", recompute="full"))
    'TP8 PP4x5 DP2 Z1 mb1 full'
    """
    parts = [f"TP{layout.tp}"] if layout.tp > 1 else []
    parts += [f"CP{layout.cp}"] if layout.cp > 1 else []
    if layout.pp > 1:
        parts.append(f"PP{layout.pp}" + (f"x{layout.vpp}" if layout.vpp > 1 else ""))
    parts.append(f"DP{layout.dp}")
    parts += [f"EP{layout.ep}"] if layout.ep > 1 else []
    parts += [f"ETP{layout.etp}"] if layout.etp > 1 else []
    parts.append(sharding(layout).replace("ZeRO off", "Z0").replace("ZeRO-", "Z").replace(" ", ""))
    parts.append(f"mb{layout.micro_batch_size}")
    if layout.recompute != "none":
        layers = "" if layout.recompute_layers is None else str(layout.recompute_layers)
        parts.append({"selective": "sel"}.get(layout.recompute, layout.recompute) + layers)
    if layout.pp > 1 and layout.schedule not in ("1f1b", "interleaved"):
        parts.append(layout.schedule)
    parts += ["offload"] if layout.offload_optimizer else []
    return " ".join(parts)


def left_text(left_bytes: float, fits: bool) -> str:
    """Say what memory is left, or how much it is short; ``fits``: at the end of its interval.

    >>> left_text(2e9, True), left_text(-2e9, False)
    ('2.00 GB left', '2.00 GB too much')
    """
    if left_bytes >= 0.0:
        return f"{gb(left_bytes)} left"
    at = " unless it is at the lower end of its interval (--fit tight)" if fits else ""
    return f"{gb(-left_bytes)} too much{at}"


def memory_text(e: Estimate, hbm_bytes: float) -> str:
    """Say against what the memory stands, and why that GPU is the fullest."""
    left = e.headroom_bytes
    verdict = left_text(left, e.fits)
    reason = why(e.memory, e.layout.pp)
    return (
        f"of {gb(e.capacity_bytes)} usable ({gb(hbm_bytes)} HBM), {verdict}; "
        f"stage {e.memory.stage + 1} of {e.layout.pp}: {reason}"
    )


def memory_interval_text(r: PlanResult) -> str:
    """Say how far the memory may be off, and what to do where that is too much."""
    low = r.peak_bytes / r.memory_interval_factor_80
    high = r.peak_bytes * r.memory_interval_factor_80
    text = f"80 % interval {low / 1e9:,.1f} to {gb(high)}"
    if r.fits and high > r.capacity_bytes:
        text += ": it may not fit; --objective memory-headroom leaves more"
    if r.fits and r.layout.zero_stage == 3 and r.peak_bytes > NEAR_FULL_FRAC * r.hbm_bytes:
        text += f"; above {NEAR_FULL_FRAC:.0%} of the HBM a step may take 10 to 24 % longer"
    return text


def passed_text(passed: PassedOver, chosen: Layout) -> str:
    """Say what the fastest layout would gain, and what experts avoid in it."""
    other = passed.layout
    how = details(other) if degrees(other) == degrees(chosen) else sharding(other)
    avoid = f"; experts avoid {', '.join(passed.risks[:3])}" if passed.risks else ""
    return f"{how}, computed {percent(passed.gain_frac)} faster{avoid}"


def counts_text(counts: Counts, interrupted: bool = False) -> str:
    """Say how many layouts there were and what became of them."""
    text = (
        f"{counts.declared:,} layouts in the space: {counts.evaluated:,} evaluated, "
        f"{counts.too_large:,} do not fit, {counts.bounded:,} ruled out by a lower bound of their "
        f"time, {counts.dominated:,} never better than a sister layout"
    )
    return text + ("; interrupted, best so far" if interrupted else "")


def taken_of(case: PlanCase, request: Request, recompute: str) -> tuple[str, ...]:
    """List what nobody said of a plan, and the options that say it."""
    asked, facts = request.asked, case.problem.facts
    software, pins = case.loaded.specs["software"], request.pin_texts
    batch = f"batch {number(case.batch.asked_tokens)} tokens"
    own = facts.settings.recompute_modules if recompute == "selective" else None
    return unsaid(
        (asked.cluster or asked.gpu, case.cluster.name, "--cluster"),
        (asked.batch_tokens or asked.global_batch, batch, "--batch-tokens"),
        (asked.seq_len, length_words(facts.seq_len, case.loaded.model), "--seq-len"),
        (asked.software, software.name, "--software"),
        (asked.precision, ", ".join(case.space.precision), "--precision"),
        (
            not own or request.asked.job_settings.recompute_modules,
            f"recomputed: {', '.join(own or ())}",
            "--recompute-modules",
        ),
    ) + unsaid(*((pins.get(k), f"{k} {v}", f"--{k}") for k, v in kept_by(software).items()))


def by_maturity(
    case: PlanCase, request: Request, best: Estimate, run: Run | None
) -> dict[str, ByMaturity | None]:
    """Time the layout tuned and as it comes; None where it does not fit or a site measured."""
    said = best.fits and case.problem.hardware.site_factor == 1.0
    return {
        key: _of(case, request, best, run, name) if said else None
        for key, name in (("tuned", "tuned"), ("as_it_comes", "as-it-comes"))
    }


def _of(case: PlanCase, request: Request, best: Estimate, run: Run | None, name: str) -> ByMaturity:
    problem, software = case.problem, case.loaded.specs["software"].name
    if name != problem.software.maturity.name:
        wanted = replace(request.asked.job_settings, maturity=name)
        degrees = LeastDegrees.of(best.layout)
        problem = job_problem(case.loaded, problem.facts, wanted, case.precision, degrees)
    step = estimate(problem, best.layout).step
    times = step.expected_s / best.step_s
    low, high = step_interval(step, problem, software, best.layout)
    return ByMaturity(
        maturity=name,
        step_s=step.expected_s,
        step_low_s=low,
        step_high_s=high,
        days=None if run is None else run.expected_days * times,
        usd=None if run is None or run.usd is None else run.usd * times,
        settings=taken(problem, request, best.layout).words,
    )


def taken(problem: Problem, request: Request, layout: Layout | None = None) -> JobSettings:
    """Leave out of settings what says nothing of the layout, unless it was said."""
    said, settled = request.asked.job_settings, problem.facts.settings
    found = replace(settled, maturity=said.maturity, balance=said.balance)
    if layout is None or layout.recompute != "selective":
        found = replace(found, recompute_modules=said.recompute_modules)
    if layout is None:
        return found
    took = unable(problem.software, layout.recompute, layout.pp, layout.vpp)
    if took.overlap_ep and layout.ep > 1 and found.overlap_ep is None:
        found = replace(found, overlap_ep=True)
    if took.cuda_graphs == "layer" and found.cuda_graphs is None:
        found = replace(found, cuda_graphs="layer")
    return found


def step_text(r: PlanResult) -> str:
    """Say the step with its interval, and what it is for the other maturities."""
    if r.tuned is None and r.maturity != "measured":
        return seconds(r.step_s)
    others = [
        f"{seconds(m.step_s)} {'if ' * (m.maturity == 'tuned')}{MATURITY_WORDS[m.maturity]}"
        for m in others_of(r)
    ]
    within = "; ".join([span(seconds(r.step_low_s), seconds(r.step_high_s)), *others])
    by = f" {MATURITY_WORDS['measured']}" if r.maturity == "measured" else ""
    return f"{seconds(r.step_s)}{by} ({within})"


def maturity_words(r: PlanResult) -> str:
    """Say of which maturity a step is."""
    if r.tuned_probability is None:
        return MATURITY_WORDS[r.maturity]
    return f"{100 * r.tuned_probability:.0f} % likely a tuned job (--maturity)"


def run_of(m: ByMaturity) -> str:
    """Length and price of the run at the end of a line; empty where none is known."""
    if m.days is None:
        return ""
    usd = "" if m.usd is None else f" and {format_si(m.usd, 'usd')}"
    return f", {days(m.days * SECONDS_PER_DAY)}{usd}"


def others_of(r: PlanResult) -> list[ByMaturity]:
    """List the maturities beside that of the job."""
    return [m for m in (r.tuned, r.as_it_comes) if m is not None and m.maturity != r.maturity]


def terms_of(case: PlanCase, request: Request, best: Estimate) -> tuple[Term, ...]:
    """Explain step, roofline, MFU, throughput, memory, run and bill of a layout."""
    return (*layout_terms(case, best), *_run(case, request, best))


def layout_terms(case: PlanCase, best: Estimate) -> tuple[Term, ...]:
    """Explain a step of a layout and its memory."""
    step, p = best.step, case.problem
    hw = p.hardware
    return (
        total_of(
            "step_s",
            step.expected_s,
            "s",
            step.expected.parts(),
            "expected: calibrated step model (core/step)",
            children=part_terms(p.model, hw, p.software, best.layout, step.expected),
        ),
        total_of(
            "roofline_s",
            step.roofline.total_s,
            "s",
            step.roofline.parts(),
            "roofline: the same formulas with peak rates, no latency, perfect overlap",
        ),
        term_of(
            "mfu",
            "frac",
            "model_flop / (n_gpus * peak_flop_per_s * step_s)",
            "model FLOP without recomputation over 16-bit peak (PaLM, appendix B)",
            step,
            peak_flop_per_s=hw.bf16_flop_per_s,
            step_s=step.expected_s,
        ),
        term_of(
            "tokens_per_s", "", "batch_tokens / step_s", "tokens of a step", step, *(case, best)
        ),
        peak_term(p.memory_facts, best.layout, p.memory_parameters, best.memory),
        usable_term(case.loaded.gpu.usable_hbm_bytes, hw.hbm_bytes, best.capacity_bytes),
    )


def _run(case: PlanCase, request: Request, best: Estimate) -> tuple[Term, ...]:
    """Time, failures and bill of all tokens; nothing where no number of tokens is known."""
    ahead, asked = prospect_of(case, request, best), request.asked
    if ahead is None:
        return ()
    ideal_s = ahead.run.time_s
    formula, source = "tokens / batch_tokens * step_s", "without failures"
    ideal = term_of("ideal_s", "s", formula, source, ahead.run, *(case, best), ideal_s=ideal_s)
    met = conditions_of(asked, case.n_gpus, ahead.checkpoint, stops_per_s(asked))
    held = BilledTime(
        ahead.outlook.expected_s, case.n_gpus, 1 - ahead.outlook.goodput.recovery_frac
    )
    return (ideal, *outlook_terms(ahead.outlook, met), *bill_terms(ahead.bill, held))
