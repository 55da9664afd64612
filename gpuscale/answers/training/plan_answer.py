"""The answer of a plan for one case: result, inputs."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

from gpuscale.answers.saved import CHOSEN, said_by
from gpuscale.answers.training.memory_verdict import loss_moves
from gpuscale.answers.training.plan_case import PlanCase, families_apart, less_safe, prospect_of
from gpuscale.answers.training.plan_request import Request
from gpuscale.answers.training.plan_text import by_maturity, seconds, taken, taken_of
from gpuscale.core.layout import Layout
from gpuscale.core.limits.board import LimitRow, limits_board
from gpuscale.core.plan.records import (
    Alternative,
    Effect,
    Estimate,
    PassedOver,
    PlanResult,
    Remedy,
    estimate,
)
from gpuscale.core.plan.scan import why_worse
from gpuscale.core.records import asdict, dataclass, made_of, replace
from gpuscale.core.search.burden import risks
from gpuscale.core.search.engine import fastest
from gpuscale.core.search.results import FoundLayout, SearchResult
from gpuscale.core.step.operators import peak_flop_per_s
from gpuscale.core.verdict import deciding
from gpuscale.io.jobs import step_interval
from gpuscale.io.step import interval_table, memory_interval_factor, one_peak
from gpuscale.io.toml_out import table_to_toml


def board_of(case: PlanCase, layout: Layout) -> tuple[LimitRow, ...]:
    """Limits of a layout, for the batch that was asked for; empty where they do not apply."""
    peak = peak_flop_per_s(case.problem.hardware, layout.precision)
    try:
        return limits_board(case.loaded.model, case.cluster, layout, case.batch.asked_tokens, peak)
    except ValueError:
        return ()


def alternatives_of(
    case: PlanCase, result: SearchResult, best: Estimate, n_next: int, unfit: Mapping[str, Layout]
) -> tuple[Alternative, ...]:
    """Best of each other family, next best few, and families that do not fit at all."""
    ranked = sorted(result.families.values(), key=lambda f: f.step_s)
    chosen = [("passed over", result.fastest.layout)] if result.fastest else []
    chosen += [("best of family", f.layout) for f in ranked]
    chosen += [("next best", f.layout) for f in result.next_best[:n_next]]
    chosen += [("does not fit", layout) for layout in unfit.values()]
    kinds: dict[Layout, str] = {}
    for kind, layout in chosen:
        if layout != best.layout:
            kinds.setdefault(layout, kind)
    return tuple(_alternative(case, kind, layout, best) for layout, kind in kinds.items())


def _alternative(case: PlanCase, kind: str, layout: Layout, best: Estimate) -> Alternative:
    other = estimate(case.problem, layout)
    slower = other.step_s / best.step_s - 1
    avoided = risks_of(case, layout, best.layout)
    if slower < 0.0 and avoided:
        why = f"faster, passed over: {', '.join(avoided[:3])}"
    else:
        why = why_worse(other, best, board_of(case, layout))
    own = {"kind": kind, "slower_frac": slower, "why": why}
    return made_of(Alternative, other, other.step, layout=layout, **own)


def risks_of(case: PlanCase, layout: Layout, chosen: Layout) -> tuple[str, ...]:
    """List what an expert avoids in a layout that is not in the one chosen."""
    return risks(layout, chosen, case.problem.facts, case.problem.hardware.scaleup_domain_gpus)


def passed_over(case: PlanCase, best: Estimate, faster: FoundLayout | None) -> PassedOver | None:
    """Say of a faster layout why another was chosen; None where it is not faster by 0.1 %."""
    gain = 1.0 - faster.step_s / best.step_s if faster else 0.0
    if faster is None or gain < 1e-3:
        return None
    avoided = risks_of(case, faster.layout, best.layout)
    factor = memory_interval_factor(case.loaded.specs["software"].name)
    chance = one_peak(faster.peak_bytes, best.capacity_bytes, factor)
    return PassedOver(faster.layout, faster.step_s, gain, avoided, faster.peak_bytes, chance)


def bolder(case: PlanCase, request: Request, result: SearchResult) -> FoundLayout | None:
    """Fastest layout that fits if its memory is as expected, where the safe ones are slower."""
    safe = result.fastest
    if request.asked.fit is not None or case.problem.fit_factor == 1.0 or safe is None:
        return None
    return fastest(less_safe(case).problem, case.space, limit_s=safe.step_s)


def plan_result(
    case: PlanCase,
    request: Request,
    best: Estimate,
    result: SearchResult,
    *,
    n_next: int,
    sensitivity: tuple[Effect, ...] = (),
    remedies: tuple[Remedy, ...] = (),
) -> PlanResult:
    """Put the record of an answer together."""
    lay, spec = best.layout, case.loaded.specs["software"]
    software = spec.name
    low_s, high_s = step_interval(best.step, case.problem, software, lay)
    step = replace(best.step, low_s=low_s, high_s=high_s)
    room = max(best.capacity_bytes, best.room_bytes)
    job = said_job(used_job(case, request), request)
    unfit, slow = ({}, ()) if result.interrupted else families_apart(case, result)
    ahead = prospect_of(case, request, best)
    proposed = result.best is not None and result.best.layout == lay and not result.interrupted
    return made_of(
        PlanResult,
        best,
        step,
        n_gpus=case.n_gpus,
        layout=lay,
        step_s=step.expected_s,
        step_low_s=low_s,
        step_high_s=high_s,
        passed_over=passed_over(case, best, result.fastest if proposed else None),
        bolder=passed_over(case, best, bolder(case, request, result) if proposed else None),
        maturity=case.problem.software.maturity.name,
        tuned_probability=case.problem.software.maturity.tuned_probability,
        **by_maturity(case, request, best, ahead.run if ahead else None),
        model_flop_per_s_per_gpu=step.model_flop / step.expected_s / lay.n_gpus,
        batch_tokens=case.batch_tokens,
        asked_batch_tokens=case.batch.asked_tokens,
        tokens_per_gpu=case.batch.asked_tokens / case.n_gpus,
        tokens_per_dp_rank=case.batch.asked_tokens / (lay.dp * lay.cp),
        hbm_bytes=case.problem.hardware.hbm_bytes,
        memory_interval_factor_80=(factor := memory_interval_factor(software)),
        fits_probability=one_peak(best.peak_bytes, room, factor),
        **{name: getattr(ahead, name, None) for name in ("run", "outlook", "bill", "checkpoint")},
        step=step,
        limits=board_of(case, lay),
        alternatives=alternatives_of(case, result, best, n_next, unfit),
        slow_families=slow,
        sensitivity=sensitivity,
        remedies=remedies,
        counts=result.counts,
        decides=_decides(case, request, best),
        taken=taken_of(case, request, lay.recompute),
        said_by=said_by(request.said, spec, searched=[n for n in CHOSEN if n not in spec.keeps]),
        job=job.job,
        job_toml=job.job_toml,
    )


def _decides(case: PlanCase, request: Request, best: Estimate) -> str:
    """Ask for the loss kernel, where it decides whether the layout fits, and for the framework."""
    asked, p, found = request.asked, case.problem.memory_parameters, []
    if best.fits and asked.job_settings.loss is None:
        moves = loss_moves(case.problem.memory_facts, best.layout, p, bool(asked.software))
        found = [deciding(moves, best.peak_bytes, best.capacity_bytes, best.layout.seq_len)]
    way, row = case.problem.software.maturity, interval_table()["maturity"]["eager/as-it-comes"]
    if best.fits and not asked.software and way.tuned_probability is not None:
        usual, slow = row["median"] * best.step_s / way.factor, exp(row["slower"])
        own = f"--software: {seconds(best.step_s)} with {case.loaded.specs['software'].name}"
        others = f"others {seconds(usual)}, up to {seconds(usual * slow)}"
        found.append(f"{own}; {others}")
    return "; ".join(filter(None, found))


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """A job as `plan.toml` says it."""

    job: dict[str, object]
    job_toml: str


def said_job(table: Mapping[str, Any], request: Request) -> JobAnswer:
    """Job with the dimensions that are pinned, and its text."""
    pins = dict(request.asked.pinned)
    known = {key: value for key, value in table.items() if value is not None}
    text = table_to_toml(known | ({"layout": pins} if pins else {}))
    return JobAnswer({**table, "layout": pins}, text)


def used_job(case: PlanCase, request: Request) -> dict[str, object]:
    """Say the job as a `plan.toml` would, defaults filled in."""
    facts = case.problem.facts
    job: dict[str, object] = dict(request.job)
    job |= {
        "cluster": job.get("cluster", request.asked.clusters[0]),
        "gpus": case.n_gpus,
        "seq_len": facts.seq_len,
        "precision": ",".join(case.space.precision),
        "software": request.software,
        "objective": request.asked.objective,
    }
    if request.asked.global_batch:
        job["global_batch"] = facts.global_batch_size
    else:
        job.setdefault("batch_tokens", int(case.batch.asked_tokens))
    tokens = case.loaded.model.training_tokens
    if tokens is not None:
        job.setdefault("tokens", int(tokens))
    return job


def inputs_of(case: PlanCase, request: Request) -> dict[str, object]:
    """List what was computed with."""
    facts = case.problem.facts
    return case.loaded.inputs(
        catalogue=request.asked.catalogue,
        n_gpus=case.n_gpus,
        seq_len=facts.seq_len,
        global_batch_size=facts.global_batch_size,
        asked_batch_tokens=case.batch.asked_tokens,
        precision=list(case.space.precision),
        objective=request.asked.objective,
        pins=dict(request.asked.pinned),
        maturity=case.problem.software.maturity.name,
        settings=taken(case.problem, request).said,
        facts=asdict(replace(facts, runs_on=replace(facts.runs_on, refused=()))),
    )
