"""A step of RL post-training: rollouts, phases, who waits for whom, the memory of colocation.

Rollouts: prompts read, then decoded with a batch that falls as responses end; continuous batching
as in Orca (Yu et al. 2022, OSDI); the tail of long responses as measured for HybridFlow (Sheng et
al. 2024, arXiv:2409.19256). Lengths are exponential about their mean, cut at the maximum; the
longest of n by order statistics (Renyi 1953; David and Nagaraja, Order Statistics, 2003, section
2.5, doi:10.1002/0471722162).

Roles and phases: InstructGPT (Ouyang et al. 2022, arXiv:2203.02155), DPO (Rafailov et al. 2023,
arXiv:2305.18290), GRPO (Shao et al. 2024, arXiv:2402.03300); weight sync and colocation: HybridFlow
(Sheng et al. 2024, arXiv:2409.19256, section 5).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Among, NonNegativeInt, Within
from gpuscale.core.finetune.rl import METHODS
from gpuscale.core.model.layer_shape import model_maps
from gpuscale.core.numeric import reached
from gpuscale.core.records import dataclass, replace
from gpuscale.core.serving.forward import decode_step, most_sequences, prompt_pass

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import ModelSpec


ALL_LONGEST_FRAC = 0.98
"""Mean over maximum from which every response is taken as long as the maximum."""

WIDEST = 100.0
"""Scale of the longest believed tail, over the maximum: it is flat by then."""


@dataclass(frozen=True, slots=True)
class Responses:
    """Response lengths of a rollout. [token]."""

    mean_tokens: float
    max_tokens: float
    scale_tokens: float | None  # of the exponential; None where every response has the maximum

    def alive(self, tokens: float) -> float:
        """Share of the responses that are longer than `tokens`. [1]."""
        if tokens >= self.max_tokens:
            return 0.0
        return 1.0 if self.scale_tokens is None else math.exp(-tokens / self.scale_tokens)

    @property
    def under_way_tokens(self) -> float:
        """Mean tokens so far of responses being generated, long ones being there longer. [token].

        ``integral of t alive(t) dt / mean`` from 0 to the maximum.

        >>> Responses(1000.0, 1000.0, None).under_way_tokens
        500.0
        >>> round(responses(1000.0, 1e5).under_way_tokens)
        1000
        """
        s, most = self.scale_tokens, self.max_tokens
        if s is None:
            return most / 2.0
        left = math.exp(-most / s)
        return (s - left * (s + most)) / (1.0 - left)

    def longest(self, n: float) -> float:
        """Length of the longest of `n` responses, where less than one is left. [token]."""
        if self.scale_tokens is None:
            return self.max_tokens
        if n <= 1:
            return self.mean_tokens
        return min(self.max_tokens, self.scale_tokens * (math.log(n) + EULER))


EULER = 0.5772156649
"""The longest of n exponential lengths is the mean times ln n + 0.577 (order statistics)."""


def responses(mean_tokens: float, max_tokens: float) -> Responses:
    """Fit the distribution to a mean and a maximum.

    ``mean = scale (1 - exp(-max / scale))``: what is longer than the maximum is cut there.

    Raises ValueError if the mean is not positive or above the maximum.

    >>> r = responses(1000.0, 8000.0)
    >>> round(r.scale_tokens or 0), round(r.longest(512))
    (1000, 6818)
    """
    if not 0 < mean_tokens <= max_tokens:
        raise ValueError(f"mean {mean_tokens:g} must be above 0 and up to {max_tokens:g}")
    if mean_tokens > ALL_LONGEST_FRAC * max_tokens:
        return Responses(mean_tokens, max_tokens, None)
    logs = math.log(mean_tokens), math.log(WIDEST * max_tokens)
    found = reached(
        lambda at: -math.exp(at) * math.expm1(-max_tokens / math.exp(at)), mean_tokens, *logs
    )
    return Responses(mean_tokens, max_tokens, math.exp(found))


GRID = 24
"""Points of the decode at which the batch is looked at."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout on one replica of the engine."""

    time_s: float
    prefill_s: float
    full_s: float  # with as many sequences as fit
    tail_s: float  # falling, to the longest response
    sequences: float  # at once, at most
    tokens: float  # generated
    fits: bool
    network_s: float = 0.0  # of decoding, within `time_s`: no engine adds to that

    def shared(self, n_steps: int) -> Rollout:
        """Give each of `n_steps` steps its share of responses generated together."""
        names = ("time_s", "prefill_s", "full_s", "tail_s", "tokens", "network_s")
        return replace(self, **{name: getattr(self, name) / n_steps for name in names})


