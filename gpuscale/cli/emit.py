"""Printing and saving an answer, and its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gpuscale.cli.failures import one_line
from gpuscale.errors import Exit, GpuscaleError

if TYPE_CHECKING:
    from gpuscale.cli.common import Common
    from gpuscale.render.document import Document

ENDINGS = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".txt": "text",
    ".html": "html",
    ".svg": "svg",
    ".png": "png",
}
"""Ending of a file -> format; those of `render.files` and ``.trace.json`` are written there."""


def emit(document: Document, common: Common) -> None:
    """Print a document in the wanted format and write it to the files asked for.

    Warnings and failed requirements go to stderr; exit 1 for an answered no.
    """
    extra: dict[str, Any] = {}
    if common.explain:
        from gpuscale.render.data import plain

        if not document.terms:
            print("warning: this answer has no recorded formulas", file=sys.stderr)
        extra["explain"] = plain(document.terms)
    verdicts = []
    if common.require:
        from gpuscale.cli.requirements import check_all

        verdicts = check_all(common.require, document.result, document.command)
        extra["requirements"] = verdicts
    for path in common.output:
        save_document(document, path, extra)
    _print(document, common, extra)
    if common.format.value != "json":
        for warning in document.warnings:
            print(f"warning: {one_line(warning)}", file=sys.stderr)
    failed = [v for v in verdicts if not v.met]
    for v in failed:
        print(
            f"failed: {one_line(f'{v.requirement}: have {v.have}, need {v.need}')}", file=sys.stderr
        )
    if document.interrupted:
        raise typer.Exit(int(Exit.INTERRUPT))
    if failed or document.answered_no:
        raise typer.Exit(int(Exit.NO))


def save_document(document: Document, path: Path, extra: dict[str, Any]) -> None:
    """Write a document to a file in the format of its ending; a path of `check_target`."""
    from gpuscale.render import files

    if files.ending_of(path):
        from gpuscale.cli.invoked import command_line

        save(path, files.content(document, path, command_line(document.command)))
        return
    save(path, rendered(document, ENDINGS[path.suffix], extra, ascii_only=False) + "\n")


def _print(document: Document, common: Common, extra: dict[str, Any]) -> None:
    if common.plot:
        document = _with_pictures(document)
    if common.format.value == "text":
        from gpuscale.render.text import print_document

        print_document(document, sys.stdout, explain=common.explain)
        return
    from gpuscale.render.output import write

    utf = (sys.stdout.encoding or "").lower().startswith("utf")
    write(sys.stdout, rendered(document, common.format.value, extra, ascii_only=not utf))


def _with_pictures(document: Document) -> Document:
    """Add the pictures in letters at the end."""
    import shutil
    from dataclasses import replace

    from gpuscale.render.document import Drawn
    from gpuscale.render.pictures.known import pictures
    from gpuscale.render.pictures.terminal import to_lines

    width = shutil.get_terminal_size((100, 24)).columns
    drawn = [to_lines(chart, width) for chart in pictures(document)]
    if not drawn:
        print("warning: this answer has no picture", file=sys.stderr)
    more = [Drawn(lines, title) for title, *lines in drawn]
    return replace(document, blocks=[*document.blocks, *more])


def rendered(document: Document, format_: str, extra: dict[str, Any], ascii_only: bool) -> str:
    """Text of a document in a format."""
    from gpuscale.render import data, plain

    if format_ == "json":
        return data.to_json(document, extra, ascii_only)
    if format_ == "csv":
        return data.to_csv(document)
    if format_ == "markdown":
        return data.to_markdown(document, explain="explain" in extra)
    return plain.to_text(document, explain="explain" in extra)


def check_target(text: str, flag: str = "-o", endings: Iterable[str] = ENDINGS) -> Path:
    """Refuse a file that could not be written, before anything is computed."""
    path = Path(text)
    if path.suffix not in endings:
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


def save(path: Path, content: str | bytes, flag: str = "-o") -> None:
    """Write a file whole: a reader sees the old content or the new."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if isinstance(content, str):
            content = content.encode("utf-8", "backslashreplace")
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise GpuscaleError(f"{flag} {path}: {error.strerror or error}") from None
