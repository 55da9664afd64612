"""Files of a launch: those that are given, and those near them that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from glob import escape
from pathlib import Path

from gpuscale.errors import GpuscaleError
from gpuscale.io.text import read_text, shown_name
from gpuscale.launch.found import UNSET
from gpuscale.launch.read.dump import launch_of_log
from gpuscale.launch.read.files import is_notebook, started_by
from gpuscale.launch.read.together import ANYWHERE, MOST_FILES, last_of

MOST_BYTES = 300_000
"""Largest file of a launch; those people publish have up to 40,000."""
MOST_NOTEBOOK_BYTES = 20_000_000
"""Largest notebook: the pictures that its cells made stand in it."""
HEAD_BYTES = 4_000_000
"""Of a log, where a program prints its arguments."""
FOLDERS_UP = 4
"""Folders above a file in which what it names is looked for: scripts are started at the root."""


Allowed = tuple[Path, ...]
"""Folders below which files that others name are read."""


def allowed(names: Sequence[str], include: Sequence[str]) -> Allowed:
    """Folders to read from: the checkouts of files, or the folder that holds them all.

    `names`: files that a person gives. `include`: folders that a person says besides.
    """
    folders = [Path(name).absolute().parent.resolve() for name in names if name != "-"]
    found = []
    for folder in folders or [Path.cwd()]:
        tops = (one for one in (folder, *folder.parents) if (one / ".git").exists())
        found.append(next(tops, folder))
    common = Path(os.path.commonpath(folders)) if folders else found[0]
    if common != Path.home() and len(common.parts) > 2:
        found.append(common)
    for name in include:
        if not os.path.isdir(name):
            raise GpuscaleError(f"--include {name}: is no folder")
        found.append(Path(name).resolve())
    return tuple(dict.fromkeys(found))


def _may(path: Path, where: Allowed) -> bool:
    """Whether a file is there and may be read: links count as what they lead to."""
    try:
        real = path.resolve()
        return any(real.is_relative_to(one) for one in where) and real.is_file()
    except (OSError, RuntimeError, ValueError):
        return False


def given_files(names: Sequence[str], where: Allowed) -> dict[str, str]:
    """Text of the files that a person names, and of the scripts that these start or source."""
    for name in names:
        if os.path.islink(name) and os.path.isfile(name) and not _may(Path(name), where):
            end = os.path.realpath(name)
            if not end.startswith(("/dev/", "/proc/")):
                raise GpuscaleError(
                    f"{name}: is a link out of its checkout",
                    "give the file itself, or --include DIR",
                )
    most = {True: MOST_NOTEBOOK_BYTES, False: MOST_BYTES}
    files = {shown_name(n): command_of_log(n) or read_text(n, most[is_notebook(n)]) for n in names}
    waiting = list(files)
    while waiting:
        name = waiting.pop(0)
        for other in started_by(files[name]):
            folder = Path(name).absolute().parent
            path = _near(folder, other, where) or _near(folder, other.rsplit("/", 1)[-1], where)
            shown = os.path.relpath(path) if path else ""
            if path and shown not in files and len(files) < MOST_FILES:
                files[shown] = read_text(path, MOST_BYTES)
                waiting.append(shown)
    return files


def command_of_log(name: str) -> str | None:
    """Return the command that the head of a log says; None for what is no log."""
    if not name.endswith((".log", ".out", ".err", ".txt")) or not os.path.isfile(name):
        return None
    with open(name, "rb") as file:
        return launch_of_log(file.read(HEAD_BYTES).decode("utf-8", "replace"))


def finder(files: dict[str, str], where: Allowed) -> Callable[[str], tuple[str, str] | None]:
    """Make the function that finds a file near those of a launch; what it finds is put to them."""
    given = list(files)

    def look(written: str) -> tuple[str, str] | None:
        anywhere = written.startswith(ANYWHERE)
        wanted = last_of(written) if anywhere else written
        for name in given:
            path = (_below if anywhere else _near)(Path(name).absolute().parent, wanted, where)
            if path is None:
                continue
            try:
                text = read_text(path, MOST_BYTES)
            except GpuscaleError:
                return None
            shown = os.path.relpath(path)
            files[shown] = text
            return shown, text
        return None

    return look


def _near(folder: Path, written: str, where: Allowed) -> Path | None:
    """Path of a file that is named in a folder, from it or from a folder above.

    Of a path whose beginning is not known or is another machine's, the end is looked for.
    """
    parts = [part for part in re.split(r"[/\\]", written.strip("'\"")) if part not in ("", ".")]
    unknown = [i for i, part in enumerate(parts) if UNSET in part or "$" in part or part == "~"]
    elsewhere = bool(unknown) or written.startswith(("/", "\\"))
    parts = parts[unknown[-1] + 1 :] if unknown else parts
    if not parts:
        return None
    ends = [parts[i:] for i in range(len(parts))] if elsewhere else [parts]
    for above in [folder, *folder.parents][: FOLDERS_UP + 1]:
        for end in ends if above == folder else [e for e in ends if len(e) > 1] or ends[:1]:
            path = above.joinpath(*end)
            if _may(path, where):
                return path
    return None


def _below(folder: Path, name: str, where: Allowed) -> Path | None:
    """Path of the only file of a name in a folder or one below it, or in those beside it."""
    for above in (folder, folder.parent):
        if not any(above.is_relative_to(one) for one in where):
            break
        near = (above / name, *above.glob(f"*/{escape(name)}"))
        found = [path for path in near if _may(path, where)]
        if found:
            return found[0] if len(found) == 1 else None
    return None
