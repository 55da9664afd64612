"""What is proposed: layouts that fit safely and carry least, and what is out of reach."""

from dataclasses import replace

import pytest

from gpuscale.core.rules import against, facts_of
from gpuscale.core.search.burden import burdens, total
from gpuscale.core.search.engine import search
from gpuscale.core.search.space import default_space
from gpuscale.io.hardware import load_cluster
from gpuscale.io.jobs import make_problem
from gpuscale.io.models import load_model
from gpuscale.io.software import capabilities_of, load_software


def searched(software="megatron-core", fit_factor=1.0, model="llama3-70b", n_gpus=128):
    spec, soft = load_model(model).spec, load_software(software)
    facts = facts_of(spec, 8192, 256, n_gpus, capabilities_of(soft))
    problem = make_problem(spec, load_cluster("dgx-h100"), soft, facts)
    problem = replace(problem, fit_factor=fit_factor)
    return problem, search(problem, default_space(facts, 8), 3)


@pytest.mark.slow
def test_the_best_does_not_depend_on_how_it_is_asked():
    problem, result = searched()
    space = default_space(problem.facts, 8)
    share = total(burdens(result.best.layout, problem.facts, 8))
    assert result.best.weighed_s == pytest.approx(result.best.step_s * (1 + share), rel=1e-12)
    assert result.fastest.step_s <= result.best.step_s
    for n_next, families in ((0, False), (1, True), (10, True)):
        again = search(problem, space, n_next, follow_families=families)
        assert (again.best, again.fastest) == (result.best, result.fastest)
    assert search(problem, space, 0, weigh=False).best.step_s == result.fastest.step_s
    pinned = {"tp": (result.best.layout.tp,), "pp": (result.best.layout.pp,)}
    assert search(problem, replace(space, **pinned), 0).best == result.best
    limited = search(problem, space, 0, limit_s=result.fastest.step_s * (1 + 1e-9))
    assert limited.best.layout == result.fastest.layout


def test_a_safe_layout_fits_at_the_upper_end_of_its_interval():
    (problem, safe), (_, bold) = searched(fit_factor=1.08), searched()
    every = [safe.best, *safe.families.values(), *safe.next_best]
    assert all(f.peak_bytes * 1.08 <= problem.capacity_bytes for f in every)
    assert bold.best.step_s <= safe.best.step_s


@pytest.mark.parametrize("software", ["megatron-core", "torchtitan", "nanotron", "fsdp", "jax"])
def test_what_is_found_is_what_the_software_runs(software):
    problem, result = searched(software, n_gpus=64)
    for found in [result.best, *result.families.values(), *result.next_best]:
        assert against(found.layout, problem.facts) is None
