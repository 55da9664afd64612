"""Writing an answer to files: each whole, and all of them or none."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Document

ENDINGS = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".txt": "text",
    ".html": "html",
    ".svg": "svg",
    ".png": "png",
    ".sh": "torchrun script",
    ".sbatch": "Slurm script",
}
"""Ending of a file -> format; those of `render.files` and ``.trace.json`` are written there."""


def rendered(
    document: Document, format_: str, extra: Mapping[str, Any], ascii_only: bool = False
) -> str:
    """Text of a document in a format; `extra` has what stands beside the result."""
    from gpuscale.render import text

    if format_ == "json":
        return text.to_json(document, dict(extra), ascii_only)
    if format_ == "csv":
        return text.to_csv(document)
    if format_ == "markdown":
        return text.to_markdown(document, explain="explain" in extra)
    return text.to_text(document, explain="explain" in extra)


def check_target(text: str, flag: str = "-o", endings: Iterable[str] | None = ENDINGS) -> Path:
    """Refuse a file that could not be written, before anything is computed.

    A device or a pipe may end as it likes, as may a file without `endings`; ``-``, standard output,
    is not for the answer, which is there anyway.
    """
    path = Path(text)
    stream = os.path.exists(path) and not (path.is_file() or path.is_dir())
    stream = stream or (text == "-" and flag != "-o")
    if endings is not None and path.suffix not in endings and not stream:
        hint = f"known endings: {' '.join(endings)}"
        if text == "-":
            hint = "the answer is on standard output: --json or --format says how"
        raise GpuscaleError(f"{flag} {text}: the ending `{path.suffix}` is not known", hint)
    try:
        if text != "-":
            _writable(path, f"{flag} {text}")
    except (OSError, ValueError, RuntimeError):
        raise GpuscaleError(f"{flag} {text}: is not a file name") from None
    if flag == "-o" or flag == "path":
        from gpuscale.render import files

        files.check(path)
    return path


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or ``-``: it is written to, and never replaced."""
    within = path.absolute().parts[1:2]
    return (
        str(path) == "-"
        or within in (("dev",), ("proc",))
        or (os.path.exists(path) and not os.path.isfile(path))
    )


def _writable(path: Path, said: str) -> None:
    """Refuse a folder, a folder that is not there, and a link to what is another user's."""
    if not path.parent.is_dir():
        raise GpuscaleError(f"{said}: there is no folder `{path.parent}`")
    if path.is_dir():
        raise GpuscaleError(f"{said}: cannot be written")
    if is_stream(path):
        if not os.access(path, os.W_OK):
            raise GpuscaleError(f"{said}: cannot be written")
        return
    real = path.resolve()
    if not os.access(real.parent, os.W_OK):
        raise GpuscaleError(f"{said}: cannot be written")
    end = real if real.exists() else real.parent
    if path.is_symlink() and hasattr(os, "geteuid") and end.stat().st_uid != os.geteuid():
        raise GpuscaleError(
            f"{said}: is a link to a file of another user", f"name the file itself: {real}"
        )


def file_content(
    document: Document, path: Path, extra: Mapping[str, Any], command: str
) -> str | bytes:
    """Content of a file in the format of its ending; a path of `check_target`."""
    from gpuscale.render import files

    if files.ending_of(path):
        return files.content(document, path, command)
    return rendered(document, ENDINGS.get(path.suffix, "text"), extra) + "\n"


def save(contents: Mapping[Path, str | bytes], flag: str = "-o") -> None:
    """Write files whole and together: a reader sees the old content or the new.

    A symbolic link to what the user owns is followed, and stays one; devices and pipes are written
    to. Raises GpuscaleError if one of them cannot be written; then no file is.
    """
    partial: dict[Path, Path] = {}
    streams: dict[Path, bytes] = {}
    path = Path()
    try:
        for path, content in contents.items():
            if isinstance(content, str):
                content = content.encode("utf-8", "backslashreplace")
            if is_stream(path):
                streams[path] = content
                continue
            _writable(path, f"{flag} {path}")
            real = path.resolve()
            partial[real] = real.with_name(f".{secrets.token_hex(8)}.gpuscale")
            _fill(partial[real], content, like=real)
        for path, content in streams.items():
            _pour(path, content)
        for path, made in partial.items():
            os.replace(made, path)
    except (OSError, RuntimeError, GpuscaleError) as error:
        for made in partial.values():
            made.unlink(missing_ok=True)
        if isinstance(error, GpuscaleError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise GpuscaleError(f"{flag} {path}: {reason}") from None


def _fill(made: Path, content: bytes, like: Path) -> None:
    """Write a file that was not there, with the permissions of the one that it will replace."""
    mode = like.stat().st_mode & 0o777 if like.exists() else None
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        file.write(content)
    if mode is not None:
        made.chmod(mode)


def _pour(path: Path, content: bytes) -> None:
    """Write to standard output, a device or a pipe."""
    if str(path) == "-":
        sys.stdout.write(content.decode("utf-8", "replace"))
        sys.stdout.flush()
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(content)
