"""A bar on standard error: on a terminal only, and only past a second."""

from __future__ import annotations

import sys
import time

WAIT_S = 1.0
STEP_S = 0.2


class Bar:
    """Writes the share done over itself; None takes the line away."""

    def __init__(self) -> None:
        self.shown = False
        self.next_s = time.monotonic() + WAIT_S
        self.wanted = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, share: float | None, words: str) -> None:
        """Show how far the search is."""
        if share is None:
            if self.shown:
                sys.stderr.write("\r" + " " * 70 + "\r")
                sys.stderr.flush()
            self.shown = False
            return
        if not self.wanted or time.monotonic() < self.next_s:
            return
        self.next_s = time.monotonic() + STEP_S
        filled = round(30 * share)
        bar = "#" * filled + "." * (30 - filled)
        shown = words or f"searching  {bar}  {100 * share:3.0f} % "
        sys.stderr.write(f"\r{shown:<70}")
        sys.stderr.flush()
        self.shown = True
