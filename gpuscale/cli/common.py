"""What all commands share: the options, the error texts, the output; `@command` adds them."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.cli.quick import QuickCommand
from gpuscale.errors import Exit, GpuscaleError, unknown_name

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
            Format | None,
            typer.Option(
                "--format", case_sensitive=False,
                help="Output format (or environment variable GPUSCALE_FORMAT).",
            ),
        ],
        None,
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


LARGEST = 1e30

EXAMPLES: dict[str, str] = {}
"""Command name -> its runnable example, of the commands imported so far."""


def command(
    app: typer.Typer, name: str, example: str, **options: Any
) -> Callable[[Callable[..., Document]], Callable[..., Document]]:
    """Register a function `(common, **own) -> Document` as a subcommand.

    The docstring's first paragraph becomes the help text, `example` its last line. The wrapper
    adds the common options, prints the document and sets the exit code.
    """

    def register(function: Callable[..., Document]) -> Callable[..., Document]:
        signature = inspect.signature(function, eval_str=True, locals={"Document": object})
        own = [p for p in signature.parameters.values() if p.name != "common"]
        extra = [
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, annotation=a, default=d)
            for n, (a, d) in COMMON_OPTIONS.items()
        ]

        @functools.wraps(function)
        def run(**kwargs: Any) -> None:
            given = {n: kwargs.pop(n) for n in COMMON_OPTIONS}
            common = Common(_format(given["json_"], given["format_"]), tuple(given["set_"] or ()))
            _check_numbers(kwargs)
            emit(function(common=common, **kwargs), common)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + extra
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        first = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        EXAMPLES[name] = example
        options.setdefault("cls", QuickCommand)
        app.command(name, help=first, epilog=f"\b\nExample:\n  {example}", **options)(run)
        return function

    return register


def _format(as_json: bool, asked: Format | None) -> Format:
    """Format by the flags, then by GPUSCALE_FORMAT, else text."""
    if as_json and asked not in (None, Format.json):
        raise GpuscaleError(f"`--json` and `--format {asked.value}` differ", "give one of them")
    if as_json or asked:
        return asked or Format.json
    name = os.environ.get("GPUSCALE_FORMAT", "").lower() or "text"
    known = [f.value for f in Format]
    if name not in known:
        raise unknown_name("format in GPUSCALE_FORMAT:", name, known, f"known: {', '.join(known)}")
    return Format(name)


def _check_numbers(values: dict[str, Any]) -> None:
    """Refuse numbers that no formula can carry: NaN, infinity, beyond 1e30."""
    for name, value in values.items():
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, (int, float)) and not -LARGEST <= number <= LARGEST:
                shown = f"{number:g}" if isinstance(number, float) else "a number that long"
                raise GpuscaleError(
                    f"invalid value for `--{name.strip('_').replace('_', '-')}`: {shown}",
                    f"give a number of at most {LARGEST:g}",
                )


def emit(document: Document, common: Common) -> None:
    """Print a document in the wanted format; warnings go to stderr; exit 1 for an answered no."""
    if common.format is Format.text:
        from gpuscale.render.text import print_document

        print_document(document, sys.stdout)
    else:
        from gpuscale.render import data, output

        utf = (sys.stdout.encoding or "").lower().startswith("utf")
        if common.format is Format.json:
            text = data.to_json(document, ascii_only=not utf)
        else:
            text = {Format.csv: data.to_csv, Format.markdown: data.to_markdown}[common.format](
                document
            )
        output.write(sys.stdout, text)
    if common.format is not Format.json:
        for warning in document.warnings:
            print(f"warning: {_one_line(warning)}", file=sys.stderr)
    if document.answered_no:
        raise typer.Exit(int(Exit.NO))


_PLAINER = (
    ("Value error, ", ""),
    ("argument(s)", "arguments"),
    ("Input should be a valid integer, unable to parse string as an integer", "not a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "not a number"),
    ("Input should be", "must be"),
)


def usage_error(error: Any) -> GpuscaleError:
    """Turn a parser's own complaint (wrong option, missing argument) into ours."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "gpuscale"
    option = getattr(error, "option_name", "") or ""
    close = list(getattr(error, "possibilities", None) or ())
    text = str(getattr(error, "message", "") if close else error.format_message())
    text = " ".join(text.split()).rstrip(".").replace("'", "`")
    for theirs, ours in _PLAINER:
        text = text.replace(theirs, ours)
    if option[1:2].isdigit():
        text = f"`{option}` is not an option"
        hint = "a negative number is not accepted here"
    elif close:
        hint = f"did you mean `{close[0]}`?"
    else:
        hint = f"see `{path} --help`"
        example = EXAMPLES.get(path.removeprefix("gpuscale "))
        if "issing" in text[:10] and example:
            hint = f"for example `{example}`"
    return GpuscaleError(text[:1].lower() + text[1:], hint)


def report_error(error: GpuscaleError) -> None:
    """Say on stderr what is wrong, where, and what to do next: one line each."""
    print(f"error: {_one_line(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"\nhint: {_one_line(error.hint)}", file=sys.stderr)


def _one_line(text: str) -> str:
    """Text without line ends, control codes and beyond 600 characters."""
    from gpuscale.render.output import clean

    line = clean(" ".join(text[:20_000].split()))
    return line if len(line) <= 600 else line[:300] + " ... " + line[-200:]
