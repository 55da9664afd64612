"""A question about RL read: lengths, samples, where rollouts run; the rest is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from gpuscale.core.finetune.rl import RELATIVES
from gpuscale.core.finetune.rl_estimate import RlJob
from gpuscale.core.finetune.rl_step import RlCosts
from gpuscale.core.records import replace
from gpuscale.core.search.space import divisors, powers_of_two
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Memory
    from gpuscale.answers.training.tune_case import FinetuneCase
    from gpuscale.specs.model import ModelSpec

GROUPS = {"grpo": 8, "rloo": 4, "ppo": 1, "dpo": 1}
"""Responses to a prompt where none are given: usual settings (TRL, verl)."""

ENGINES = {"vllm": "colocated", "sglang": "colocated", "none": "hf"}
"""Other words for an engine."""

DEFAULT_PROMPTS = 128
DEFAULT_TOKENS = 512.0
ROLLOUT_PROMPT = 256.0
"""Mean prompt of rollouts: nine logs of verl print 63 to 2,474 tokens, mathematics about 100,
agents thousands (median 143, geometric mean 246)."""


def method_of(name: str, no_kl: bool) -> tuple[str, bool]:
    """Name the method as computed, and say whether it has a KL term.

    >>> method_of("simpo", False), method_of("grpo", True)
    (('dpo', False), ('grpo', False))
    """
    method, kl = RELATIVES.get(name, (name, True))
    return method, kl and not no_kl


def lengths_of(asked: Memory, method: str, costs: RlCosts) -> tuple[float, float, float]:
    """(prompt, mean response, longest response); `--seq-len`, `--mean-len` are of both. [token]."""
    spread, habit = costs.longest_over_mean, costs.max_response
    row = costs.row if method == "dpo" else 0  # of which nobody said how full it is
    if asked.max_len is not None and asked.seq_len is not None:
        raise GpuscaleError("give --max-len or --seq-len, not both: they are the same")
    whole = asked.max_len or asked.seq_len
    usual = DEFAULT_TOKENS if method == "dpo" else ROLLOUT_PROMPT
    prompt = asked.prompt or min(usual, (whole or row or math.inf) / 4.0)
    habit = max(habit, row - prompt)
    if whole is not None and prompt >= whole:
        raise GpuscaleError(f"--prompt {prompt:g} leaves nothing of {whole} tokens to a response")
    longest = asked.max_response or (whole - prompt if whole else None)
    if longest is None and habit > (asked.response or 0.0):
        longest = habit
    if whole is not None and asked.max_response and prompt + asked.max_response > whole:
        raise GpuscaleError(
            f"--prompt {prompt:g} and --max-response {asked.max_response:g} are above {whole}",
            "--seq-len is prompt and response together",
        )
    mean = asked.response
    if asked.mean_len is not None:
        if mean is not None:
            raise GpuscaleError("give --response or --mean-len, which is prompt and response")
        mean = asked.mean_len - prompt
        if mean < 1:
            raise GpuscaleError(f"--mean-len {asked.mean_len:g} is not above --prompt {prompt:g}")
    if mean is None:
        known = 1.0 if method == "dpo" else spread
        mean = max(1.0, longest / known) if longest else DEFAULT_TOKENS
        mean = min(mean, DEFAULT_TOKENS) if longest == row - prompt else mean
    longest = longest or spread * mean
    if mean > longest:
        raise GpuscaleError(f"--response {mean:g} is above --max-response {longest:g}")
    return prompt, mean, longest


def samples_of(asked: Memory, method: str, costs: RlCosts) -> tuple[int, int, int]:
    """(Prompts of a step, responses to each, optimizer steps on them)."""
    group = asked.group or costs.group or GROUPS[method]
    prompts, global_batch = asked.prompts, asked.global_batch
    if prompts is None:
        prompts = costs.prompts or DEFAULT_PROMPTS
        prompts = max(1, math.ceil(global_batch / group)) if global_batch else prompts
        return prompts, group, 1
    if global_batch is None:
        return prompts, group, 1
    if global_batch > prompts * group:
        raise GpuscaleError(
            f"--global-batch {global_batch} is above the {prompts * group} samples of a step",
            "a step has --prompts times --group samples; --global-batch are those of an update",
        )
    return prompts, group, math.ceil(prompts * group / global_batch)


def engine_of(asked: Memory, method: str, costs: RlCosts) -> str:
    """Where rollouts run: as asked, else the framework's habit."""
    engine = ENGINES.get(asked.engine or "", asked.engine)
    beside = costs.engine == "hf" and (asked.rollout_tp or asked.engine_share)  # vLLM's own words
    engine = engine or ("split" if asked.rollout_gpus else "colocated" if beside else costs.engine)
    if method != "dpo" and asked.rollout_gpus and engine in ("colocated", "hf"):
        raise GpuscaleError("--rollout-gpus needs --engine split or async")
    return engine


