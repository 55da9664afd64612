"""`gpuscale plan --method ...`: how to fine-tune on what one has, how long it takes and costs."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from gpuscale.answers.ask import refuse_others
from gpuscale.answers.money import bill_of, rate_of
from gpuscale.answers.saved import said_by, startable, told
from gpuscale.answers.summary import changed, figures_of
from gpuscale.answers.training import tune_words
from gpuscale.answers.training.asked import Memory
from gpuscale.answers.training.rl_asked import degrees
from gpuscale.answers.training.tune_asked import DEFAULT_SEQ_LEN, RL, task_of
from gpuscale.answers.training.tune_case import FinetuneCase, make_case
from gpuscale.answers.training.tune_memory import job_inputs, kept_job, remedy_table
from gpuscale.answers.training.tune_plan_blocks import (
    FUSED,
    MOST_COMPARED,
    SEARCHED,
    Option,
    TuningPlan,
    compared,
    compared_text,
    option_table,
    plan_answer,
    plan_facts,
    plan_summary,
    plan_terms,
    step_asks,
    time_table,
)
from gpuscale.answers.training.tune_verdict import CHOSEN, verdict_of
from gpuscale.answers.training.tune_wanted import default_software, one, settled
from gpuscale.core.finetune.bench import BenchSpace, Trial, closest, fastest, remedies
from gpuscale.core.finetune.bench import changed as changed_job
from gpuscale.core.records import made_of, replace
from gpuscale.core.run.time import rental_usd
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import preset_names
from gpuscale.io.run import rent_of
from gpuscale.io.software import capabilities_of
from gpuscale.render.document import Bars, Block, Document, Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuscale.answers.training.plan import Plan
    from gpuscale.core.finetune.method import Job

COUNTS = (1, 2, 4, 8)
"""GPUs tried where no number is given: what one machine has."""

DEFAULT_BATCH = 16
"""Sequences of a step, where none are given: a usual value of fine-tuning recipes."""


def tuning_plan(asked: Plan) -> Document:
    """Answer a question about a fine-tuning run."""
    refuse_others(asked, task_of(asked), asked.method or "")
    if asked.method in RL:
        return _rl_plan(asked)
    tokens, told = _tokens(asked)
    cases = [case_of(asked, where, n) for where, n in product(_places(asked), asked.gpus or COUNTS)]
    best = [(case, best) for case in cases if (best := best_on(asked, case))]
    found = [((b.job.loss != c.job.loss and _fused(asked, c)) or c, b) for c, b in best]
    ways = [(_option(asked, *way, tokens), *way) for way in found]
    if not ways:
        job, bench = cases[-1].job, cases[-1].bench
        trial = closest(bench, job, _spaces(asked, cases[-1])[-1])
        if not bench.legal(trial.job):  # nothing that may be chosen runs
            make_case(_question(asked, _places(asked)[-1], job.layout.n_gpus), None, asked.software)
        ways = [(_option(asked, cases[-1], trial, tokens), cases[-1], trial)]
    chosen, case, trial = min(ways, key=lambda way: _rank(asked, way[0]))
    options = tuple(option for option, *_ in ways) if found else ()
    return _document(asked, case, trial, _result(asked, case, trial, chosen, options, tokens), told)


def _tokens(asked: Plan) -> tuple[float, str]:
    """(tokens of the run, how they are counted)."""
    epochs = asked.epochs or 1.0
    given = [n for n in ("examples", "tokens", "steps") if getattr(asked, n) is not None]
    if len(given) > 1:
        raise GpuscaleError(f"give one of --{', --'.join(given)}: each is the length of the run")
    if asked.tokens is not None:
        times = f" x {epochs:g} epochs" if asked.epochs else ""
        return asked.tokens * epochs, f"{asked.tokens:,.0f} tokens{times}"
    lengths = (asked.mean_len, asked.max_len, asked.seq_len[0] if asked.seq_len else None)
    mean = next((n for n in lengths if n is not None), None)
    if asked.steps is not None:
        batch = asked.global_batch[0] if asked.global_batch else DEFAULT_BATCH
        if asked.accumulation is not None:
            if len(asked.gpus or COUNTS) > 1:
                raise GpuscaleError("--steps and --accumulation need one number of --gpus")
            batch = _question(asked, "", (asked.gpus or COUNTS)[0]).global_batch or batch
        each = batch * (mean or DEFAULT_SEQ_LEN)
        return asked.steps * each, f"{asked.steps:,} steps of {each:,.0f} tokens"
    if asked.examples is None:
        if asked.epochs:
            raise GpuscaleError("--epochs needs --examples or --tokens")
        return 1e6, "per million tokens (--examples or --tokens for a run)"
    if mean is None:
        raise GpuscaleError(
            "--examples needs --mean-len: the mean tokens of one",
            "for example --examples 52k --mean-len 180 --max-len 1024",
        )
    total = asked.examples * mean * epochs
    return total, f"{asked.examples:,} examples of {mean:g} tokens x {epochs:g} epochs"


def _places(asked: Plan) -> tuple[str, ...]:
    """Clusters and GPUs to compare."""
    if asked.cluster and asked.gpu is not None:
        raise GpuscaleError("give --cluster or --gpu, not both")
    if asked.cluster:
        return asked.cluster
    if asked.gpu is not None:
        return tuple(dict.fromkeys(g.strip() for g in asked.gpu.split(",") if g.strip()))
    return tuple(g for g in preset_names("gpu") if not g.startswith("tpu") and rent_of(g))


def _rl_plan(asked: Plan) -> Document:
    """One machine and one number of GPUs."""
    from gpuscale.answers.training.rl import rl_document

    places = _places(asked) if asked.cluster or asked.gpu is not None else ("dgx-h100",)
    if len(places) > 1 or (asked.gpus and len(asked.gpus) > 1):
        raise GpuscaleError("one GPU and one number of them is wanted with an RL method")
    question = _question(asked, places[0], asked.gpus[0] if asked.gpus else 8)
    price = (asked.price or {}).get("") or next(iter((asked.price or {}).values()), None)
    return rl_document(asked, "plan", question, price)


def case_of(asked: Plan, where: str, n_gpus: int) -> FinetuneCase:
    """Case of a question on a number of GPUs of one kind."""
    question = _question(asked, where, n_gpus)
    default = default_software(asked.method or "lora", n_gpus, question)
    return make_case(question, software=asked.software or default, searched=True)


DEGREES = "tp pp vpp cp ep etp dp zero micro_batch recompute_layers".split()
"""Options that a plan without a method searches over, and one with a method takes one of."""


def _question(asked: Plan, where: str, n_gpus: int) -> Memory:
    if asked.seq_len and len(asked.seq_len) > 1:
        raise GpuscaleError("--seq-len: one length is wanted with --method")
    batch = asked.global_batch[0] if asked.global_batch else None
    for name in DEGREES:
        one(asked, name)
    split = one(asked, "tp") * one(asked, "pp") * one(asked, "cp")
    dp = max(1, n_gpus // split)
    said = asked.micro_batch is not None or asked.accumulation is not None
    if batch is None and not said and asked.method not in RL:
        batch = -(-DEFAULT_BATCH // dp) * dp
    made = made_of(
        Memory,
        asked,
        cluster=where or None,
        gpu=None,
        gpus=n_gpus,
        global_batch=batch,
        seq_len=asked.seq_len[0] if asked.seq_len else None,
    )
    return settled(made)


def _rank(asked: Plan, o: Option) -> tuple[bool, float, float]:
    """Order of preference: the fastest on the GPUs that one has, else the cheapest.

    Of one kind of GPU the fewest that hold it, without the host's memory if they can; `memory`
    takes one too where no number is given.
    """
    price = o.usd_per_gpu_hour
    cost = o.n_gpus / o.tokens_per_s * (1.0 if price is None else price)
    if asked.gpus:  # the number is given: use them
        return price is None, 0.0, 1.0 / o.tokens_per_s if len(asked.gpus) == 1 else cost
    n_gpus = 0.0 if len(_places(asked)) > 1 else o.n_gpus + (max(COUNTS) if o.offload else 0.0)
    return price is None, n_gpus, cost


def _option(asked: Plan, case: FinetuneCase, trial: Trial, tokens: float) -> Option:
    layout, cluster = trial.job.layout, case.loaded.cluster
    names = (cluster.name, case.loaded.gpu.name, "")
    given = next(filter(None, map((asked.price or {}).get, names)), None)
    rate = rate_of(cluster, given, asked.spot)
    price = rate.usd_per_gpu_hour if rate else None
    run_s = tokens / trial.step.tokens_per_s
    return made_of(
        Option,
        layout,
        trial,
        trial.step,
        gpu=case.loaded.gpu.name,
        cluster=cluster.name,
        software=case.software.name,
        offload=tuple(sorted(trial.job.offload)),
        peak_bytes=trial.memory.total_bytes,
        capacity_bytes=trial.usable_bytes,
        run_s=run_s,
        usd_per_gpu_hour=price,
        price_origin=", ".join(filter(None, (rate.kind, rate.origin, rate.as_of))) if rate else "",
        cost_usd=None if price is None else rental_usd(layout.n_gpus, run_s, price),
        host_bytes_per_node=case.bench.host_bytes_per_node(trial.job, trial.memory),
    )


def _result(
    asked: Plan,
    case: FinetuneCase,
    trial: Trial,
    chosen: Option,
    options: tuple[Option, ...],
    tokens: float,
) -> TuningPlan:
    """Put the record of an answer together: the chosen way, and all that were found."""
    given, n = chosen.usd_per_gpu_hour if chosen.price_origin == "given" else None, chosen.n_gpus
    bill = bill_of(asked, case.loaded.cluster, chosen.run_s, n, given=given, tokens=tokens)
    low_s, high_s = case.step_ends_s(trial)
    alone = len(options) == 1 and len(_places(asked)) == 1
    bold = bolder(asked, case, trial) if alone else None
    verdict = verdict_of(case, trial.job, CHOSEN)
    steps = f"steps of {chosen.global_batch_size} sequences (--global-batch)"
    batch = not (asked.global_batch or asked.accumulation or asked.micro_batch)
    less = best_on(asked, fused) if (fused := _fused(asked, case)) else None
    return made_of(
        TuningPlan,
        verdict,
        chosen,
        trial,
        trial.step,
        trial.job,
        tokens=tokens,
        chosen=chosen,
        decides="; ".join(filter(None, (verdict.decides, *step_asks(case, trial, less)))),
        maturity=case.maturity,
        step_low_s=low_s,
        step_high_s=high_s,
        memory_interval_factor_80=trial.interval_factor_80,
        cost_usd=bill.charge.usd,
        bill=bill,
        expected=trial.memory,
        breakdown=trial.step.parts,
        options=options,
        against=compared(options),
        remedies=remedies(case.bench, trial),
        said_by=said_by(told(asked), case.software, habits=case.habits, searched=SEARCHED),
        taken=(*case.assumed, *[steps][:batch]),
        passed_over=_option(asked, case, bold, tokens) if bold else None,
        passed_over_fits_probability=bold and verdict_of(case, bold.job, CHOSEN).fits_probability,
    )


def _document(asked: Plan, case: FinetuneCase, trial: Trial, r: TuningPlan, told: str) -> Document:
    short = tune_words.short_of_host(r.chosen.host_bytes_per_node, case.bench, trial.job)
    said = plan_answer(case, trial, r, short)
    summary = plan_summary(case, trial, r, said, told)
    parts = [(label, v, gb(v)) for label, v in tune_words.part_rows(trial.memory)]
    others: list[Block] = [option_table(r)] if len(r.options) > 1 else []
    others += [Text(compared_text(r))] if 0 < len(r.against) <= MOST_COMPARED else []
    facts = figures_of(summary, *plan_facts(case, trial, r, asked.host_memory))
    details: dict[str, list[Block]] = {
        "figures": [Text(said), facts],
        "memory": [Bars(parts, limit=trial.usable_bytes, title="memory")],
        "step": [time_table(r)],
        "alternatives": others,
        "remedies": [remedy_table(r.remedies)] if r.remedies else [],
        "changed": changed(case.loaded),
    }
    return Document.layered(
        "plan",
        job_inputs(case, trial.job) | {"tokens": r.tokens},
        r,
        summary,
        details,
        warnings=case.warnings(),
        answered_no=not r.fits,
        terms=plan_terms(case, trial, r),
        csv_table=option_table(r),
        **startable(lambda: kept_job(asked, case, trial)),
    )


def _spaces(asked: Plan, case: FinetuneCase) -> tuple[BenchSpace, ...]:
    """Ways to choose from, in turn: beyond Megatron's own (ZeRO-1) only what does not fit."""
    job, has, of = case.job, capabilities_of(case.software), _space(asked, case.job)
    habit = job.layout.zero_stage
    if "zero_stage" not in case.unsaid or job.layout.n_gpus == 1 or not job.method.shardable:
        return (of((habit,)),)
    if habit == 1:
        split = _split_in_node(case) if asked.tp is asked.pp is asked.cp is asked.ep is None else ()
        return (of((1,)), *((of((1,), splits=split),) if split else ()), of((3,)))
    also = {0, 1, 2} & {*has.zero_stages} - {*has.zero_asked} if asked.offload is None else ()
    return (of(tuple(dict.fromkeys((habit, *sorted(also), 3)))),)


