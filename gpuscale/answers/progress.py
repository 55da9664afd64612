"""Progress of long answers, told to whoever listens: a terminal shows it, a library is silent."""

from __future__ import annotations

import time
from collections.abc import Callable

Listener = Callable[[float | None, str], None]
"""Takes the share done, 0 to 1, and words for it; None: nothing is under way."""

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Let a listener hear of every search from now on, in place of the one before."""
    _listeners[:] = [listener]


def under_way(words: str, done: int, of: int) -> None:
    """Tell which of some parts is worked at."""
    _tell(done / of, f"{words}, {done + 1} of {of}")


def _tell(share: float | None, words: str = "") -> None:
    for listener in _listeners:
        listener(share, words)


class Progress:
    """Share done of a number of searches; call it with a fraction, then `clear`."""

    def __init__(self, n_cases: int = 1) -> None:
        self.n_cases, self.done = max(1, n_cases), 0

    def __call__(self, fraction: float) -> None:
        """Tell how far the search of the present case is."""
        _tell((self.done + min(1.0, fraction)) / self.n_cases)

    def case_done(self) -> None:
        """Count one case of a scan."""
        self.done += 1

    def clear(self) -> None:
        """Tell that it is over."""
        _tell(None)


class JobsProgress:
    """Jobs done and time left."""

    def __init__(self, n: int) -> None:
        self.n, self.done = n, 0
        self.start_s = time.monotonic()

    def step(self) -> None:
        """Count one job."""
        self.done += 1
        took_s = max(1e-9, time.monotonic() - self.start_s)
        left_s = took_s / self.done * (self.n - self.done)
        rate = 60 * self.done / took_s
        words = f"{self.done:,} of {self.n:,} jobs, {rate:,.0f} a minute, {left_s:,.0f} s left"
        _tell(self.done / self.n, words)

    def clear(self) -> None:
        """Tell that it is over."""
        _tell(None)
