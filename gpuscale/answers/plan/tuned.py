"""A mixture of experts as its published recipes run it, beside the step as the software comes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.answers.plan.case import estimate_of, make_case, proposals, solve
from gpuscale.core.plan.records import Tuned
from gpuscale.core.plan.solve import limit_of
from gpuscale.core.plan.ties import TIE_FRAC
from gpuscale.core.settings import TUNED_EXPERTS, JobSettings
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.plan.case import Case
    from gpuscale.answers.plan.request import Request
    from gpuscale.core.layout import Layout
    from gpuscale.core.step.records import StepResult


def tuned(case: Case, request: Request, known: Layout) -> Tuned | None:
    """Search the job again with tuned experts; None where it has none, or says how they run.

    `known`: best layout without them, above whose time, tuned, nothing needs to be searched.
    """
    from gpuscale.io.jobs import step_interval

    if not case.problem.untuned_experts:
        return None
    for settings in settings_of(case, request):
        wanted = replace(request, settings=settings)
        try:
            again = make_case(
                case.loaded, wanted, case.n_gpus, case.problem.facts.seq_len, case.batch
            )
            limit_s = (1.0 + TIE_FRAC) * limit_of(again.problem, [known])
            result = solve(again, 1, follow_families=False, limit_s=limit_s)
            if result.best is None:  # tuned, the known layout is not allowed, and nothing is faster
                result = solve(again, 1, follow_families=False)
            found = proposals(again, result)
        except GpuscaleError:  # a pinned layout, or the software, has no room for the recipe
            continue
        if found:
            step: StepResult = estimate_of(again, found[0]).step
            name = case.loaded.specs["software"].name
            low, high = step_interval(step.expected_s, again.problem, name, found[0])
            return Tuned(found[0], step.expected_s, low, high, settings.words)
    return None


def settings_of(case: Case, request: Request) -> list[JobSettings]:
    """Fill in what tuned recipes set where the request is silent: all, or the kernels alone."""
    own = request.settings.said
    kernels = {"moe_kernels": TUNED_EXPERTS["moe_kernels"]}
    software = case.problem.facts.runs_on
    recipes = [JobSettings(**(kept | own)) for kept in (TUNED_EXPERTS, kernels)]
    return [recipe for recipe in recipes if not recipe.against(software)]