def rollout(
    model: ModelSpec,
    replica: Replica,
    site: ServingSite,
    lengths: Responses,
    *,
    n_sequences: float,
    prompt_tokens: float,
    n_prompts: float,
) -> Rollout:
    """Time of `n_sequences` responses on one replica.

    `model`: the policy. `replica, site`: layout and formats of the engine, its hardware and
    calibration. `lengths`: of responses. `prompt_tokens`: mean of a prompt [token]. `n_prompts`:
    distinct ones, as those of a group share their prefix [1]. Returns: seconds. While more wait
    than fit, as many as fit are decoded; then the batch falls with the survival of the lengths, to
    the longest of what is left.
    """
    room = most_sequences(model, replica, site, prompt_tokens + lengths.mean_tokens)
    inside = min(n_sequences, max(1.0, room))
    prefill = prompt_pass(model, replica, site, prompt_tokens, max(1.0, n_prompts)).total_s
    context = prompt_tokens + lengths.under_way_tokens
    each = decode_step(model, replica, site, max(1.0, inside / replica.pp), context)
    passes = max(0.0, n_sequences - inside) * lengths.mean_tokens / inside
    full, network = passes * each.per_token_s, passes * each.network_s
    longest = lengths.longest(n_sequences)
    tail, step = 0.0, longest / GRID
    for i in range(GRID):
        at = (i + 0.5) * step
        left = max(1.0, inside * lengths.alive(at))
        one = decode_step(model, replica, site, max(1.0, left / replica.pp), prompt_tokens + at)
        tail += step * one.per_token_s
        network += step * one.network_s
    return Rollout(
        time_s=prefill + full + tail,
        prefill_s=prefill,
        full_s=full,
        tail_s=tail,
        sequences=inside,
        tokens=n_sequences * lengths.mean_tokens,
        fits=room >= 1.0,
        network_s=network,
    )


def generate(
    model: ModelSpec,
    replica: Replica,
    site: ServingSite,
    lengths: Responses,
    *,
    n_sequences: float,
    prompt_tokens: float,
    token_s: float,
    at_once: int = 0,
) -> Rollout:
    """Time of `n_sequences` responses of one GPU by the training model itself.

    `model, replica, site, lengths, prompt_tokens`: as for `rollout`; the replica is one GPU.
    `token_s`: least time of one token of a batch, launches or weights gathered for it [s].
    `at_once`: sequences of a batch; 0: all [1]. Returns: seconds. Batches follow one another, each
    as long as its longest response; nothing joins a batch on its way.
    """
    inside = min(n_sequences, float(at_once or n_sequences))
    rounds = math.ceil(n_sequences / inside)
    longest = lengths.longest(inside)
    prefill = prompt_pass(model, replica, site, prompt_tokens, max(1.0, inside)).total_s
    step = decode_step(model, replica, site, inside, prompt_tokens + longest / 2.0).per_token_s
    each = longest * max(step, token_s)
    return Rollout(
        time_s=rounds * (prefill + each),
        prefill_s=rounds * prefill,
        full_s=rounds * each,
        tail_s=0.0,
        sequences=inside,
        tokens=n_sequences * lengths.mean_tokens,
        fits=True,
    )


TENSOR_SYNC_S = 7.9e-4
"""Time per tensor of a weight synchronisation between pools: 15.8 s for the 18,400 matrices of
Qwen3-30B-A3B on 32 H20 (verl, default transfer), less 1.2 s for their 61 GB. [s]"""

TENSOR_SYNC_COLOCATED_S = 2.4e-4
"""The same with handles instead of copies: 4.4 s (verl checkpoint engine). [s]"""

RESIDUE_BYTES = 4e9
"""What training leaves on a GPU after its offload: slime measured 3 to 5 GB with its groups
destroyed, 15 to 18 GB without. [byte]"""

UTILISATION_FRAC = 0.6
"""Share of a GPU's memory that a colocated engine takes: usual setting."""


Engine = Annotated[str, Among(("colocated", "split", "async", "hf"))]
Times = Annotated[float, Within(0, 100, above=True)]


