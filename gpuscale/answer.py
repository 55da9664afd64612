"""The answer of a command as a Python object, and the call that makes it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.cli.requirements import Verdict
    from gpuscale.core.records import Term
    from gpuscale.render.document import Document

Value = str | int | float
"""A number in SI units, or a text with a unit such as ``"800 GB/s"``."""

Settings = Mapping[str, Value] | Sequence[str]
"""What-if changes: ``{"gpu.hbm_bytes": "96 GiB"}`` or ``["gpu.hbm_bytes=96 GiB"]``."""

Sweeps = Mapping[str, str | Sequence[Value]] | Sequence[str] | str
"""Swept keys: ``{"tp": [1, 2, 4]}``, ``{"gpus": "512..4096"}`` or ``["tp=1,2,4"]``."""


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """What a command answers: the record behind it, and its text, JSON and HTML forms.

    Examples
    --------
    >>> import gpuscale
    >>> answer = gpuscale.matmul_time("b200", 64, 4096, 8192)
    >>> answer["time_s"], answer["bound"], answer.ok
    (8.585216e-06, 'memory', True)
    >>> answer
    <gpuscale matmul-time: b200-sxm  [64, 4,096] x [4,096, 8,192]  bf16>
    """

    document: Document
    call: str = ""  # what gives this answer again, in Python

    @property
    def result(self) -> Any:
        """The command's own record (a frozen dataclass or a mapping), SI units by suffix."""
        return self.document.result

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What was asked, with the defaults filled in."""
        return self.document.inputs

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to be careful about."""
        return tuple(self.document.warnings)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Formula, numbers and source of each headline number."""
        return tuple(self.document.terms)

    @property
    def ok(self) -> bool:
        """False where the answer is no: it does not fit, a limit is exceeded."""
        return not self.document.answered_no

    def __getitem__(self, key: str) -> Any:
        """Value at a dotted key of the JSON result, such as ``answer["expected.time_s"]``.

        Raises
        ------
        KeyError
            If there is no such key.
        """
        value = self.to_dict()["result"]
        for part in key.split("."):
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise KeyError(key) from None
        return value

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints, as plain dicts, lists, numbers and texts."""
        import json

        found: dict[str, Any] = json.loads(self.json())
        return found

    def json(self) -> str:
        """Return what ``--json`` prints."""
        return self._rendered("json")

    def csv(self) -> str:
        """Return the main table as CSV, SI units."""
        return self._rendered("csv")

    def markdown(self) -> str:
        """Return the answer as Markdown."""
        return self._rendered("markdown")

    def explain(self) -> str:
        """Return the formulas behind the numbers, as ``--explain`` prints them."""
        from gpuscale.render.explain import to_lines

        return "\n".join(to_lines(self.document.terms))

    def check(self, *requirements: str) -> list[Verdict]:
        """Hold requirements such as ``"mfu>=0.4"`` against the numbers.

        Examples
        --------
        >>> import gpuscale
        >>> answer = gpuscale.matmul_time("b200", 64, 4096, 8192)
        >>> [(v.requirement, v.met) for v in answer.check("time_s<=5us", "bound==memory")]
        [('time_s<=5us', False), ('bound==memory', True)]
        """
        from gpuscale.cli.requirements import check_all, read_requirement

        return check_all([read_requirement(r) for r in requirements], self.document.result)

    def svg(self, key: str = "") -> str:
        """Return a picture of the answer as SVG: the first, or the one of that key.

        Raises
        ------
        GpuscaleError
            If the answer has no such picture.
        """
        from gpuscale.render.files import chosen
        from gpuscale.render.svg import to_svg

        return to_svg(chosen(self.document, Path(f"picture.{key}.svg" if key else "picture.svg")))

    def save(self, path: str | Path) -> None:
        """Write the answer to a file; the ending says the format, as for ``-o``."""
        from gpuscale.cli import emit
        from gpuscale.render import files
        from gpuscale.render.data import plain

        target = emit.check_target(str(path), "path")
        if files.ending_of(target):
            emit.save(target, files.content(self.document, target, self.call), "path")
            return
        terms = {"explain": plain(self.terms)} if self.terms else {}
        emit.save_document(self.document, target, terms)

    def _rendered(self, format_: str) -> str:
        from gpuscale.cli.emit import rendered

        return rendered(self.document, format_, {}, ascii_only=False)

    def __str__(self) -> str:
        """Return the text that the command prints."""
        from gpuscale.render.plain import to_text

        return to_text(self.document)

    def __repr__(self) -> str:
        """One line that says what was asked."""
        first = str(self).split("\n", 1)[0].strip()
        return f"<gpuscale {self.document.command}: {first[:120]}>"

    def _repr_html_(self) -> str:
        """Return the answer as HTML, for notebooks; names from files are escaped."""
        from gpuscale.render.notebook import to_html

        return to_html(self.document)


