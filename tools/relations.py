"""Hold what must be so between answers: better hardware, a pin removed, another way of asking.

    python tools/relations.py better --cases 60 [--seed 1] [plan fine-tuning rl serve memory]
    python tools/relations.py pins --cases 60 [--seed 1] [plan fine-tuning]
    python tools/relations.py shown --cases 60 [--seed 1]
    python tools/relations.py files --cases 60 [--seed 1]
    python tools/relations.py exhaustive --cases 60 [--seed 1]

`better` asks random jobs again where one figure of the GPU or the cluster is larger: nothing of
which less is better may grow, nothing of which more is better may fall. `pins` pins dimensions of
random jobs: what is found without the pin is never slower. `shown` asks with the options that say
what is shown: they change no layout and no time. `files` writes a plan's launch file, reads it
again with `launch-check`, and asks `plan` with its layout pinned, with `--maturity` and without:
one layout has one time (files that say what they do not express are left out).
`exhaustive` tries every layout of small jobs one by one (batches that are no power of two, pins,
display options): none is better than the answer. What breaks a relation is printed with its
commands.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

RATES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
FIGURES = ("egress", "scale-up", "HBM bandwidth", "FLOP/s", "HBM", "all")
CLUSTERS = (
    *("dgx-h100", "dgx-a100", "dgx-b200", "dgx-h200", "gb200-nvl72", "mi300x-8", "pcie-h100-8"),
    *("aws-p5en", "aws-p4de", "hgx-h20-8", "mi350x-8"),
)
MODELS = {
    "plan": ("llama3-8b", "qwen3-14b", "gemma3-27b", "llama3-70b", "qwen3-30b-a3b", "mixtral-8x7b"),
    "fine-tuning": ("llama3-8b", "qwen3-14b", "qwen3-30b-a3b", "phi4", "llama3-70b"),
    "rl": ("llama3-8b", "qwen3-14b", "qwen3-30b-a3b"),
    "serve": ("llama3-8b", "qwen3-32b", "qwen3-30b-a3b", "llama3-70b", "gpt-oss-120b"),
    "memory": ("llama3-8b", "qwen3-14b", "llama3-70b", "qwen3-30b-a3b"),
}
LEAST = {
    "plan": ("step_s",),
    "fine-tuning": ("step_s", "-tokens_per_s"),
    "rl": ("step_s", "-tokens_per_s"),
    "serve": ("-requests_per_s", "-output_tokens_per_s"),
    "memory": ("-headroom_bytes", "-fits"),
}
"""Kind of job -> numbers of which less is better, or with `-` more."""
SLACK = 1e-9
SIMULATED = 1e-2
"""Share by which a simulated rate may fall: requests are few, and meet in another order. The most
seen is 0.6 %, of 32 in flight at four replicas."""

Job = tuple[str, str]
"""A command line, and its cluster."""


def asked(line: str, *more: str) -> dict[str, Any] | None:
    """JSON of a command line; None where it is refused."""
    from gpuscale.cli.app import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*shlex.split(line), *more, "--json"])
    if code > 2:
        print(f"exit {code}: gpuscale {line} {shlex.join(more)}\n{err.getvalue()[-500:]}")
    found: dict[str, Any] | None = json.loads(out.getvalue()) if code < 2 else None
    return found


@cache
def figures_of(cluster: str) -> dict[str, dict[str, float]]:
    """Figure -> keys of `--set` and their values."""
    from gpuscale.io.hardware import load_cluster

    spec = load_cluster(cluster)
    found: dict[str, dict[str, float | None]] = {
        "egress": {"cluster.node_egress_bytes_per_s": spec.node_egress_bytes_per_s},
        "scale-up": {"cluster.scaleup_bytes_per_s": spec.scaleup_bytes_per_s},
        "HBM bandwidth": {"gpu.hbm_bytes_per_s": spec.gpu.hbm_bytes_per_s},
        "FLOP/s": {
            f"gpu.{k}_flop_per_s": getattr(spec.gpu, f"{k}_flop_per_s", None) for k in RATES
        },
        "HBM": {"gpu.hbm_bytes": spec.gpu.hbm_bytes},
    }
    known = {k: {key: v for key, v in keys.items() if v} for k, keys in found.items()}
    return known | {"all": {key: v for keys in known.values() for key, v in keys.items()}}


def better(cluster: str, figure: str, factor: float) -> list[str]:
    """`--set` of a cluster with one figure better."""
    keys = figures_of(cluster)[figure]
    return [word for k, v in keys.items() for word in ("--set", f"{k}={v * factor!r}")]


def training(rng: random.Random) -> Job:
    """Draw a pre-training."""
    cluster, n = rng.choice(CLUSTERS), rng.choice([8, 8, 16, 16, 32, 64, 128, 24])
    line = f"plan {rng.choice(MODELS['plan'])} --cluster {cluster} --gpus {n}"
    line += f" --seq-len {rng.choice([2048, 4096, 8192, 8192, 32768])}"
    batch = n * rng.choice([1, 2, 3, 4, 5, 7, 12, 16])
    line += rng.choice(["", f" --global-batch {batch}", f" --global-batch {batch}"])
    software = ["", "", "torchtitan", "deepspeed-zero3", "fsdp", "megatron-bridge", "nemo", "jax"]
    if named := rng.choice(software):
        line += f" --software {named}"
    pins = ("--pp 2", "--tp 2", "--recompute full", "--recompute none", "--zero 1", "--cp 2")
    return line + rng.choice(["", "", "", f" {rng.choice(pins)}"]), cluster


def tuning(rng: random.Random) -> Job:
    """Draw a fine-tuning."""
    cluster, n = rng.choice(CLUSTERS), rng.choice([1, 2, 4, 8, 8, 16])
    line = f"plan {rng.choice(MODELS['fine-tuning'])} --cluster {cluster} --gpus {n}"
    line += f" --method {rng.choice(['lora', 'qlora', 'full', 'dora'])}"
    line += rng.choice(["", " --examples 10k --mean-len 300", " --seq-len 8192"])
    pins = ("--zero 3", "--micro-batch 2", "--recompute none", "--recompute full", "--fit expected")
    return line + rng.choice(["", "", f" {rng.choice(pins)}"]), cluster


def reinforcing(rng: random.Random) -> Job:
    """Draw a reinforcement learning."""
    cluster, n = rng.choice(CLUSTERS), rng.choice([4, 8, 8, 16, 32])
    line = f"plan {rng.choice(MODELS['rl'])} --cluster {cluster} --gpus {n}"
    line += f" --method {rng.choice(['grpo', 'ppo', 'dapo'])}"
    line += f" --response {rng.choice(['512', '1k', '2k', '8k'])}"
    return line + rng.choice(["", "", " --engine split", " --engine colocated"]), cluster


def serving(rng: random.Random) -> Job:
    """Draw a service."""
    cluster, n = rng.choice(CLUSTERS), rng.choice([1, 2, 4, 8, 8])
    line = f"serve {rng.choice(MODELS['serve'])} --cluster {cluster} --gpus {n}"
    line += f" --input {rng.choice([128, 512, 1024, 4096, 16384])}"
    line += f" --output-len {rng.choice([1, 64, 128, 512, 1024])}"
    line += f" --chunk {rng.choice([2048, 8192])}"  # engines take more where there is more memory
    load = ["--concurrency 1", "--concurrency 4", "--concurrency 32", "--concurrency 256"]
    line += f" {rng.choice([*load, '--rate 1', '--rate 8'])}"
    line += rng.choice(["", "", " --engine sglang", " --engine trtllm"])
    return line + rng.choice(["", "", f" --tp {rng.choice([1, 2, n])}", " --weights fp8"]), cluster


def holding(rng: random.Random) -> Job:
    """Draw a question of memory."""
    cluster, n = rng.choice(CLUSTERS), rng.choice([1, 8, 16, 64])
    line = f"memory {rng.choice(MODELS['memory'])} --cluster {cluster} --gpus {n}"
    more = [
        "",
        "--serve",
        "--method lora",
        "--method full",
        "--tp 2",
        "--zero 3",
        "--recompute full",
    ]
    return f"{line} {rng.choice(more)}".rstrip(), cluster


KINDS: dict[str, Callable[[random.Random], Job]] = {
    "plan": training,
    "fine-tuning": tuning,
    "rl": reinforcing,
    "serve": serving,
    "memory": holding,
}


def number_at(result: dict[str, Any], path: str) -> float | None:
    """Return the number at a path; of a plan that of the fastest which the answer names."""
    name = path.lstrip("-")
    if name == "headroom_bytes" and name not in result:
        return None
    faster = result.get("bolder") or result.get("passed_over") or result
    value = faster.get(name, result.get(name))
    return None if value is None else float(value)


def worse(kind: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Say which numbers got worse."""
    found = []
    if old["result"].get("fits") and not new["result"].get("fits", True):
        found.append("fits no more")
    if not old["result"].get("fits", True):
        return found
    for path in LEAST[kind]:
        before, after = number_at(old["result"], path), number_at(new["result"], path)
        sign = -1.0 if path.startswith("-") else 1.0
        if before is None or after is None:
            continue
        slack = SIMULATED if kind == "serve" else SLACK
        if sign * after > sign * before + slack * abs(before):
            found.append(f"{path.lstrip('-')} {before:.6g} -> {after:.6g}")
    return found


