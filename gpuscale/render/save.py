"""Writing an answer to files: each whole, and all of them or none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
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
    from gpuscale.render import data, plain

    if format_ == "json":
        return data.to_json(document, dict(extra), ascii_only)
    if format_ == "csv":
        return data.to_csv(document)
    if format_ == "markdown":
        return data.to_markdown(document, explain="explain" in extra)
    return plain.to_text(document, explain="explain" in extra)


def check_target(text: str, flag: str = "-o", endings: Iterable[str] | None = ENDINGS) -> Path:
    """Refuse a file that could not be written, before anything is computed.

    Without `endings` a file may end as it likes.
    """
    path = Path(text)
    if endings is not None and path.suffix not in endings:
        raise GpuscaleError(
            f"{flag} {text}: the ending `{path.suffix}` is not known",
            f"known endings: {' '.join(endings)}",
        )
    try:
        if not path.parent.is_dir():
            raise GpuscaleError(f"{flag} {text}: there is no folder `{path.parent}`")
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise GpuscaleError(f"{flag} {text}: cannot be written")
    except (OSError, ValueError):
        raise GpuscaleError(f"{flag} {text}: is not a file name") from None
    if flag == "-o" or flag == "path":
        from gpuscale.render import files

        files.check(path)
    return path


def file_content(
    document: Document, path: Path, extra: Mapping[str, Any], command: str
) -> str | bytes:
    """Content of a file in the format of its ending; a path of `check_target`."""
    from gpuscale.render import files

    if files.ending_of(path):
        return files.content(document, path, command)
    return rendered(document, ENDINGS[path.suffix], extra) + "\n"


def save(contents: Mapping[Path, str | bytes], flag: str = "-o") -> None:
    """Write files whole and together: a reader sees the old content or the new.

    A symbolic link is followed, and stays one. Raises GpuscaleError if one of them cannot be
    written; then none is.
    """
    partial: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in contents.items():
            real = path.resolve()
            partial[real] = real.with_name(f".{os.getpid()}.{len(partial)}.gpuscale")
            if isinstance(content, str):
                content = content.encode("utf-8", "backslashreplace")
            partial[real].write_bytes(content)
        for real, made in partial.items():
            os.replace(made, real)
    except (OSError, RuntimeError) as error:
        for made in partial.values():
            made.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or error
        raise GpuscaleError(f"{flag} {path}: {reason}") from None
