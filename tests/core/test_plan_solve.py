"""Searching DualPipe apart from the other schedules."""

from dataclasses import replace

import pytest

from gpuscale.core.plan.pins import pin_space
from gpuscale.core.plan.records import estimate
from gpuscale.core.rules import facts_of
from gpuscale.core.search.engine import search
from gpuscale.core.search.problem import problem_for
from gpuscale.core.search.space import default_space
from gpuscale.io.hardware import load_cluster
from gpuscale.io.jobs import make_problem
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software


@pytest.fixture(scope="module")
def job():
    spec = load_model("qwen3-30b-a3b").spec
    facts = facts_of(spec, 4096, 128, 32)
    problem = make_problem(spec, load_cluster("dgx-h100"), load_software(), facts)
    return problem, default_space(facts, 8)


def test_best_is_the_better_of_both_parts(job):
    problem, space = job
    result = search(problem, space, 3)
    dual = replace(space, schedule=("dualpipe",))
    rest = replace(space, schedule=tuple(s for s in space.schedule if s != "dualpipe"))
    apart = [search(problem_for(problem, "dualpipe"), dual, 3), search(problem, rest, 3)]
    assert result.best == min((r.best for r in apart if r.best), key=lambda f: f[:2])
    assert result.counts.declared == sum(r.counts.declared for r in apart)
    for found in (result.best, *result.families.values(), *result.next_best):
        one = estimate(problem, found.layout)
        assert (one.step_s, one.peak_bytes) == pytest.approx((found.step_s, found.peak_bytes))
    for name, found in result.families.items():
        best = [r.families[name] for r in apart if name in r.families]
        assert found == min(best, key=lambda f: f[:2])


def test_a_schedule_alone_is_searched_alone(job):
    problem, space = job
    for pin in ("dualpipe", "1f1b,zb-h1"):
        pinned, _ = pin_space(space, {"schedule": pin, "pp": "2..8"}, problem.facts)
        best = search(problem, pinned, 0).best
        assert best.layout.schedule in pin


def test_dualpipe_hides_the_exchange_of_experts(job):
    problem, space = job
    pinned, _ = pin_space(space, {"schedule": "dualpipe", "ep": "16", "pp": "2"}, problem.facts)
    layout = search(problem, pinned, 0).best.layout
    plain = estimate(problem, replace(layout, schedule="zb-h1"))
    assert estimate(problem, layout).step.expected.ep_comm_s < plain.step.expected.ep_comm_s


def test_dense_models_have_one_problem(job):
    spec = load_model("llama3-8b").spec
    facts = facts_of(spec, 8192, 64, 16)
    problem = make_problem(spec, load_cluster("dgx-h100"), load_software(), facts)
    assert problem_for(problem, "dualpipe") is problem
    assert problem_for(job[0], "1f1b") is job[0]