def answer(name: str, given: dict[str, Any]) -> Answer:
    """Run the function of a command, as the command line does.

    Parameters
    ----------
    name : str
        The command.
    given : dict
        Arguments by parameter name; those of all commands: `set`, `calibration`, `sweep`,
        `sweep_show`.

    Raises
    ------
    GpuscaleError
        For whatever the command would refuse.
    """
    import importlib

    from gpuscale.cli import common as shared
    from gpuscale.cli.app import COMMANDS

    function = getattr(
        importlib.import_module(f"gpuscale.cli.{COMMANDS[name][0]}"), "_".join(name.split("-"))
    )
    call = _call("_".join(name.split("-")), given)
    given = dict(given)
    common = shared.Common(
        set_=_settings(given.pop("set", ())), calibration=given.pop("calibration", None)
    )
    shared._calibration(common.calibration)
    sweeps, show = _sweeps(given.pop("sweep", ())), given.pop("sweep_show", None)
    own = _arguments(function, given)
    shared._check_numbers(own)
    if any("=" in s for s in sweeps):
        from gpuscale.cli.sweep import sweep_document

        return Answer(sweep_document(name, function, common, own, sweeps, show), call)
    if sweeps:
        own["sweep"] = list(sweeps)
    return Answer(function(common=common, **own), call)


def _call(name: str, given: dict[str, Any]) -> str:
    """Write the call with the arguments that differ from their defaults."""
    from gpuscale import api

    parts = []
    for key, parameter in inspect.signature(getattr(api, name)).parameters.items():
        if key in given and given[key] != parameter.default:
            named = parameter.kind is parameter.KEYWORD_ONLY
            parts.append(f"{key}={given[key]!r}" if named else repr(given[key]))
    where = "gpuscale.api" if name == "validate" else "gpuscale"
    return f"{where}.{name}({', '.join(parts)})"


def _settings(given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Mapping):
        return tuple(f"{key}={_text(value)}" for key, value in given.items())
    return tuple(given or ())


def _sweeps(given: Any) -> tuple[str, ...]:
    if not isinstance(given, Mapping):
        return _settings(given)
    return tuple(
        f"{key}={v if isinstance(v, str) else ','.join(map(_text, v))}" for key, v in given.items()
    )


def _text(value: Value) -> str:
    """Write a number as the command line would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _arguments(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the command's function: numbers as text where it reads text, ranges checked."""
    signature = inspect.signature(function, eval_str=True, locals={"Document": object})
    found: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        value = given.get(name.rstrip("_"))
        if name == "common" or value is None:
            continue
        kind = str(parameter.annotation)
        if "list[str]" in kind:
            value = [value] if isinstance(value, str) else list(value)
        elif "str" in kind:
            value = _text(value) if isinstance(value, (str, int, float)) else str(value)
        elif "bool" not in kind:
            _in_range(name, value, parameter.annotation.__metadata__[0])
        found[name] = value
    return found


def _in_range(name: str, value: Any, info: Any) -> None:
    wrong = isinstance(value, bool) or not isinstance(value, (int, float)) or value != value
    if wrong or (info.min is not None and value < info.min):
        raise GpuscaleError(f"{name}: a number of at least {info.min or 0} is wanted, got {value}")
    if info.max is not None and value > info.max:
        raise GpuscaleError(f"{name}: a number of at most {info.max} is wanted, got {value}")
