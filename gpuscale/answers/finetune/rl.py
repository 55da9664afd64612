"""`memory` and `plan` with an RL method: phases of a step, what bounds it, memory by role."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuscale.answers.finetune.case import Wanted, make_case
from gpuscale.answers.finetune.words import head_text, time_text
from gpuscale.core.rl.estimate import RlEstimate
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.finetune.asked import Rollouts
    from gpuscale.answers.finetune.case import Case
    from gpuscale.core.finetune.bench import Bench
    from gpuscale.core.records import Term
    from gpuscale.core.rl.estimate import RlJob
    from gpuscale.render.document import Block, Document, Table

GROUPS = {"grpo": 8, "rloo": 4, "ppo": 1, "dpo": 1}
"""Responses to a prompt where none are given: usual settings (TRL, verl)."""

DEFAULT_PROMPTS = 128
LONGEST_OVER_MEAN = 4.0
"""Longest response over the mean, where no maximum is given."""


@dataclass(frozen=True, slots=True)
class Split:
    """Another split of the GPUs between rollout and training."""

    train_gpus: int
    rollout_gpus: int
    step_s: float
    bound: str


@dataclass(frozen=True, slots=True)
class RlAnswer:
    """A step of RL and its memory."""

    fits: bool
    step_s: float
    tokens_per_s: float
    samples_per_s: float
    bound: str
    total_bytes: float
    usable_bytes: float
    estimate: RlEstimate
    run_s: float | None
    cost_usd: float | None
    splits: tuple[Split, ...]


def rl_job(asked: Rollouts, method: str, rollout_gpus: int) -> RlJob:
    """Read what a step does."""
    from gpuscale.core.rl.estimate import RlJob

    mean = asked.response or 512.0
    longest = asked.max_response or LONGEST_OVER_MEAN * mean
    if mean > longest:
        raise GpuscaleError(f"--response {mean:g} is above --max-response {longest:g}")
    engine = asked.engine or ("split" if rollout_gpus else "colocated")
    if rollout_gpus and engine == "colocated":
        raise GpuscaleError("--rollout-gpus needs --engine split or async")
    if engine != "colocated" and not rollout_gpus and method != "dpo":
        raise GpuscaleError(
            f"--engine {engine} needs --rollout-gpus", "GPUs that only roll out, of --gpus"
        )
    if method == "dpo" and (asked.engine or rollout_gpus or asked.group):
        raise GpuscaleError("--method dpo has no rollout: leave engine and group out")
    return RlJob(
        method=method,
        prompts=asked.prompts or DEFAULT_PROMPTS,
        group=asked.group or GROUPS[method],
        prompt_tokens=asked.prompt or 512.0,
        response_tokens=mean,
        max_response_tokens=longest,
        engine=engine,
        rollout_gpus=rollout_gpus,
        kl=not asked.no_kl,
    )


def rl_document(
    asked: Any, command: str, where: str, wanted: Wanted, catalogue: str, price: float | None
) -> Document:
    """Answer a question about RL post-training."""
    method = str(asked.method)
    split = asked.rollout_gpus or 0
    if split >= wanted.n_gpus and split:
        raise GpuscaleError(f"--rollout-gpus {split} leaves none of --gpus {wanted.n_gpus}")
    adapters = asked.rank is not None or bool(asked.targets) or asked.base is not None
    trained = ("qlora" if asked.base in ("nf4", "nf4-nodq") else "lora") if adapters else "full"
    if asked.mean_len is not None or asked.max_len is not None:
        raise GpuscaleError("--mean-len and --max-len are --response and --max-response in RL")
    rl = rl_job(asked, method, split)
    own = replace(
        wanted,
        n_gpus=wanted.n_gpus - split,
        seq_len=round(
            (asked.prompt or 512.0)
            + (asked.max_response or LONGEST_OVER_MEAN * (asked.response or 512.0))
        ),
        software=wanted.software or ("hf-deepspeed" if wanted.n_gpus - split > 1 else "hf-peft"),
    )
    case = make_case(asked, asked, where, own, catalogue, trained)
    critic = _critic(asked, trained, where, own, catalogue)
    found = _estimate(case, rl, asked, critic)
    splits = (
        _splits(
            asked, trained, where=where, wanted=wanted, catalogue=catalogue, rl=rl, critic=critic
        )
        if split
        else ()
    )
    return _document(asked, command, case=case, rl=rl, e=found, splits=splits, price=price)


def _critic(asked: Any, trained: str, where: str, own: Wanted, catalogue: str) -> Bench | None:
    if asked.critic is None:
        return None
    from gpuscale.io.models import load_model

    bench = make_case(asked, asked, where, own, catalogue, trained).bench
    from gpuscale.core.memory.facts import model_facts

    model = load_model(asked.critic).spec
    return replace(bench, model=model, facts=model_facts(model))


def _estimate(case: Case, rl: RlJob, asked: Any, critic: Bench | None) -> RlEstimate:
    from gpuscale.core.rl.estimate import rl_estimate
    from gpuscale.io.rl import rl_costs, rl_engine

    engine = None
    if rl.method != "dpo":
        engine = rl_engine(case.loaded.cluster, asked.rollout_tp or _engine_tp(case))
    return rl_estimate(case.bench, case.job, rl, engine, critic=critic, costs=rl_costs())


def _engine_tp(case: Case) -> int:
    """Smallest tensor-parallel degree whose weights take at most half of a GPU."""
    from gpuscale.core.finetune.method import counts

    total = 2.0 * counts(case.loaded.model, case.job.method).total_params
    tp = 1
    while total / tp > 0.5 * case.bench.usable_bytes and tp < case.bench.gpus_per_node:
        tp *= 2
    return tp


def _splits(
    asked: Any, trained: str, where: str, wanted: Wanted, catalogue: str, rl: RlJob, critic: Any
) -> tuple[Split, ...]:
    """Return other splits of the same GPUs, the given one among them."""
    found = []
    tried = {wanted.n_gpus * k // 8 for k in (1, 2, 3, 4, 5, 6, 7)} | {rl.rollout_gpus}
    block = wanted.tp * wanted.pp * wanted.cp
    for n in sorted(tried):
        rest = wanted.n_gpus - n
        if n < 1 or rest < 1 or rest % block:
            continue
        own = replace(wanted, n_gpus=rest, seq_len=None, software=wanted.software or "hf-deepspeed")
        own = replace(own, global_batch=None)
        case = make_case(asked, asked, where, own, catalogue, trained)
        e = _estimate(case, replace(rl, rollout_gpus=n), asked, critic)
        found.append(Split(rest, n, e.step.step_s, e.step.bound))
    return tuple(found)


def _document(
    asked: Any,
    command: str,
    case: Case,
    rl: RlJob,
    e: RlEstimate,
    splits: tuple[Split, ...],
    price: float | None,
) -> Document:
    from gpuscale.core.run.cost import rental_usd
    from gpuscale.io.run import rent_of
    from gpuscale.render.document import Document, Facts, Text

    rate = rent_of(case.loaded.gpu.name)
    usd = price or (rate.usd_per_gpu_hour if rate else None)
    run_s = asked.steps * e.step.step_s if asked.steps else None
    r = RlAnswer(
        fits=e.fits,
        step_s=e.step.step_s,
        tokens_per_s=e.tokens_per_s,
        samples_per_s=rl.samples / e.step.step_s,
        bound=e.step.bound,
        total_bytes=e.memory.total_bytes,
        usable_bytes=case.bench.usable_bytes,
        estimate=e,
        run_s=run_s,
        cost_usd=rental_usd(e.n_gpus, run_s, usd) if run_s and usd else None,
        splits=splits,
    )
    words = f"{rl.method.upper()}, {rl.prompts} prompts x {rl.group}"
    if rl.method == "dpo":
        words = f"DPO, {rl.prompts} pairs"
    lengths = (
        f"prompts of {rl.prompt_tokens:,.0f} tokens, responses of {rl.response_tokens:,.0f} on "
        f"average, {rl.max_response_tokens:,.0f} at most"
    )
    mode = "" if rl.method == "dpo" else f", engine {rl.engine}"
    where = f" ({rl.rollout_gpus} of {e.n_gpus} GPUs roll out)" if rl.rollout_gpus else ""
    blocks: list[Block] = [
        Text(f"{words}{mode}{where}: {lengths}\n{head_text(case, case.job)}"),
        _phase_table(e),
        Facts(_facts(case, rl, e, r, usd)),
        _memory_table(e),
    ]
    if splits:
        blocks.append(_split_table(splits))
    return Document(
        command=command,
        inputs={
            "model": case.loaded.model.name,
            "gpu": case.loaded.gpu.name,
            "n_gpus": e.n_gpus,
            "software": case.software.name,
            **asdict(rl),
        },
        result=r,
        blocks=blocks,
        warnings=case.loaded.warnings,
        answered_no=not e.fits,
        terms=_terms(e),
        csv_table=_phase_table(e),
    )


PHASES = (
    ("rollout", "rollout_s"),
    ("log-probabilities", "logprob_s"),
    ("reference", "reference_s"),
    ("reward model", "reward_s"),
    ("critic", "critic_s"),
    ("update", "train_s"),
    ("weights to the engine", "sync_s"),
    ("engine in and out", "switch_s"),
    ("scheduling, data", "overhead_s"),
)


def _phase_table(e: RlEstimate) -> Table:
    from gpuscale.render.document import Column, Table

    rows = [(label, v) for label, key in PHASES if (v := getattr(e.step, key)) > 0]
    return Table(
        (
            Column("phase", "one step", right=False),
            Column("time_s", "time", time_text),
            Column("share", "share", lambda v: f"{100 * v:.0f} %"),
        ),
        [(label, v, v / e.step.step_s) for label, v in rows],
    )


def _facts(
    case: Case, rl: RlJob, e: RlEstimate, r: RlAnswer, usd: float | None
) -> list[tuple[str, str, str]]:
    rows = [
        ("step", time_text(r.step_s), f"bound by the {r.bound}"),
        ("tokens/s", f"{r.tokens_per_s:,.0f}", "prompts and responses, all GPUs"),
        ("samples/s", f"{r.samples_per_s:,.2f}", f"{rl.samples:,} a step"),
    ]
    if e.rollout is not None:
        waiting = e.rollout.tail_s / e.rollout.time_s
        rows.append(
            (
                "rollout",
                f"{e.rollout.sequences:,.0f} at once",
                f"per replica; {100 * waiting:.0f} % of it while the batch falls to the longest",
            )
        )
    rows.append(
        (
            "memory",
            gb(r.total_bytes),
            f"of {gb(r.usable_bytes)} usable: {'fits' if r.fits else 'does not fit'}",
        )
    )
    rows.append(("host memory", gb(e.memory.host_bytes_per_node), "per node"))
    if r.run_s is not None:
        price = f"{usd:,.2f} USD per GPU-hour" if usd else "--price gives the cost"
        cost = f"{r.cost_usd:,.0f} USD at {price}" if r.cost_usd else price
        rows.append(("run", time_text(r.run_s), cost))
    return rows


def _memory_table(e: RlEstimate) -> Table:
    from gpuscale.render.document import Column, Table

    m = e.memory
    rows = [("policy, training", m.policy.total_bytes), ("reference", m.reference_bytes)]
    rows += [("critic and reward", m.critic_bytes), ("while training", m.train_bytes)]
    rows.append(("while rolling out", m.rollout_bytes))
    return Table(
        (Column("part", "per training GPU", right=False), Column("bytes", "memory", gb)),
        [row for row in rows if row[1] > 0],
    )


def _split_table(splits: tuple[Split, ...]) -> Table:
    from gpuscale.render.document import Column, Table

    return Table(
        (
            Column("train_gpus", "training GPUs"),
            Column("rollout_gpus", "rollout GPUs"),
            Column("step_s", "step", time_text),
            Column("bound", "bound by", right=False),
        ),
        [(s.train_gpus, s.rollout_gpus, s.step_s, s.bound) for s in splits],
    )


def _terms(e: RlEstimate) -> tuple[Term, ...]:
    from gpuscale.core.records import Term

    parts = {key: getattr(e.step, key) for _, key in PHASES}
    formula = " + ".join(parts)
    if e.step.engine == "async":
        learn = "logprob_s + reference_s + reward_s + critic_s + train_s + switch_s"
        formula = f"max(rollout_s, {learn}) + sync_s + overhead_s"
    return (
        Term(
            "step_s",
            e.step.step_s,
            "s",
            formula,
            parts,
            "rollout by the serving model, the rest by the training model; presets/run/rl.toml",
        ),
    )