def _split_in_node(case: FinetuneCase) -> tuple[tuple[int, int], ...]:
    """(TP, EP) within a node, where the framework is one that splits layers and experts."""
    has, n = capabilities_of(case.software), case.bench.gpus_per_node
    if not (has.pipeline and has.tensor_parallel):
        return ()
    ways = degrees(case.job.layout.n_gpus, case)
    return tuple((tp, ep) for tp, pp, ep in ways if pp == 1 < max(tp, ep) <= n)


ENDS = {None: (1, 0), "safe": (1,), "expected": (0,), "tight": (-1,)}
"""Ends of the memory interval that must fit, in turn, by --fit."""

FALLBACKS = (
    frozenset({"optimizer", "gradients"}),
    frozenset({"parameters", "optimizer", "gradients"}),
    frozenset({"parameters", "optimizer", "gradients", "activations"}),
)
"""Offloads tried, in turn, where nothing fits without."""


def _space(asked: Plan, job: Job) -> Callable[..., BenchSpace]:
    """Return what makes the space of a question: ZeRO stages, and `offload` for another one."""
    told = asked.recompute is not None or asked.recompute_layers is not None
    return partial(
        BenchSpace,
        micro_batches=None if asked.micro_batch is None else (job.layout.micro_batch_size,),
        recomputes=(job.layout.recompute,) if told else ("none", "full"),
        offload=job.offload,
    )