def rl_job(asked: Memory, costs: RlCosts) -> RlJob:
    """Read what a step does."""
    method, kl = method_of(str(asked.method), asked.no_kl)
    prompt, response, longest = lengths_of(asked, method, costs)
    prompts, group, updates = samples_of(asked, method, costs)
    engine = "colocated" if method == "dpo" else engine_of(asked, method, costs)
    if asked.lag is not None and engine != "async":
        raise GpuscaleError(f"--lag is for --engine async, not {engine}")
    if asked.kl and (costs.reference or not kl):
        raise GpuscaleError("--kl: there is a KL term anyway, or --no-kl took it away")
    share = asked.engine_share or costs.engine_frac
    return RlJob(
        method=method,
        prompts=prompts,
        group=group,
        prompt_tokens=prompt,
        response_tokens=response,
        max_response_tokens=longest,
        engine=engine,
        lag=asked.lag or 1,
        rollout_gpus=asked.rollout_gpus or 0,
        critic_gpus=asked.critic_gpus or 0,
        updates=updates,
        kl=kl and (method == "dpo" or costs.reference or asked.kl),
        reward=not asked.rule_reward,
        costs=replace(costs, packs=asked.packing or costs.packs, engine_frac=share),
    )


def steps_of(asked: Any, rl: RlJob) -> int | None:
    """Count the steps of the run: as given, or from examples (prompts, pairs) and epochs."""
    examples, epochs = getattr(asked, "examples", None), getattr(asked, "epochs", None)
    if examples is not None:
        if asked.steps is not None:
            raise GpuscaleError("give --steps or --examples, not both")
        return max(1, math.ceil(float(examples) * float(epochs or 1.0) / rl.prompts))
    if epochs is not None:
        raise GpuscaleError("--epochs needs --examples: the prompts of the data")
    steps: int | None = asked.steps
    return steps


def degrees(n_gpus: int, case: FinetuneCase) -> Iterator[tuple[int, int, int]]:
    """(TP, PP, EP) worth trying, the least split first; experts within the GPUs of a stage."""
    counts = [f.n_experts for f in case.loaded.model.expert_ffns]
    ranks = [1, *((2, 4, 8, 16, 32) if counts else ())]
    mixers = case.loaded.model.mixers.values()
    heads = min((m.n_kv_heads for m in mixers if hasattr(m, "n_kv_heads")), default=1)
    n_layers = case.loaded.model.n_layers
    stages = {n for n in (*powers_of_two(128), *divisors(n_layers)) if n <= n_layers}
    splits = sorted(product((8, 4, 2, 1), stages), key=lambda s: (s[0] * s[1], -s[0]))
    for tp, pp in splits:
        if n_gpus % (tp * pp) or heads % tp or tp * pp > MOST_SPLIT:
            continue
        if not counts and pp > 1 and tp < 8 <= heads:
            continue
        for ep in ranks:
            if n_gpus // pp % ep == 0 and all(n % ep == 0 for n in counts):
                yield tp, pp, ep


REPLICAS = (1, 2, 4, 8, 16, 32)
"""GPUs that a replica of the engine may have; more than a node's where fewer do not hold it."""


def replicas(model: ModelSpec, most: int) -> list[int]:
    """GPUs that a replica of a model may have, of `most`: heads are split evenly."""
    heads = [m.n_heads for m in model.mixers.values() if hasattr(m, "n_heads")]
    return [tp for tp in REPLICAS if tp <= most and all(n % tp == 0 for n in heads)]


MOST_SPLIT = 256
"""GPUs that a model is split over at the most."""
