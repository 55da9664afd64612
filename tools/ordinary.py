"""Jobs of ordinary users, asked of the command line as a newcomer would, and how far off it is.

python tools/ordinary.py                     print scores by maturity, kind and framework
python tools/ordinary.py --rows OUT.csv      and one line a job
python tools/ordinary.py --runs FILE.csv     score other jobs, with the same columns
python tools/ordinary.py --update            write the table between the markers of docs/accuracy.md

`held` of a job keeps it out of every fit: `never` for good, `yet` until jobs after it are found.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "accuracy.md"
JOBS = ROOT / "gpuscale" / "data" / "validation" / "ordinary.csv"
START, END = "<!-- ordinary jobs by tools/ordinary.py -->\n", "<!-- end of ordinary jobs -->\n"

Row = dict[str, str]

SOFTWARE = (  # start of what a source calls its framework -> name that `--software` takes
    ("InternEvo", "megatron-core"),
    ("Megatron-LM", "megatron-core"),
    ("NeMo RL", "nemo-rl"),
    ("HF Trainer + DeepSpeed", "hf-deepspeed"),
    ("HF Trainer", "hf-trainer"),
    ("Transformer Engine", "pytorch"),
    ("fmengine", "hf-deepspeed"),
    ("open_lm", "open-lm"),
    ("EasyR1", "easyr1"),
    ("LLM Foundry", "llm-foundry"),
    ("Levanter", "levanter"),
    ("nanoGPT", "nanogpt"),
    ("nanochat", "nanochat"),
    ("alpaca-lora", "hf-peft"),
    ("EasyDeL", "easylm"),
    ("Accelerate + DeepSpeed", "deepspeed"),
)
MODELS = {"Qwen3-VL-30B-A3B": "qwen3-30b-a3b"}
PLACES = (("Slingshot, 4 a node", "alps"),)
"""What is said of the interconnect -> a cluster that has it; without one `--gpu` is asked."""

OWN_KERNELS = ("fmengine",)
"""Attention and fused operators of their own (flash_attention.py and fused_ops of fmengine): no
month of Transformers says what theirs are."""

NOT_OPTIONS = ("arch", "tokens", "accumulation", "optimizer")
GPU_WORDS = {"TPU v5p": "tpu-v5p", "TPU v4": "tpu-v4", "A100 PCIe": "a100-pcie-80gb"}


def software_of(row: Row) -> str:
    """Nearest software that the command line knows."""
    name = row["framework"]
    return next((to for start, to in SOFTWARE if name.startswith(start)), name)


def stack_of(row: Row) -> str:
    """Nearest software, of the month of a row where its habits by version are known."""
    from gpuscale.errors import GpuscaleError
    from gpuscale.io.software import framework_habits

    name = software_of(row)
    if row["framework"].startswith(OWN_KERNELS):
        return name
    with contextlib.suppress(GpuscaleError):
        framework_habits(f"{name}:{row['date']}", {})
        return f"{name}:{row['date']}" if row["date"] else name
    return name


def model_file(row: Row, arch: str, folder: Path) -> str:
    """Write a model without a preset as a file, from its printed shape."""
    shape = dict(pair.split(":") for pair in arch.split("/"))
    hidden, heads = int(shape["hidden"]), int(shape["heads"])
    layers, every = int(shape["layers"]), int(shape.get("moe_every", "1"))
    groups = f"{layers} x full+dense"
    if "experts" in shape:
        groups = (
            f"{layers // every} x (full+dense, full+moe)" if every > 1 else f"{layers} x full+moe"
        )
    lines = [
        f'name = "{row["id"]}"',
        f'title = "{row["model"]}"',
        'family = "llama"',
        f"hidden_size = {hidden}",
        f"vocab_size = {shape['vocab']}",
        f'layers = "{groups}"',
        f"tie_embeddings = {'true' if shape.get('tied') == 'yes' else 'false'}",
        "[mixers.full]",
        'kind = "attention"',
        f"n_heads = {heads}",
        f"n_kv_heads = {shape.get('kv', heads)}",
        f"head_dim = {hidden // heads}",
        "[ffns.dense]",
        'kind = "dense"',
        f"ffn_hidden_size = {shape['ffn']}",
    ]
    lines += ["gated = false"] if shape.get("gated") == "no" else []
    if "experts" in shape:
        lines += ["[ffns.moe]", 'kind = "moe"', f"n_experts = {shape['experts']}"]
        lines += [f"top_k = {shape['top_k']}", f"expert_ffn_hidden_size = {shape['ffn']}"]
    lines += ["[sources]", f'shape = "{row["source"]}"']
    path = folder / f"{row['id']}.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def question_of(row: Row, folder: Path) -> list[str]:
    """Arguments of `gpuscale plan` that ask for a row: what it states and nothing more."""
    if row.get("ask"):
        return row["ask"].split()
    said = dict(pair.split("=", 1) for pair in row["settings"].split())
    model = model_file(row, said["arch"], folder) if "arch" in said else row["model"]
    place = next((to for word, to in PLACES if word in row["interconnect"]), "")
    gpu = GPU_WORDS.get(row["gpu"], row["gpu"])
    where = ["--cluster", place] if place else ["--gpu", gpu]
    args = [MODELS.get(model, model), *where, "--gpus", row["gpus"], "--software", stack_of(row)]
    args += [] if row["kind"] == "pretrain" else ["--method", row["kind"]]
    if "accumulation" in said:
        each = int(said["accumulation"]) * int(said["micro_batch"])
        said.setdefault("global_batch", str(each * int(row["gpus"])))
    if row["kind"] != "pretrain":
        said = {"max_len" if k == "seq_len" else k: v for k, v in said.items()}
        if said.get("packing") == "yes":
            del said["packing"]
    for key, value in said.items():
        if key not in NOT_OPTIONS:
            args += [f"--{key.replace('_', '-')}", value]
    return args


def ask(args: Iterable[str]) -> dict[str, Any] | str:
    """Answer of one `gpuscale plan`, or the line that refuses it."""
    from gpuscale.cli.app import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        run(["plan", *args, "--json"])
    if not out.getvalue():
        return next((x for x in err.getvalue().splitlines() if x.startswith("error")), "no answer")
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


@dataclass(frozen=True)
class Outcome:
    """A job as asked, its measured and predicted step, and whether the interval holds it."""

    row: Row
    args: list[str]
    measured_s: float = 0.0
    step_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    fits: bool = True
    untuned_s: float = 0.0
    has_experts: bool = False
    gpu: str = ""
    refused: str = ""

    @property
    def ratio(self) -> float:
        """Predicted over measured time."""
        return self.step_s / self.measured_s

    @property
    def inside(self) -> bool:
        """Whether the printed interval holds the measured step."""
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def width(self) -> float:
        """Factor from the expected step to the upper end."""
        return self.high_s / self.step_s


def measured_step_s(row: Row, inputs: dict[str, Any], r: dict[str, Any]) -> float:
    """Measured time of the step that was asked for. [s]."""
    value, kind, gpus = float(row["value"]), row["quantity"], int(row["gpus"])
    if kind == "step_s":
        return value
    tokens = float(r["tokens_per_s"]) * float(r["step_s"])
    if kind == "samples_per_s":
        return float(inputs["global_batch_size"]) / value
    if kind == "hours":
        run = dict(p.split("=", 1) for p in row["settings"].split())["tokens"]
        return value * 3600.0 * tokens / float(run)
    if kind in ("tflops_per_gpu", "flops_per_gpu"):
        scale = 1e12 if kind.startswith("t") else 1.0
        flop = r.get("model_flop_per_s_per_gpu")
        if flop is None:
            from gpuscale import plan

            like = plan(inputs["model"], gpu=inputs["gpu"], gpus=gpus, seq_len=inputs["seq_len"])
            a = like.result
            flop = a.model_flop_per_s_per_gpu / a.tokens_per_s_per_gpu
            flop *= float(r["tokens_per_s"]) / gpus
        return float(r["step_s"]) * float(flop) / (value * scale)
    if kind == "mfu":
        return float(r["step_s"]) * float(r["mfu"]) / value
    return tokens / (value * (gpus if kind.endswith("per_gpu") else 1))


def outcome_of(row: Row, folder: Path, say_maturity: bool = False) -> Outcome:
    """Ask one."""
    args = question_of(row, folder)
    said = say_maturity and row["kind"] == "pretrain"
    args += ["--maturity", row["maturity"]] if said else []
    answer = ask(args)
    if isinstance(answer, str):
        return Outcome(row, args, refused=answer)
    r, inputs = answer["result"], answer["inputs"]
    step = float(r["step_s"])
    factor = r.get("step_interval_factor_80") or r.get("interval_factor_80") or 1.0
    low, high = r.get("step_low_s", step / factor), r.get("step_high_s", step * factor)
    measured = measured_step_s(row, inputs, r)
    parts = r.get("step", {}).get("expected", {})
    experts = parts.get("moe_s", 0.0) > 0.0
    untuned = parts.get("untuned_s", 0.0)
    return Outcome(
        row, args, measured, step, low, high, bool(r["fits"]), untuned, experts, inputs["gpu"]
    )


def outcomes_of(rows: Iterable[Row], say_maturity: bool = False) -> list[Outcome]:
    """Ask all."""
    with tempfile.TemporaryDirectory() as name:
        return [outcome_of(row, Path(name), say_maturity) for row in rows]


def read_jobs(path: Path = JOBS) -> list[Row]:
    """Read a file of jobs."""
    with path.open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


@lru_cache
def outcomes() -> tuple[Outcome, ...]:
    """Ask the jobs of the repository."""
    return tuple(outcomes_of(read_jobs()))


def is_weak(row: Row) -> bool:
    """Whether something essential is unsaid."""
    return row["notes"].startswith("weak")


def score(found: list[Outcome]) -> list[str]:
    """Scores of some jobs, as cells: how many, mean, median and p90 of the error, inside, width."""
    asked = [o for o in found if not o.refused]
    if not asked:
        return [str(len(found)), *["-"] * 6, str(len(found)), "0"]
    logs = [math.log(o.ratio) for o in asked]
    errors = sorted(100 * abs(o.ratio - 1) for o in asked)
    return [
        str(len(found)),
        f"{math.exp(statistics.fmean(logs)):.2f}",
        f"{statistics.median(errors):.0f} %",
        f"{errors[min(len(errors) - 1, int(0.9 * len(errors)))]:.0f} %",
        f"{100 * math.exp(statistics.median(map(abs, logs))) - 100:.0f} %",
        f"{100 * statistics.fmean(o.inside for o in asked):.0f} %",
        f"{statistics.median(o.width for o in asked):.2f}",
        str(len(found) - len(asked)),
        str(sum(not o.fits for o in asked)),
    ]


HEAD = ["jobs", "n", "mean", "median", "p90", "factor", "inside", "width", "refused", "no fit"]


def by_class(found: list[Outcome]) -> list[list[str]]:
    """Scores of all and by maturity, kind and framework."""
    keys: tuple[tuple[str, Callable[[Outcome], str]], ...] = (
        ("", lambda o: "in no fit" if o.row["held"] else "in the fit"),
        ("", lambda o: o.row["maturity"]),
        ("", lambda o: o.row["kind"]),
        ("complaint ", lambda o: o.row["complaint"] or "-"),
        ("on ", lambda o: software_of(o.row) or "default"),
    )
    strong = [o for o in found if not is_weak(o.row)]
    rows = [["all", *score(found)], ["without weak ones", *score(strong)]]
    for prefix, key in keys:
        for name in sorted({key(o) for o in found}):
            rows.append([prefix + name, *score([o for o in found if key(o) == name])])
    return rows


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Write a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def job_line(o: Outcome) -> list[str]:
    """One job of the table."""
    row = o.row
    asked = " ".join(a if "/" not in a else Path(a).name for a in o.args)
    if o.refused:
        return [row["id"], f"`{asked}`", row["maturity"], "refused", "", "", row["source"]]
    said = "yes" if o.inside else "no"
    return [
        row["id"],
        f"`{asked}`",
        row["maturity"],
        f"{o.step_s:.4g}",
        f"{o.measured_s:.4g}",
        f"{o.ratio:.2f}",
        said + ("" if o.fits else ", does not fit"),
        row["source"],
    ]


JOB_HEAD = [
    "job",
    "gpuscale plan",
    "maturity",
    "expected",
    "measured",
    "ratio",
    "in 80 %",
    "source",
]


def main() -> None:
    """Print the scores, or write the table into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--runs", type=Path, default=JOBS)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--say-maturity", action="store_true", help="ask with what a row says")
    options = parser.parse_args()
    found = outcomes_of(read_jobs(options.runs), options.say_maturity)
    made = markdown(HEAD, by_class(found))
    if options.rows:
        with options.rows.open("w", encoding="utf-8", newline="") as f:
            w = csv.writer(f, lineterminator="\n")
            w.writerow([*JOB_HEAD, "low_s", "high_s", "refused"])
            w.writerows([*job_line(o), o.low_s, o.high_s, o.refused] for o in found)
    if not options.update:
        sys.stdout.write(made)
        return
    text = PAGE.read_text("utf-8")
    before, after = text.index(START) + len(START), text.index(END)
    made += "\n" + markdown(JOB_HEAD, [job_line(o) for o in found])
    PAGE.write_text(text[:before] + made + text[after:], "utf-8")


if __name__ == "__main__":
    main()
