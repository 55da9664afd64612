"""Terms of an answer about RL: the phases of a step, its memory, the run and its bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.finetune.rl_blocks import PHASES
from gpuscale.answers.run_terms import Held, bill_terms
from gpuscale.core.memory.terms import usable_term
from gpuscale.core.records import Term

if TYPE_CHECKING:
    from gpuscale.answers.finetune.rl_records import RlAnswer
    from gpuscale.core.rl.estimate import RlEstimate, RlJob
    from gpuscale.specs.gpu import GpuSpec


def rl_terms(rl: RlJob, e: RlEstimate, r: RlAnswer, gpu: GpuSpec) -> tuple[Term, ...]:
    """Explain step, throughput, memory, run and bill."""
    terms = [
        _step(e),
        Term(
            "tokens_per_s",
            r.tokens_per_s,
            "",
            "tokens / step_s",
            {"tokens": e.tokens, "step_s": r.step_s},
            "prompts and responses of a step, all GPUs",
        ),
        *_memory(rl, e, r),
        usable_term(gpu.usable_hbm_bytes, gpu.hbm_bytes, r.capacity_bytes),
    ]
    if r.run_s is not None and r.steps is not None:
        run = {"steps": float(r.steps), "step_s": r.step_s}
        terms.append(Term("run_s", r.run_s, "s", "steps * step_s", run, "steps of the run"))
    if r.bill is not None:
        terms += bill_terms(r.bill, Held(r.run_s or r.step_s, float(e.n_gpus)))
    return tuple(terms)


def _step(e: RlEstimate) -> Term:
    parts = {key: getattr(e.step, key) for _, key in PHASES}
    formula = " + ".join(parts)
    if e.step.engine == "async" or e.step.critic_apart:
        policy, critic = "logprob_s + reference_s + train_s + switch_s", "reward_s + critic_s"
        learn = f"max({policy}, {critic})" if e.step.critic_apart else f"{policy} + {critic}"
        both = f"max(rollout_s, {learn})" if e.step.engine == "async" else f"rollout_s + {learn}"
        formula = f"{both} + sync_s + overhead_s"
    source = "rollout by the serving model, the rest by the training model; presets/run/rl.toml"
    return Term("step_s", e.step.step_s, "s", formula, parts, source)


def _memory(rl: RlJob, e: RlEstimate, r: RlAnswer) -> tuple[Term, ...]:
    m = e.memory
    beside = {
        "policy_bytes": m.policy.total_bytes,
        "reference_bytes": m.reference_bytes,
        "critic_bytes": m.critic_bytes,
        "engine_bytes": m.engine_bytes,
    }
    formula = " + ".join(beside)
    text = "policy at its training peak, the frozen reference, critic and reward model"
    if m.rollout_bytes and rl.offload_states:  # the reference comes in for its own pass alone
        p = m.policy
        states = p.base_bytes + p.gradients_bytes + p.optimizer_bytes + p.adapter_bytes
        beside["policy_states_bytes"] = states
        formula = (
            "max(policy_bytes + critic_bytes, policy_states_bytes + reference_bytes + critic_bytes)"
            " + engine_bytes"
        )
        text += "; the reference is on the GPU for its own forward pass alone"
    training = Term("train_bytes", m.train_bytes, "bytes", formula, beside, text)
    moments = {"train_bytes": m.train_bytes, "rollout_bytes": m.rollout_bytes}
    return (
        Term(
            name="peak_bytes",
            value=r.peak_bytes,
            unit="bytes",
            formula="max(train_bytes, rollout_bytes)",
            inputs=moments,
            source="the larger of the two moments of a step",
            children=(training,),
        ),
    )
