"""Write the pictures of README and pages: SVG; for README PNG too, where resvg_py is there."""

from __future__ import annotations

import argparse
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from gpuscale.cli.app import run

DOCS = Path(__file__).resolve().parent.parent / "docs"

IN_README = ("pictures/timeline", "pictures/memory", "pictures/roofline")
PICTURES = {
    "pictures/timeline": "timeline llama3-70b --gpus 64 --tp 8 --pp 4 --global-batch 24",
    "pictures/memory": "memory llama3-70b --gpus 512 --tp 8 --pp 4 --global-batch 512 --seq 8192",
    "pictures/roofline": "roofline deepseek-v3 --cluster dgx-h100 --gpus 2048",
    "assets/collective.busbw": "collective all-reduce dgx-h100 --gpus 64 --sweep 64KiB:4GiB",
    "assets/board.limits": "roofline llama3-70b --cluster dgx-h100 --gpus 1024",
    "assets/serving": "serve llama3.1-8b --gpu h100 --gpus 1 --rate 5/s --input 1000 "
    "--output-len 200",
    "assets/step.step": "plan llama3-8b --gpus 64 --tp 2 --pp 1",
    "assets/memory": "memory llama3-70b --cluster dgx-h100 --tp 8 --pp 4",
    "assets/sweep": "memory llama3-70b --tp 8 --sweep pp=2..16 --sweep seq=4096..32768 "
    "--sweep-show peak_bytes",
}


def main() -> int:
    """Run the command of every picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.parse_args()
    for name, line in PICTURES.items():
        png = find_spec("resvg_py") and name in IN_README
        for ending in (".svg", ".png") if png else (".svg",):
            if run([*shlex.split(line), "-o", str(DOCS / f"{name}{ending}")]) not in (0, 1):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