def try_better(rng: random.Random, kinds: list[str]) -> str | None:
    """One job with one figure better; what broke, None where it is refused."""
    kind = rng.choice(kinds)
    line, cluster = KINDS[kind](rng)
    figure, factor = rng.choice(FIGURES), rng.choice([1.05, 1.5, 2.0, 4.0])
    more = better(cluster, figure, factor)
    if not more or (old := asked(line)) is None:
        return None
    new = asked(line, *more)
    wrong = ["refused"] if new is None else worse(kind, old, new)
    return f"{figure} x {factor}: {'; '.join(wrong)}: gpuscale {line}" if wrong else ""


EVEN = 1e-4
"""Share of a fine-tuning's rate that is no difference: shards on one GPU."""

SWITCHED = ("software", "method", "loss", "offload", "optimizer")
"""What a plan of fine-tuning switches where nothing fits without."""


def try_tuning_pins(rng: random.Random) -> str | None:
    """One fine-tuning, then with a dimension pinned: free is at least as fast a token."""
    line, _cluster = tuning(rng)
    pins = ["--zero 2", "--zero 3", "--micro-batch 1", "--micro-batch 4", "--recompute none"]
    pins += ["--recompute full", "--micro-batch 2", "--zero 1"]
    pin = rng.choice([p for p in pins if p.split()[0] not in line.split()])
    free, pinned = asked(line), asked(f"{line} {pin}")
    if free is None or pinned is None or not pinned["result"]["fits"]:
        return None
    batch = pinned["inputs"]["global_batch_size"]
    if free["inputs"]["global_batch_size"] != batch:  # of ranks and micro-batch, where none is said
        line += f" --global-batch {batch}"
        if (free := asked(line)) is None:
            return f"without {pin}: refused: gpuscale {line}"
    if any(free["inputs"][key] != pinned["inputs"][key] for key in SWITCHED):
        return None  # a pin with which nothing fits without the switch
    before, after = (number_at(a["result"], "tokens_per_s") for a in (pinned, free))
    if before and after and after < before * (1 - EVEN):
        return f"without {pin}: {before:.6g} -> {after:.6g} tokens/s: gpuscale {line}"
    return ""


