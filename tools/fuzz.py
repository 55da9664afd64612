"""Throw bad input at every command; whatever comes, the contract of exit codes must hold.

Each case is a line of the command, its example or one that the documents show or whose answer is
kept, changed: values replaced by nasty ones, options added from the command's own list, words
dropped or doubled, preset names, logs, launch files and saved answers replaced by broken ones. It
runs in this process and must end in time, with exit code 0, 1 or 2, and must not print NaN or
infinity; code 2 means an empty stdout and one error line with at most one hint.

    python tools/fuzz.py --cases 2000 [--seed 1] [--seconds 450] [command ...]

`--seconds` are shared among the commands: each is tried until its cases or its seconds are over.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import random
import re
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["GPUSCALE_STRICT"] = "1"

NASTY = [
    "",
    " ",
    "-1",
    "0",
    "-0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "64",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e300",
    "1e-300",
    "1e-320",
    "1e30",
    "1e24",
    "1e15",
    "999999999999999999999",
    "9" * 400,
    "1.5",
    "abc",
    "h100-smx",
    "\U0001f999",
    "a" * 10_000,
    "/dev/null",
    "/",
    ".",
    "-",
    "--",
    "80 GB",
    "80GiB/s",
    "400 Gb/s",
    "1e9999",
    "0x10",
    "1_000",
    "1,000",
    "1/2",
    "\u0663",
    "{}",
    "[]",
    "null",
    "True",
    "%s",
    "\\",
    "'",
    '"',
    "a=b",
    "=",
    "cluster.=1",
    "cluster.x=1",
    "gpu.hbm_bytes=nan",
    "gpu.hbm_bytes=0",
    "1..2",
    "8..4",
    "..",
    "1..",
    "1:2",
    "1KiB:10GiB",
    "1GiB:1KiB",
    "1KiB:0",
    "1,2,4",
    "50%",
    "101%",
    "30d",
    "-5MUSD",
    "15T",
    "0.4",
    "bf16",
    "fp8",
    "fp4",
    "int3",
    "h100",
    "b200",
    "v100",
    "dgx-h100",
    "gb200-nvl72",
    "llama3-70b",
    "deepseek-v3",
    "gpt2",
    "all-reduce",
    "all-to-all",
    "ring",
    "tree",
    "full",
    "none",
    "selective",
    "\x1b[31m",
    "a\nb",
    "\udcff",
    "no/such/file.toml",
    "tp=1,2",
    "gpus=8..16",
    "seq=nan..1",
    "bytes=1MB..1GB:3",
    "m=1..1e30:3",
    "*_s,fits",
    "cluster.node_egress_bytes_per_s=1GB/s..1TB/s:3",
    "None",
    "0.0",
    "1e-9",
    "4096",
    "131072",
    "1000000000",
    "2x",
    "2x4x8",
    "x",
    "1h",
    "1 B",
    "1b",
]

MILD = [
    "1",
    "2",
    "3",
    "4",
    "6",
    "7",
    "8",
    "12",
    "16",
    "64",
    "100",
    "1000",
    "4096",
    "1000000",
    "0.5",
    "1GiB",
    "1 MB",
    "10%",
    "2..8",
    "1,2,4",
    "1us",
    "400Gb/s",
]

PATH_WRITING = {"--output", "-o", "--junit", "--out", "--save", "--install-completion", "--rows"}
LIMIT_S = {
    "plan": 5.0,
    "timeline": 3.0,
    "launch-check": 5.0,
    "serve": 10.0,
    "validate": 15.0,
    "calibrate": 10.0,
    "compare": 6.0,
    "quiz": 2.0,
}
FINITE = re.compile(
    r"(?<![^\s(])[+-]?(nan|inf|infinity(?! cache| fabric))(?![^\s),;%])", re.IGNORECASE
)
ROOT = Path(__file__).resolve().parent.parent
PRESETS = ROOT / "presets"
STANDS_FOR = {"jobs.toml": "jobs", "train.sh": "run.sh", "run.sh": "run.sh"}
STANDS_FOR |= {"train.log": "train.log", "nccl.log": "train.log", "cables.csv": "my_runs.csv"}
STANDS_FOR |= dict.fromkeys(("old.json", "new.json", "h100.json", "b200.json"), "answer")
ANSWERS = ("plan", "moe", "bridge", "titan", "serve", "zero", "fsdp", "jax", "nanotron")
STANDS_FOR |= {f"{name}.json": "plan.json" for name in ANSWERS}
"""Names of files in command lines, and what kind of file stands there."""


class Hang(BaseException):
    """A command took longer than its limit several times over."""


def base_files() -> dict[str, list[str]]:
    """Texts of some good files by kind, to be broken."""
    config = {
        "model_type": "llama",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    moe = config | {
        "model_type": "deepseek_v3",
        "n_routed_experts": 64,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 512,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 128,
        "q_lora_rank": 256,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "n_group": 4,
        "topk_group": 2,
    }
    answer = {
        "schema": 1,
        "command": "matmul-time",
        "inputs": {"m": 64},
        "warnings": [],
        "result": {"time_s": 8.5e-6, "bound": "memory", "parts": [{"a_bytes": 3, "fits": True}]},
    }
    jobs = '[[job]]\nname = "a"\ncommand = "matmul-time b200 64 4096 8192"\nanswer = "any"\n'
    files = {
        "json": [json.dumps(config, indent=1), json.dumps(moe, indent=1)],
        "answer": [json.dumps(answer, indent=1)],
        "jobs": [jobs + "require = ['time_s<=1us']"],
    }
    for path in sorted((ROOT / "docs" / "examples").iterdir()):
        files[path.name] = [path.read_text("utf-8")]
    excerpts = (ROOT / "tests" / "diagnose" / "excerpts.toml").read_text("utf-8")
    files["train.log"] = [json.loads(t) for t in re.findall(r'^text = (".*")$', excerpts, re.M)]
    files["plan.json"], files["run.sh"] = [], []
    serve = "serve llama3-8b --gpu h100 --rate 1 --input 512 --output-len 64"
    for line in ("plan llama3-8b --gpus 16", "memory llama3-8b --gpus 8 --software fsdp", serve):
        files["plan.json"].append(run_case([*line.split(), "--json"], b"", 10.0)[1])
    for text in files["plan.json"]:
        _, out, _, _ = run_case(["launch", "-", "--json"], text.encode(), 10.0)
        files["run.sh"].append(json.loads(out)["result"]["text"])
    for kind in ("gpu", "cluster", "model"):
        found = sorted((PRESETS / kind).glob("*.toml"))
        files[kind] = [p.read_text("utf-8") for p in found if not p.name.startswith("_")][::5]
    return files


def broken(rng: random.Random, text: str) -> bytes:
    """Break a file: a value, a line, a key, the whole."""
    lines = text.splitlines()
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        kind, at = rng.randrange(8), rng.randrange(len(lines)) if lines else 0
        if kind < 3 and lines:
            value = rng.choice([*NASTY, "[" * 500, '"x"', "[1, 2]", "{a = 1}", "-5", '"-5 GB"'])
            value = value if rng.random() < 0.5 else json.dumps(value, ensure_ascii=False)
            if re.search(r"[=:]", lines[at]):
                key, sign, rest = re.split(r"([=:])", lines[at], maxsplit=1)
                comma = "," if rest.rstrip().endswith(",") else ""
                lines[at] = f"{key}{sign} {value}{comma}"
        elif kind == 3 and lines:
            del lines[at]
        elif kind == 4 and lines:
            lines[at] = lines[at].replace("_", "-", 1)
        elif kind == 5:
            lines.insert(at, rng.choice(["[x]", "x = 1", "}", "\x00", '"a": 1,', "[[layers]]"]))
        elif kind == 6:
            lines = lines[:at]
        else:
            return rng.choice(
                [
                    b"",
                    b"\xff\xfe\x00\x01" * 50,
                    b"[" * 20_000,
                    b"x" * 3_000_000,
                    b"null",
                    b"[]",
                    b"\x1f\x8b",
                    b'{"a":' * 3000,
                    b"\xef\xbb\xbf" + text.encode("utf-8", "replace"),
                ]
            )
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def options_of(name: str) -> list[tuple[str, list[str]]]:
    """Option flags of a command with likely values, from the words of its help; a flag has none."""
    import typer

    from gpuscale.cli.parser import app

    group: Any = typer.main.get_command(app)
    found = group.get_command(None, name)
    pairs = []
    for param in found.params:
        words = re.findall(r"[\w][\w./%-]*", f"{getattr(param, 'help', '')} {param.default}")
        for flag in getattr(param, "opts", []):
            if flag.startswith("-") and flag not in PATH_WRITING:
                pairs.append((flag, [] if getattr(param, "is_flag", False) else [*words, *MILD]))
    return pairs


def example_of(name: str) -> list[str]:
    """Give the command's example without the program's name and what a shell would do with it."""
    options_of(name)
    from gpuscale.answers.table import question_of

    return shlex.split(re.split(r"[>|<]", question_of(name).EXAMPLE)[0])[1:]


def lines_of(name: str) -> list[list[str]]:
    """Words of the command's example, and of the lines that documents show or tests keep."""
    kept = (ROOT / "tests" / "data" / "answers" / "commands.txt").read_text("utf-8").splitlines()
    with (ROOT / "tests" / "data" / "questions.csv").open(encoding="utf-8", newline="") as file:
        kept += [row["command"] for row in csv.DictReader(file)]
    for page in sorted(ROOT.glob("docs/**/*.md")):
        kept += re.findall(r"^(?:\$ )?gpuscale ([a-z].*[^\\\n])$", page.read_text("utf-8"), re.M)
    kept += ["diagnose train.log", "diagnose train.log nccl.log --gpu h100 --gpus 16"]
    kept += ["launch-check train.sh --model llama3-8b --gpus 8", "launch-check train.sh --show all"]
    found = {}
    for line in kept:
        with contextlib.suppress(ValueError):  # a quotation mark of prose
            words = shlex.split(re.split(r"[>|<#]", line)[0])
            if words[:1] == [name] and not PATH_WRITING.intersection(words):
                found[tuple(words)] = words
    return [example_of(name), *found.values()]


