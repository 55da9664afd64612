"""Write the pictures of the README to docs/pictures: SVG, and PNG where resvg_py is installed."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from gpuscale.cli.app import run

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"

PICTURES = {
    "timeline": "timeline llama3-70b --gpus 64 --tp 8 --pp 4 --global-batch 24",
    "memory": "memory llama3-70b --gpus 512 --tp 8 --pp 4 --global-batch 512 --seq 8192",
    "roofline": "roofline deepseek-v3 --cluster dgx-h100 --gpus 2048",
}


def main() -> int:
    """Run the command of every picture."""
    endings = (".svg", ".png") if find_spec("resvg_py") else (".svg",)
    for name, line in PICTURES.items():
        for ending in endings:
            if run([*shlex.split(line), "-o", str(FOLDER / f"{name}{ending}")]) not in (0, 1):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
