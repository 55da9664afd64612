"""What is under way, on standard error: on a terminal only, and only past half a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

WAIT_S = 0.5
STEP_S = 0.2


class Bar:
    """Writes the share done over itself, or how long it works; None takes the line away."""

    def __init__(self) -> None:
        self.shown = False
        self.words = ""
        self.start_s = time.monotonic()
        self.next_s = self.start_s + WAIT_S
        self.wanted = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, share: float | None, words: str) -> None:
        """Show how far the search is."""
        self.words = words
        if share is None:
            self._clear()
            return
        if not self.wanted or time.monotonic() < self.next_s:
            return
        filled = round(30 * share)
        bar = "#" * filled + "." * (30 - filled)
        self._write(words or f"searching  {bar}  {100 * share:3.0f} % ")

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Show, while something works, that it does, where it says nothing of itself."""
        if not self.wanted:
            yield
            return
        over = threading.Event()
        clock = threading.Thread(target=self._tick, args=(over,), daemon=True)
        clock.start()
        try:
            yield
        finally:
            over.set()
            clock.join()
            self._clear()

    def _tick(self, over: threading.Event) -> None:
        while not over.wait(STEP_S):
            now = time.monotonic()
            if now >= self.next_s + STEP_S:
                self._write(f"{self.words or 'working'}  {now - self.start_s:.0f} s")

    def _write(self, text: str) -> None:
        self.next_s = time.monotonic() + STEP_S
        sys.stderr.write(f"\r{text:<70}")
        sys.stderr.flush()
        self.shown = True

    def _clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r" + " " * 70 + "\r")
            sys.stderr.flush()
        self.shown = False