def kind_of(word: str) -> str:
    """Kind of file that could stand where this word stands."""
    from gpuscale.io.presets import known_names

    if word in STANDS_FOR:
        return STANDS_FOR[word]
    examples = ROOT / "docs" / "examples"
    if re.fullmatch(r"[\w-]+\.(json|toml|csv)", word) and (examples / word).is_file():
        return word
    fitting = [k for k in ("model", "cluster", "gpu") if word in known_names(k)]
    return fitting[0] if fitting else ""


def case(
    rng: random.Random,
    lines: list[list[str]],
    options: list[tuple[str, list[str]]],
    files: dict[str, list[str]],
    folder: Path,
) -> tuple[list[str], bytes]:
    """One bad command line and its standard input."""
    args, stdin = list(rng.choice(lines)), b""
    for word in args:
        if (kind := kind_of(word)) and "." in word:
            (folder / word).write_text(rng.choice(files[kind]), "utf-8")
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        at = rng.randrange(1, len(args) + 1)
        inside, move = at < len(args), rng.randrange(12)
        if move < 2 and inside:
            args[at] = rng.choice(NASTY)
        elif move < 4 and inside and args[at][:1].isdigit():
            args[at] = rng.choice(MILD)
        elif move < 9 and options:
            flag, likely = rng.choice(options)
            args += (
                [flag, rng.choice(NASTY if rng.random() < 0.4 else likely)] if likely else [flag]
            )
        elif move < 11 and inside:
            named = [i for i in range(1, len(args)) if kind_of(args[i])] or [at]
            at = rng.choice(named)
            kind = kind_of(args[at])
            kind = rng.choice([kind, "json"]) if kind == "model" else kind
            content = broken(rng, rng.choice(files[kind or rng.choice(sorted(files))]))
            if rng.random() < 0.2:
                args[at], stdin = "-", content
            else:
                ending = ".json" if kind == "json" else rng.choice([".toml", ".toml", ".csv", ""])
                if "." in kind and rng.random() < 0.8:
                    ending = Path(kind).suffix
                path = folder / f"f{ending}"
                path.write_bytes(content)
                args[at] = str(path)
        elif rng.random() < 0.5 and inside:
            del args[at]
        else:
            args.insert(at, rng.choice([*args[1:], *NASTY]))
    if rng.random() < 0.3:
        args.append("--json")
    return args, stdin


