"""Summaries of fine-tuning and RL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.finetune.plan_blocks import OFFLOADED
from gpuscale.answers.finetune.rl_blocks import PHASES
from gpuscale.answers.finetune.words import PARTS, layout_words, method_words, time_text
from gpuscale.answers.summary import (
    bottleneck,
    chance_tone,
    cost_points,
    largest_parts,
    memory_point,
    taken_points,
)
from gpuscale.core.words import gb
from gpuscale.render.document import Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscale.answers.finetune.case import Case
    from gpuscale.answers.finetune.memory import TuningMemory
    from gpuscale.answers.finetune.plan_blocks import TuningPlan
    from gpuscale.answers.finetune.rl_blocks import RlAnswer
    from gpuscale.core.finetune.bench import Trial
    from gpuscale.core.finetune.job import Job
    from gpuscale.core.finetune.remedy import Remedy
    from gpuscale.core.rl.estimate import RlEstimate


def _head(case: Case, job: Job, r: TuningMemory | TuningPlan, said: str) -> list[Point]:
    """Verdict, method, layout, memory."""
    ends = r.peak_low_bytes, r.peak_high_bytes
    tone = chance_tone(r.fits_probability) if r.fits else "bad"
    return [
        Point("verdict", said, tone=tone),
        Point("method", method_words(job)),
        Point("layout", layout_words(job), case.software.name),
        memory_point(r.peak_bytes, r.capacity_bytes, ends, tone),
        *_asked_for(r),
        largest_parts([(label, getattr(r.expected, key)) for label, key in PARTS]),
    ]


def _asked_for(r: TuningMemory | TuningPlan | RlAnswer) -> list[Point]:
    """Ask for the open setting that decides, with what it decides."""
    return [Point("decides", r.decides)] if r.decides else []


def _remedy_points(found: Sequence[Remedy]) -> list[Point]:
    """First change, or changes on top of each other, that make it fit."""
    if not found:
        return []
    first = next((i for i, remedy in enumerate(found) if remedy.fits), len(found) - 1)
    words = [remedy.words for remedy in found[: first + 1]]
    shown = words[:3] + ([f"{len(words) - 3} more (--show remedies)"] if len(words) > 3 else [])
    after = f"then {gb(found[first].total_bytes)} a GPU"
    return [Point("would fit" if found[first].fits else "would help", "; ".join(shown), after)]


def memory_summary(case: Case, job: Job, r: TuningMemory, said: str) -> list[Point]:
    """Memory of a fine-tuning job."""
    room = (
        f"{r.longest_seq_len:,} tokens, or micro-batch {r.largest_micro_batch:,}; "
        f"{r.trained_params / 1e6:,.1f} M parameters are trained"
    )
    found = _head(case, job, r, said)
    found.append(Point("step", time_text(r.step_s), f"{r.tokens_per_s:,.0f} tokens/s"))
    found += [Point("longest", room)] if r.fits else _remedy_points(r.remedies)
    if r.fewest_gpus is not None:
        found.append(Point("fewest GPUs", f"{r.fewest_gpus:,}"))
    found += taken_points(r.taken)
    kind = "qlora" if job.method.quantised and job.method.kind == "lora" else job.method.kind
    following = f"gpuscale plan {case.loaded.model.name} --method {kind}"
    return [*found, Point("next", following, "hours and dollars")]


def passed_over_points(r: TuningPlan) -> list[Point]:
    """Name the faster way that fits less surely, with its gain and its risk."""
    f, chance = r.passed_over, r.passed_over_fits_probability
    if f is None or chance is None:
        return []
    gain = 100 * (f.tokens_per_s / r.tokens_per_s - 1)
    what = f"micro-batch {f.micro_batch_size}, recompute {f.recompute}, ZeRO {f.zero_stage}"
    what += f", offload {', '.join(f.offload)}" if f.offload else ""
    risk = f"{gb(f.peak_bytes)}, fits at {100 * chance:.0f} % (--fit expected)"
    return [Point("passed over", f"{gain:.0f} % faster: {what}", risk)]


def plan_summary(case: Case, trial: Trial, r: TuningPlan, said: str, told: str) -> list[Point]:
    """Summary of a fine-tuning run."""
    found = _head(case, trial.job, r, said)
    low_high = f"(80 %: {time_text(r.step_low_s)} to {time_text(r.step_high_s)})"
    each = f"{r.tokens_per_s / r.n_gpus:,.0f} tokens/s a GPU"
    batch = f"{r.layout.global_batch_size} sequences"
    found.append(Point("step", time_text(r.step_s), f"{low_high}, {batch}, {each}"))
    if r.fits:
        found.append(Point("run", time_text(r.run_s), told))
        found += cost_points(r.bill)
        parts = {**r.breakdown.parts(), "offload_s": r.offload_s}
        found.append(bottleneck(parts, OFFLOADED, r.step_s))
    else:
        found += _remedy_points(r.remedies)
    found += passed_over_points(r)
    others = len(r.options) - 1
    if others > 0:
        found.append(Point("other ways", f"{others} more fit", "--show alternatives"))
    return [*found, *taken_points(r.taken)]


def rl_summary(case: Case, r: RlAnswer, e: RlEstimate, said: str, what: str) -> list[Point]:
    """Summary of a step of RL."""
    ends = r.peak_low_bytes, r.peak_high_bytes
    tone = chance_tone(r.fits_probability) if r.fits else "bad"
    phases = {key: getattr(e.step, key) for _, key in PHASES}
    low_high = f"(80 %: {time_text(r.step_low_s)} to {time_text(r.step_high_s)})"
    found = [
        Point("verdict", said, tone=tone),
        Point("method", what),
        Point("layout", layout_words(case.job), case.software.name),
        Point("step", time_text(r.step_s), f"{low_high}, {r.samples_per_s:,.2f} samples/s"),
        memory_point(r.peak_bytes, r.capacity_bytes, ends, tone),
        *_asked_for(r),
        bottleneck(phases, {key: label for label, key in PHASES}, r.step_s),
    ]
    if r.run_s is not None and r.steps is not None:
        found.append(Point("run", time_text(r.run_s), f"{r.steps:,} steps"))
    found += cost_points(r.bill, "" if r.run_s else "a step, ")
    if r.fewest_gpus is not None:
        found.append(Point("fewest GPUs", f"{r.fewest_gpus:,}"))
    return [*found, *taken_points(r.taken)]
