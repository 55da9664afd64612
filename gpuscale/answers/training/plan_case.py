"""One case of a plan: model, cluster, size and batch put together, searched, and evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gpuscale.answers.layout import refusal, refuse_settings
from gpuscale.answers.lifetime import life_of
from gpuscale.answers.money import bill_of, rate_of, stops_per_s
from gpuscale.core.layout import PRECISIONS, Layout
from gpuscale.core.model.params import count_params
from gpuscale.core.plan.pins import pin_space, select_names, why_empty
from gpuscale.core.plan.records import Estimate, Run, run_of
from gpuscale.core.records import dataclass, replace
from gpuscale.core.rules import RuleFacts, against_refused, against_stage_layers, facts_of
from gpuscale.core.run.checkpoint import SaveTime, checkpoint_parts
from gpuscale.core.search.closest import least_memory
from gpuscale.core.search.engine import search
from gpuscale.core.search.results import INFINITY, SearchResult
from gpuscale.core.search.space import Space, default_space
from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import load_cluster
from gpuscale.io.inputs import Loaded, load_inputs
from gpuscale.io.jobs import job_problem
from gpuscale.io.software import capabilities_of, load_software
from gpuscale.io.step import memory_interval_factor

if TYPE_CHECKING:
    from gpuscale.answers.training.plan_request import GlobalBatch, Request
    from gpuscale.core.run.bill import Bill
    from gpuscale.core.run.goodput import Outlook
    from gpuscale.core.search.problem import Problem
    from gpuscale.specs.hardware import ClusterSpec
    from gpuscale.specs.software import SoftwareSpec

Progress = Callable[[float], None]

WHOLE = ("fabric", "cluster", "tpu-pod")
"""Kinds of cluster that are one machine; the others are units of which there can be more."""


@dataclass(frozen=True, slots=True)
class PlanCase:
    """What is searched."""

    loaded: Loaded
    problem: Problem
    space: Space
    batch: GlobalBatch
    precision: str
    left_out: tuple[str, ...]  # pinned values that are impossible

    @property
    def cluster(self) -> ClusterSpec:
        """The cluster."""
        return self.loaded.cluster

    @property
    def n_gpus(self) -> int:
        """GPUs. [1]."""
        return self.problem.facts.n_gpus

    @property
    def batch_tokens(self) -> float:
        """Tokens of a step as planned. [1]."""
        return float(self.problem.facts.global_batch_size * self.problem.facts.seq_len)


def load_case(request: Request, cluster: str) -> Loaded:
    """Load what a request names, with one of its clusters."""
    asked = request.asked
    return load_inputs(
        asked,
        cluster=cluster,
        model=asked.model,
        catalogue=request.asked.catalogue,
        others={"software": load_software(request.software)},
        wires=asked.wires,
    )


def precisions(request: Request, loaded: Loaded) -> tuple[str, ...]:
    """Precisions asked for, refused where the GPU has none; by default 16 bits."""
    gpu = loaded.gpu
    offered = tuple(p for p in PRECISIONS if gpu.flop_per_s(p))
    if not offered:
        raise GpuscaleError(f"{gpu.name} has no matrix rate of a training precision")
    if request.asked.precision is None:
        return (offered[0],)
    if request.asked.precision.strip() == "all":
        return offered
    try:
        names = select_names(request.asked.precision, PRECISIONS)
    except ValueError as error:
        raise GpuscaleError(f"--precision: {error}") from None
    for name in names:
        if name not in offered:
            raise GpuscaleError(
                f"{gpu.name} has no {name} matrix rate", f"it has {', '.join(offered)}"
            )
    return names


def _check_size(cluster: ClusterSpec, n_gpus: int) -> None:
    """Refuse sizes that the cluster cannot have."""
    most = cluster.n_gpus if cluster.kind in WHOLE else None
    if most is not None and n_gpus > most:
        raise GpuscaleError(
            f"{cluster.name} has {most:,} GPUs, fewer than {n_gpus:,}",
            f"raise it with --set cluster.n_gpus={n_gpus} "
            f"--set cluster.n_nodes={-(-n_gpus // cluster.gpus_per_node)}",
        )
    if cluster.egress_bytes_per_s_per_gpu is None and n_gpus > cluster.scaleup_domain_gpus:
        raise GpuscaleError(
            f"{cluster.name} joins at most {cluster.scaleup_domain_gpus} GPUs: no network between "
            f"its nodes is known, got {n_gpus:,}",
            "give one with --set cluster.node_egress_bytes_per_s='400 GB/s'",
        )


def make_case(
    loaded: Loaded,
    request: Request,
    n_gpus: int,
    seq_len: int,
    batch: GlobalBatch,
    like: PlanCase | None = None,
) -> PlanCase:
    """Put one case together; one that is `like` it, but for size and batch, shares its blocks.

    Raises GpuscaleError if the cluster, the model or a pin does not allow it.
    """
    _check_size(loaded.cluster, n_gpus)
    software = loaded.specs["software"]
    refuse_settings(software, request.asked.job_settings)
    names = precisions(request, loaded)
    facts = facts_of(loaded.model, seq_len, batch.sequences, n_gpus, capabilities_of(software))
    facts = replace(facts, stage_layers=request.asked.pipeline_layout)
    _check_layers(request.asked.pinned, facts)
    problem = job_problem(
        loaded, facts, request.asked.job_settings, names[0], request.pinned_degrees(batch.sequences)
    )
    facts = problem.facts
    problem = replace(problem, fit_factor=fit_factor(request.asked.fit or "safe", software.name))
    if like is not None:
        shared = like.problem
        problem = replace(
            problem,
            cache=shared.cache,
            kernel_cache=shared.kernel_cache,
            memory_cache=shared.memory_cache,
        )
    space = default_space(facts, problem.hardware.scaleup_domain_gpus, names[0])
    pins = {**kept_by(software), **request.pin_texts}
    try:
        space, left_out = pin_space(replace(space, precision=names), pins, facts)
    except ValueError as error:
        raise GpuscaleError(
            str(error), "`gpuscale plan --help` says what a dimension can be"
        ) from None
    return PlanCase(loaded, problem, space, batch, names[0], left_out)


def kept_by(software: SoftwareSpec) -> dict[str, str]:
    """Pins of what a family's users leave as it is."""
    return {name.removesuffix("_stage"): str(getattr(software, name, 1)) for name in software.keeps}


