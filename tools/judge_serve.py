"""Put lines that start servers, of random answers of `serve`, to the engines' own parsers.

    python tools/judge_serve.py ENGINE [--n 40] [--python PYTHON] [--folder FOLDER]

ENGINE is vllm or sglang. Verdicts go to tests/data/launch/ENGINE.json, as those of
tools/judge_launch.py do: ordinary tests hold the lines against them and need no engine.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
from pathlib import Path
from typing import Any

from judge_launch import FOLDER, Judge

import gpuscale
from gpuscale.errors import GpuscaleError

MODELS = {
    "llama3-8b": (1, 2, 8),
    "llama3-70b": (4, 8),
    "qwen3-30b-a3b": (1, 2, 4, 8),
    "mixtral-8x7b": (2, 4, 8),
    "gpt-oss-120b": (2, 4, 8),
    "deepseek-v3": (16, 32),
    "gemma3-27b": (1, 2, 4),
}
"""Model -> GPUs of a replica that are tried."""
START = {"vllm": ["vllm", "serve"], "sglang": ["python", "-m", "sglang.launch_server"]}


def asked(rng: random.Random, engine: str) -> dict[str, Any]:
    """Options of one random question."""
    model = rng.choice(list(MODELS))
    given: dict[str, Any] = {"model": model, "engine": engine, "gpus": rng.choice(MODELS[model])}
    given["concurrency"] = rng.choice((1, 8, 64, 256))
    for name, values in (
        ("weights", ("fp8",)),
        ("kv", ("fp8",)),
        ("context", (8192, 32768)),
        ("tp", (1, 2, 4)),
        ("memory_frac", (0.8,)),
        ("lora", ("4:16",) if engine == "vllm" else ()),
        ("eager", (True,) if engine == "vllm" else ()),
    ):
        if values and rng.random() < 0.3:
            given[name] = rng.choice(values)
    return given


def line_of(given: dict[str, Any]) -> str:
    """Line of the engine that an answer prints."""
    options = {k: v for k, v in given.items() if k != "model"}
    result = gpuscale.serve(given["model"], cluster="dgx-h100", **options).to_dict()["result"]
    if not result.get("launch"):
        raise GpuscaleError("nothing fits")
    return str(result["launch"][0])


def facts_of(line: str, engine: str) -> dict[str, int]:
    """Say what the parser must derive from a line, by our own reader."""
    from gpuscale.launch.read.detect import read_launch

    found = read_launch({"serve.sh": line})
    return {"tp": found.tp, "pp": found.pp, "dp": found.dp or 1, "sequences": found.max_seqs or 0}


def main() -> int:
    """Judge and record; exit 1 if a line was refused or derived otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=START)
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where verdicts go")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    script = Path(__file__).resolve().parent / "judges" / "judge_serving.py"
    judge = Judge([given.python, str(script), given.engine], "")  # imported in each fork
    rows, bad, version = [], 0, ""
    while len(rows) < given.n:
        question = asked(rng, given.engine)
        try:
            line = line_of(question)
        except GpuscaleError:
            continue
        words = shlex.split(line)[len(START[given.engine]) :]
        taken, said = judge.ask(words, {})
        facts = json.loads(said.removeprefix("OK ")) if taken else {}
        agreed = taken and all(facts.get(k) == v for k, v in facts_of(line, given.engine).items())
        version = facts.get("version", version)
        if not agreed:
            bad += 1
            print(line, said, sep="\n  ")
        rows.append({"asked": question, "line": line, "accepted": taken, "agreed": agreed})
    given.folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": version, "rows": rows}, indent=None)
    (given.folder / f"{given.engine}.json").write_text(text + "\n", "utf-8")
    print(f"{given.engine} {version}: {len(rows) - bad} of {len(rows)} accepted with their degrees")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
