"""A question as a command: its fields as options, and the options of how the answer is shown."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.answers.answer import ask, what_if
from gpuscale.answers.ask import Asked, Question, fields_of
from gpuscale.answers.progress import listen
from gpuscale.cli.bar import Bar
from gpuscale.cli.completion import completer
from gpuscale.cli.emit import emit
from gpuscale.cli.quick import CONTEXT, QuickCommand
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.answers.requirements import Requirement

FORMATS = ("text", "json", "csv", "markdown")


@dataclass(frozen=True, slots=True)
class Shown:
    """How an answer is shown: the options that every command takes."""

    format: str = "text"
    explain: bool = False  # print the terms of the answer too
    require: tuple[Requirement, ...] = ()
    output: tuple[Path, ...] = ()  # files to write; the ending says the format
    plot: bool = False  # draw the pictures in the terminal too


def _files(*flags: str) -> Any:
    return typer.Option(
        *flags,
        metavar="FILE",
        help="Also write the answer to a file: .json .csv .md .txt .html, a picture: "
        ".svg .png, the step: .trace.json. Repeatable.",
    )


SHOWN: dict[str, tuple[Any, Any]] = {
    "json_": (bool, typer.Option("--json", help="Print the result as JSON (SI units).")),
    "format_": (
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(FORMATS),
            help="Output format (or environment variable GPUSCALE_FORMAT).",
        ),
    ),
    "explain": (
        bool,
        typer.Option("--explain", help="Show formula, numbers and source of each figure."),
    ),
    "require": (
        list[str] | None,
        typer.Option(
            "--require",
            metavar="KEY>=VALUE",
            help="Exit 1 unless it holds, e.g. 'time_s<=2ms'; a key of the JSON result. "
            "Repeatable.",
        ),
    ),
    "output": (list[str] | None, _files("-o", "--output")),
    "plot": (bool, typer.Option("--plot", help="Draw the pictures in the terminal too.")),
}
"""Name -> (type, option) of what every command takes beside its question's fields."""


def command_of(question: type[Question]) -> Any:
    """Make the command of a question.

    The docstring's first paragraph becomes the help text, the example its last line; the command
    prints the answer and sets the exit code.
    """

    def run(**given: Any) -> None:
        shown = read_shown({name: given.pop(f"shown_{name}") for name in SHOWN})
        try:
            asked = question(**{k: v for k, v in given.items() if v not in (None, (), [], False)})
        except GpuscaleError as error:
            hint = error.hint or f"see `gpuscale {question.NAME} --help`"
            raise GpuscaleError(error.message, hint) from None
        listen(Bar())
        sweeping = bool(what_if(asked))
        document = ask(asked, shown.require if sweeping else ())
        emit(document, shown, held=() if sweeping else shown.require)

    parameters = [
        _parameter(name, asked, argument) for name, (asked, argument) in fields_of(question).items()
    ]
    own_output = "output" in fields_of(question)  # of serve: the tokens of an answer
    for name, (kind, option) in SHOWN.items():
        if name == "output" and own_output:
            option = _files("-o")
        default = False if kind is bool else None
        parameters.append(_keyword(f"shown_{name}", Annotated[kind, option], default))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    small = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    first = inspect.cleandoc(question.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    epilog = f"\b\nExample:\n  {question.EXAMPLE}"
    small.command(
        question.NAME, help=first, epilog=epilog, cls=QuickCommand, context_settings=CONTEXT
    )(run)
    made = typer.main.get_command(small)
    made.names = _by_name(question)  # type: ignore[attr-defined]
    made.example = question.EXAMPLE  # type: ignore[attr-defined]
    return made


def _by_name(question: type[Question]) -> dict[str, str]:
    """Options under which a person may give an argument, as ``--cluster`` of ``collective``."""
    found = fields_of(question).items()
    return {
        flag: name
        for name, (asked, argument) in found
        if argument and asked.kind != "many"
        for flag in (f"--{name.replace('_', '-')}", *asked.flags)
    }


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, annotation=annotation, default=default)


def _parameter(name: str, asked: Asked[Any], argument: bool) -> inspect.Parameter:
    """Make typer's parameter of a field; its value reaches the field as typed."""
    kind: Any = {"flag": bool, "many": list[str]}.get(asked.kind, str)
    complete = completer(asked.complete or name)
    about: dict[str, Any] = {
        "help": asked.help,
        "metavar": asked.metavar,
        "autocompletion": complete,
    }
    if argument:
        given = asked.default is ...
        if asked.kind != "many":
            spelled = " or ".join((f"--{name.replace('_', '-')}", *asked.flags))
            about["help"] = f"{asked.help} Also as {spelled}."
        option = typer.Argument(**about)
        default: Any = inspect.Parameter.empty if given else None
        return _keyword(name, Annotated[kind if given else kind | None, option], default)
    if asked.default not in (None, (), False, ...):
        about["help"] = f"{asked.help} [default: {_shown_default(asked.default)}]"
    flags = [f"--{name.replace('_', '-')}", *asked.flags]
    if asked.kind == "flag":
        return _keyword(name, Annotated[bool, typer.Option(*flags, **about)], False)
    return _keyword(name, Annotated[kind | None, typer.Option(*flags, **about)], None)


def _shown_default(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_shown(given: Mapping[str, Any]) -> Shown:
    """Read how to show the answer; a wrong option is told before anything is computed."""
    require, output = given["require"], given["output"]
    if require:
        from gpuscale.answers.requirements import read_requirement

        require = map(read_requirement, require)
    if output:
        from gpuscale.render.save import check_target

        output = map(check_target, output)
    return Shown(
        _format(given["json_"], given["format_"]),
        given["explain"],
        tuple(require or ()),
        tuple(output or ()),
        given["plot"],
    )


def _format(as_json: bool, asked: str | None) -> str:
    """Format by the flags, then by GPUSCALE_FORMAT, else text."""
    where, name = "`--format`", asked.lower() if asked else None
    if name is None and not as_json:
        where = "GPUSCALE_FORMAT"
        name = os.environ.get("GPUSCALE_FORMAT", "").lower() or "text"
    if name is not None and name not in FORMATS:
        raise unknown_name(f"format in {where}:", name, FORMATS, f"known: {', '.join(FORMATS)}")
    if as_json and name not in (None, "json"):
        raise GpuscaleError(f"`--json` and `--format {name}` differ", "give one of them")
    return name or "json"
