"""A bound on reading files of others: seconds of the processor and bytes, whatever stands in them.

Readers bound what they know to grow; this stops the rest. The clock is a timer of the process, so
it needs the main thread; the bound on memory needs a POSIX system.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from gpuscale.errors import GpuscaleError

MOST_S = 3.0
"""Longest reading; the largest published launches with all that they name take a tenth of it."""
MOST_BYTES = 250_000_000
"""Memory of it, beside what the program had before."""
TICK_S = 0.02
LEAVE_S = 0.3
"""Time in which what is within ends; then it is stopped again, where something took that for its
own."""

_within = False


class Spent(BaseException):
    """Time or memory is used up; no reader may take it for a fault of the file that it reads."""


@contextlib.contextmanager
def bounded(what: str) -> Iterator[None]:
    """Stop what is read within when it takes too long or too much; `what` names it in the error.

    Raises GpuscaleError then, or where it is nested without measure.
    """
    global _within
    if _within:
        yield
        return
    _within = True
    try:
        with _clock(), _roof():
            yield
    except Spent as spent:
        raise _given_up(what, str(spent)) from None
    except MemoryError:
        raise _given_up(what, f"{MOST_BYTES / 1e6:.0f} MB") from None
    except RecursionError:
        raise GpuscaleError(f"{what}: nested too deeply") from None
    finally:
        _within = False


def _given_up(what: str, after: str) -> GpuscaleError:
    return GpuscaleError(
        f"{what}: given up after {after} of reading: nothing of it is answered",
        "no launch takes that: give the file that starts it, without what only fills it",
    )


@contextlib.contextmanager
def _clock() -> Iterator[None]:
    """Look at time and memory every few milliseconds of work."""
    import signal
    import threading

    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer"):
        yield
        return
    start_s, start_bytes = time.process_time(), _resident_bytes()

    def look(*_: Any) -> None:
        late = time.process_time() - start_s > MOST_S
        if late or _resident_bytes() - start_bytes > MOST_BYTES:
            signal.setitimer(signal.ITIMER_PROF, LEAVE_S, TICK_S)
            raise Spent(f"{MOST_S:g} s" if late else f"{MOST_BYTES / 1e6:.0f} MB")

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _roof() -> Iterator[None]:
    """Let no single request for memory go beyond the bound."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = mapped + 2 * MOST_BYTES
        if soft == resource.RLIM_INFINITY or most < soft:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not say it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
