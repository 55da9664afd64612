"""`memory` and `plan` with an RL method: phases of a step, what bounds it, memory by role."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpuscale.answers.layout import offloads_of
from gpuscale.answers.money import bill_of
from gpuscale.answers.saved import said_by, startable, told
from gpuscale.answers.serve.reading import weight_format
from gpuscale.answers.summary import figures_of
from gpuscale.answers.training import rl_blocks
from gpuscale.answers.training.rl_asked import degrees, replicas, rl_job, steps_of
from gpuscale.answers.training.tune_case import FinetuneCase, job_of, make_case
from gpuscale.answers.training.tune_verdict import in_shards, verdict_of
from gpuscale.answers.training.tune_wanted import default_software, job_facts, with_rl_habits
from gpuscale.answers.training.tune_words import short_of_host, time_text, verdict_text
from gpuscale.core.finetune.bench import CHANGES, Bench, change_words, changed
from gpuscale.core.finetune.rl_estimate import (
    RlEstimate,
    RlJob,
    RlMemory,
    RolloutEngine,
    rl_estimate,
    rl_memory,
)
from gpuscale.core.finetune.rl_step import RlCosts, roles
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.records import asdict, dataclass, field, made_of, replace
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError
from gpuscale.io.finetune import rl_costs, rl_engine
from gpuscale.io.models import load_model
from gpuscale.io.software import framework_habits, load_software
from gpuscale.render.document import Block, Document, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.answers.training.asked import Memory
    from gpuscale.core.finetune.method import Job
    from gpuscale.core.verdict import Verdict

MOST_GPUS = 1024
"""Most GPUs that `--min-gpus` tries."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A question about RL, and how a job of it is made on some GPUs."""

    typed: Any  # as people ask it: the length of the run, its money
    asked: Memory
    software: str
    trained: str  # full, lora or qlora
    costs: RlCosts
    may_leave: bool = False  # states may leave the GPU while the engine runs
    engines: dict[tuple[Any, ...], RolloutEngine] = field(default_factory=dict)  # made once

    def case(self, n_gpus: int, rl: RlJob) -> FinetuneCase:
        """Training side on `n_gpus` GPUs, degrees found where the software shards too little."""
        longest = round(rl.prompt_tokens + rl.max_response_tokens)
        asked = replace(self.asked, gpus=n_gpus, global_batch=None, seq_len=longest)
        case = self._made(asked)
        pinned = asked.tp * asked.pp * asked.cp * asked.ep > 1 or asked.zero is not None
        experts = case.loaded.model.has_experts
        sharded = case.job.layout.zero_stage == 3
        if pinned or (sharded and not experts):
            return case
        parted = None if self.estimate(case, rl).fits else in_shards(case)
        if parted and self.estimate(parted, rl).fits:
            return parted
        if self.trained != "full":
            return case
        if sharded and case.software.trainer and self.estimate(case, rl).fits:
            return case  # another software splits the model
        fastest, least = case, (True, math.inf)
        for tp, pp, ep in [(1, 1, 1), *degrees(n_gpus, case)]:
            try:
                tried = self._made(replace(asked, tp=tp, pp=pp, ep=ep))
            except GpuscaleError:  # the framework or the model has no such layout
                continue
            if pp > 1 and tried.job.layout.zero_stage == 3:
                continue
            held = self.memory(tried, rl, tried.job).total_bytes <= case.bench.usable_bytes
            if not held and tp * pp * ep > 1:
                continue
            found = self.estimate(tried, rl)
            if (not found.fits, found.step.step_s) < least:
                split = f"TP {tp}, PP {pp}" + (f", EP {ep}" if experts else "")
                words = (f"{split}: the fastest that fits (--tp, --pp, --ep)",)
                assumed = tried.assumed + (words if tp * pp * ep > 1 else ())
                fastest = replace(tried, assumed=assumed)
                least = not found.fits, found.step.step_s
        return fastest

    def _made(self, asked: Memory) -> FinetuneCase:
        if asked.tp > 1 and asked.seq_len:  # rows are padded to what the ranks split
            each = asked.tp * asked.cp
            asked = replace(asked, seq_len=-(-asked.seq_len // each) * each)
        case = make_case(asked, self.trained, self.software)
        kept = ("(--rank)", "(--targets)", "(--optimizer)", "(--software)")
        said = tuple(a for a in case.assumed if a.endswith(kept) or a.startswith("figures"))
        return replace(case, assumed=said)

    def estimate(self, case: FinetuneCase, rl: RlJob) -> RlEstimate:
        """Phases and memory of a step, at the fastest degrees of the rollout that fit."""
        critic = self._critic(case)
        engines: list[RolloutEngine | None] = [None]
        if rl.method != "dpo":
            engines = [self._engine(case, rl, tp) for tp in self._rollout_tps(case, rl)]
        found = [rl_estimate(case.bench, case.job, rl, engine, critic=critic) for engine in engines]
        return min(found, key=lambda e: (not e.fits, e.step.step_s))

    def verdict(self, case: FinetuneCase, rl: RlJob) -> Verdict:
        """Whether a step fits, over what the question leaves open."""
        asked = self.asked
        lengths = (asked.max_response, asked.response, asked.max_len, asked.mean_len)
        if not any(lengths) and asked.seq_len is None:
            case = replace(case, unsaid=case.unsaid | {"seq_len"})

        def peak_bytes(job: Job, values: Mapping[str, str]) -> float:
            factor = float(values.get("seq_len", 1.0))
            longer = {n: factor * getattr(rl, n) for n in ("prompt_tokens", "max_response_tokens")}
            return self.memory(case, replace(rl, **longer), job).total_bytes

        host = self.memory(case, rl, case.job).host_bytes_per_node
        return verdict_of(case, case.job, peak_bytes=peak_bytes, host_bytes=host)

    def memory(self, case: FinetuneCase, rl: RlJob, job: Job) -> RlMemory:
        """Memory of a training GPU."""
        held = roles(rl.method, adapters=job.method.adapts, kl=rl.kl, reward=rl.reward)
        engine = self._engine(case, rl, 1) if rl.method != "dpo" else None
        return rl_memory(case.bench, job, rl, held, engine, self._critic(case))

    def enough(self, case: FinetuneCase, rl: RlJob) -> str:
        """Name the first change of the training side that makes a step fit alone."""
        bench, job = case.bench, case.job
        left = replace(rl, costs=replace(rl.costs, states_leave=True))
        held = self.memory(case, left, job).total_bytes if self.may_leave else math.inf
        if held <= bench.usable_bytes:
            return f"; fits with --offload optimizer ({gb(held)})"
        for name in sorted(CHANGES, key=lambda name: name == "optimizer"):
            made = changed(bench, job, name) if name not in UNLIKE else None
            held = self.memory(case, rl, made).total_bytes if made else math.inf
            if held <= bench.usable_bytes:
                return f"; fits with {change_words(job, name, short=True)} ({gb(held)})"
        return ""

    def lengths_decide(
        self, case: FinetuneCase, rl: RlJob, e: RlEstimate
    ) -> tuple[float, float, str]:
        """(least, most) of a step over the mean length that nobody said, and the question. [s]."""
        asked, own = self.asked, e.step.step_s
        if asked.response or asked.mean_len or rl.method == "dpo":
            return own, own, ""
        limited = asked.max_response or asked.max_len or self.costs.max_response or asked.seq_len
        longest, mean = rl.max_response_tokens, rl.response_tokens
        ways = [(min(f * mean, longest), longest) for f in OF_THE_MEAN]
        ways = ways if limited else [(f * mean, f * longest) for f in OF_NOTHING]
        jobs = [replace(rl, response_tokens=n, max_response_tokens=m) for n, m in ways]
        low, high = (self.estimate(case, job).step.step_s for job in jobs)
        other = f"{time_text(low if limited else high)} with {ways[not limited][0]:,.0f} tokens"
        with_ = f"{time_text(own)} with {mean:,.0f} tokens on average, {other}"
        return low, high, f"--response: {with_}"

    def _rollout_tps(self, case: FinetuneCase, rl: RlJob) -> tuple[int, ...]:
        if rl.engine == "hf":  # the training model has its own split
            return (case.job.layout.tp,)
        if self.asked.rollout_tp:
            return (self.asked.rollout_tp,)
        most = rl.rollout_gpus or case.job.layout.n_gpus
        model, tokens = case.loaded.model, rl.prompt_tokens + rl.response_tokens
        legal = replicas(model, most)
        holds = [tp for tp in legal if self._engine(case, rl, tp).holds(model, tokens)]
        near = [tp for tp in holds if tp <= case.bench.gpus_per_node]
        return tuple(near or holds[:1] or legal[-1:])

    def _engine(self, case: FinetuneCase, rl: RlJob, tp: int) -> RolloutEngine:
        share = rl.costs.engine_frac if rl.engine == "colocated" else None
        own = "fp8" if case.job.layout.precision == "fp8" else "bf16"
        weights = weight_format(self.asked.rollout_weights, "--rollout-weights", own)
        key = (tp, weights, share)
        if key not in self.engines:
            self.engines[key] = rl_engine(case.loaded.cluster, tp, weights, share)
        return self.engines[key]

    def _critic(self, case: FinetuneCase) -> Bench | None:
        if self.asked.critic is None:
            return None
        model = load_model(self.asked.critic).spec
        return replace(case.bench, model=model, facts=model_facts(model))


UNLIKE = ("sequence", "length", "gpus", "method")
"""Changes that make another job of a step of RL. 8-bit states are named last: few frameworks of RL
have them."""

OF_THE_MEAN, OF_NOTHING = (0.2, 1.6), (0.25, 4.0)
"""Mean lengths over that which is taken from the longest alone: prior; published runs have limits
of 1.1 to 30 times their means (verl's DAPO of a 7B the most, by the time of its updates). Then the
same where no length at all was said."""


def _asking(typed: Any, asked: Memory) -> Asking:
    adapters = asked.rank is not None or bool(asked.targets) or asked.base is not None
    trained = ("qlora" if asked.base in ("nf4", "nf4-nodq") else "lora") if adapters else "full"
    software = asked.software or default_software(trained, asked.gpus or 1, asked)
    named = asked.software if software == default_software(trained, asked.gpus or 1) else software
    facts = job_facts(trained, asked)
    habits = framework_habits(named, facts) if named else {}
    costs = with_rl_habits(rl_costs(load_software(named) if named else None), habits)
    if "offload_when" in habits and offloads_of(asked.offload):  # states leave between the phases
        costs = replace(costs, states_leave=True)
        split = asked.tp * asked.pp * asked.ep > 1  # by Megatron, whose optimizer steps there
        asked = replace(asked, offload="optimizer" if split else "none")
    may_leave = "offload_when" in habits and not costs.states_leave
    return Asking(typed, asked, software, trained, costs, may_leave)


def rl_document(typed: Any, command: str, asked: Memory, price: float | None = None) -> Document:
    """Answer a question about RL post-training; `typed`: as people asked it."""
    asking, n_gpus = _asking(typed, asked), asked.gpus or 1
    rl = rl_job(asked, asking.costs)
    beside = rl.rollout_gpus + rl.critic_gpus
    if beside >= n_gpus and beside:
        raise GpuscaleError(
            f"--rollout-gpus and --critic-gpus: {beside} leaves none of --gpus {n_gpus}"
        )
    fewest = _fewest(asking, rl) if asked.min_gpus else None
    splits = _splits(asking, rl) if rl.engine in ("split", "async") else ()
    if splits and not rl.rollout_gpus:
        best = min(splits, key=lambda s: (not s.fits, s.step_s))
        rl = replace(rl, rollout_gpus=best.rollout_gpus)
    case = asking.case(n_gpus - rl.rollout_gpus - rl.critic_gpus, rl)
    found = asking.estimate(case, rl)
    if fewest is None and not found.fits:
        fewest = _fewest(asking, rl)
    return _document(asking, command, case, rl, found, splits=splits, fewest=fewest, price=price)


def _splits(asking: Asking, rl: RlJob) -> tuple[rl_blocks.RolloutSplit, ...]:
    """Find splits of the GPUs, the given one among them."""
    found = []
    all_gpus = (asking.asked.gpus or 1) - rl.critic_gpus
    tried = {all_gpus * k // 8 for k in (1, 2, 3, 4, 5, 6, 7)} | {rl.rollout_gpus}
    block = asking.asked.tp * asking.asked.pp * asking.asked.cp
    for n in sorted(tried):
        rest = all_gpus - n
        if n < 1 or rest < 1 or rest % block:
            continue
        own = replace(rl, rollout_gpus=n)
        with suppress(GpuscaleError):  # degrees that so many GPUs do not have
            e = asking.estimate(asking.case(rest, own), own)
            found.append(rl_blocks.RolloutSplit(rest, n, e.step.step_s, e.step.bound, e.fits))
    if not found:
        raise GpuscaleError(
            f"--engine {rl.engine} has no split of {all_gpus} GPUs", "it needs two at least"
        )
    return tuple(found)


def _fewest(asking: Asking, rl: RlJob) -> int | None:
    """Fewest GPUs that hold a step as asked, rollout and critic apart in the same shares."""
    block = asking.asked.tp * asking.asked.pp * asking.asked.cp
    beside = rl.rollout_gpus + rl.critic_gpus
    n = block
    while n <= MOST_GPUS:
        with suppress(GpuscaleError):  # degrees that so few GPUs do not have
            if asking.estimate(asking.case(n, rl), rl).fits:
                return n + beside
        n *= 2
    return None


def _document(
    asking: Asking,
    command: str,
    case: FinetuneCase,
    rl: RlJob,
    e: RlEstimate,
    *,
    splits: tuple[rl_blocks.RolloutSplit, ...],
    fewest: int | None,
    price: float | None,
) -> Document:
    steps = steps_of(asking.typed, rl)
    run_s = steps * e.step.step_s if steps else None
    time_s = run_s or e.step.step_s
    tokens, cluster = e.tokens * time_s / e.step.step_s, case.loaded.cluster
    bill = None
    if command == "plan":
        bill = bill_of(asking.typed, cluster, time_s, e.n_gpus, given=price, tokens=tokens)
    short = short_of_host(e.memory.host_bytes_per_node, case.bench, case.job)
    verdict = asking.verdict(case, rl)
    width = asking.costs.interval_factor_80
    low_s, high_s, length = asking.lengths_decide(case, rl, e)
    r = made_of(
        rl_blocks.RlAnswer,
        verdict,
        e,
        e.step,
        case.job,
        fits=verdict.fits and e.rolls_out,
        step_low_s=low_s / width,
        step_high_s=high_s * width,
        samples_per_s=rl.samples / e.step.step_s,
        peak_bytes=e.memory.total_bytes,
        capacity_bytes=case.bench.usable_bytes,
        memory_interval_factor_80=case.bench.site(case.job)[2].interval_factor_80,
        decides="; ".join(filter(None, (verdict.decides, length))),
        estimate=e,
        steps=steps,
        run_s=run_s,
        cost_usd=bill.charge.usd if bill and run_s else None,
        bill=bill,
        fewest_gpus=fewest,
        splits=splits,
        taken=rl_blocks.taken_of(asking.asked, case, rl, e),
        said_by=said_by(told(asking.typed), case.software, habits=case.habits),
    )
    return _laid_out(asking, command, case, rl, r, short)


def _laid_out(
    asking: Asking, command: str, case: FinetuneCase, rl: RlJob, r: rl_blocks.RlAnswer, short: str
) -> Document:
    """Lay the answer out."""
    e = r.estimate
    if not r.fits and e.rolls_out and not e.fits and not short:
        short += asking.enough(case, rl)
    said = _answer(case, rl, e, r, short)
    summary = rl_blocks.rl_summary(case, rl, r, e, said)
    details: dict[str, list[Block]] = {
        "step": [Text(said), rl_blocks.phase_table(e)],
        "figures": [figures_of(summary, *rl_blocks.rl_facts(asking.asked, rl, e, r))],
        "memory": [rl_blocks.memory_table(e)],
        "splits": [rl_blocks.split_table(r.splits)] if r.splits else [],
    }
    return Document.layered(
        command,
        case.loaded.inputs(n_gpus=e.n_gpus, **asdict(rl)),
        r,
        summary,
        details,
        warnings=case.warnings(),
        answered_no=not r.fits,
        terms=rl_blocks.rl_terms(rl, e, r, case.loaded.gpu),
        csv_table=rl_blocks.phase_table(e),
        **startable(lambda: _job(asking, case, rl, e)),
    )


def _job(asking: Asking, case: FinetuneCase, rl: RlJob, e: RlEstimate) -> dict[str, Any]:
    """Keep a job of RL whole: the policy's training and what a step samples."""
    said = (
        f"expected: {e.step.step_s:.3g} s a step of {rl.samples:,} samples, "
        f"{e.memory.total_bytes / 1e9:.1f} GB on the fullest GPU"
    )
    return job_of(
        asking.typed, case, case.job, said, rl_blocks.rl_fields(str(asking.asked.method), rl, e)
    )


def _answer(case: FinetuneCase, rl: RlJob, e: RlEstimate, r: rl_blocks.RlAnswer, short: str) -> str:
    if not e.rolls_out:
        short += "; the engine has no room for a sequence (--engine-share, --rollout-tp)"
    said = verdict_text(case, rl.method.upper(), r, r.n_gpus)
    if not r.fits:
        return f"{said}{short}."
    run = f", {r.steps:,} steps {time_text(r.run_s)}" if r.steps and r.run_s else ""
    return f"{said}; a step takes {time_text(r.step_s)}{run}{short}."