@dataclass(frozen=True, slots=True)
class RlCosts:
    """What a framework costs over the models alone, and its habits; the defaults are the models."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    rollout_factor: Times = 1.0
    update_factor: Times = 1.0  # log-probabilities too
    step_overhead_s: Annotated[float, Within(0, 1e4)] = 0.0
    interval_factor_80: float = 1.7  # holds 80 % of published steps
    engine: Engine = "colocated"  # where rollouts run
    packs: bool = True  # samples of an update put together without padding
    micro_prompts: bool = False  # a micro-batch counts prompts, each with its group
    response_logits: bool = False  # of the responses alone, where samples are padded
    # CPU time of one layer and token of `generate`; sequences of a GPU that it takes at once, 0:
    # all that fit; tokens of the longest response over the mean, where only one of them is known
    generate_layer_s: Annotated[float, Within(0, 1, above=True)] = 1e-3
    generate_batch: NonNegativeInt = 0
    longest_over_mean: Annotated[float, Within(1, 100)] = 2.0
    tensor_sync_s: tuple[float, float] = (TENSOR_SYNC_COLOCATED_S, TENSOR_SYNC_S)
    engine_frac: float = UTILISATION_FRAC  # of a GPU, colocated
    engine_sleeps: bool = True
    states_leave: bool = True  # while the engine runs
    reference: bool = True  # held unless asked otherwise
    reference_on_host: bool = False  # its weights take the policy's place for its own pass
    prompts: int = 0  # of a step; 0: as usual
    max_response: float = 0.0  # tokens of the longest; 0: by the mean
    row: int = 0  # longest row of a framework, which cuts both sides of a pair; 0: as usual
    group: int = 0  # responses to a prompt; 0: as usual for the method


NO_COSTS = RlCosts()
"""The models alone."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Copies of a model that a method holds beside the policy."""

    reference: bool  # frozen policy for the KL term
    reward: bool
    critic: bool
    rollout: bool


def roles(method: str, *, adapters: bool = False, kl: bool = True, reward: bool = True) -> Roles:
    """Which models a method holds.

    With adapters the reference is the policy with them switched off; without a KL term there is
    none (GRPO with beta 0, ORPO and SimPO as `dpo` without one). `reward`: PPO has a reward model;
    rewards by rule need none.

    >>> roles("dpo", adapters=True).reference, roles("grpo").critic, roles("ppo").critic
    (False, False, True)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    reference = kl and not adapters
    if method == "dpo":
        return Roles(reference, False, False, False)
    return Roles(reference, reward and method == "ppo", method == "ppo", True)


@dataclass(frozen=True, slots=True)
class RlStep:
    """Phases of one step. [s]."""

    rollout_s: float
    logprob_s: float  # of the policy that generated
    reference_s: float
    reward_s: float
    critic_s: float  # values and update of the critic
    train_s: float
    sync_s: float
    switch_s: float  # colocated: weights and states in and out
    overhead_s: float  # scheduling, rewards by rule, data between the workers
    engine: str
    critic_apart: bool = False  # critic and reward on GPUs of their own, beside the policy

    @property
    def learning_s(self) -> float:
        """All but the rollout. [s].

        >>> RlStep(60, 5, 5, 10, 40, 30, 1, 0, 2, "colocated", critic_apart=True).learning_s
        50
        """
        policy = self.logprob_s + self.reference_s + self.train_s + self.switch_s
        critic = self.reward_s + self.critic_s
        return max(policy, critic) if self.critic_apart else policy + critic

    @property
    def step_s(self) -> float:
        """Time of a step: the sum, or the longer pool where they run side by side. [s].

        >>> RlStep(60, 5, 5, 0, 0, 30, 1, 0, 2, "split").step_s
        103
        >>> RlStep(60, 5, 5, 0, 0, 30, 1, 0, 2, "async").step_s
        63
        """
        if self.engine == "async":
            return max(self.rollout_s, self.learning_s) + self.sync_s + self.overhead_s
        return self.rollout_s + self.learning_s + self.sync_s + self.overhead_s

    @property
    def bound(self) -> str:
        """Phase that takes longest."""
        named = {
            "rollout": self.rollout_s,
            "log-probabilities": self.logprob_s + self.reference_s,
            "critic and reward": self.critic_s + self.reward_s,
            "update": self.train_s,
            "weight synchronisation": self.sync_s,
        }
        return max(named, key=lambda k: named[k])


def n_tensors(model: ModelSpec) -> float:
    """Weight matrices of a model, each expert's apart. [1]."""
    return 2.0 + math.fsum(n * math.fsum(m.copies for m in maps) for n, maps in model_maps(model))


def sync_s(
    model: ModelSpec, total_params: float, link_bytes_per_s: float, n_senders: int, tensor_s: float
) -> float:
    """Time to hand the new weights, 2 bytes a parameter, to the engine. [s].

    `n_senders`: GPUs that send a share each; 1 between pools, where rank 0 broadcasts all of it
    (verl; NVIDIA-NeMo/RL@1b37cb89, `broadcast_weights_for_collective`). Each tensor is handled on
    its own, in `tensor_s`, which is what counts with many experts.
    """
    return 2.0 * total_params / (link_bytes_per_s * n_senders) + tensor_s * n_tensors(model)
