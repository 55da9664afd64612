"""A step of RL post-training: phases, who waits for whom, and the memory of colocation.

Roles and phases: InstructGPT (Ouyang et al. 2022, arXiv:2203.02155), DPO (Rafailov et al. 2023,
arXiv:2305.18290), GRPO (Shao et al. 2024, arXiv:2402.03300); weight sync and colocation: HybridFlow
(Sheng et al. 2024, arXiv:2409.19256, section 5).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Among, NonNegativeInt, Within
from gpuscale.core.dataclasses import dataclass
from gpuscale.core.finetune.rl import METHODS

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

TENSOR_SYNC_S = 8.5e-4
"""Time per tensor of a weight synchronisation between pools: 15.8 s for the 18,400 matrices of
Qwen3-30B-A3B on 32 H20 (verl, default transfer). [s]"""

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
    from gpuscale.core.model.layer_shape import model_maps

    return 2.0 + math.fsum(n * math.fsum(m.copies for m in maps) for n, maps in model_maps(model))


def sync_s(
    model: ModelSpec, total_params: float, link_bytes_per_s: float, n_gpus: int, tensor_s: float
) -> float:
    """Time to hand the new weights to the engine. [s].

    Every GPU of the engine receives its share of 2 bytes a parameter; each tensor is handled on its
    own, in `tensor_s`, which is what counts with many experts.
    """
    return 2.0 * total_params / (link_bytes_per_s * n_gpus) + tensor_s * n_tensors(model)
