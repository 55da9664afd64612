"""Score the readers of logs and the diagnoses of public runs.

python tools/judge_diagnose.py logs FOLDER              numbers of `logs.csv` found with their unit
python tools/judge_diagnose.py runs diagnosis.csv       verdict, cause, size and test of each run
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

UNITS = (
    ("_GiB", "byte", 2**30),
    ("_MiB", "byte", 2**20),
    ("_GBps", "byte/s", 1e9),
    ("_GB", "byte", 1e9),
    ("_MB", "byte", 1e6),
    ("_percent", "", 0.01),
    ("tokens_per_s", "tokens/s", 1.0),
    ("tokens_per_s_per_gpu", "tokens/s", 1.0),
    ("tflops_per_gpu", "FLOP/s", 1e12),
    ("it_per_s", "steps/s", 1.0),
    ("_ms", "s", 1e-3),
    ("_us", "s", 1e-6),
    ("_s", "s", 1.0),
)
JUDGED = ("reading", "asked", "note", "warmup_steps_to_skip", "dominant", "bf16", "warmup")


def _wanted(key: str, value: Any, found: list[tuple[str, str, float]]) -> None:
    """List what a key of `extract` asks for: (key, SI unit, value)."""
    if key in JUDGED or isinstance(value, bool):
        return
    if isinstance(value, dict):
        for k, v in value.items():
            inner = {"pp512": "tokens_per_s", "tg128": "tokens_per_s"}.get(k, key)
            _wanted(inner, v, found)
    elif isinstance(value, list):
        for v in value:
            _wanted(key, v, found)
    elif isinstance(value, (int, float)):
        unit, factor = next(((u, f) for end, u, f in UNITS if key.endswith(end)), ("", 1.0))
        if key.endswith("samples_per_s"):
            unit = "samples/s"
        found.append((key, unit, value * factor))


def _numbers(text: str) -> list[float]:
    found = re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?", text)
    return [float(n.replace(",", "")) for n in found]


def judge_logs(folder: Path, show: bool) -> None:
    """Count the numbers of `extract` that the reader gives with their unit."""
    from gpuscale.io.log_reader import read_log

    hit = all_ = unsaid = 0
    with (folder / "logs.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            wanted: list[tuple[str, str, float]] = []
            for key, value in json.loads(row["extract"]).items():
                _wanted(key, value, wanted)
            with (folder / row["file"]).open("rb") as stream:
                log = read_log(stream)
            given = [(f.unit, float(f.value)) for f in log.all() if not isinstance(f.value, str)]
            for track in log.tracks.values():
                given += [(track.unit, v) for v in track.series.values]
            text = (folder / row["file"]).read_text(encoding="utf-8")
            for key, unit, value in wanted:
                ok = any(
                    abs(v - value) <= 0.006 * abs(value) and (u == unit or not unit)
                    for u, v in given
                )
                bare = value / next((f for e, u, f in UNITS if key.endswith(e)), 1.0)
                shown = any(abs(v - bare) <= 0.006 * abs(bare) for v in _numbers(text))
                if not ok and not shown:
                    unsaid += 1  # the collector's own sum or knowledge: no line prints it
                    continue
                all_ += 1
                hit += ok
                if not ok and show:
                    print(f"  missed {row['file']}: {key} = {value:g} {unit}")
    print(f"logs: {hit} of {all_} printed numbers found with their unit ({hit / all_:.1%}); ")
    print(f"      {unsaid} more are printed by no line")


def command(row: dict[str, str]) -> list[str]:
    """Type a row as a newcomer would: what the columns say, nothing else."""
    args = ["diagnose"]
    args += [row["model"]] if row["model"] else []
    for option, column in (
        ("--kind", "kind"),
        ("--software", "framework"),
        ("--version", "version"),
        ("--gpu", "gpu"),
        ("--gpus", "gpus"),
        ("--cluster", "cluster"),
        ("--settings", "settings"),
        ("--measured", "symptom"),
    ):
        if row[column]:
            args += [f"{option}={row[column]}"]
    return [*args, "--json"]


def _size(row: dict[str, str]) -> float | None:
    """Measured over after, where the same quantity is printed for both in the same unit."""
    from gpuscale.answers.diagnose.figures import read_figures
    from gpuscale.errors import GpuscaleError

    try:
        before = {f.name: f for f in read_figures([row["symptom"]], [])}
        after = read_figures([row["value_after_fix"]], []) if row["value_after_fix"] else ()
    except GpuscaleError:
        return None
    for figure in after:
        was = before.get(figure.name)
        if was is None or figure.name == "gpu_util" or re.search(r"above|below", was.text):
            continue
        if not math.isclose(figure.pace or 1.0, 1.0):  # `3.8x`
            return max(figure.pace or 1.0, 1 / (figure.pace or 1.0))
        value = was.value or (was.pace and was.expected and was.pace * was.expected)
        if value and figure.value:
            return max(value / figure.value, figure.value / value)
    return None


COSTS = {"arithmetic": 0, "line": 1, "unit": 2, "run": 2}
CHEAP = ("impossible|look up|check which|parameter count|arithmetic|STREAM", 0)
READ = (
    r"\blog\b|names|lspci|nvidia-smi|topo|NCCL_DEBUG|nproc|ps\b|version|counters|snapshot|timer|print"
    "|py-spy|timeline|profiler|dump|GPU memory|time of",
    1,
)
"""Words of `how_found` -> what it cost: 0 arithmetic, 1 a line of a log or a look, 2 a run."""


def _test_right(row: dict[str, str], test: Any) -> bool:
    """Whether a named test is that of `how_found`, or as cheap and tells the same.

    Rubric: it tells the confirmed cause from the others (the test is that cause's own) and costs
    no more than what was done (arithmetic < a line < a run or a unit benchmark); or it is the same
    by its words: two that the two texts share.
    """
    if test is None:
        return False
    how = row["how_found"]
    cost = next((c for words, c in (CHEAP, READ) if re.search(words, how)), 2)
    same = test.outcomes[0].cause == row["confirmed_cause"] and COSTS[test.cost] <= cost
    words = [set(re.findall(r"[a-z_][a-z_-]{3,}", t.lower())) for t in (how, test.test)]
    return same or len(words[0] & words[1]) > 1


def judge_runs(path: Path, show: bool) -> None:
    """Score the diagnosis of each row of `path`."""
    from gpuscale.answers.diagnose import Diagnose
    from gpuscale.errors import GpuscaleError

    counts: Counter[str] = Counter()
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            question = Diagnose(
                (row["model"],) if row["model"] else (),
                kind=row["kind"],
                software=row["framework"] or None,
                version=row["version"] or None,
                gpu=row["gpu"] or None,
                gpus=row["gpus"] or None,
                cluster=row["cluster"] or None,
                settings=(row["settings"],) if row["settings"] else (),
                measured=(row["symptom"],),
            )
            try:
                d = question.answer().result
            except GpuscaleError as error:
                for group in ("weak" if row["quality"] == "weak" else "full", "all"):
                    counts[f"{group} rows"] += 1
                print(f"{row['id'][-4:]} refused: {error}")
                continue
            names = [c.cause for c in d.causes]
            weak = "weak" if row["quality"] == "weak" else "full"
            wanted = row["confirmed_cause"]
            for group in (weak, "all"):
                counts[f"{group} rows"] += 1
                counts[f"{group} verdict"] += d.verdict == row["verdict"]
                counts[f"{group} first"] += names[:1] == [wanted]
                counts[f"{group} three"] += wanted in names[:3]
            if row["how_found"]:
                counts[f"{weak} tests"] += 1
                right = _test_right(row, d.next_test)
                counts[f"{weak} test right"] += right
                if show and not right:
                    print(f"     test {d.next_test and d.next_test.test} / {row['how_found']}")
            if row["verdict"] == "normal":
                counts["normal rows"] += 1
                counts["normal called a fault"] += d.verdict == "fault"
            size = _size(row)
            if size and row["verdict"] == "fault":
                mine = next((c.explains_factor for c in d.causes if c.cause == wanted), None)
                counts["size rows"] += 1
                counts["size right"] += mine is not None and max(mine / size, size / mine) <= 1.5
                if show:
                    ratio = f"{d.ratio:.3g}" if d.ratio else "none"
                    print(f"     size {size:.3g}, said {mine or 0:.3g}, asker's ratio {ratio}")
            if show:
                flag = "ok " if names[:1] == [wanted] else "3rd" if wanted in names[:3] else "-- "
                shown = ", ".join(f"{c.cause} {c.probability:.2f}" for c in d.causes)
                ok = "" if d.verdict == row["verdict"] else f" VERDICT {d.verdict}/{row['verdict']}"
                print(f"{row['id'][-4:]} {weak[0]} {flag} {wanted}: {shown}{ok} size {size}")
    for group in ("full", "weak", "all"):
        n = counts[f"{group} rows"]
        parts = [f"{k} {counts[f'{group} {k}']}/{n}" for k in ("verdict", "first", "three")]
        print(f"{group}: {', '.join(parts)}")
    print(f"normal called a fault: {counts['normal called a fault']} of {counts['normal rows']}")
    print(f"size within 1.5: {counts['size right']} of {counts['size rows']}")
    for group in ("full", "weak"):
        right, n = counts[f"{group} test right"], counts[f"{group} tests"]
        print(f"test as cheap as what was done, {group}: {right} of {n}")


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("logs", "runs"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--show", action="store_true", help="every miss")
    given = parser.parse_args()
    if given.what == "logs":
        judge_logs(given.path, given.show)
    else:
        judge_runs(given.path, given.show)


if __name__ == "__main__":
    main()
