"""Planning jobs put together, and what a job is like of which nobody says how far it was tuned."""

from __future__ import annotations

from functools import lru_cache
from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.records import made_of, replace
from gpuscale.core.rules import RuleFacts, facts_of
from gpuscale.core.search.problem import Problem
from gpuscale.core.settings import NO_SETTINGS, JobSettings, Maturity, Way, mixed, tuned_probability
from gpuscale.core.step.ideal import RACK_DOMAIN, beyond_measured, interval, interval_classes
from gpuscale.core.step.step import step_time
from gpuscale.io.calibration import site_factor
from gpuscale.io.software import capabilities_of, software_record
from gpuscale.io.step import interval_table, interval_widths, step_hardware
from gpuscale.io.text import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuscale.core.layout import Layout
    from gpuscale.core.step.records import StepResult
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec
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
    classes = interval_classes(problem.model, problem.hardware, software, layout)
    measured = problem.hardware.site_factor != 1.0
    expected_s, widths = step.expected_s, interval_widths()
    low_s, high_s = interval(expected_s, classes, widths, measured)
    low_s, high_s = problem.software.maturity.interval_s(low_s, expected_s, high_s)
    if not measured:
        low_s, high_s = beyond_measured(low_s, expected_s, high_s, classes, widths)
    return max(low_s, min(step.roofline_s, step.expected_s)), high_s


class LeastDegrees(NamedTuple):
    """What of a layout settings may refuse; of one that is to be found, what they refuse least."""

    pp: int = 1
    vpp: int = 2
    ep: int = 2
    recompute: str = "none"
    precision: str = "bf16"
    n_gpus: int = 1

    @classmethod
    def of(cls, layout: Layout) -> LeastDegrees:
        """Take them of a layout."""
        return made_of(cls, layout)


@lru_cache(maxsize=8)
def _row(kind: str, name: str) -> Table:
    """Row of jobs of a kind (moe, or the stack of a dense model) and a maturity."""
    found: Table = interval_table()["maturity"][f"{kind}/{name}"]
    return found


def maturity_of(
    software: SoftwareSpec,
    has_experts: bool,
    name: str | None = None,
    said: Iterable[str] = (),
    n_gpus: int = 1,
) -> Maturity:
    """Median and width of a maturity, over the jobs that the software's parameters are fitted to.

    Of a job of which nobody says it: of tuned jobs and of those as the software comes, together,
    as likely as what is `said` of the job (``evidence``) and its size make the one and the other.
    """
    way, share = _way(software, has_experts, name or software.maturity), None
    if name is None and software.maturity != "tuned":
        share = tuned_probability(interval_table()["posterior"], said, n_gpus)
        way, name = mixed(_way(software, has_experts, "tuned"), way, share), "unsaid"
    elif name in (None, "tuned") and software.maturity == "tuned":  # recipes of its vendor
        way = Way(way.median, 0.0, 0.0)
    name = name or software.maturity
    return Maturity(name, exp(way.median), way.faster, way.slower, share)


def _way(software: SoftwareSpec, has_experts: bool, name: str) -> Way:
    """Jobs of a maturity; experts under modules called one by one are slowed as the rest is.

    Where the parameters are those of jobs as they come, no maturity is surer than these.
    """
    kind = "moe" if has_experts and software.stack != "eager" else software.stack
    own, fitted = _row(kind, name), _row(kind, software.fitted_on)
    median = max(0.0, log(own["median"] / fitted["median"]))
    least = fitted if software.fitted_on != "tuned" else own
    reach = (max(own[end], least[end]) for end in ("faster", "slower"))
    return Way(median, *reach)


def reach_of(software: SoftwareSpec, has_experts: bool, name: str) -> Maturity:
    """Width of a maturity alone, of software that is fitted to jobs as they come."""
    if name == "tuned":
        return Maturity(name)
    own = _row("moe" if has_experts else software.stack, name)
    return Maturity(name, 1.0, own["faster"], own["slower"])


def evidence(gpu: GpuSpec, has_experts: bool) -> tuple[str, ...]:
    """Name what of a job bears on whether somebody tuned it.

    Nothing that one way of asking says and another leaves out: a plan, its launch file and its
    pins are one job.
    """
    marks = {
        "experts": has_experts,
        "fp8_gpu": gpu.fp8_flop_per_s is not None and gpu.memory_kind.startswith("HBM"),
    }
    return tuple(name for name, holds in marks.items() if holds)


def settled(
    settings: JobSettings,
    software: SoftwareSpec,
    model: ModelSpec,
    cluster: ClusterSpec,
    degrees: LeastDegrees,
) -> JobSettings:
    """Fill in what jobs of a maturity set for experts, where nobody said it.

    A job of so many GPUs that it is tuned more likely than not is run by a published recipe.

    The dispatcher is that of published recipes on the architecture and network, whether the layout
    is given or to be found; what a launch file leaves out, its reader says. Selective recomputation
    is of the modules that such recipes name. What is refused by
    `degrees`, the layout as far as it is known, is left out.
    """
    name = settings.maturity or software.maturity
    if not model.has_experts:
        return settings
    said = evidence(cluster.gpu, has_experts=True)
    odds = interval_table()["posterior"]
    if settings.maturity is None and tuned_probability(odds, said, degrees.n_gpus) > 0.5:
        name = "tuned"
    if settings.balance is None:
        settings = replace(settings, balance=_row("moe", name)["balance"])
    if settings.recompute_modules is None and degrees.recompute != "full":
        latent = any(m.kind == "mla" for m in model.mixers.values())
        modules = tuple(m for m in software.experts_recompute if latent or m != "mla_up_proj")
        settings = replace(settings, recompute_modules=modules or None)
    gated = all(f.gated and not f.bias for f in model.expert_ffns)
    recipe = next(
        (
            r
            for r in software.experts
            if cluster.gpu.architecture in r.architectures
            and (cluster.fabric_class in r.fabrics or cluster.scaleup_domain_gpus >= RACK_DOMAIN)
            and (not r.formats or degrees.precision in r.formats)
            and (not r.swiglu or gated)
        ),
        None,
    )
    if recipe is None:
        return settings
    wanted: Table = {"dispatcher": recipe.dispatcher}
    if name == "tuned":
        kept = ("moe_kernels", "overlap_ep", "cuda_graphs")
        wanted |= {field: getattr(recipe, field) for field in kept}
    soft = capabilities_of(software)
    for field, value in wanted.items():
        more = replace(settings, **{field: value})
        refused = more.against(soft) or more.refused_by(*degrees[:4])
        if getattr(settings, field) is None and value is not None and not refused:
            settings = more
    return settings