def try_pins(rng: random.Random, kinds: list[str]) -> str | None:
    """One job, then with a dimension pinned: free is at least as good."""
    if rng.choice([k for k in kinds if k in ("plan", "fine-tuning")]) == "fine-tuning":
        return try_tuning_pins(rng)
    line, _cluster = training(rng)
    pins = ["--tp 2", "--pp 2", "--cp 2", "--zero 1", "--zero 3", "--micro-batch 2", "--dp 4"]
    pins += ["--micro-batch 3", "--recompute full", "--recompute none", "--sequence-parallel off"]
    pins += ["--schedule 1f1b", "--vpp 2", "--ep 4", "--offload optimizer", "--zero 2"]
    named = "--zero" if "deepspeed-zero3" in line else ""  # a name that says its stage pins it
    pin = rng.choice([p for p in pins if p.split()[0] not in (*line.split(), named)])
    free, pinned = asked(line), asked(f"{line} {pin}")
    if free is None or pinned is None or pinned["summary"][0]["tone"] != "good":
        return None  # what may not fit is no answer to the free question
    batch = pinned["inputs"]["global_batch_size"]
    if free["inputs"]["global_batch_size"] != batch:  # rounded to whole micro-batches: another job
        line += f" --global-batch {batch}"
        if (free := asked(line)) is None:
            return f"without {pin}: refused: gpuscale {line}"
    wrong = worse("plan", pinned, free)
    return f"without {pin}: {'; '.join(wrong)}: gpuscale {line}" if wrong else ""


