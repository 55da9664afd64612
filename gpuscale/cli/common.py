"""What all commands share: the options, the error texts, the output; `@command` adds them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.errors import Exit, GpuscaleError

if TYPE_CHECKING:
    from gpuscale.render.document import Document


class Format(str, Enum):
    """Output formats."""

    text = "text"
    json = "json"
    csv = "csv"
    markdown = "markdown"


@dataclass(frozen=True, slots=True)
class Common:
    """Options that every command takes."""

    format: Format = Format.text
    set_: tuple[str, ...] = ()  # what-if overrides, "cluster.node_egress_bytes_per_s=800 GB/s"


COMMON_OPTIONS: dict[str, tuple[Any, Any]] = {
    "json_": (
        Annotated[bool, typer.Option("--json", help="Print the result as JSON (SI units).")],
        False,
    ),
    "format_": (
        Annotated[
            Format, typer.Option("--format", help="Output format.", case_sensitive=False)
        ],
        Format.text,
    ),
    "set_": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--set", metavar="KEY=VALUE",
                help="What-if: change any key, e.g. cluster.node_egress_bytes_per_s='800 GB/s'. "
                "Repeatable.",
            ),
        ],
        None,
    ),
}  # fmt: skip
"""Name -> (annotation, default) of the options that `@command` appends to a signature."""


def command(
    app: typer.Typer, name: str, example: str, **options: Any
) -> Callable[[Callable[..., Document]], Callable[..., Document]]:
    """Register a function `(common, **own) -> Document` as a subcommand.

    The docstring's first paragraph becomes the help text, `example` its last line. The wrapper
    adds the common options, prints the document and sets the exit code.
    """

    def register(function: Callable[..., Document]) -> Callable[..., Document]:
        signature = inspect.signature(function, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "common"]
        extra = [
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, annotation=a, default=d)
            for n, (a, d) in COMMON_OPTIONS.items()
        ]

        @functools.wraps(function)
        def run(**kwargs: Any) -> None:
            given = {n: kwargs.pop(n) for n in COMMON_OPTIONS}
            common = Common(
                format=Format.json if given["json_"] else given["format_"],
                set_=tuple(given["set_"] or ()),
            )
            emit(function(common=common, **kwargs), common)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + extra
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        first = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        app.command(name, help=f"{first}\n\nExample: {example}", **options)(run)
        return function

    return register


def emit(document: Document, common: Common) -> None:
    """Print a document in the wanted format; warnings go to stderr; exit 1 for an answered no."""
    if common.format is Format.text:
        from gpuscale.render.text import print_document

        print_document(document, sys.stdout)
    else:
        from gpuscale.render import data

        render = {
            Format.json: data.to_json, Format.csv: data.to_csv, Format.markdown: data.to_markdown,
        }[common.format]  # fmt: skip
        print(render(document))
    if common.format is not Format.json:
        for warning in document.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    sys.stdout.flush()
    if document.answered_no:
        raise typer.Exit(int(Exit.NO))


def report_error(error: GpuscaleError) -> None:
    """Say on stderr what is wrong, where, and what to do next."""
    message = " ".join(error.message.split())
    print(f"error: {message}", file=sys.stderr)
    if error.hint:
        print(f"\nhint: {error.hint}", file=sys.stderr)