def _check_layers(pins: Mapping[str, int | str], facts: RuleFacts) -> None:
    """Refuse a pipeline layout that the model or the framework does not have."""
    given = facts.stage_layers
    if given and sum(given) != facts.n_layers:
        raise GpuscaleError(
            f"--pipeline-layout holds {sum(given)} layers, the model has {facts.n_layers}"
        )
    if given and (broken := against_stage_layers(given, int(pins["pp"]), int(pins["vpp"]), facts)):
        raise refusal(broken, facts)


def fit_factor(fit: str, software: str) -> float:
    """Factor on the expected memory that must fit: the upper or lower end of its interval, or 1."""
    factor = memory_interval_factor(software)
    return {"safe": factor, "expected": 1.0, "tight": 1.0 / factor}[fit]


def less_safe(case: PlanCase) -> PlanCase:
    """Case in which the expected memory must fit, not the upper end of its interval."""
    return replace(case, problem=replace(case.problem, fit_factor=1.0))


def solve(
    case: PlanCase, n_next: int = 4, progress: Progress | None = None, **how: Any
) -> SearchResult:
    """Search a case, as `search` does, whose further arguments are `how`.

    Raises GpuscaleError if no layout meets all pinned values; the message says why.
    """
    result = search(case.problem, case.space, n_next, progress, **how)
    unlimited = how.get("limit_s", INFINITY) == INFINITY  # else there may be slower ones
    refuses = unlimited and case.problem.facts.runs_on.refused
    if result.best is None and refuses and not result.interrupted:
        _refuse_all(case, result)
    if result.counts.declared == 0 and not result.interrupted:
        raise GpuscaleError(
            f"no layout is possible: {why_empty(case.space, case.problem.facts)}",
            "leave one of the pinned values free, or change --gpus or the batch",
        )
    return result


