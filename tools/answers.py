"""Numbers of many commands, kept so that a change that moves one is seen and can be named.

    python tools/answers.py             say which numbers moved, old -> new
    python tools/answers.py --update    keep today's; CHANGELOG.md names what changed and why

`tests/data/answers/commands.txt` has the commands, one a line; `numbers.json` beside it what they
answer: for each, the numbers of its JSON at six digits. These are no published figures and prove
nothing right: they hold the core still between two deliberate changes.
"""

import argparse
import contextlib
import io
import json
import math
import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "data" / "answers"
COMMANDS = (FOLDER / "commands.txt").read_text(encoding="utf-8").splitlines()
KEPT = 3  # entries of a list: the next ones are made by the same formulas
TOLERANCE = 2e-5  # of six digits, over processors


os.environ.setdefault("SOURCE_DATE_EPOCH", "1795305600")  # as in the tests: ages of prices


def leaves(value: object, name: str = "") -> dict[str, float]:
    """Numbers of a JSON value by their dotted path."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return {}
    if isinstance(value, (int, float)):
        return {name: float(f"{value:.6g}")}
    entries = value.items() if isinstance(value, dict) else enumerate(value[:KEPT])  # type: ignore[attr-defined, index]
    found: dict[str, float] = {}
    for key, inner in entries:
        found |= leaves(inner, f"{name}.{key}" if name else str(key))
    return found


def answer(command: str) -> dict[str, float]:
    """Numbers that one command answers now."""
    from gpuscale.cli.app import run

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run([*shlex.split(command), "--json"])
    if code not in (0, 1):
        raise SystemExit(f"gpuscale {command}: exit {code}")
    return leaves(json.loads(out.getvalue()))


def moved(old: dict[str, float], new: dict[str, float]) -> list[str]:
    """Say each number that is not what it was."""
    return [
        f"{key}: {old.get(key)} -> {new.get(key)}"
        for key in sorted({*old, *new})
        if key not in old
        or key not in new
        or not math.isclose(old[key], new[key], rel_tol=TOLERANCE, abs_tol=1e-12)
    ]


def kept() -> dict[str, dict[str, float]]:
    """Read the kept numbers by command."""
    text = (FOLDER / "numbers.json").read_text(encoding="utf-8")
    numbers: dict[str, dict[str, float]] = json.loads(text)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="keep today's")
    update = parser.parse_args().update
    sys.path.insert(0, str(ROOT))
    now = {command: answer(command) for command in COMMANDS}
    if update:
        lines = (f"{json.dumps(c)}: {json.dumps(n, separators=(',', ':'))}" for c, n in now.items())
        (FOLDER / "numbers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return
    before = kept()
    for command, numbers in now.items():
        for line in moved(before.get(command, {}), numbers):
            print(f"{command}\n  {line}")


if __name__ == "__main__":
    main()
