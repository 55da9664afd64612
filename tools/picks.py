"""What `plan` proposes for jobs that people run, judged as an expert would judge it.

python tools/picks.py [--only TEXT] [--rows FILE.csv]

A pick is a question and the layouts that published recipes of it (or of its nearest kin) would
have: those that an expert launches as printed, and those that are tolerable. What nobody launches
whatever the job is in `faults`. Sources: bridge: Megatron-Bridge 067f987, `recipes` and
`docs/performance-summary*.md`; llama3: arXiv:2407.21783, table 4; deepseek: arXiv:2412.19437;
titan: torchtitan's `train_configs` and `docs/performance.md`; habit: no recipe is published, judged
by size: FSDP or ZeRO to 13B, TP inside a node and a shallow pipeline beyond, EP for experts.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Pick:
    """A question, and which layouts an expert would launch as printed, or tolerate."""

    ask: str  # arguments of `gpuscale plan`
    launch: str  # "tp=1..2 pp=1 or tp=4": values of dimensions; what is not named may be anything
    tolerable: str
    source: str


TT, DS = "--software torchtitan", "--software deepspeed-zero3"
SMALL, SMALL_OK = "tp=1 pp=1 cp=1", "tp=1..2 pp=1..2 cp=1..2"
PICKS = (
    Pick("llama3-8b --gpus 8", "tp=1..2 pp=1 cp=1..2", "tp=1..4 pp=1..2 cp=1..2", "bridge"),
    Pick("llama3-8b --gpus 64", "tp=1..2 pp=1 cp=1..2", "tp=1..4 pp=1..2 cp=1..2", "bridge"),
    Pick("llama3-8b --gpus 256", "tp=1..2 pp=1 cp=1..2", "tp=1..4 pp=1..2 cp=1..2", "bridge"),
    Pick(f"llama3-8b --gpus 8 {TT}", SMALL, SMALL_OK, "titan: FSDP"),
    Pick(f"llama3-8b --gpus 128 {TT}", SMALL, SMALL_OK, "titan: FSDP"),
    Pick("llama3-8b --gpus 16 --cluster aws-p5en", SMALL, SMALL_OK, "bridge"),
    Pick("llama3-8b --gpus 64 --cluster mi300x-8", SMALL, SMALL_OK, "habit"),
    Pick("llama3-8b --gpus 64 --cluster dgx-a100", "tp=1..2 pp=1 cp=1", SMALL_OK, "habit"),
    Pick(
        "llama3-8b --gpus 64 --seq-len 131072",
        "tp=1..8 pp=1..2 cp=4..16",
        "tp=1..8 pp=1..4 cp=2..32",
        "bridge: TP 4, PP 2, CP 8",
    ),
    Pick("qwen3-8b --gpus 32", "tp=1..4 pp=1 cp=1", SMALL_OK, "bridge: TP 4, or 1"),
    Pick("qwen3-14b --gpus 32", "tp=1..8 pp=1 cp=1", "tp=1..8 pp=1..2 cp=1..2", "bridge: TP 8"),
    Pick("phi4 --gpus 256 --cluster hgx-h20-8 --software fsdp", SMALL, SMALL_OK, "habit: FSDP"),
    Pick("gemma3-27b --gpus 128", "tp=1..8 pp=1..2 cp=1", "tp=1..8 pp=1..4 cp=1..2", "bridge"),
    Pick("qwen3-32b --gpus 64", "tp=1..8 pp=1..4 cp=1", "tp=1..8 pp=1..8 cp=1..2", "bridge: 8, 2"),
    Pick("qwen3-32b --gpus 256 --cluster dgx-h200", "tp=1..8 pp=1..4 cp=1", "cp=1..2", "bridge"),
    Pick("qwen2.5-32b --gpus 64 --software fsdp", SMALL, SMALL_OK, "habit: FSDP"),
    Pick("llama2-13b --gpus 64 --cluster dgx-a100", "tp=1..4 pp=1..2 cp=1", "cp=1", "habit"),
    Pick("gpt3-175b --gpus 1024 --cluster dgx-a100", "tp=4..8 pp=4..16 cp=1", "cp=1", "MLPerf"),
    Pick("llama3-70b --gpus 64", "tp=4..8 pp=2..8 cp=1..2", "tp=2..8 pp=1..8 cp=1..2", "bridge"),
    Pick("llama3-70b --gpus 256", "tp=4..8 pp=2..8 cp=1..2", "tp=2..8 pp=1..8 cp=1..2", "bridge"),
    Pick("llama3-70b --gpus 1024", "tp=4..8 pp=2..8 cp=1..2", "tp=2..8 pp=1..8 cp=1..2", "bridge"),
    Pick("llama3-70b --gpus 4096", "tp=4..8 pp=4..8 cp=1..2", "tp=2..8 pp=2..16 cp=1..2", "book"),
    Pick(f"llama3-70b --gpus 256 {TT}", "tp=1..8 pp=1 cp=1", "tp=1..8 pp=1..4 cp=1", "titan"),
    Pick(f"llama3-70b --gpus 128 {DS}", SMALL, "tp=1 pp=1 cp=1..2", "ZeRO-3"),
    Pick(
        "llama3-70b --gpus 256 --cluster mi300x-8",
        "tp=1..8 pp=1..4 cp=1",
        "tp=1..8 pp=1..8 cp=1..2",
        "AMD's Primus: FSDP, or TP 8",
    ),
    Pick(
        "llama3-70b --gpus 64 --cluster dgx-b200 --precision fp8",
        "tp=1..4 pp=1..4 cp=1",
        "tp=1..8 pp=1..8 cp=1..2",
        "bridge: FSDP, or TP 2, PP 4",
    ),
    Pick("llama2-70b --gpus 512 --cluster dgx-a100", "tp=4..8 pp=2..8 cp=1", "cp=1..2", "bridge"),
    Pick("qwen2.5-72b --gpus 512 --cluster dgx-h200", "tp=2..8 pp=1..8 cp=1", "cp=1..2", "bridge"),
    Pick(
        "llama3-70b --gpus 256 --seq-len 65536",
        "tp=4..8 pp=1..8 cp=4..8",
        "tp=2..8 pp=1..8 cp=2..16",
        "bridge: TP 8, PP 4, CP 8",
    ),
    Pick("llama3-405b --gpus 512", "tp=8 pp=8..16 cp=1..4", "tp=4..8 pp=4..16", "bridge"),
    Pick("llama3-405b --gpus 1024", "tp=8 pp=8..16 cp=1..2", "tp=4..8 pp=4..18 cp=1..4", "bridge"),
    Pick("llama3-405b --gpus 16384", "tp=8 pp=16 cp=1..2", "tp=8 pp=8..18 cp=1..4", "llama3"),
    Pick("llama3-405b --gpus 512 --cluster dgx-b200", "tp=4..8 pp=8..16 cp=1..2", "pp=4..16", "1"),
    Pick(f"llama3-405b --gpus 512 {TT}", "tp=4..8 pp=1..16 cp=1", "tp=4..8 pp=1..18", "titan"),
    Pick(
        "llama3-405b --gpus 256 --cluster gb200-nvl72 --precision fp8",
        "tp=2..8 pp=4..16 cp=1..2",
        "tp=1..16 pp=2..18 cp=1..4",
        "bridge: TP 4, PP 16",
    ),
    Pick(
        "llama3-405b --gpus 16384 --seq-len 131072",
        "tp=8 pp=8..16 cp=8..16",
        "tp=4..16 pp=4..18 cp=4..32",
        "llama3: TP 8, CP 16, PP 16",
    ),
    Pick("mixtral-8x7b --gpus 64", "tp=1..2 pp=1..4 cp=1 ep=4..8 etp=1", "tp=1..4 cp=1..2", "NeMo"),
    Pick(
        "mixtral-8x22b --gpus 256",
        "tp=1..4 pp=2..8 cp=1 ep=8 etp=1",
        "tp=1..8 pp=1..8 cp=1..2 ep=4..8",
        "NeMo: TP 2, PP 4, EP 8",
    ),
    Pick(
        "qwen3-30b-a3b --gpus 16", "tp=1..2 pp=1..2 cp=1 ep=8..16 etp=1", "cp=1..2 etp=1", "bridge"
    ),
    Pick(
        "qwen3-30b-a3b --gpus 8 --cluster dgx-b200",
        "tp=1 pp=1 cp=1 ep=4..8 etp=1",
        "tp=1..2 pp=1..2 cp=1 etp=1",
        "bridge: EP 8",
    ),
    Pick(
        "qwen3-235b-a22b --gpus 256 --seq-len 4096 --global-batch 8192",
        "tp=1..4 pp=4..16 cp=1..2 ep=8..32 etp=1",
        "tp=1..4 pp=2..16 cp=1..2 ep=4..64 etp=1",
        "bridge: TP 2, PP 8, EP 32",
    ),
    Pick(
        "qwen3-235b-a22b --gpus 512 --cluster mi350x-8 --seq-len 16384 --global-batch 512",
        "tp=1..4 pp=1..8 cp=1..2 ep=8 etp=1",
        "tp=1..8 pp=1..16 cp=1..4 etp=1",
        "habit",
    ),
    Pick(
        "deepseek-v3 --gpus 1024 --seq-len 4096 --global-batch 8192",
        "tp=1..2 pp=8..16 cp=1 ep=8..64 etp=1",
        "tp=1..4 pp=4..16 cp=1 etp=1",
        "bridge: TP 2, PP 16, EP 64; deepseek: PP 16, EP 64",
    ),
    Pick(
        "deepseek-v3 --gpus 2048 --cluster deepseek-h800 --precision fp8 --seq-len 4096",
        "tp=1..2 pp=8..16 cp=1 ep=8..64 etp=1",
        "tp=1..4 pp=4..16 cp=1 etp=1",
        "deepseek",
    ),
    Pick(
        "deepseek-v3 --gpus 256 --cluster gb200-nvl72 --precision mxfp8 --seq-len 4096",
        "tp=1 pp=2..8 cp=1 ep=16..64 etp=1",
        "tp=1..2 pp=2..16 cp=1 etp=1",
        "bridge: PP 4, EP 64",
    ),
    Pick(
        "kimi-k2 --gpus 512 --seq-len 4096 --global-batch 4096",
        "tp=1..2 pp=8..16 cp=1 ep=8..32 etp=1",
        "tp=1..4 pp=8..16 cp=1 etp=1",
        "bridge: TP 2, PP 16, EP 32",
    ),
    Pick(
        "gpt-oss-120b --gpus 64 --seq-len 4096 --global-batch 1280",
        "tp=1..2 pp=1..4 cp=1 ep=8..16 etp=1",
        "tp=1..2 pp=1..8 cp=1 etp=1",
        "bridge: PP 4, EP 8",
    ),
    Pick(
        "glm-4.5 --gpus 256 --seq-len 4096 --global-batch 2048",
        "tp=1..2 pp=4..16 cp=1 ep=8..32 etp=1",
        "tp=1..4 pp=4..16 cp=1..2 etp=1",
        "bridge: TP 2, PP 8, EP 16",
    ),
    Pick(
        "glm-4.5-air --gpus 64 --seq-len 4096 --global-batch 2048",
        "tp=1..2 pp=1..4 cp=1 ep=8..16 etp=1",
        "tp=1..4 pp=1..8 cp=1 etp=1",
        "bridge: PP 4, EP 8",
    ),
)


RECOMPUTED = "everything recomputed beside free memory"


def meets(layout: dict[str, Any], wanted: str) -> bool:
    """Whether a layout has the values that one of the alternatives wants."""

    def one(text: str) -> bool:
        for name, low, high in re.findall(r"(\w+)=(\d+)(?:\.\.(\d+))?", text):
            if not int(low) <= layout[name] <= int(high or low):
                return False
        return True

    return any(one(text) for text in wanted.split(" or "))


def faults(result: dict[str, Any], domain_gpus: int) -> list[str]:
    """List what nobody launches, whatever the job."""
    lay, layers = result["layout"], result["stage_layers"]
    inner = layers[1:-1] if len(layers) > 2 else layers[:1]
    free = 1 - result["peak_bytes"] / result["capacity_bytes"]
    found = {
        "TP over nodes": lay["tp"] > domain_gpus,
        "stages of one layer": lay["pp"] > 1 and sum(layers) < 2 * lay["pp"] - 2,
        "uneven stages": max(inner) - min(inner) > 1,
        "CP at a short length": lay["cp"] > 2 and lay["seq_len"] <= 8192 and lay["tp"] < 8,
        RECOMPUTED: free > 0.4 and lay["recompute"] == "full" and lay["recompute_layers"] is None,
        "experts split by TP": lay["etp"] > 1,
    }
    return [name for name, is_so in found.items() if is_so]


def judged(pick: Pick) -> tuple[str, str, list[str]]:
    """(verdict, layout, reasons) of what is proposed."""
    from gpuscale.answers.training.plan_text import short
    from gpuscale.cli.app import run
    from gpuscale.core.layout import Layout
    from gpuscale.io.hardware import load_cluster

    def asked(*more: str) -> dict[str, Any]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            run(["plan", *pick.ask.split(), *more, "--json"])
        return dict(json.loads(out.getvalue()))

    found = asked()
    result = found["result"]
    lay = Layout(**{k: tuple(v) if isinstance(v, list) else v for k, v in result["layout"].items()})
    why = faults(result, load_cluster(found["inputs"]["cluster"]).scaleup_domain_gpus)
    if RECOMPUTED in why and not asked("--recompute", "none,selective")["result"]["fits"]:
        why.remove(RECOMPUTED)  # with less nothing fits, whatever the micro-batch
    if not result["fits"]:
        why.append("does not fit")
    if not why and meets(result["layout"], pick.launch):
        return "launch", short(lay), why
    if not why and meets(result["layout"], pick.tolerable):
        return "tolerable", short(lay), [f"rather {pick.launch}"]
    return "no", short(lay), why or [f"rather {pick.launch}"]


def main() -> None:
    """Print a line a pick and the count of each verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    rows = []
    for pick in PICKS:
        if options.only not in pick.ask:
            continue
        verdict, layout, why = judged(pick)
        rows.append((verdict, pick.ask, layout, "; ".join(why), pick.source))
        print(f"{verdict:9}  {pick.ask}\n           {layout}  {rows[-1][3]}", flush=True)
    print(Counter(row[0] for row in rows))
    if options.rows:
        with options.rows.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("verdict", "ask", "layout", "why", "source"), *rows])


if __name__ == "__main__":
    main()