def run_case(args: list[str], stdin: bytes, limit_s: float) -> tuple[int | str, str, str, float]:
    """Exit code (or the name of an exception that escaped), stdout, stderr and CPU seconds."""
    from gpuscale.cli.app import run

    def too_long(*_: object) -> None:
        raise Hang

    out, err, code = io.StringIO(), io.StringIO(), "?"
    typed, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 40 * limit_s)  # the machine may be busy
    start = time.process_time()
    result: int | str = code
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            result = run(args)
    except BaseException as error:
        result = type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdin = typed
    return result, out.getvalue(), err.getvalue(), time.process_time() - start


def fault(args: list[str], stdin: bytes, limit_s: float) -> str:
    """Run one case and say what is wrong with how it ended; empty if nothing is."""
    code, out, err, took_s = run_case(args, stdin, limit_s)
    if code not in (0, 1, 2):
        return f"exit {code}: {err.strip()[-900:]}"
    if took_s > limit_s:
        return f"took {took_s:.1f} s of CPU (limit {limit_s:g} s), exit {code}"
    if code == 2:
        complaint = [line for line in err.split("\n") if not line.startswith("warning: ")]
        shape = [line[:6] for line in complaint if line]
        if out or shape[:1] != ["error:"] or len(shape) > 2 or shape[1:] not in ([], ["hint: "]):
            return f"exit 2 with stdout {out[:80]!r} and stderr {err[:300]!r}"
        return ""
    if "--help" in args or "-h" in args:
        return ""
    if found := FINITE.search(out):
        return f"prints {found[0]!r}: {out[max(0, found.start() - 80) : found.end()]!r}"
    if not out.strip():
        return f"exit {code} with an empty answer"
    if "--json" in args and out.startswith("{"):
        json.loads(out)
    return ""


