"""Tables, facts and terms of an answer about RL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.finetune.words import time_text
from gpuscale.answers.money import bill_rows
from gpuscale.core.words import gb
from gpuscale.render.document import Column, Table

if TYPE_CHECKING:
    from gpuscale.answers.finetune.rl_records import RlAnswer, Split
    from gpuscale.core.rl.estimate import RlEstimate, RlJob

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
    return Table(
        (
            Column("phase", "one step", right=False),
            Column("time_s", "time", time_text),
            Column("share", "share", lambda v: f"{100 * v:.0f} %"),
        ),
        [(label, v, v / e.step.step_s) for label, v in rows],
    )


def rl_facts(asked: Any, rl: RlJob, e: RlEstimate, r: RlAnswer) -> list[tuple[str, str, str]]:
    """Answer in figures: step, rollout, memory, run and its bill."""
    low, high = r.step_s / r.interval_factor_80, r.step_s * r.interval_factor_80
    rows = [
        ("step", time_text(r.step_s), f"bound by the {r.bound}"),
        ("80 % interval", f"{time_text(low)} to {time_text(high)}", "of published steps"),
    ]
    if r.longest_step_s is not None:
        words = f"were all responses {rl.max_response_tokens:,.0f} tokens: --response says the mean"
        rows.append(("step at the longest", time_text(r.longest_step_s), words))
    rows += [
        ("tokens/s", f"{r.tokens_per_s:,.0f}", "prompts and responses, all GPUs"),
        ("samples/s", f"{r.samples_per_s:,.2f}", f"{rl.samples:,} a step"),
    ]
    if e.rollout is not None:
        waiting = e.rollout.tail_s / e.rollout.time_s
        words = f"per replica; {100 * waiting:.0f} % of it while the batch falls to the longest"
        if rl.engine == "hf":
            words = "per GPU, by the training model itself"
        rows.append(("rollout", f"{e.rollout.sequences:,.0f} at once", words))
    verdict = "fits" if r.fits else "does not fit"
    rows.append(("memory", gb(r.total_bytes), f"of {gb(r.usable_bytes)} usable: {verdict}"))
    if asked.host_memory is None:
        rows.append(("host memory", gb(e.memory.host_bytes_per_node), "per node"))
    else:
        has = f"per node, of {gb(asked.host_memory)}"
        rows.append(("host memory", gb(e.memory.host_bytes_per_node), has))
    if r.fewest_gpus is not None or not r.fits:
        rows.append(("fewest GPUs", f"{r.fewest_gpus or 'none'}", "as asked, doubled in turn"))
    if r.run_s is not None and r.steps is not None:
        rows.append(("run", time_text(r.run_s), f"{r.steps:,} steps"))
    if r.bill is not None:
        if r.run_s is None:
            rows.append(("one step costs", "", "--steps or --examples give those of a run"))
        rows += bill_rows(r.bill)
    return rows


def memory_table(e: RlEstimate) -> Table:
    """Memory by role and moment."""
    m = e.memory
    rows = [("policy, training", m.policy.total_bytes), ("reference", m.reference_bytes)]
    rows += [("critic and reward", m.critic_bytes), ("while training", m.train_bytes)]
    rows.append(("while rolling out", m.rollout_bytes))
    return Table(
        (Column("part", "per training GPU", right=False), Column("bytes", "memory", gb)),
        [row for row in rows if row[1] > 0],
    )


def split_table(splits: tuple[Split, ...]) -> Table:
    """Table the splits of the GPUs between training and rollout."""
    return Table(
        (
            Column("train_gpus", "training GPUs"),
            Column("rollout_gpus", "rollout GPUs"),
            Column("step_s", "step", time_text),
            Column("bound", "bound by", right=False),
            Column("fits", "fits", lambda v: "yes" if v else "no", right=False),
        ),
        [(s.train_gpus, s.rollout_gpus, s.step_s, s.bound, s.fits) for s in splits],
    )
