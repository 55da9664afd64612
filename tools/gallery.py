"""Ask gpuscale the questions of docs/gallery.toml and write docs/gallery.md.

The page shows each command, how its answer begins, and the measured outcome beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gpuscale.cli.app import run
from gpuscale.core.quantity import format_si

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "gallery.md"
WITHIN = 0.2
"""Share of a measured figure that an answer may be off and is right."""

LINES = 3
"""Lines of an answer that are shown."""

INTRO = """# Twenty questions people asked

Asked in public threads and tables, in other words, each with the one command that answers it and
with what somebody measured. We looked at these questions while we built gpuscale, so they flatter
it; [how far it may be off](accuracy.md) is measured on others. Where it is wrong, it stands here as
wrong. A figure counts as right within 20 % of the measured one, whatever is asked, a verdict where
it is the same; `python tools/gallery.py` asks again.

"""


def questions() -> list[dict[str, Any]]:
    """Entries of the file."""
    found: list[dict[str, Any]] = tomllib.loads((DOCS / "gallery.toml").read_text("utf-8"))[
        "question"
    ]
    return found


def asked(command: str) -> tuple[str, dict[str, Any]]:
    """Give what the command prints, and its result as JSON."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            code = run([*shlex.split(command), "-o", str(file)])
        if code > 1:
            raise SystemExit(f"$ gpuscale {command}: exit {code}")
        return printed.getvalue(), json.loads(file.read_text("utf-8"))["result"]


def value_of(result: dict[str, Any], key: str) -> Any:
    """Give the number of a dotted key."""
    found: Any = result
    for part in key.split("."):
        found = found[part]
    return found


def told(one: dict[str, Any], value: Any) -> str:
    """Say a value with its unit."""
    if isinstance(value, bool):
        return "fits" if value else "does not fit"
    if "dim" in one:
        return format_si(value, one["dim"], 3)
    return f"{value:,.3g} {one['unit']}" if value < 1000 else f"{value:,.0f} {one['unit']}"


def verdict(one: dict[str, Any], value: Any) -> tuple[bool, str]:
    """Whether an answer is right, and by how much it is off."""
    if isinstance(value, bool):
        return value == one["measured"], ""
    off = value / one["measured"] - 1
    return abs(off) <= WITHIN, f"{100 * off:+.0f} %"


def page() -> str:
    """Ask all and give the text of the page."""
    rows, parts, right = [], [], 0
    for n, one in enumerate(questions(), 1):
        text, result = asked(one["command"])
        value = value_of(result, one["key"])
        good, off = verdict(one, value)
        right += good
        mark = ("right" if good else "**wrong**") + (f", {off}" if off else "")
        answer, measured = told(one, value), told(one, one["measured"])
        rows.append(f"| {n} | [{one['asked']}](#question-{n}) | {answer} | {measured} | {mark} |")
        shown = text.splitlines()[:LINES]
        note = f" {one['note']}" if "note" in one else ""
        parts.append(
            f"## Question {n}\n\n{one['asked']}\n\n```console\n$ gpuscale {one['command']}\n"
            + "\n".join(line.rstrip() for line in shown)
            + f"\n...\n```\n\nAnswer: {answer}. "
            + f"Measured: {measured} ([source]({one['source']})): {mark}.{note}\n"
        )
    head = (
        f"{right} of {len(rows)} are right.\n\n| no. | question | gpuscale | measured | verdict |\n"
    )
    table = head + "| --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n\n"
    return INTRO + table + "\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.parse_args()
    PAGE.write_text(page(), encoding="utf-8")
