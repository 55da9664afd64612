"""Events put into logs at known steps are found, and nothing is found where there is none.

Step times wander and scatter as those of public logs do (0.5 to 5 %, with lone long steps).
"""

import io
import random

import pytest

from gpuscale.answers.diagnose.past import past_of
from gpuscale.io.log_reader import read_log


def megatron(k, t, memory, rank):
    head = "" if rank is None else f"default{rank}]:"
    return (
        f"{head} iteration {k:8}/    1000 | consumed samples: {128 * k:12} | elapsed time per "
        f"iteration (ms): {t * 1e3:.1f} | throughput per GPU (TFLOP/s/GPU): {1300 / t:.1f} |"
    )


def torchtitan(k, t, memory, rank):
    head = "" if rank is None else f"[rank{rank}]:"
    return (
        f"{head}[titan] 2026-02-24 19:46:17,508 - root - INFO - step: {k:2}  loss:  7.62585  "
        f"memory: {memory:.2f}GiB({memory / 0.95:.2f}%)  tps: {32768 / t:,.0f}  mfu: {34 / t:.2f}%"
    )


def mlx(k, t, memory, rank):
    return (
        f"Iter {k}: Train loss 2.662, Learning Rate 1.000e-05, It/sec {1 / t:.3f}, "
        f"Tokens/sec {4560 / t:.3f}, Trained Tokens {k * 328}, Peak mem {memory:.3f} GB"
    )


PROGRAMS = {
    megatron: (
        "saving checkpoint at iteration {k:7} to /ckpt in torch_dist format",
        " validation loss at iteration {k} | lm loss value: 2.1E+00 | lm loss PPL: 8.1E+00 |",
    ),
    torchtitan: (
        "[titan] 2026 - root - INFO - Saving the checkpoint (or staging if async is enabled).",
        "[titan] 2026 - root - INFO - validate step: {k}  loss:  6.1  memory: 49GiB(52%)",
    ),
    mlx: (
        "Iter {k}: Saved adapter weights to adapters/{k}_adapters.safetensors.",
        "Iter {k}: Val loss 2.936, Val took 5.265s",
    ),
}
"""Line of a step -> what the program prints for a save and for an evaluation."""


def run(program, event, noise, rng):
    """A log with an event, and what a reader should say of it."""
    n = rng.choice((60, 150))
    base, wander = rng.uniform(0.4, 6), 0.0
    at, worse = rng.randrange(n // 4, 3 * n // 4), rng.choice((1.2, 1.4, 2.0))
    every = rng.choice([e for e in (8, 10, 20, 25) if 3 * e < n])
    longer, bad = rng.choice((2, 3, 8)), rng.randrange(8)
    ranks = range(8) if event == "slow rank" else (None,)
    lines = []
    for k in range(1, n + 1):
        wander = 0.9 * wander + rng.gauss(0, noise / 4)
        for rank in ranks:
            t = base * (1 + wander) * rng.lognormvariate(0, noise)
            t *= rng.uniform(1.5, 3) if rng.random() < 0.004 else 1
            t *= rng.uniform(3, 30) if k == 1 else 1
            memory = 40 + rng.random() * 0.02
            if event == "shift" and k >= at:
                t *= worse
            if event == "stall" and k % every == 0:
                t *= longer
            if event in ("save", "evaluation") and k > 1 and (k - 1) % every == 0:
                lines.append(PROGRAMS[program][event != "save"].format(k=k - 1))
                t *= longer
            memory *= 1 + (0.002 * k if event == "memory grows" else 0)
            t *= 1.15 if event == "slow rank" and rank == bad else 1
            lines.append(program(k, t, memory, rank))
    said = {"stall": f"every {every} steps", "slow rank": f"rank {bad} "}.get(event, "")
    return "\n".join(lines), said, at


@pytest.mark.slow
@pytest.mark.parametrize(
    "event", ["", "shift", "stall", "save", "evaluation", "memory grows", "slow rank"]
)
def test_an_event_is_found_and_no_other(event):
    missed, wrong = [], []
    for program in PROGRAMS:
        if (event == "memory grows" and program is megatron) or (
            event == "slow rank" and program is mlx
        ):
            continue  # it prints none
        for noise in (0.005, 0.02, 0.05):
            for draw in range(2):
                rng = random.Random(f"{event}{program.__name__}{noise}{draw}")
                text, said, at = run(program, event, noise, rng)
                found = past_of([read_log(io.BytesIO(text.encode()))]).events
                mine = [e for e in found if e.kind == event and said in e.text]
                near = event != "shift" or any(abs(e.step - at) <= 4 for e in mine)
                if event and not (mine and near):
                    missed.append((program.__name__, noise, draw))
                others = {e.kind for e in found} - {event, "warm-up"}
                if others:
                    wrong.append((program.__name__, noise, draw, others))
    assert len(missed + wrong) <= 1, (missed, wrong)


def test_steps_that_grow_throughout_are_a_drift_and_no_shift():
    # as epfLLM/Megatron-LLM#22: 11 s a step, then 14.6, and so on
    text = "\n".join(megatron(k, 11 + 0.7 * k, 40.0, None) for k in range(1, 60))
    found = past_of([read_log(io.BytesIO(text.encode()))])
    assert [e.kind for e in found.events if e.kind != "warm-up"] == ["drift"]
    assert found.features["worsens"] == "yes"
