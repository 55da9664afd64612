"""Planning jobs: putting together the problem that is searched, and what is said of its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.core.maturity import Maturity
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.rules import RuleFacts, facts_of
from gpuscale.core.search.problem import Problem
from gpuscale.core.settings import NO_SETTINGS, JobSettings
from gpuscale.core.step.step import step_time
from gpuscale.io.calibration import site_factor
from gpuscale.io.maturity import LeastDegrees, evidence, maturity_of, settled
from gpuscale.io.software import software_record
from gpuscale.io.step import step_hardware

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.step.records import StepResult
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec


def make_problem(
    model: ModelSpec,
    cluster: ClusterSpec,
    software: SoftwareSpec,
    facts: RuleFacts,
    precision: str = "bf16",
    calibration: str | None = None,
    settings: JobSettings = NO_SETTINGS,
) -> Problem:
    """Put together what a search needs.

    `model, cluster, software`: as loaded, what-if changes applied. `facts`: of the job, by
    `core.rules.facts_of`. `precision`: of the linear layers; decides the bytes of reduced gradients
    in some families. `settings`: what the run sets itself. `calibration`: overlay of `gpuscale
    calibrate`; its site factor scales every expected step.
    """
    hardware = step_hardware(cluster, overlay=calibration)
    if calibration is not None:
        hardware = replace(hardware, site_factor=site_factor(calibration))
    record = software_record(
        software, hardware.architecture, settings.options, precision=precision, gpu=cluster.gpu.name
    )
    said = evidence(cluster.gpu, model.has_experts)
    maturity = maturity_of(software, model.has_experts, settings.maturity, said, facts.n_gpus)
    if hardware.site_factor != 1.0:  # measured over what is predicted of a tuned job
        maturity = Maturity("measured")
    return Problem(
        model=model,
        hardware=hardware,
        software=replace(record, maturity=maturity),
        memory_facts=model_facts(model),
        memory_parameters=parameters_of(software, settings.options, hardware.architecture),
        capacity_bytes=cluster.gpu.process_bytes,
        facts=facts,
    )


def job_problem(
    loaded: Loaded, facts: RuleFacts, wanted: JobSettings, precision: str, degrees: LeastDegrees
) -> Problem:
    """Put together what a job is searched or evaluated with, its settings filled in.

    `loaded`: model, cluster and software of a question. `facts`: of the job, without settings.
    `wanted`: settings that were said. `degrees`: of the layout, as far as they are known: a layout
    that cannot overlap the experts' exchange, or capture its layers, does not where nobody said so.
    """
    model, cluster, software = loaded.model, loaded.cluster, loaded.specs["software"]
    known = degrees._replace(precision=precision, n_gpus=facts.n_gpus)
    settings = settled(wanted, software, model, cluster, known)
    graphs = wanted.cuda_graphs if settings.cuda_graphs == "layer" else settings.cuda_graphs
    ruling = replace(settings, overlap_ep=wanted.overlap_ep, cuda_graphs=graphs)
    return make_problem(
        model,
        cluster,
        software=software,
        facts=replace(facts, settings=ruling),
        precision=precision,
        calibration=loaded.calibration,
        settings=settings,
    )


def problem_of(loaded: Loaded, layout: Layout, wanted: JobSettings) -> Problem:
    """Put together what a layout that is given in full is evaluated with.

    `loaded`: model, cluster and software. `wanted`: settings that were said.
    """
    facts = facts_of(loaded.model, layout.seq_len, layout.global_batch_size, layout.n_gpus)
    return job_problem(loaded, facts, wanted, layout.precision, LeastDegrees.of(layout))


def timed_step(problem: Problem, layout: Layout, software: str) -> dict[str, float]:
    """Give the expected time of a step, its 80 % interval and its rate, by their keys in answers.

    `layout`: in full. `software`: name of the family.
    """
    step = step_time(problem.model, problem.hardware, problem.software, layout)
    low_s, high_s = step_interval(step, problem, software, layout)
    rate = layout.global_batch_size * layout.seq_len / step.expected_s
    made = {"step_s": step.expected_s, "step_low_s": low_s, "step_high_s": high_s}
    return {**made, "tokens_per_s": rate}


def step_interval(
    step: StepResult, problem: Problem, software: str, layout: Layout
) -> tuple[float, float]:
    """80 % interval of an expected step time, by the class and maturity of the job. [s].

    `step`: its times; no interval begins before the roofline. `problem`: model and hardware decide
    the class. `software`:
    name of the framework family. `layout`: tensor parallelism beyond a node is a class of its own.
    """
    from gpuscale.core.step.interval import beyond_measured, interval, interval_classes
    from gpuscale.io.step import interval_widths

    classes = interval_classes(problem.model, problem.hardware, software, layout)
    measured = problem.hardware.site_factor != 1.0
    expected_s, widths = step.expected_s, interval_widths()
    low_s, high_s = interval(expected_s, classes, widths, measured)
    low_s, high_s = problem.software.maturity.interval_s(low_s, expected_s, high_s)
    if not measured:
        low_s, high_s = beyond_measured(low_s, expected_s, high_s, classes, widths)
    return max(low_s, min(step.roofline_s, step.expected_s)), high_s
