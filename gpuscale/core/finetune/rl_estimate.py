"""Phases and memory of an RL step from the two models that compute them.

Phases as in HybridFlow (Sheng et al. 2024, arXiv:2409.19256, section 2); groups of responses as in
DeepSeekMath (Shao et al. 2024, arXiv:2402.03300, section 4.1).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.core.finetune.bench import HOST_PROCESS_BYTES, Bench
from gpuscale.core.finetune.memory import FinetuneMemory
from gpuscale.core.finetune.method import Job, counts
from gpuscale.core.finetune.rl_step import (
    NO_COSTS,
    RESIDUE_BYTES,
    Responses,
    RlCosts,
    RlStep,
    Roles,
    Rollout,
    generate,
    responses,
    roles,
    rollout,
    sync_s,
)
from gpuscale.core.records import dataclass, replace
from gpuscale.core.run.time import padded_mean
from gpuscale.core.serving.forward import most_sequences

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import ModelSpec

FORWARD_FRAC = 1.0 / 3.0
"""Forward pass over forward and backward: 2 of 6 FLOP a weight and token."""


TOKENS_TOGETHER = 4096.0
"""Tokens of a micro-batch that frameworks put short samples together to: prior, the usual budget of
dynamic batching and packing."""


@dataclass(frozen=True, slots=True)
class RlJob:
    """What a step of RL does."""

    method: str  # dpo | ppo | grpo | rloo
    prompts: int  # of a step; pairs for dpo
    group: int  # responses to each prompt
    prompt_tokens: float  # mean
    response_tokens: float  # mean
    max_response_tokens: float
    engine: str = "colocated"
    rollout_gpus: int = 0  # of a split engine
    critic_gpus: int = 0  # of critic and reward, beside the policy's; 0: they take turns with it
    lag: int = 1  # async: steps that rollouts may be ahead
    updates: int = 1  # optimizer steps on the samples of a step
    kl: bool = True
    reward: bool = True  # ppo: a model gives rewards; else a rule does
    costs: RlCosts = NO_COSTS  # what the framework adds, and its habits

    @property
    def samples(self) -> int:
        """Sequences that a step trains on. [1]."""
        return self.prompts * (2 if self.method == "dpo" else self.group)

    @property
    def together(self) -> int:
        """Sequences of one that a micro-batch counts. [1]."""
        return 2 if self.method == "dpo" else self.group if self.costs.micro_prompts else 1


@dataclass(frozen=True, slots=True, eq=False)
class RolloutEngine:
    """The serving side: one replica's layout and site, and its GPUs' usable memory."""

    replica: Replica
    site: ServingSite
    usable_bytes: float

    def holds(self, model: ModelSpec, tokens: float) -> bool:
        """Whether a replica has room for a sequence of so many tokens."""
        return most_sequences(model, self.replica, self.site, tokens) >= 1.0


@dataclass(frozen=True, slots=True)
class RlMemory:
    """Memory of one training GPU in the two moments of a step. [byte]."""

    policy: FinetuneMemory  # the policy's training peak, alone
    reference_bytes: float
    engine_bytes: float  # of a colocated engine that stays while training
    critic_bytes: float  # the critic's weights, gradients and states, and the reward model
    train_bytes: float  # peak while training
    rollout_bytes: float  # of a colocated engine with what stays beside it
    host_bytes_per_node: float

    @property
    def total_bytes(self) -> float:
        """The larger moment. [byte]."""
        return max(self.train_bytes, self.rollout_bytes)


@dataclass(frozen=True, slots=True)
class RlEstimate:
    """A step of RL: phases, rollout, memory."""

    step: RlStep
    rollout: Rollout | None
    lengths: Responses
    memory: RlMemory
    roles: Roles
    n_gpus: int
    rollout_gpus: int
    rollout_tp: int  # GPUs of a replica of the engine; 0 without one
    fits: bool
    tokens: float  # of prompts and responses, one step

    @property
    def rolls_out(self) -> bool:
        """Whether the engine has room for a sequence."""
        return self.rollout is None or self.rollout.fits

    @property
    def tokens_per_s(self) -> float:
        """Tokens of prompts and responses per second, all GPUs. [1/s]."""
        return self.tokens / self.step.step_s


def update_job(job: Job, rl: RlJob) -> Job:
    """Training job of a step: every sample at its mean length, short ones put together."""
    layout = job.layout
    samples = max(1, rl.samples // rl.updates)
    mean = rl.prompt_tokens + rl.response_tokens
    together = layout.micro_batch_size * (1 if rl.method == "dpo" else rl.together)
    if rl.costs.packs:
        seq = max(1, round(mean))
        together = max(together, math.ceil(TOKENS_TOGETHER / seq))
    else:
        longest = rl.prompt_tokens + rl.max_response_tokens
        seq = max(1, round(padded_mean(mean, longest, together)))
    together = min(together, max(1, samples // layout.dp))
    layout = replace(layout, micro_batch_size=together)
    ranks = layout.dp * together
    batch = -(-samples // ranks) * ranks
    return replace(job, layout=replace(layout, seq_len=seq, global_batch_size=batch))


def longest_job(job: Job, rl: RlJob) -> Job:
    """Training job at the longest sequence: what memory must hold."""
    layout = job.layout
    seq = max(1, round(rl.prompt_tokens + rl.max_response_tokens))
    micro = layout.micro_batch_size * rl.together
    ranks = layout.dp * micro
    batch = max(2, -(-rl.samples // ranks)) * ranks
    longest = replace(layout, seq_len=seq, micro_batch_size=micro, global_batch_size=batch)
    pairs = rl.method == "dpo"
    loss = "pairs" if pairs and job.loss == "eager" else job.loss
    alone = rl.costs.response_logits and not pairs
    frac = min(1.0, rl.max_response_tokens / seq) if alone else 1.0
    return replace(job, layout=longest, loss=loss, logits_frac=frac)


def _rollout(
    rl: RlJob, engine: RolloutEngine, n_gpus: int, lengths: Responses, bench: Bench
) -> Rollout:
    replicas = max(1, n_gpus // engine.replica.n_gpus)
    if rl.engine == "hf":
        return generate(
            bench.model,
            engine.replica,
            engine.site,
            lengths,
            n_sequences=rl.samples / replicas,
            prompt_tokens=rl.prompt_tokens,
            token_s=rl.costs.generate_layer_s * bench.model.n_layers,
            at_once=rl.costs.generate_batch * engine.replica.n_gpus,
        )
    # weights change under way: the next prompts join while the tail of a batch still runs
    ahead = rl.lag + 1 if rl.engine == "async" else 1
    together = rollout(
        bench.model,
        engine.replica,
        engine.site,
        lengths,
        n_sequences=ahead * rl.samples / replicas,
        prompt_tokens=rl.prompt_tokens,
        n_prompts=max(1.0, ahead * rl.prompts / replicas),
    )
    return together.shared(ahead)


def rl_memory(
    bench: Bench,
    job: Job,
    rl: RlJob,
    held: Roles,
    engine: RolloutEngine | None,
    critic: Bench | None,
) -> RlMemory:
    """Memory of a training GPU: policy, the models beside it, and a colocated engine."""
    longest = longest_job(job, rl)
    own = weights = bench.memory(longest)
    each = bench.site(job)[2].full_weights_bytes  # adapters have no reference
    if "parameters" in job.offload:
        weights = bench.memory(replace(longest, offload=frozenset()))
    frozen = weights.base_bytes * 2.0 / each if held.reference else 0.0
    away = rl.costs.reference_on_host or "parameters" in job.offload
    reference = 0.0 if away else frozen
    beside = 0.0
    if held.critic and not rl.critic_gpus:
        other = (critic or bench).memory(longest)
        beside = other.states_bytes + (other.base_bytes if held.reward else 0.0)
    train = own.total_bytes + reference + beside
    states = own.states_bytes + reference + beside
    awake = stays = 0.0
    host = own.host_bytes + frozen - reference + HOST_PROCESS_BYTES
    if engine is not None and rl.engine == "colocated":
        share = rl.costs.engine_frac * engine.usable_bytes
        if rl.costs.states_leave:  # the reference comes in for its own forward pass alone
            train, host = max(train - reference, states), host + states
        stays = 0.0 if rl.costs.engine_sleeps else share
        train += stays  # asleep (vLLM, level 1 and 2) it leaves nothing of size
        awake = share + (RESIDUE_BYTES if rl.costs.states_leave else states)
    local = min(bench.gpus_per_node, job.layout.n_gpus)
    return RlMemory(
        policy=own,
        reference_bytes=reference,
        engine_bytes=stays,
        critic_bytes=beside,
        train_bytes=train,
        rollout_bytes=awake,
        host_bytes_per_node=local * host,
    )


def _passes(bench: Bench, job: Job, rl: RlJob, slow: float) -> tuple[float, float]:
    """(update, log-probabilities without gradients) over the samples of a step. [s]."""
    learned = update_job(job, rl)
    once = replace(learned, layout=replace(learned.layout, recompute="none"))
    forward = slow * FORWARD_FRAC * rl.updates * bench.step(once).step_s
    return slow * rl.updates * bench.step(learned).step_s, forward


def _apart(job: Job, rl: RlJob) -> Job:
    """Job of critic and reward on GPUs of their own."""
    layout = job.layout
    dp = max(1, rl.critic_gpus // (layout.tp * layout.pp * layout.cp))
    return replace(job, layout=replace(layout, dp=dp)) if rl.critic_gpus else job


def _engine_times(
    bench: Bench, job: Job, rl: RlJob, engine: RolloutEngine, lengths: Responses
) -> tuple[Rollout, float, float]:
    """(rollout, weights to the engine, engine in and out). [s]."""
    hw = bench.site(job)[0]
    n_roll = rl.rollout_gpus or job.layout.n_gpus
    total = counts(bench.model, job.method).total_params
    found = _rollout(rl, engine, n_roll, lengths, bench)
    link = hw.scaleup_bytes_per_s if n_roll <= hw.gpus_per_node else hw.scaleout_bytes_per_s
    if rl.engine == "hf":  # sharded weights are gathered once
        sharded = job.layout.zero_stage == 3 and job.layout.dp > 1
        return found, 2.0 * total / link if sharded else 0.0, 0.0
    apart, switch = rl.engine != "colocated", 0.0
    sync = sync_s(bench.model, total, link, 1 if apart else n_roll, rl.costs.tensor_sync_s[apart])
    if not apart:
        switch = 2.0 * (2.0 * total / engine.replica.n_gpus) / hw.host_link_bytes_per_s
    return found, sync, switch


def rl_estimate(
    bench: Bench, job: Job, rl: RlJob, engine: RolloutEngine | None, *, critic: Bench | None = None
) -> RlEstimate:
    """Phases and memory of one RL step.

    `bench, job`: the policy's training on its GPUs. `rl`: method, samples, lengths, where rollouts
    run. `engine`: the serving side; None where the method has no rollout. `critic`: model of critic
    and reward; default: as large as the policy. Returns: seconds and byte.
    """
    held = roles(rl.method, adapters=job.method.adapts, kl=rl.kl, reward=rl.reward)
    lengths, costs = responses(rl.response_tokens, rl.max_response_tokens), rl.costs
    update, forward = other_update, other_forward = _passes(bench, job, rl, costs.update_factor)
    if critic or rl.critic_gpus:
        apart = critic or bench, _apart(job, rl)
        other_update, other_forward = _passes(*apart, rl, costs.update_factor)
    found, roll_s, sync, switch = None, 0.0, 0.0, 0.0
    if engine is not None:
        found, sync, switch = _engine_times(bench, job, rl, engine, lengths)
        roll_s = costs.rollout_factor * (found.time_s - found.network_s) + found.network_s
    memory = rl_memory(bench, job, rl, held, engine, critic)
    refers = held.reference or (rl.kl and job.method.adapts)
    step = RlStep(
        rollout_s=roll_s,
        logprob_s=forward if rl.method != "dpo" else 0.0,
        reference_s=forward if refers else 0.0,
        reward_s=other_forward if held.reward else 0.0,
        critic_s=other_update + other_forward if held.critic else 0.0,
        train_s=update,
        sync_s=sync,
        switch_s=switch,
        overhead_s=costs.step_overhead_s if held.rollout else 0.0,
        engine=rl.engine if held.rollout else "colocated",
        critic_apart=rl.critic_gpus > 0,
    )
    return RlEstimate(
        step=step,
        rollout=found,
        lengths=lengths,
        memory=memory,
        roles=held,
        n_gpus=job.layout.n_gpus + rl.rollout_gpus + rl.critic_gpus,
        rollout_gpus=rl.rollout_gpus,
        rollout_tp=engine.replica.tp if engine else 0,
        fits=memory.total_bytes <= bench.usable_bytes and (found is None or found.fits),
        tokens=rl.samples * (rl.prompt_tokens + rl.response_tokens),
    )
