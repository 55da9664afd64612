"""A step of RL held by hand: phases and memory of a policy whose training is known numbers."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuscale.core.finetune import rl_estimate as estimate
from gpuscale.core.finetune import rl_step as rollout
from gpuscale.core.finetune.memory import FinetuneMemory
from gpuscale.core.finetune.method import Job, Method
from gpuscale.core.finetune.parameters import IDEAL
from gpuscale.core.finetune.rl_estimate import (
    RlJob,
    RlMemory,
    longest_job,
    rl_estimate,
    rl_memory,
    update_job,
)
from gpuscale.core.finetune.rl_step import (
    Responses,
    RlCosts,
    RlStep,
    Rollout,
    n_tensors,
    responses,
    roles,
    sync_s,
)
from gpuscale.core.finetune.states import optimizer
from gpuscale.core.layout import Layout
from gpuscale.core.serving.records import Replica
from gpuscale.io.models import load_model

LLAMA = load_model("llama3-8b").spec
N = 8_030_261_248
GB = 1e9


# --- lengths -------------------------------------------------------------------------------------


def test_the_longest_of_many_responses():
    """Of n exponential lengths: the mean times ln n + 0.5772 (Euler); n = e: 1.5772."""
    some = Responses(100.0, 1000.0, 120.0)
    assert some.longest(1) == 100.0 == some.longest(0.5)
    assert some.longest(math.e) == pytest.approx(120 * 1.5772156649)
    assert some.longest(2) == pytest.approx(120 * (math.log(2) + 0.5772156649))
    assert some.longest(1e9) == 1000.0
    assert some.alive(120.0) == pytest.approx(math.exp(-1)) and some.alive(1000.0) == 0.0
    # s = 120, x = e^(-1000/120): (s - x (s + 1000)) / (1 - x)
    left = math.exp(-1000 / 120)
    assert some.under_way_tokens == pytest.approx((120 - left * 1120) / (1 - left))
    assert Responses(1.0, 1.0, 1.0).under_way_tokens == pytest.approx(
        (1 - 2 / math.e) / (1 - 1 / math.e)
    )
    same = Responses(100.0, 100.0, None)
    assert same.longest(1) == 100.0 == same.longest(50)
    assert (same.alive(0.0), same.alive(99.9), same.alive(100.0)) == (1.0, 1.0, 0.0)


def test_a_mean_near_the_maximum_is_the_maximum():
    assert responses(981.0, 1000.0).scale_tokens is None
    # at 0.98 of the maximum: x = max / scale with (1 - exp(-x)) / x = 0.98 is 0.0405
    assert responses(980.0, 1000.0).scale_tokens == pytest.approx(1000 / 0.0405, rel=0.01)
    assert responses(7.0, 7.0).scale_tokens is None
    assert responses(0.5, 50.0).scale_tokens == pytest.approx(0.5)
    for mean in (0.0, -1.0, 7.5):
        with pytest.raises(ValueError, match="above 0 and up to 7"):
            responses(mean, 7.0)


# --- rollouts, with passes of round numbers ------------------------------------------------------


@pytest.fixture
def passes(monkeypatch):
    """Four sequences fit; a prompt token takes 0.1 ms, a decoded one 10 ms + 1 ms n + 1 us keys."""

    def decode(model, replica, site, n, context):
        token_s = 0.010 + 0.001 * n + 1e-6 * context
        return SimpleNamespace(per_token_s=token_s, network_s=0.1 * token_s)

    def prompt(model, replica, site, tokens, n):
        return SimpleNamespace(total_s=1e-4 * tokens * n)

    def most(model, replica, site, context):
        return 4.0 * 150 / context  # of prompt and mean response

    for name, put in (("decode_step", decode), ("prompt_pass", prompt), ("most_sequences", most)):
        monkeypatch.setattr(rollout, name, put)


def rolled(lengths, n, prompts=1.0, replica=None, prompt_tokens=50.0):
    return rollout.rollout(
        LLAMA, replica or Replica(), None, lengths,
        n_sequences=n, prompt_tokens=prompt_tokens, n_prompts=prompts,
    )  # fmt: skip


SAME = Responses(100.0, 100.0, None)


def test_responses_of_one_length_are_decoded_four_at_a_time(passes):
    """At 50 + 50 keys a token of four takes 14.1 ms: six wait for 100 x 6 / 4 of them."""
    found = rolled(SAME, 10, prompts=5)
    assert found.prefill_s == pytest.approx(5 * 50 * 1e-4)
    assert found.full_s == pytest.approx(6 * 100 * 0.0141 / 4)
    assert found.tail_s == pytest.approx(100 * 0.0141)
    assert found.time_s == pytest.approx(0.025 + 2.115 + 1.41)
    assert found.network_s == pytest.approx(0.2115 + 0.141)
    assert (found.sequences, found.tokens, found.fits) == (4.0, 1000.0, True)
    few = rolled(SAME, 2, prompts=0.5)  # a prompt is read whole
    assert (few.sequences, few.full_s) == (2, 0.0)
    assert few.prefill_s == pytest.approx(50 * 1e-4)
    assert few.tail_s == pytest.approx(100 * 0.0121)
    halves = rolled(SAME, 10, replica=Replica(pp=2))  # each stage works at two of them
    assert halves.tail_s == pytest.approx(100 * 0.0121)
    assert halves.full_s == pytest.approx(6 * 100 * 0.0121 / 4)
    stages = rolled(SAME, 2, replica=Replica(pp=8))
    assert stages.tail_s == pytest.approx(100 * 0.0111)
    crowded = rolled(SAME, 10, replica=Replica(pp=8))  # half a sequence a stage is one
    assert crowded.full_s == pytest.approx(6 * 100 * 0.0111 / 4)
    tight = rolled(SAME, 10, prompt_tokens=501.0)  # 600 / 601 fit: as if it were one
    assert not tight.fits and tight.sequences == 1.0
    assert rolled(SAME, 10, prompt_tokens=500.0).fits


def test_a_batch_falls_as_its_responses_end(passes):
    """Alive: 4 exp(-t / 100) until one is left, at 100 ln 4; the longest of four is 196.35."""
    scale, longest = 100.0, 100 * (math.log(4) + 0.5772156649)
    found = rolled(Responses(100.0, 1e6, scale), 4)
    alone = longest - scale * math.log(4)
    sequences = scale * (4 - 1) + alone  # integral of the batch over the tokens
    want = 0.010 * longest + 0.001 * sequences + 1e-6 * (50 * longest + longest**2 / 2)
    assert found.tail_s == pytest.approx(want, rel=2e-3)
    assert found.full_s == 0.0


def test_batches_of_generate_follow_one_another(passes):
    """Ten in batches of four are three rounds of 100 tokens, at 50 + 50 keys."""

    def made(**more):
        return rollout.generate(
            LLAMA, Replica(), None, SAME, n_sequences=10, prompt_tokens=50.0, **more
        )

    found = made(token_s=0.0, at_once=4)
    assert found.prefill_s == pytest.approx(3 * 4 * 50 * 1e-4)
    assert found.full_s == pytest.approx(3 * 100 * 0.0141)
    assert found.time_s == pytest.approx(0.06 + 4.23)
    assert (found.sequences, found.tokens, found.tail_s, found.fits) == (4.0, 1000.0, 0.0, True)
    assert made(token_s=0.1, at_once=4).full_s == pytest.approx(3 * 100 * 0.1)
    part = rollout.generate(LLAMA, Replica(), None, SAME, n_sequences=0.5, prompt_tokens=50.0,
                            token_s=0.0)  # fmt: skip
    assert part.prefill_s == pytest.approx(50 * 1e-4)
    whole = made(token_s=0.0)
    assert (whole.sequences, whole.full_s) == (10.0, pytest.approx(100 * 0.0201))


def test_steps_share_what_was_generated_together():
    one = Rollout(12.0, 2.0, 4.0, 6.0, 8.0, 100.0, True).shared(2)
    assert one == Rollout(6.0, 1.0, 2.0, 3.0, 8.0, 50.0, True)


# --- a step --------------------------------------------------------------------------------------

PHASES = {"rollout_s": 60, "logprob_s": 5, "reference_s": 6, "reward_s": 10, "critic_s": 40,
          "train_s": 30, "sync_s": 1, "switch_s": 3, "overhead_s": 2}  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "apart", "learning", "step"),
    [
        ("colocated", False, 94, 157),  # 5 + 6 + 30 + 3 and 10 + 40; 60 + 1 + 2 more
        ("split", True, 50, 113),  # the critic takes longer than the policy
        ("async", False, 94, 97),  # the rollout is hidden
        ("async", True, 50, 63),
    ],
)
def test_a_step_is_its_phases(engine, apart, learning, step):
    made = RlStep(**PHASES, engine=engine, critic_apart=apart)
    assert (made.learning_s, made.step_s) == (learning, step)


@pytest.mark.parametrize(
    ("more", "bound"),
    [
        ({}, "rollout"),
        ({"rollout_s": 49}, "critic and reward"),
        ({"rollout_s": 0, "critic_s": 0, "reference_s": 24}, "update"),
        ({"rollout_s": 0, "critic_s": 0, "reference_s": 26}, "log-probabilities"),
        ({"sync_s": 61}, "weight synchronisation"),
    ],
)
def test_the_longest_phase_bounds_a_step(more, bound):
    assert RlStep(**(PHASES | more), engine="split").bound == bound


def test_weights_to_the_engine_by_hand():
    """Llama 3 8B: seven maps a layer, embedding and head; 2 bytes each over the links of all."""
    assert n_tensors(LLAMA) == 2 + 7 * 32
    assert sync_s(LLAMA, 8e9, 100e9, 4, 1e-3) == pytest.approx(2 * 8e9 / 400e9 + 0.226)


# --- jobs of training ----------------------------------------------------------------------------


def training(method="full", offload=(), **layout):
    given = {"seq_len": 1, "global_batch_size": 1, "recompute": "full"} | layout
    return Job(Method(method), optimizer("adamw"), Layout(**given), offload=frozenset(offload))


COSTS = RlCosts(rollout_factor=1.5, update_factor=2.0, step_overhead_s=7.0, generate_batch=3,
                tensor_sync_s=(1e-3, 1e-2))  # fmt: skip
PADS = replace(COSTS, packs=False)
RL = RlJob("grpo", 16, 8, 500.0, 524.0, 1500.0, costs=COSTS)

UPDATES = [  # rl, layout, then sequence, micro-batch and batch
    ({}, {"dp": 4}, (1024, 4, 128)),  # four of 1,024 are 4,096 tokens
    ({}, {"dp": 4, "micro_batch_size": 6}, (1024, 6, 144)),  # six rounds of 24
    ({}, {"dp": 64}, (1024, 2, 128)),  # no more than the samples of a rank
    ({}, {"dp": 256}, (1024, 1, 256)),
    ({"updates": 4}, {"dp": 4}, (1024, 4, 32)),
    ({"updates": 500}, {"dp": 1}, (1024, 1, 1)),
    ({"response_tokens": 525.0}, {"dp": 4}, (1025, 4, 128)),  # 3.996 are four
    ({"prompt_tokens": 0.1, "response_tokens": 0.2}, {}, (1, 128, 128)),
    # padded to the longest of two: 1.5 means; of 1,024 and 2,000 at most
    ({"costs": PADS}, {"dp": 4, "micro_batch_size": 2}, (1536, 2, 128)),
    ({"costs": PADS}, {"dp": 4, "micro_batch_size": 9}, (2000, 9, 144)),
    ({"costs": PADS}, {"dp": 4}, (1024, 1, 128)),
    ({"method": "dpo", "group": 3}, {}, (1024, 4, 32)),  # 16 pairs
    ({"costs": PADS, "prompt_tokens": 0.1, "response_tokens": 0.2}, {}, (1, 1, 128)),
]


@pytest.mark.parametrize(("more", "layout", "want"), UPDATES)
def test_samples_of_an_update(more, layout, want):
    made = update_job(training(**layout), replace(RL, **more)).layout
    assert (made.seq_len, made.micro_batch_size, made.global_batch_size) == want


LONGEST = [
    ({}, {"dp": 4}, (2000, 1, 128)),
    ({"prompts": 1, "group": 1}, {"dp": 4}, (2000, 1, 8)),  # two micro-batches: it accumulates
    ({"prompts": 2, "group": 9}, {"dp": 4, "micro_batch_size": 2}, (2000, 2, 24)),
    ({"method": "dpo"}, {"dp": 4, "micro_batch_size": 3}, (2000, 6, 48)),
    ({"prompt_tokens": 0.1, "max_response_tokens": 0.1}, {}, (1, 1, 128)),
]


@pytest.mark.parametrize(("more", "layout", "want"), LONGEST)
def test_memory_is_held_at_the_longest_sample(more, layout, want):
    made = longest_job(training(**layout), replace(RL, **more)).layout
    assert (made.seq_len, made.micro_batch_size, made.global_batch_size) == want


def test_logits_of_the_responses_alone():
    """1,500 of 2,000 tokens; a pair of DPO has those of all."""
    costs = replace(COSTS, response_logits=True)
    assert longest_job(training(), replace(RL, costs=costs)).logits_frac == 0.75
    assert longest_job(training(), replace(RL, costs=costs, method="dpo")).logits_frac == 1.0
    assert longest_job(training(), RL).logits_frac == 1.0


# --- a policy of known numbers -------------------------------------------------------------------


def held(kept=16.0, base=16.0, host=0.25):
    parts = (base, 1.0, 2.0, 4.0, kept, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, host)
    return FinetuneMemory(0, "backward", *(GB * part for part in parts))


def bench(kept=16.0, seconds=10.0, model=LLAMA, usable_gb=80.0):
    """Training of 39 GB at most, whose weights and host memory show whether they are offloaded.

    A step takes as many seconds a sample and rank, three fifths where nothing is recomputed.
    """

    def memory(job):
        assert job.layout.seq_len == 2000
        return held(kept, 0.0, 20.0) if "parameters" in job.offload else held(kept)

    def step(job):
        each = seconds * (0.6 if job.layout.recompute == "none" else 1.0)
        return SimpleNamespace(step_s=each * job.layout.global_batch_size / job.layout.dp)

    hw = SimpleNamespace(
        gpus_per_node=8, scaleup_bytes_per_s=450e9, scaleout_bytes_per_s=50e9,
        host_link_bytes_per_s=25e9,
    )  # fmt: skip
    p = replace(IDEAL, full_weights_bytes=4.0)
    return SimpleNamespace(
        model=model, site=lambda job: (hw, None, p), usable_bytes=usable_gb * GB,
        gpus_per_node=8, memory=memory, step=step,
    )  # fmt: skip


ENGINE = estimate.RolloutEngine(Replica(tp=2), None, 80 * GB)
MEMORY = [  # rl, offload, kept, engine, then reference, critic, training, rollout, host of a GPU
    # weights of 4 bytes: a reference of 2 is half; nothing else
    ({}, (), 16.0, None, (8.0, 0.0, 47.0, 0.0, 4.25)),
    ({"kl": False}, (), 16.0, None, (0.0, 0.0, 39.0, 0.0, 4.25)),
    # critic: weights, gradients, states, adapters, and the reward's weights: 16 + 2 + 4 + 1 + 16
    ({"method": "ppo"}, (), 16.0, None, (8.0, 39.0, 86.0, 0.0, 4.25)),
    ({"method": "ppo", "critic_gpus": 8}, (), 16.0, None, (8.0, 0.0, 47.0, 0.0, 4.25)),
    # the reference leaves during the update; 23 + 8 + 39 GB of states leave for the rollout
    ({"method": "ppo"}, (), 16.0, ENGINE, (8.0, 39.0, 78.0, 52.0, 74.25)),
    ({"method": "ppo"}, (), 0.0, ENGINE, (8.0, 39.0, 70.0, 52.0, 74.25)),
    ({"costs": replace(COSTS, states_leave=False)}, (), 16.0, ENGINE, (8.0, 0.0, 47.0, 79.0, 4.25)),
    ({"engine": "split"}, (), 16.0, ENGINE, (8.0, 0.0, 47.0, 0.0, 4.25)),
    # weights on the host: so is the reference
    ({}, ("parameters",), 16.0, None, (0.0, 0.0, 23.0, 0.0, 20 + 8 + 4)),
]


@pytest.mark.parametrize(("more", "offload", "kept", "engine", "want"), MEMORY)
def test_memory_of_a_policy_and_what_is_beside_it(more, offload, kept, engine, want):
    rl = replace(RL, **more)
    job = training(offload=offload, dp=8)
    found = rl_memory(bench(kept), job, rl, roles(rl.method, kl=rl.kl), engine, None)
    parts = (found.reference_bytes, found.critic_bytes, found.train_bytes, found.rollout_bytes)
    assert [part / GB for part in parts] == pytest.approx(list(want[:4]))
    assert found.host_bytes_per_node / GB == pytest.approx(8 * want[4])
    assert found.total_bytes == max(found.train_bytes, found.rollout_bytes)
    half = rl_memory(bench(kept), replace(job, layout=replace(job.layout, dp=4)), rl,
                     roles(rl.method, kl=rl.kl), engine, None)  # fmt: skip
    assert half.host_bytes_per_node == found.host_bytes_per_node / 2


def test_a_critic_of_its_own_size():
    small = bench(0.0)
    small.memory = lambda job: held(base=3.0)
    found = rl_memory(bench(), training(), replace(RL, method="ppo"), roles("ppo"), None, small)
    assert found.critic_bytes == pytest.approx(13 * GB)
    assert RlMemory(held(), 0.0, 0.0, 0.0, 2.0, 3.0, 0.0).total_bytes == 3.0


@pytest.fixture
def rollouts(monkeypatch):
    """A rollout takes a second a sequence, a fifth of it on the network, `generate` two."""
    asked = []

    def put(each, waits):
        def made(model, replica, site, lengths, **wanted):
            asked.append(wanted)
            n = wanted["n_sequences"]
            return Rollout(n * each, 0.0, 0.0, n * each, n, n, n < 1000, n * waits)

        return made

    monkeypatch.setattr(estimate, "rollout", put(1.0, 0.2))
    monkeypatch.setattr(estimate, "generate", put(2.0, 0.0))
    return asked


def test_a_colocated_step_by_hand(rollouts):
    """128 samples over 8 GPUs: 16 a rank, 10 s each, twice; a third of 6 s without gradients."""
    found = rl_estimate(bench(), training(dp=8), RL, ENGINE)
    step = found.step
    assert step.train_s == 2.0 * 160
    assert step.logprob_s == step.reference_s == pytest.approx(2.0 * 96 / 3)
    assert (step.reward_s, step.critic_s) == (0.0, 0.0)
    assert step.rollout_s == 1.5 * 0.8 * 32 + 0.2 * 32  # four replicas of two GPUs
    assert rollouts == [{"n_sequences": 32, "prompt_tokens": 500.0, "n_prompts": 4.0}]
    assert step.sync_s == pytest.approx(2 * N / (8 * 450e9) + 226e-3)
    assert step.switch_s == pytest.approx(2 * (2 * N / 2) / 25e9)  # weights of a GPU, out and in
    assert step.overhead_s == 7.0
    assert (step.engine, step.critic_apart) == ("colocated", False)
    assert (found.n_gpus, found.rollout_gpus, found.rollout_tp) == (8, 0, 2)
    assert found.tokens == 128 * 1024 and found.fits
    assert found.tokens_per_s == found.tokens / step.step_s
    twice = rl_estimate(bench(), training(dp=8), replace(RL, updates=2), ENGINE).step
    assert (twice.train_s, twice.logprob_s) == (step.train_s, step.logprob_s)


def test_pools_of_their_own_by_hand(rollouts):
    """Two of four steps ahead; beyond a node the weights come over the NICs."""
    split = replace(RL, engine="split", rollout_gpus=16)
    found = rl_estimate(bench(), training(dp=8), split, ENGINE)
    assert found.step.sync_s == pytest.approx(2 * N / 50e9 + 2.26)  # broadcast by one
    assert found.step.switch_s == 0.0 and found.n_gpus == 24 and found.rollout_gpus == 16
    assert rollouts[-1] == {"n_sequences": 16, "prompt_tokens": 500.0, "n_prompts": 2.0}
    ahead = replace(split, engine="async", lag=3, rollout_gpus=64)
    late = rl_estimate(bench(), training(dp=8), ahead, ENGINE)
    assert rollouts[-1] == {"n_sequences": 16, "prompt_tokens": 500.0, "n_prompts": 2.0}
    assert late.step.rollout_s == pytest.approx(1.4 * 16 / 4)
    rl_estimate(bench(), training(dp=8), replace(split, lag=3), ENGINE)
    assert rollouts[-1]["n_sequences"] == 16  # nothing is ahead
    rl_estimate(bench(), training(), replace(RL, rollout_gpus=1), ENGINE)
    assert rollouts[-1]["n_sequences"] == 128  # a replica is larger than the pool
    rl_estimate(bench(), training(dp=8), replace(split, rollout_gpus=512), ENGINE)
    assert rollouts[-1] == {"n_sequences": 0.5, "prompt_tokens": 500.0, "n_prompts": 1.0}


def test_generation_by_the_training_model_by_hand(rollouts):
    own = replace(RL, engine="hf")
    sharded = rl_estimate(bench(), training(dp=8, zero_stage=3), own, ENGINE)
    assert rollouts == [
        {"n_sequences": 32, "prompt_tokens": 500.0, "token_s": 32 * 1e-3, "at_once": 6}
    ]
    assert sharded.step.rollout_s == 1.5 * 64
    assert sharded.step.sync_s == pytest.approx(2 * N / 450e9)  # gathered once
    assert sharded.step.switch_s == 0.0
    two = rl_estimate(bench(), training(dp=2, zero_stage=3), own, ENGINE)
    assert two.step.sync_s == sharded.step.sync_s
    for job in (training(dp=8), training(zero_stage=3)):
        assert rl_estimate(bench(), job, own, ENGINE).step.sync_s == 0.0


ALONE = replace(RL, costs=RlCosts())


def test_who_holds_a_critic_or_no_rollout(rollouts):
    """The critic of PPO learns as the policy does, its reward reads; on four GPUs twice as long."""
    ppo = replace(ALONE, method="ppo")
    turns = rl_estimate(bench(), training(dp=8), ppo, ENGINE).step
    assert (turns.train_s, turns.logprob_s) == (160.0, pytest.approx(32.0))
    assert (turns.reward_s, turns.critic_s) == (pytest.approx(32), pytest.approx(160 + 32))
    apart = rl_estimate(bench(), training(dp=8), replace(ppo, critic_gpus=4), ENGINE)
    assert apart.step.critic_apart and apart.n_gpus == 12
    assert (apart.step.reward_s, apart.step.critic_s) == (pytest.approx(64), pytest.approx(384))
    wide = training(tp=2, dp=4)
    over = rl_estimate(bench(), wide, replace(ppo, critic_gpus=4), ENGINE).step
    assert over.critic_s == pytest.approx((64 * 10) + (64 * 6 / 3))
    for layout, gpus, dp in (({"tp": 2, "pp": 2, "cp": 2}, 16, 2), ({"tp": 8}, 1, 1)):
        few = rl_estimate(bench(), training(**layout), replace(ppo, critic_gpus=gpus), ENGINE).step
        assert few.reward_s == pytest.approx(128 * 6 / 3 / dp) and few.critic_apart
    small = rl_estimate(bench(), training(dp=8), ppo, ENGINE, critic=bench(seconds=1.0)).step
    assert (small.reward_s, small.critic_s) == (pytest.approx(3.2), pytest.approx(19.2))
    assert small.train_s == 160.0
    pairs = replace(ALONE, method="dpo", engine="async")
    dpo = rl_estimate(bench(), training(dp=8), pairs, None)
    assert (dpo.step.sync_s, dpo.step.switch_s) == (0.0, 0.0)
    assert (dpo.step.rollout_s, dpo.step.logprob_s, dpo.step.overhead_s) == (0.0, 0.0, 0.0)
    assert dpo.step.reference_s > 0 and dpo.step.engine == "colocated" and dpo.rollout_tp == 0
    assert dpo.tokens == 32 * 1024 and dpo.fits


def test_the_reference_of_adapters_is_the_policy_without_them(rollouts):
    """It takes its pass and no memory; without a KL term there is neither."""
    for kl, passes in ((True, 1), (False, 0)):
        found = rl_estimate(bench(), training("lora", dp=8), replace(ALONE, kl=kl), ENGINE)
        assert found.memory.reference_bytes == 0.0 and not found.roles.reference
        assert found.step.reference_s == passes * found.step.logprob_s
    full = rl_estimate(bench(), training(dp=8), replace(ALONE, kl=False), ENGINE)
    assert full.step.reference_s == 0.0


def test_a_step_fits_where_training_and_engine_do(rollouts):
    """52 GB of a colocated engine, 39 of training; a thousand sequences at once do not fit."""
    for usable, fits in ((52.0, True), (51.9, False)):
        assert rl_estimate(bench(usable_gb=usable), training(dp=8), ALONE, ENGINE).fits == fits
    assert not rl_estimate(bench(), training(), replace(ALONE, prompts=1000), ENGINE).fits
