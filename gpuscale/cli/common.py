"""What all commands share: the options, the error texts, the output; `@command` adds them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.cli.completion import BY_NAME
from gpuscale.cli.emit import emit
from gpuscale.cli.failures import EXAMPLES
from gpuscale.cli.quick import QuickCommand
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.cli.requirements import Requirement
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
    explain: bool = False  # print the terms of the answer too
    require: tuple[Requirement, ...] = ()
    output: tuple[Path, ...] = ()  # files to write; the ending says the format
    calibration: str | None = None  # overlay of `gpuscale calibrate`, for expected figures
    plot: bool = False  # draw the pictures in the terminal too


COMMON_OPTIONS: dict[str, tuple[Any, Any]] = {
    "json_": (
        Annotated[bool, typer.Option("--json", help="Print the result as JSON (SI units).")],
        False,
    ),
    "format_": (
        Annotated[
            Format | None,
            typer.Option(
                "--format",
                case_sensitive=False,
                help="Output format (or environment variable GPUSCALE_FORMAT).",
            ),
        ],
        None,
    ),
    "set_": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="KEY=VALUE",
                help="What-if: change any key, e.g. cluster.node_egress_bytes_per_s='800 GB/s'. "
                "Repeatable.",
            ),
        ],
        None,
    ),
    "explain": (
        Annotated[
            bool, typer.Option("--explain", help="Show formula, numbers and source of each figure.")
        ],
        False,
    ),
    "require": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--require",
                metavar="KEY>=VALUE",
                help="Exit 1 unless it holds, e.g. 'time_s<=2ms'; a key of the JSON result. "
                "Repeatable.",
            ),
        ],
        None,
    ),
    "output": (
        Annotated[
            list[str] | None,
            typer.Option(
                "-o",
                "--output",
                metavar="FILE",
                help="Also write the answer to a file: .json .csv .md .txt .html, a picture: "
                ".svg .png, the step: .trace.json. Repeatable.",
            ),
        ],
        None,
    ),
    "plot": (
        Annotated[bool, typer.Option("--plot", help="Draw the pictures in the terminal too.")],
        False,
    ),
    "calibration": (
        Annotated[
            str | None,
            typer.Option(
                "--calibration",
                metavar="FILE",
                help="Constants that `gpuscale calibrate` fitted to your own measurements.",
            ),
        ],
        None,
    ),
}
"""Name -> (annotation, default) of the options that `@command` appends to a signature."""

SWEEP_OPTIONS: dict[str, tuple[Any, Any]] = {
    "sweep": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--sweep",
                metavar="KEY=VALUES",
                help="Table over a key of --set or an option: LOW..HIGH[:N] or A,B,C. "
                "Once or twice.",
            ),
        ],
        None,
    ),
    "sweep_show": (
        Annotated[
            str | None,
            typer.Option(
                "--sweep-show",
                metavar="KEYS",
                help="Keys of the result to tabulate, comma-separated; * is any.",
            ),
        ],
        None,
    ),
}
"""The same for commands that can be swept, `cli.sweep.HEADLINES`."""


LARGEST = 1e30

SWEPT = ("plan", "memory", "roofline", "matmul-time", "collective", "network", "model", "timeline")
"""Commands that take `--sweep`; `cli.sweep.HEADLINES` has their numbers."""


def command(
    app: typer.Typer, name: str, example: str, **options: Any
) -> Callable[[Callable[..., Document]], Callable[..., Document]]:
    """Register a function `(common, **own) -> Document` as a subcommand.

    The docstring's first paragraph becomes the help text, `example` its last line. The wrapper
    adds the common options, prints the document and sets the exit code.
    """
    added = COMMON_OPTIONS | (SWEEP_OPTIONS if name in SWEPT else {})

    def register(function: Callable[..., Document]) -> Callable[..., Document]:
        signature = inspect.signature(function, eval_str=True, locals={"Document": object})
        own = [p for p in signature.parameters.values() if p.name != "common"]
        more = {n: a for n, a in added.items() if n not in signature.parameters}
        extra = [
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, annotation=a, default=d)
            for n, (a, d) in more.items()
        ]

        @functools.wraps(function)
        def run(**kwargs: Any) -> None:
            common = _common({n: kwargs.pop(n) for n in COMMON_OPTIONS})
            _check_numbers(kwargs)
            if "sweep_show" in more and (sweeps := _sweeps(kwargs, "sweep" in more)):
                _swept(name, function, common, kwargs, *sweeps)
                return
            emit(function(common=common, **kwargs), common)

        for p in own:
            _complete(p)
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + extra
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        first = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        EXAMPLES[name] = example
        options.setdefault("cls", QuickCommand)
        app.command(name, help=first, epilog=f"\b\nExample:\n  {example}", **options)(run)
        return function

    return register


def _complete(parameter: inspect.Parameter) -> None:
    """Give a model, cluster, GPU or software parameter the completion of its preset names."""
    for info in getattr(parameter.annotation, "__metadata__", ()):
        if parameter.name in BY_NAME and info.autocompletion is None:
            info.autocompletion = BY_NAME[parameter.name]


def _sweeps(given: dict[str, Any], common: bool) -> tuple[tuple[str, ...], str | None] | None:
    """Take the what-if sweeps out of the arguments; a command's own `sweep` has no equals sign."""
    show, values = given.pop("sweep_show"), given["sweep"] or ()
    if common:
        del given["sweep"]
    elif values and not any("=" in v for v in values):
        return None
    if show and not values:
        raise GpuscaleError("--sweep-show needs --sweep")
    return (tuple(values), show) if values else None


def _swept(
    name: str,
    function: Callable[..., Document],
    common: Common,
    given: dict[str, Any],
    sweeps: tuple[str, ...],
    show: str | None,
) -> None:
    from dataclasses import replace

    from gpuscale.cli.sweep import sweep_document

    if "sweep" in given:
        given = given | {"sweep": None}
    emit(sweep_document(name, function, common, given, sweeps, show), replace(common, require=()))


def _common(given: dict[str, Any]) -> Common:
    """Read the options that all commands share; a wrong one is told before anything is computed."""
    require, output = given["require"], given["output"]
    if require:
        from gpuscale.cli.requirements import read_requirement

        require = map(read_requirement, require)
    if output:
        from gpuscale.cli.emit import check_target

        output = map(check_target, output)
    return Common(
        _format(given["json_"], given["format_"]),
        tuple(given["set_"] or ()),
        given["explain"],
        tuple(require or ()),
        tuple(output or ()),
        _calibration(given["calibration"]),
        given["plot"],
    )


def _calibration(path: str | None) -> str | None:
    """Path of an overlay, read once so that a bad file is told even where nothing uses it."""
    if path is not None:
        from gpuscale.io.calibration import load_calibration

        load_calibration(path)
    return path


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
