"""Summaries as a terminal shows them, 80, 100 and 160 columns wide, kept as text.

python tools/screens.py             compare with tests/data/screens
python tools/screens.py --update    write them
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import sys
from pathlib import Path

from gpuscale.cli import answering
from gpuscale.cli.app import run
from gpuscale.render.document import Document, layer
from gpuscale.render.text import bare, lines

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "tests" / "data" / "screens"
WIDTHS = (80, 100, 160)

JOBS = {
    "plan": "plan llama3-8b --gpus 64 --gpu h100",
    "closest": "plan llama3-70b --gpus 8",
    "tuned": "plan llama3-8b --method lora --gpu h100",
    "memory": "memory llama3-70b --tp 8 --pp 4",
    "lora": "memory llama3-8b --method qlora --gpu rtx-4090",
    "serve": "serve llama3-8b --gpu h100 --rate 2/s",
    "checkpoint": "checkpoint llama3-8b --time 5d",
    "check": "launch-check docs/examples/train.sh",
    "timeline": "timeline llama3-8b --gpus 16 --pp 2 --global-batch 64",
    "network": "network h100-superpod",
    "board": "roofline llama3-70b --gpus 512",
    "model": "model deepseek-v3",
    "collective": "collective all-reduce h100 1GB --gpus 64",
}
"""What is kept -> its command."""


def screens(document: Document) -> str:
    """Summary of an answer at every width."""
    parts = []
    for width in WIDTHS:
        shown = [bare(line) for line in lines(layer(document, ()), width)]
        parts.append("\n".join([f"== {width} columns", *shown]))
    return "\n\n".join(parts) + "\n"


def answered(command: str) -> Document:
    """Answer of a command."""
    found: list[Document] = []
    ask = answering.ask

    def kept(*asked: object) -> Document:
        found.append(ask(*asked))  # type: ignore[arg-type]
        return found[-1]

    answering.ask = kept
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run(shlex.split(command))
    finally:
        answering.ask = ask
    return found[-1]


def main() -> int:
    """Compare or keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="keep today's")
    update = parser.parse_args().update
    os.chdir(ROOT)
    KEPT.mkdir(exist_ok=True)
    bad = 0
    for name, command in JOBS.items():
        made, file = screens(answered(command)), KEPT / f"{name}.txt"
        if update:
            file.write_text(made, "utf-8")
        elif made != file.read_text("utf-8"):
            bad += 1
            print(f"{name}: gpuscale {command}: is another text now")
    return bad


if __name__ == "__main__":
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1795305600")  # as in the tests: ages of prices
    sys.exit(main())
