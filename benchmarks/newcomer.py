"""Seconds of a newcomer's way, step by step: from `git clone` to the first chart moved.

    python benchmarks/newcomer.py

Clones this checkout into an empty folder, installs it in a fresh environment (package index), asks
the first question of the README, builds the page (npm), opens it in Chromium, moves its slider and
asks a question of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "render"), str(ROOT / "tests" / "page")]
FIGURE = "document.querySelector('#knobs figcaption b')?.textContent"
CHARTS = "document.querySelectorAll('#knobs circle').length > 12"
MOVE = """{ const s = document.getElementById('slide-gpus'); s.value = +s.value + 1;
s.dispatchEvent(new Event('input', {bubbles: true})) }"""


def step(name: str, go: Callable[[], Any]) -> float:
    """Do a step and print its seconds."""
    start = time.monotonic()
    go()
    took = time.monotonic() - start
    print(f"{took:8.1f} s  {name}", flush=True)
    return took


def run(*words: str | Path, cwd: Path) -> None:
    subprocess.run(list(map(str, words)), cwd=cwd, check=True, capture_output=True)


def on_the_page(folder: Path) -> float:
    """Seconds on the built page, up to an answer of the newcomer's own."""
    from browser import page
    from test_try_page import READY, fill, served, wait_for

    with served(folder) as (address, _), page() as tab:

        def move() -> None:
            before = tab.evaluate(FIGURE)
            tab.evaluate(MOVE)
            wait_for(tab, f"{FIGURE} !== {before!r}")

        def own() -> None:
            wait_for(tab, READY)
            fill(tab, "model", "qwen3-8b")
            said = "document.querySelector('#command').textContent.includes('qwen3-8b')"
            wait_for(tab, f"{said} && {READY}")

        took = step("open the page", lambda: tab.open(address))
        took += step("until charts stand", lambda: wait_for(tab, CHARTS))
        took += step("move it: the first chart moved", move)
        return took + step("a first answer of one's own", own)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        checkout, bin_ = work / "gpuscale", work / "venv" / "bin"
        ask = ("plan", "llama3-8b", "--gpus", "64")
        build = (bin_ / "python", "tools/try_page.py", "site/try")
        steps: dict[str, Callable[[], None]] = {
            "git clone": lambda: run("git", "clone", "-q", ROOT, checkout, cwd=work),
            "a fresh environment": lambda: run(sys.executable, "-m", "venv", "venv", cwd=work),
            "pip install .": lambda: run(bin_ / "pip", "install", "-q", ".", cwd=checkout),
            f"gpuscale {' '.join(ask)}": lambda: run(bin_ / "gpuscale", *ask, cwd=work),
            "python tools/try_page.py site/try": lambda: run(*build, cwd=checkout),
        }
        took = sum(step(name, go) for name, go in steps.items())
        took += on_the_page(checkout / "site")
        print(f"{took:8.1f} s  in all")


if __name__ == "__main__":
    main()