def main() -> int:
    """Fuzz the commands and print every fault with the line that makes it."""
    from gpuscale.answers.table import COMMANDS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commands", nargs="*", default=[])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    files, total, everything = base_files(), 0, 0
    share_s = given.seconds / len(given.commands or COMMANDS)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in given.commands or COMMANDS:
            rng, seen, faults = random.Random(f"{given.seed} {name}"), set(), 0
            lines, options = lines_of(name), options_of(name)
            start, slowest, tried = time.perf_counter(), 0.0, 0
            for tried in range(1, given.cases + 1):
                args, stdin = case(rng, lines, options, files, Path(folder))
                before = time.perf_counter()
                if before - start > share_s:
                    tried -= 1
                    break
                found = fault(args, stdin, LIMIT_S.get(name, 1.0))
                slowest = max(slowest, time.perf_counter() - before)
                key = re.sub(r"[\d.]+|'[^']*'", "#", found)[-160:]
                if found:
                    faults += 1
                if found and key not in seen:
                    seen.add(key)
                    shown = " ".join(
                        shlex.quote(a if len(a) < 90 else a[:80] + "...") for a in args
                    )
                    print(f"FAULT gpuscale {ascii(shown)}\n  {ascii(found)[-700:]}")
            took_s = time.perf_counter() - start
            print(
                f"{name}: {tried} cases, {faults} faults ({len(seen)} kinds), "
                f"slowest {slowest:.2f} s, {took_s:.0f} s",
                flush=True,
            )
            total, everything = total + faults, everything + tried
    print(f"{everything} cases, {total} faults")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