def _refuse_all(case: PlanCase, result: SearchResult) -> None:
    """Say which settings the framework refuses together, where no layout is without them."""
    problem, names = case.problem, set(result.slower)
    facts = problem.facts
    free = replace(facts, runs_on=replace(facts.runs_on, refused=()))
    if not least_memory(problem, case.space, names):
        for closest in least_memory(replace(problem, facts=free), case.space, names).values():
            if broken := against_refused(closest.layout, facts):
                raise refusal(broken, facts)


def families_apart(
    case: PlanCase, result: SearchResult
) -> tuple[dict[str, Layout], tuple[str, ...]]:
    """Families without a layout near the best: (least memory of those that never fit, the slow)."""
    found = least_memory(case.problem, case.space, set(result.slower))
    ranked = sorted(found.items(), key=lambda item: item[1].peak_bytes)
    capacity = case.problem.room_bytes
    return (
        {name: c.layout for name, c in ranked if c.peak_bytes > capacity},
        tuple(name for name, c in ranked if c.peak_bytes <= capacity),
    )


def best_or_closest(case: PlanCase, result: SearchResult) -> Layout | None:
    """Best layout, or the one of least memory if none fits; None if interrupted before either."""
    if result.best is not None:
        return result.best.layout
    if result.interrupted:
        return None
    return next(iter(families_apart(case, result)[0].values()), None)


def given_price(request: Request, cluster: ClusterSpec) -> float | None:
    """Price of a cluster's GPU-hour in the request, by its name or what means it; else None."""
    for name, price in (request.asked.price or {}).items():
        if name in ("", cluster.name) or load_cluster(name).name == cluster.name:
            return price
    return None


def price_of(case: PlanCase, request: Request) -> float | None:
    """Price of a GPU-hour; None where it is not known. [USD/h]."""
    rate = rate_of(case.cluster, given_price(request, case.cluster), request.asked.spot)
    return rate.usd_per_gpu_hour if rate else None


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a run becomes: its time with failures, its checkpoints, its bill."""

    run: Run
    outlook: Outlook
    bill: Bill
    checkpoint: SaveTime


def prospect_of(case: PlanCase, request: Request, best: Estimate) -> Prospect | None:
    """Find what the token budget takes; None where no budget is known."""
    asked, step_s, layout = request.asked, best.step_s, best.layout
    tokens = request.asked.tokens or case.loaded.model.training_tokens
    if tokens is None:
        return None
    writers = case.n_gpus if layout.zero_stage else layout.tp * layout.pp
    saved, outlook = life_of(
        asked,
        case.cluster,
        checkpoint_bytes(case),
        tokens / case.batch_tokens * step_s,
        case.n_gpus,
        writers=writers,
        other_per_s=stops_per_s(asked),
    )
    bill = bill_of(
        asked,
        case.cluster,
        outlook.expected_s,
        case.n_gpus,
        given=given_price(request, case.cluster),
        work_frac=1 - outlook.goodput.recovery_frac,
        tokens=tokens,
    )
    price = bill.rate.usd_per_gpu_hour if bill.rate else None
    run = run_of(step_s, case.batch_tokens, case.n_gpus, tokens, price, outlook)
    return Prospect(run, outlook, bill, saved)


def checkpoint_bytes(case: PlanCase) -> float:
    """Full checkpoint of a case: weights or their sharded copy, master weights, optimizer."""
    n_params = count_params(case.loaded.model).total_params
    return checkpoint_parts(n_params, *case.problem.memory_parameters.saved_bytes).total_bytes