SHOWN = ("--alternatives 0", "--alternatives 1", "--alternatives 10", "--show all", "--explain")
SHOWN += ("--show search", "--alternatives 25")


def try_shown(rng: random.Random, _: list[str]) -> str | None:
    """One job, asked with what changes no more than what is shown."""
    line, _cluster = training(rng)
    more = rng.choice(SHOWN)
    plain, shown = asked(line), asked(f"{line} {more}")
    if plain is None or shown is None:
        return None if plain is shown else f"{more}: one is refused: gpuscale {line}"
    keys = ("layout", "step_s", "peak_bytes", "passed_over")
    wrong = [k for k in keys if plain["result"][k] != shown["result"][k]]
    return f"{more}: {', '.join(wrong)}: gpuscale {line}" if wrong else ""


MOST_LAYOUTS = 15_000
"""Layouts that are tried one by one."""


def small_training(rng: random.Random) -> str:
    """Draw a pre-training of few layouts: a batch of any kind, pins, options of display."""
    n, batch = rng.choice([1, 2, 4, 6, 8, 8, 12, 16]), rng.choice([6, 7, 9, 12, 15, 24, 30, 32, 45])
    line = f"plan {rng.choice(['llama3-8b', 'qwen3-14b', 'qwen3-30b-a3b', 'mixtral-8x7b'])}"
    line += f" --cluster {rng.choice(CLUSTERS)} --gpus {n} --global-batch {batch}"
    line += f" --seq-len {rng.choice([2048, 4096, 8192, 16384])}"
    line += rng.choice(
        ["", "", " --software torchtitan", " --software fsdp", " --software nanotron"]
    )
    pins = ["--tp 2", "--pp 2", "--zero 1", "--zero 3", "--recompute full", "--recompute none"]
    pins += ["--micro-batch 3", "--schedule 1f1b", "--sequence-parallel on", "--cp 1", "--ep 1"]
    line += "".join(f" {pin}" for pin in rng.sample(pins, rng.choice([1, 2, 3, 4])))
    return line + rng.choice(["", "", " --alternatives 9", " --fit expected", " --show all"])


def try_exhaustive(rng: random.Random, _: list[str]) -> str | None:
    """One small job whose layouts are all tried: the best of them is the answer."""
    import gpuscale.answers.training.plan_case as train

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "core" / "search"))
    from test_search_exact import brute_force, weighed

    solved: list[tuple[Any, Any, float]] = []
    solve = train.solve

    def kept(case: Any, *words: Any, **more: Any) -> Any:
        limit_s = more.get("limit_s", float("inf"))  # slower layouts are no answer
        solved.append((case, solve(case, *words, **more), limit_s))
        return solved[-1][1]

    line = small_training(rng)
    train.solve = kept
    try:
        answer = asked(line)
    finally:
        train.solve = solve
    if answer is None or sum(r.counts.declared for _, r, _ in solved) > MOST_LAYOUTS:
        return None
    wrong: list[str] = []
    for case, result, limit_s in solved:
        p, space = case.problem, case.space
        every = [(step_s, x) for step_s, peak, x in brute_force(p, space) if peak <= p.room_bytes]
        least = min((weighed(p, space, *found)[0] for found in every), default=None)
        least = None if least is None or least > limit_s else least
        best = result.best and result.best.weighed_s
        if (best is None) != (least is None) or (best and abs(best / least - 1) > SLACK):
            wrong.append(f"{best} against {least} of {len(every)} that fit")
        case_s = answer["result"]["step_s"]
        if case is solved[-1][0] and best and abs(result.best.step_s / case_s - 1) > SLACK:
            wrong.append(f"printed {case_s}, found {result.best.step_s}")
    return f"{'; '.join(wrong)}: gpuscale {line}" if wrong else ""


