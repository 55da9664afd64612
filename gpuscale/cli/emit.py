"""Printing and saving an answer, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from gpuscale.cli.failures import complain, one_line
from gpuscale.errors import Exit

if TYPE_CHECKING:
    from gpuscale.answers.requirements import Requirement
    from gpuscale.cli.options import Shown
    from gpuscale.render.document import Document


def emit(
    document: Document, shown: Shown, held: Sequence[Requirement] = (), keys: Iterable[str] = ()
) -> None:
    """Print a document in the wanted format and write it to the files asked for.

    Warnings and failed requirements go to stderr; exit 1 for an answered no.
    """
    extra: dict[str, object] = {}
    if shown.explain:
        from gpuscale.render.data import plain

        if not document.terms:
            complain("warning", "this answer has no recorded formulas")
        extra["explain"] = plain(document.terms)
    verdicts = []
    if held:
        from gpuscale.answers.requirements import check_all

        verdicts = check_all(held, document.result, document.command, keys)
        extra["requirements"] = verdicts
    seen = document  # a detail that it does not have is told before a file is written
    if shown.format == "text" or (shown.show and shown.format == "markdown"):
        from gpuscale.render.layers import layer

        seen = layer(document, shown.show)
    if shown.output or document.files:
        from gpuscale.cli.streams import command_line
        from gpuscale.render.save import file_content, save

        line = command_line(document.command)
        made = {path: file_content(document, path, extra, line) for path in shown.output}
        save({**document.files, **made})
    _print(seen, shown, extra)
    if shown.format != "json":
        for warning in document.warnings:
            complain("warning", one_line(warning))
    failed = [v for v in verdicts if not v.met]
    for v in failed:
        complain("failed", one_line(f"{v.requirement}: have {v.have}, need {v.need}"))
    if document.interrupted:
        raise typer.Exit(int(Exit.INTERRUPT))
    if failed or document.answered_no:
        raise typer.Exit(int(Exit.NO))


def _print(document: Document, shown: Shown, extra: dict[str, object]) -> None:
    if shown.plot:
        document = _with_pictures(document)
    if shown.format == "text":
        from gpuscale.render.text import print_document

        print_document(document, sys.stdout, explain=shown.explain)
        return
    from gpuscale.render.output import write
    from gpuscale.render.save import rendered

    utf = (sys.stdout.encoding or "").lower().startswith("utf")
    write(sys.stdout, rendered(document, shown.format, extra, ascii_only=not utf))


def _with_pictures(document: Document) -> Document:
    """Add the pictures in letters at the end."""
    import shutil
    from dataclasses import replace

    from gpuscale.render.pictures.known import pictures
    from gpuscale.render.pictures.terminal import drawn

    width = shutil.get_terminal_size((100, 24)).columns
    charts = [drawn(chart, width) for chart in pictures(document)]
    if not charts:
        complain("warning", "this answer has no picture")
    return replace(document, blocks=[*document.blocks, *charts])
