"""The one reader of files that people name: text, TOML, CSV; a clear line for every failure.

Readers bound what they know to grow; `bounded` stops the rest by seconds of the processor and
bytes. The clock is a timer of the process, so it needs the main thread; the bound on memory needs a
POSIX system.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import zlib
from collections.abc import Iterator
from typing import IO, Any

from gpuscale.errors import GpuscaleError, MissingFile, NoLaunch

MAX_BYTES = 5_000_000
"""Largest file read as a whole; a spec has a few kilobytes."""

MAX_TABLE_BYTES = 200_000_000
"""Most text of a table, read line by line."""

MAX_LINE_BYTES = 1_000_000

STDIN = "standard input"

GZIP = b"\x1f\x8b"


def shown_name(path: str | os.PathLike[str]) -> str:
    """Name of a file in messages; `-` is standard input."""
    return STDIN if os.fspath(path) == "-" else os.fspath(path)


def read_text(path: str | os.PathLike[str], most: int = MAX_BYTES) -> str:
    """Text of a small UTF-8 file, packed with gzip or not; ``-`` is standard input.

    Raises GpuscaleError if the file cannot be read, is empty, binary or larger than `most` bytes.
    """
    shown = shown_name(path)
    with _opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise GpuscaleError(f"{shown}: larger than {most / 1e6:g} MB, no such file is that large")
    if not data.strip():
        raise NoLaunch(f"{shown}: is empty")
    return _decoded(data.removeprefix(b"\xef\xbb\xbf"), shown)


def read_lines(path: str | os.PathLike[str], most: int) -> Iterator[str]:
    """Lines of a UTF-8 table, one at a time, packed with gzip or not; ``-`` is standard input.

    Raises GpuscaleError if the file cannot be read, is binary, or has more than `most` lines,
    `MAX_TABLE_BYTES`, or `MAX_LINE_BYTES` in one line.
    """
    shown, n_bytes = shown_name(path), 0
    with _opened(path) as file:
        for number in range(most + 1):
            line = file.readline(MAX_LINE_BYTES + 1)
            if not line:
                return
            n_bytes += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise GpuscaleError(
                    f"{shown}: line {number + 1} is longer than {MAX_LINE_BYTES / 1e6:.0f} MB"
                )
            if n_bytes > MAX_TABLE_BYTES:
                raise GpuscaleError(f"{shown}: larger than {MAX_TABLE_BYTES / 1e6:.0f} MB")
            if number == 0:
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield _decoded(line, shown)
    raise GpuscaleError(f"{shown}: more than {most:,} lines", "give a part of it")


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Bytes of a file or of standard input, unpacked; what fails in reading them is told."""
    shown = shown_name(path)
    try:
        with contextlib.ExitStack() as stack:
            piped = shown == STDIN
            file: Any = sys.stdin.buffer if piped else stack.enter_context(open(path, "rb"))
            peek = getattr(file, "peek", None)
            packed = peek is not None and peek(2)[:2] == GZIP
            if packed:
                import gzip

                file = gzip.GzipFile(fileobj=file)
            yield file
    except IsADirectoryError:
        raise GpuscaleError(f"{shown}: is a folder, not a file") from None
    except FileNotFoundError:
        raise MissingFile(f"{shown}: no such file") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GpuscaleError(f"{shown}: cannot be read: {reason}") from None


def _decoded(data: bytes, shown: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise GpuscaleError(f"{shown}: is not text (UTF-8)") from None
    if "\x00" in text:
        raise GpuscaleError(f"{shown}: is a binary file")
    return text


Table = dict[str, Any]
"""What a file of TOML, YAML or JSON says, or what is written into one: nothing of it is checked."""


def parse_toml(text: str, where: str) -> Table:
    """Read TOML text; `where` names it in errors.

    Raises GpuscaleError with the line and column of what cannot be read.
    """
    import tomli

    try:
        return tomli.loads(text)
    except (tomli.TOMLDecodeError, ValueError) as error:
        raise GpuscaleError(f"{where}: not valid TOML: {_short(error)}") from None
    except RecursionError:
        raise GpuscaleError(f"{where}: not valid TOML: nested too deeply") from None


def read_toml(path: str | os.PathLike[str]) -> Table:
    """Read a TOML file, ``-`` from standard input; see `read_text` and `parse_toml` for errors."""
    return parse_toml(read_text(path), shown_name(path))


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else text[:157] + "..."


MAX_ROWS = 50_000
"""Most rows of a table that is kept as a whole; the largest shipped one has 1,700."""

MAX_CELLS = 1_000_000


def csv_lines(path: str | os.PathLike[str], most: int) -> Iterator[list[str]]:
    """Lines of a CSV file as cells, one at a time; ``-`` is standard input.

    Raises GpuscaleError if the file cannot be read, is no CSV text, or has more than `most` lines.
    """
    import csv

    try:
        yield from csv.reader(read_lines(path, most))
    except csv.Error as error:
        raise GpuscaleError(f"{shown_name(path)}: not a CSV file: {error}") from None


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Rows of a CSV file by the names of its header, stripped; every cell present.

    Raises GpuscaleError if the file cannot be read, is no CSV text, has no header with rows under
    it, or more than `MAX_ROWS` or `MAX_CELLS`.
    """
    shown = shown_name(path)
    lines = csv_lines(path, MAX_ROWS + 1)
    header = next(lines, [])
    n_columns = len(header)
    rows: list[dict[str, str]] = []
    for cells in lines:
        if not cells:
            continue
        if len(rows) * n_columns > MAX_CELLS:
            raise GpuscaleError(f"{shown}: more than {MAX_CELLS:,} cells", "give a part of it")
        cells += [""] * (n_columns - len(cells))
        rows.append({k: v.strip() for k, v in zip(header, cells, strict=False) if k})
    if not rows or len(rows[0]) < 2:
        raise GpuscaleError(f"{shown}: no rows", "a CSV file with a header line is wanted")
    return rows


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
