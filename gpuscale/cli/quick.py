"""Start-up: texts, flags and unset options skip the building of typer's converters.

typer 0.29 builds one pydantic adapter per option of the command that runs, used or not, about
1.5 ms each and 60 ms for the first. A question reads its own texts, so what the parser gives is
passed on as it is; what is missing, and every other type, goes typer's own way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

from gpuscale.errors import GpuscaleError


def quick(param: Any) -> None:
    """Let a parameter pass texts, flags and what was not given."""
    slow = param.process_value

    def process(context: Any, value: Any) -> Any:
        if (value is None or value == ()) and not param.required:
            return value
        if value and param.callback is not None:
            return slow(context, value)
        if isinstance(value, (str, bool)):
            return value
        if value and isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
            return value
        return slow(context, value)

    param.process_value = process


CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Help of a command and of all."""


class Quick:
    """For a command or group class: every parameter is quick."""

    def get_params(self, ctx: Any) -> Any:
        """Parameters as the parser and the help see them."""
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if "process_value" not in vars(param):
                quick(param)
        return params


class QuickCommand(Quick, TyperCommand):
    """One command, whose arguments may be given by name too: ``--cluster dgx-h100``."""

    names: Mapping[str, str] = {}  # "--cluster", "--gpu" -> "cluster"
    example = ""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put arguments that are given by name where their place is."""
        if self.names and any(a.partition("=")[0] in self.names for a in args):
            order = dict.fromkeys(self.names.values())
            try:
                args = placed(args, self.names, list(order), self._flags())
            except ValueError as error:
                raise GpuscaleError(str(error), f"for example `{self.example}`") from None
        return super().parse_args(ctx, args)

    def _flags(self) -> set[str]:
        """Options that take no value."""
        return {o for p in self.params for o in p.opts if getattr(p, "is_flag", False)}


def placed(
    args: Sequence[str], names: Mapping[str, str], order: Sequence[str], flags: Collection[str]
) -> list[str]:
    """Arguments of a command line with those given by name at their places, behind the options.

    >>> names = {"--op": "op", "--cluster": "cluster", "--gpu": "cluster"}
    >>> placed(["all-reduce", "--gpu", "h100", "--gpus", "8"], names, ["op", "cluster"], {"--json"})
    ['--gpus', '8', 'all-reduce', 'h100']
    """
    options: list[str] = []
    plain: list[str] = []
    named: dict[str, str] = {}
    left = list(args)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in names:
            if names[name] in named:
                raise ValueError(f"{name}: the {names[name]} is given twice")
            if not equals and not left:
                raise ValueError(f"option {name} requires an argument")
            named[names[name]] = value if equals else left.pop(0)
        elif word == "--":
            plain += left
            break
        elif word.startswith("-") and word != "-":
            options.append(word)
            if not equals and word not in flags and left:
                options.append(left.pop(0))
        else:
            plain.append(word)
    slots = [named[x] if x in named else plain.pop(0) if plain else None for x in order]
    while slots and slots[-1] is None:
        slots.pop()
    if None in slots:
        raise ValueError(f"missing argument `{order[slots.index(None)]}`")
    rest = [s for s in (*slots, *plain) if s is not None]
    return [*options, *(["--"] if any(s.startswith("-") and s != "-" for s in rest) else []), *rest]
