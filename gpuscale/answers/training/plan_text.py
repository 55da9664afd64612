"""Layouts and quantities of a plan in words."""

from __future__ import annotations

from gpuscale.answers.options import length_words
from gpuscale.answers.saved import unsaid
from gpuscale.answers.training.plan_case import PlanCase, kept_by
from gpuscale.answers.training.plan_request import Request
from gpuscale.core.layout import DEFAULT_ORDER, Layout
from gpuscale.core.memory.fit import why
from gpuscale.core.plan.records import Estimate, PassedOver, PlanResult
from gpuscale.core.quantity import format_count, format_si
from gpuscale.core.search.results import Counts
from gpuscale.core.step.interval import NEAR_FULL_FRAC
from gpuscale.core.words import gb


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
