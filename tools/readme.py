"""Run the commands that a Markdown page shows, and compare or renew what it says they print.

A block ```` ```console ```` holds lines ``$ command`` with their output. In an output, a line
``...`` stands for any lines, and the words of `VARYING` (measured times) may differ.

    python tools/readme.py              compare, README.md and the pages below docs/
    python tools/readme.py --update     write the real output; a block whose output ended in
                                        ``...`` keeps its length
    python tools/readme.py README.md    one page only

The commands of a page below docs/ run one after the other in a copy of docs/examples.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VARYING = re.compile(r"\b[\d.,]+ (ms|s) (elapsed|search|on \d+ cores?)\b|in [\d.,]+ m?s\b")
SKIPPED = ("pip ", "python -m venv", "pytest", ".ci/run", ".venv/", "git ")


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Pairs of command and shown output in one block."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True)


@contextlib.contextmanager
def folder_of(page: Path) -> Iterator[Path]:
    """Give the folder in which the commands of a page run."""
    if ROOT / "docs" not in page.resolve().parents:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "docs" / "examples", folder, dirs_exist_ok=True)
        yield Path(folder)


def pages() -> list[Path]:
    """List the pages that show commands; tools/gallery.py writes the gallery whole."""
    docs = sorted(p for p in (ROOT / "docs").rglob("*.md") if p.name != "gallery.md")
    return [p for p in (ROOT / "README.md", *docs) if BLOCK.search(p.read_text("utf-8"))]


def run(command: str, folder: Path = ROOT) -> str:
    """Give standard output, then standard error, of a shell command."""
    bin_dir = str(Path(sys.executable).parent)
    env = os.environ | {"PATH": bin_dir + os.pathsep + os.environ["PATH"], "NO_COLOR": "1"}
    env |= {"SOURCE_DATE_EPOCH": "1795305600"}  # ages of prices are counted to 2026-11-22
    env.pop("GPUSCALE_SHOW", None)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout + done.stderr


def _plain(text: str) -> list[str]:
    return [VARYING.sub("#", line).rstrip() for line in text.strip().splitlines()]


def _agrees(shown: list[str], real: list[str]) -> bool:
    """Whether the lines are the same; a shown line ``...`` stands for any number of lines."""
    if "..." not in shown:
        return shown == real
    at = shown.index("...")
    rest = shown[at + 1 :]
    if shown[:at] != real[:at]:
        return False
    return any(_agrees(rest, real[i:]) for i in range(at, len(real) + 1))


def difference(shown: str, real: str) -> str:
    """Say where an output differs from the one shown; empty if it does not."""
    want, got = _plain(shown), _plain(real)
    if _agrees(want, got):
        return ""
    return "\n".join(difflib.unified_diff(want, got, "shown", "printed", lineterm="", n=1))


def runnable(command: str) -> str:
    """Give the part of a command to run: without an installation before it; empty for none."""
    command = re.sub(r"^pip install [^&]*&& ", "", command)
    return "" if command.startswith(SKIPPED) else command


def shown_commands(page: Path) -> list[tuple[str, str]]:
    """Every runnable command of a page with the output that it shows."""
    text = page.read_text(encoding="utf-8")
    found = [pair for block in BLOCK.findall(text) for pair in commands(block)]
    return [(runnable(command), shown) for command, shown in found if runnable(command)]


def _renewed(match: re.Match[str], folder: Path) -> str:
    parts = []
    for command, shown in commands(match[1]):
        real = shown
        if runnable(command):
            printed = run(runnable(command), folder).rstrip("\n")
            if printed.startswith("Traceback"):
                raise SystemExit(f"$ {command}\n{printed}")
            real = _cut(printed, shown)
            real += "\n\n" if real else ""
        parts.append(f"$ {command}\n{real}")
    return "```console\n" + "".join(parts).rstrip("\n") + "\n```"


def _cut(real: str, shown: str) -> str:
    lines = real.splitlines()
    kept = shown.strip().splitlines()
    if len(kept) > 1 and kept[-1] == "..." and len(lines) >= len(kept):
        return "\n".join([*lines[: len(kept) - 1], "..."])
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    """Compare or renew the pages named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="renew what they show")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    asked = parser.parse_args()
    update, named, bad = asked.update, asked.pages, 0
    if update and (not named or any(p.name == "gallery.md" for p in named)):
        import gallery

        gallery.PAGE.write_text(gallery.page(), encoding="utf-8")
    for page in [p for p in named if p.name != "gallery.md"] or ([] if named else pages()):
        with folder_of(page) as folder:
            if update:
                text = page.read_text(encoding="utf-8")
                page.write_text(BLOCK.sub(lambda m, f=folder: _renewed(m, f), text), "utf-8")
                continue
            for command, shown in shown_commands(page):
                if found := difference(shown, run(command, folder)):
                    bad += 1
                    print(f"{page}: $ {command}\n{found}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
