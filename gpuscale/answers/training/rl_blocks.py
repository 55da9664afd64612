"""An answer about RL: what it says as data, its tables, facts and terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers import summary
from gpuscale.answers.money import bill_rows
from gpuscale.answers.run_terms import BilledTime, bill_terms
from gpuscale.answers.saved import unsaid
from gpuscale.answers.summary import Room
from gpuscale.answers.training.tune_words import head_points, share_table, time_text
from gpuscale.core.finetune.bench import with_micro_batch
from gpuscale.core.finetune.rl_estimate import RlEstimate, RlJob
from gpuscale.core.memory.fit import usable_term
from gpuscale.core.records import Term, dataclass, replace, term_of
from gpuscale.core.run.bill import Bill
from gpuscale.core.words import gb
from gpuscale.render.document import Column, Point, Table

if TYPE_CHECKING:
    from gpuscale.answers.training.tune_case import FinetuneCase
    from gpuscale.specs.hardware import GpuSpec


@dataclass(frozen=True, slots=True)
class RolloutSplit:
    """A split of the GPUs between rollout and training."""

    train_gpus: int
    rollout_gpus: int
    step_s: float
    bound: str
    fits: bool


@dataclass(frozen=True, slots=True)
class RlAnswer(Room):
    """A step of RL and its memory; the layout is that of training."""

    n_gpus: int
    samples_per_s: float
    bound: str
    decides: str  # the setting that nobody said and that moves the peak most
    estimate: RlEstimate
    steps: int | None  # of the run
    run_s: float | None
    cost_usd: float | None
    bill: Bill | None  # of the run, or of a step where no steps are given; None for `memory`
    fewest_gpus: int | None  # None: not asked for, or no number holds it
    splits: tuple[RolloutSplit, ...]


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


def phase_table(e: RlEstimate) -> Table:
    """Phases of a step."""
    rows = [(label, v) for label, key in PHASES if (v := getattr(e.step, key)) > 0]
    return share_table("phase", "one step", rows, e.step.step_s, 0)


def rl_facts(asked: Any, rl: RlJob, e: RlEstimate, r: RlAnswer) -> list[tuple[str, str, str]]:
    """Answer in figures beside its summary: rates, rollout, the hosts and the bill."""
    lengths = (
        f"prompts of {rl.prompt_tokens:,.0f} tokens, responses of {rl.response_tokens:,.0f} on "
        f"average, {rl.max_response_tokens:,.0f} at most"
    )
    rows = [
        ("lengths", "", lengths),
        ("bound by", r.bound, ""),
        ("tokens/s", f"{r.tokens_per_s:,.0f}", "prompts and responses, all GPUs"),
        ("samples/s", f"{r.samples_per_s:,.2f}", f"{rl.samples:,} a step"),
    ]
    if e.rollout is not None:
        waiting = e.rollout.tail_s / e.rollout.time_s
        words = f"per replica; {100 * waiting:.0f} % of it while the batch falls to the longest"
        if rl.engine == "hf":
            words = "per GPU, by the training model itself"
        rows.append(("rollout", f"{e.rollout.sequences:,.0f} at once", words))
    has = f"per node, of {gb(asked.host_memory)}" if asked.host_memory else "per node"
    rows.append(("host memory", gb(e.memory.host_bytes_per_node), has))
    if r.fewest_gpus is None and not r.fits:
        rows.append(("fewest GPUs", "none", "as asked, doubled in turn"))
    if r.bill is not None:
        if r.run_s is None:
            rows.append(("one step costs", "", "--steps or --examples give those of a run"))
        rows += [row for row in bill_rows(r.bill) if row[0] != "cost"]
    return rows


def memory_table(e: RlEstimate) -> Table:
    """Memory by role and moment."""
    m = e.memory
    rows = [("policy, training", m.policy.total_bytes), ("reference", m.reference_bytes)]
    rows += [("critic and reward", m.critic_bytes), ("engine, awake", m.engine_bytes)]
    rows += [("while training", m.train_bytes), ("while rolling out", m.rollout_bytes)]
    columns = (Column("part", "per training GPU", right=False), Column("bytes", "memory", gb))
    return Table(columns, [row for row in rows if row[1] > 0])


def split_table(splits: tuple[RolloutSplit, ...]) -> Table:
    """Table the splits of the GPUs between training and rollout."""
    columns = (
        Column("train_gpus", "training GPUs"),
        Column("rollout_gpus", "rollout GPUs"),
        Column("step_s", "step", time_text),
        Column("bound", "bound by", right=False),
        Column("fits", "fits", lambda v: "yes" if v else "no", right=False),
    )
    return Table.of(columns, splits)


def rl_fields(method: str, rl: RlJob, e: RlEstimate) -> dict[str, object]:
    """Fields of a step of RL as launch files say them."""
    return {
        "rl.method": method,
        "rl.prompts": rl.prompts,
        "rl.group": rl.group if rl.group > 1 else None,
        "rl.prompt": round(rl.prompt_tokens),
        "rl.max_response": round(rl.max_response_tokens),
        "rl.engine": None if rl.method == "dpo" else rl.engine,
        "rl.rollout_tp": e.rollout_tp or None,
        "rl.rollout_gpus": rl.rollout_gpus or None,
        "rl.critic_gpus": rl.critic_gpus or None,
        "rl.no_kl": not rl.kl,
        "rl.rule_reward": rl.method == "ppo" and not rl.reward,
        "rl.updates": rl.updates,
        "rl.lag": rl.lag if rl.engine == "async" else None,
    }


def step_words(rl: RlJob, e: RlEstimate) -> str:
    """Say what a step does, and where."""
    words = f"{rl.method.upper()}, {rl.prompts} prompts x {rl.group}"
    if rl.method == "dpo":
        words = f"DPO, {rl.prompts} pairs" + ("" if rl.kl else ", no reference")
    if rl.updates > 1:
        words += f" in {rl.updates} updates"
    mode = "" if rl.method == "dpo" else f", engine {rl.engine}"
    own = (rl.rollout_gpus, "roll out"), (rl.critic_gpus, "hold critic and reward")
    apart = [f"{n} {what}" for n, what in own if n]
    where = f" (of {e.n_gpus} GPUs {', '.join(apart)})" if apart else ""
    return f"{words}{mode}{where}"


def taken_of(asked: Any, case: FinetuneCase, rl: RlJob, e: RlEstimate) -> tuple[str, ...]:
    """List what nobody said."""
    own_tp = e.rollout_tp and rl.engine != "hf"
    length = f"responses of {rl.response_tokens:,.0f} tokens"
    return case.assumed + unsaid(
        (asked.prompts or asked.global_batch, f"{rl.prompts} prompts a step", "--prompts"),
        (asked.response or asked.mean_len, length, "--response"),
        (rl.method == "dpo" or asked.engine, f"engine {rl.engine}", "--engine"),
        (not own_tp or asked.rollout_tp, f"rollout TP {e.rollout_tp}", "--rollout-tp"),
    )


def rl_terms(rl: RlJob, e: RlEstimate, r: RlAnswer, gpu: GpuSpec) -> tuple[Term, ...]:
    """Explain step, throughput, memory, run and bill."""
    data = "prompts and responses of a step, all GPUs"
    terms = [
        _step_term(e),
        term_of("tokens_per_s", "", "tokens / step_s", data, r, tokens=e.tokens),
        _memory_term(rl, e, r),
        usable_term(gpu.usable_hbm_bytes, gpu.hbm_bytes, r.capacity_bytes),
    ]
    if r.run_s is not None:
        terms.append(term_of("run_s", "s", "steps * step_s", "steps of the run", r))
    if r.bill is not None:
        terms += bill_terms(r.bill, BilledTime(r.run_s or r.step_s, float(e.n_gpus)))
    return tuple(terms)


def _step_term(e: RlEstimate) -> Term:
    parts = {key: getattr(e.step, key) for _, key in PHASES}
    formula = " + ".join(parts)
    if e.step.engine == "async" or e.step.critic_apart:
        policy, critic = "logprob_s + reference_s + train_s + switch_s", "reward_s + critic_s"
        learn = f"max({policy}, {critic})" if e.step.critic_apart else f"{policy} + {critic}"
        both = f"max(rollout_s, {learn})" if e.step.engine == "async" else f"rollout_s + {learn}"
        formula = f"{both} + sync_s + overhead_s"
    source = "rollout by the serving model, the rest by the training model; presets/run/rl.toml"
    return Term("step_s", e.step.step_s, "s", formula, parts, source)


def _memory_term(rl: RlJob, e: RlEstimate, r: RlAnswer) -> Term:
    m, p = e.memory, e.memory.policy
    formula = "policy_bytes + reference_bytes + critic_bytes + engine_bytes"
    text = "policy at its training peak, the frozen reference, critic and reward model"
    if m.rollout_bytes and rl.costs.states_leave:
        states = "policy_states_bytes + reference_bytes + critic_bytes"
        formula = f"max(policy_bytes + critic_bytes, {states}) + engine_bytes"
        text += "; the reference is on the GPU for its own forward pass alone"
    parts = {"policy_bytes": p.total_bytes, "policy_states_bytes": p.states_bytes}
    training = term_of("train_bytes", "bytes", formula, text, m, **parts)
    moments = "the larger of the two moments of a step"
    larger = term_of("peak_bytes", "bytes", "max(train_bytes, rollout_bytes)", moments, m, r)
    return replace(larger, children=(training,))


def rl_summary(case: FinetuneCase, rl: RlJob, r: RlAnswer, e: RlEstimate, said: str) -> list[Point]:
    """Summary of a step of RL."""
    rows = case.job.layout.micro_batch_size * (rl.together if rl.method != "dpo" else 1)
    head = head_points(case, with_micro_batch(case.job, rows), r, said, step_words(rl, e))
    phases = {key: getattr(e.step, key) for _, key in PHASES}
    low_high = f"(80 %: {time_text(r.step_low_s)} to {time_text(r.step_high_s)})"
    found = [
        *head[:3],
        Point("step", time_text(r.step_s), f"{low_high}, {r.samples_per_s:,.2f} samples/s"),
        *head[3:],
        summary.bottleneck(phases, {key: label for label, key in PHASES}, r.step_s),
    ]
    if r.run_s is not None and r.steps is not None:
        found.append(Point("run", time_text(r.run_s), f"{r.steps:,} steps"))
    found += summary.cost_points(r.bill, "" if r.run_s else "a step, ")
    if r.fewest_gpus is not None:
        found.append(Point("fewest GPUs", f"{r.fewest_gpus:,}"))
    return [*found, *summary.taken_points(r.taken), *([summary.FILED] if r.fits else [])]