SAME = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "recompute", "schedule", "order")
SWITCHES = ("sequence-parallel", "overlap-tp", "overlap-dp", "overlap-pp")


def pins_of(layout: dict[str, Any]) -> str:
    """Options that pin a whole layout."""
    values = {name: layout[name.replace("-", "_")] for name in SAME}
    values |= {name: "on" if layout[name.replace("-", "_")] else "off" for name in SWITCHES}
    values |= {"zero": layout["zero_stage"], "micro-batch": layout["micro_batch_size"]}
    values |= {"global-batch": layout["global_batch_size"]}
    moved = [k for k in ("optimizer", "activations") if layout[f"offload_{k}"]]
    values["offload"] = "both" if len(moved) == 2 else (moved or ["none"])[0]
    values |= {"shard-group": layout["shard_group_size"]} if layout["shard_group_size"] else {}
    values |= {"cp-kind": layout["cp_kind"]} if layout["cp"] > 1 else {}
    more = layout["recompute_layers"]
    values |= {"recompute-layers": more} if more is not None else {}
    return " ".join(f"--{name} {value}" for name, value in values.items())


def try_files(rng: random.Random, _: list[str]) -> str | None:
    """One plan, its launch file, and its layout as pins: one time."""
    line, cluster = training(rng)
    job, *options = line.split(" --")
    kept = [o for o in options if o.split()[0] in ("cluster", "gpus", "seq-len", "software")]
    maturity = rng.choice(["", "", " --maturity tuned", " --maturity as-it-comes"])
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "run.sh"))
        answer = asked(f"{line}{maturity}", "-o", file)
        if answer is None or not answer["result"]["fits"]:
            return None
        named = f"--cluster {cluster} --model {job.split()[1]}"
        checked = asked(f"launch-check {file} {named}") if Path(file).exists() else None
        said = Path(file).exists() and "not expressed here" not in Path(file).read_text("utf-8")
    r = answer["result"]
    same = " --".join([job, *kept]) + maturity
    pinned = asked(f"{same} {pins_of(r['layout'])}")
    found = {"its pins": pinned} | ({"its file": checked} if said and not maturity else {})
    wrong = []
    for name, other in found.items():
        time_s = other and other["result"]["step_s"]
        if time_s is None or abs(time_s / r["step_s"] - 1) > SLACK:
            wrong.append(f"{name} {time_s} against {r['step_s']:.6g}")
    return f"{'; '.join(wrong)}: gpuscale {line}{maturity}" if wrong else ""


TRIED: dict[str, Callable[[random.Random, list[str]], str | None]] = {
    "better": try_better,
    "pins": try_pins,
    "shown": try_shown,
    "files": try_files,
    "exhaustive": try_exhaustive,
}


def main() -> int:
    """Try the cases; exit 1 where a relation does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=tuple(TRIED))
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="ends sooner")
    given = parser.parse_args()
    held, broken, seed = 0, 0, given.seed * 1_000_000
    end_s = time.monotonic() + given.seconds
    while held + broken < given.cases and time.monotonic() < end_s:
        seed += 1
        found = TRIED[given.what](random.Random(seed), given.kinds)
        held += found == ""
        if found:
            broken += 1
            print(f"{seed}: {found}", flush=True)
    refused = seed - given.seed * 1_000_000 - held - broken
    print(f"{given.what}: {held + broken} jobs ({refused} more refused), {broken} broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