def best_on(asked: Plan, case: FinetuneCase) -> Trial | None:
    """Best way that the verdict calls fitting, on the host in part where it must."""
    job, ways = case.job, _space(asked, case.job)

    def likely(t: Trial) -> bool:
        return asked.fit == "tight" or verdict_of(case, t.job, CHOSEN).fits

    benches = [replace(case.bench, end=end, likely=likely) for end in ENDS[asked.fit]]
    tried = (fastest(bench, job, way) for bench, way in product(benches, _spaces(asked, case)))
    own = next((found for found in tried if found), None)
    pinned = asked.offload is not None or asked.zero not in (None, 3)
    if own or pinned:
        return own
    less = _fused(asked, case)  # a switch of the framework, before the host's memory
    if less and (found := best_on(replace(asked, loss="fused", offload="none"), less)):
        return found
    for bench in benches:
        known = [moved for moved in FALLBACKS if bench.moves(job.on_host(moved))]
        away = (fastest(bench, job, ways((3,), offload=moved)) for moved in known)
        if got := [t for t in away if t]:
            return max(got, key=lambda t: t.step.tokens_per_s)
    return None


def _fused(asked: Plan, case: FinetuneCase) -> FinetuneCase | None:
    """Case without whole logits, where nobody said which loss; None if that is no change."""
    made = None if asked.loss else changed_job(case.bench, case.job, "loss")
    told = (*case.assumed, f"{FUSED} (--loss)")
    if made is None:
        return None
    return replace(case, job=made, unsaid=case.unsaid - {"loss"}, assumed=told)


def bolder(asked: Plan, case: FinetuneCase, chosen: Trial) -> Trial | None:
    """Fastest way whose memory fits if it is what is expected, where the safe one is slower."""
    if asked.fit is not None or not chosen.fits:
        return None
    found = best_on(replace(asked, fit="expected"), case)
    return found if found and found.step.tokens_per_s > chosen.step.tokens_per_s else None
