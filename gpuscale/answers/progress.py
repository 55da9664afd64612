"""Progress of a search: on a terminal only, and only past a second."""

from __future__ import annotations

import sys
import time

WAIT_S = 1.0
STEP_S = 0.2


class Progress:
    """Writes the share done over itself on stderr; call it with a fraction, then `clear`."""

    def __init__(self, n_cases: int = 1) -> None:
        self.n_cases, self.done = max(1, n_cases), 0
        self.shown = False
        self.next_s = time.monotonic() + WAIT_S
        self.wanted = sys.stderr.isatty()

    def __call__(self, fraction: float) -> None:
        """Show how far the search of the present case is."""
        if not self.wanted or time.monotonic() < self.next_s:
            return
        self.next_s = time.monotonic() + STEP_S
        share = (self.done + min(1.0, fraction)) / self.n_cases
        filled = round(30 * share)
        bar = "#" * filled + "." * (30 - filled)
        sys.stderr.write(f"\rsearching  {bar}  {100 * share:3.0f} % ")
        sys.stderr.flush()
        self.shown = True

    def case_done(self) -> None:
        """Count one case of a scan."""
        self.done += 1

    def clear(self) -> None:
        """Take the line away."""
        if self.shown:
            sys.stderr.write("\r" + " " * 60 + "\r")
            sys.stderr.flush()
            self.shown = False


class JobsProgress:
    """Jobs done and time left, on a terminal and past a second."""

    def __init__(self, n: int) -> None:
        self.n, self.done, self.shown = n, 0, False
        self.start_s = time.monotonic()
        self.next_s = self.start_s + WAIT_S
        self.wanted = sys.stderr.isatty()

    def step(self) -> None:
        """Count one job."""
        self.done += 1
        now = time.monotonic()
        if not self.wanted or now < self.next_s:
            return
        self.next_s = now + STEP_S
        left_s = (now - self.start_s) / self.done * (self.n - self.done)
        rate = 60 * self.done / (now - self.start_s)
        text = f"{self.done:,} of {self.n:,} jobs, {rate:,.0f} a minute, {left_s:,.0f} s left"
        sys.stderr.write(f"\r{text:<70}")
        sys.stderr.flush()
        self.shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self.shown:
            sys.stderr.write("\r" + " " * 70 + "\r")
            sys.stderr.flush()
            self.shown = False
