"""Keys of a result: conditions on its numbers (`--require "mfu>=0.40"`), and its JSON Schema."""

from __future__ import annotations

import importlib
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Union

from gpuscale.answers.ask import Asked, Question, text
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.core.quantity import dimension_of, format_si, parse
from gpuscale.core.records import Term, dataclass, replace
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.meant import packaged
from gpuscale.render.document import Document, Point, Text
from gpuscale.render.text import SCHEMA, leaves, plain

_CONDITION = re.compile(r"\s*([\w.\- ]+?)\s*(>=|<=|==|!=|=|>|<)\s*(.+?)\s*", re.DOTALL)

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
}

_WORDS = {">=": "at least ", "<=": "at most ", ">": "more than ", "<": "less than ", "!=": "not "}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition as typed, and its parts."""

    text: str
    path: str
    sign: str
    value: str


@dataclass(frozen=True, slots=True)
class RequirementVerdict:
    """How a requirement came out."""

    requirement: str
    key: str
    value: Any
    have: str  # with unit
    need: str
    met: bool


def read_requirement(text: str) -> Requirement:
    """Read ``KEY>=VALUE``; the signs are >= <= > < == !=.

    >>> read_requirement("mfu >= 0.4").path
    'mfu'
    """
    match = _CONDITION.fullmatch(text[:300])
    if match is None:
        raise GpuscaleError(
            f"--require {text[:60]}: not KEY>=VALUE",
            "for example --require 'time_s<=2ms'; the keys are those of the JSON result",
        )
    return Requirement(text.strip(), match[1].replace("-", "_"), match[2], match[3])


def find(path: str, known: dict[str, Any], flag: str = "--require") -> str:
    """Key that a path means: itself, or the only key that ends in it."""
    if path in known:
        return path
    ending = [key for key in known if key.endswith("." + path)]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise GpuscaleError(
            f"{flag}: `{path}` is not one key", f"it could be {', '.join(sorted(ending)[:6])}"
        )
    wanted = path.rsplit(".", 1)[-1]
    short = {key.rsplit(".", 1)[-1]: key for key in reversed(known)}
    alike = [key for key in known if wanted[:3] in key] or list(known)
    raise unknown_name(
        f"key in {flag}:",
        path,
        known if "." in path else [*short, *known],
        f"keys of this result: {', '.join(alike)}",
    )


def refuse_unknown(requirements: Iterable[Requirement], keys: Iterable[str]) -> None:
    """Refuse a key that no answer of a question has, before it is asked and writes."""
    known = dict.fromkeys(keys)
    for one in requirements:
        path = re.sub(r"\.\d+(?=\.)", "", one.path)  # of any of several rows
        if not any(f".{key}".endswith(f".{path}") for key in known):
            find(path, known)


def _wanted(requirement: Requirement, key: str, have: Any) -> Any:
    """Convert the required value to the type and unit of what there is."""
    text = requirement.value
    if isinstance(have, bool):
        if text.lower() in ("true", "false", "yes", "no"):
            return text.lower() in ("true", "yes")
        raise GpuscaleError(f"--require {requirement.text}: {key} is true or false")
    if isinstance(have, str):
        if requirement.sign not in ("==", "=", "!="):
            raise GpuscaleError(f"--require {requirement.text}: {key} is a text, `{have[:40]}`")
        return text
    dim = dimension_of(key.rsplit(".", 1)[-1]) or ("frac" if text.endswith("%") else "count")
    try:
        return parse(text, dim)
    except ValueError as error:
        raise GpuscaleError(f"--require {requirement.text}: {error}") from None


def _shown(key: str, value: Any) -> str:
    """Value with its unit, exact enough to see why it failed."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "nothing" if value is None else str(value)
    dim = dimension_of(key.rsplit(".", 1)[-1])
    return format_si(value, dim, digits=6) if dim and dim != "frac" else f"{value:.6g}"


def check(requirement: Requirement, known: dict[str, Any]) -> RequirementVerdict:
    """Hold one requirement against the values of a result."""
    key = find(requirement.path, known)
    have = known[key]
    want = _wanted(requirement, key, have)
    need = _WORDS.get(requirement.sign, "") + _shown(key, want)
    met = have is not None and bool(_COMPARE[requirement.sign](have, want))
    return RequirementVerdict(requirement.text, key, have, _shown(key, have), need, met)


def check_all(
    requirements: Iterable[Requirement], result: Any, command: str = "", keys: Iterable[str] = ()
) -> list[RequirementVerdict]:
    """Hold requirements against a result; `memory.total_bytes` is also a key of `memory`.

    A key of rows among `keys`, ``best.step_s`` or ``step_s``, is that of the first, or is not met.
    Raises GpuscaleError if a key is not in the result or a value has another unit.
    """
    known = dict(leaves(plain(result)))
    for rows, _, key in (key.partition(".") for key in keys if "." in key):
        first = known.get(f"{rows}.0.{key}")
        known = {key: first, f"{rows}.{key}": first} | known
    return [check(_without(command, r, known), known) for r in requirements]


def _without(command: str, requirement: Requirement, known: dict[str, Any]) -> Requirement:
    own = requirement.path.removeprefix(f"{command.replace('-', '_')}.")
    return replace(requirement, path=own) if requirement.path not in known else requirement


DIALECT = "https://json-schema.org/draft/2020-12/schema"

UNIT_TEXT: dict[str, str] = packaged("labels.toml")["unit"]


def of_types(command: str, results: Sequence[Any], verdict: type) -> dict[str, Any]:
    """Write the schema of a command's envelope.

    `results`: records, one of which an answer holds; none: an object of any keys. `verdict`: record
    of a requirement that was held.
    """
    from pydantic import TypeAdapter

    result = Union[tuple(results)] if results else dict[str, Any]  # noqa: UP007
    schema = TypeAdapter(
        tuple[result, Term, verdict, Point]  # type: ignore[valid-type]
    ).json_schema(mode="serialization")
    found, term, held, point = schema["prefixItems"]
    described(schema.get("$defs", {}))
    properties = {
        "schema": {"const": SCHEMA},
        "command": {"const": command},
        "inputs": {"type": "object"},
        "summary": {"type": "array", "items": point},
        "result": found,
        "warnings": {"type": "array", "items": {"type": "string"}},
        "job": {"type": "object"},
        "explain": {"type": "array", "items": term},
        "requirements": {"type": "array", "items": held},
    }
    return {
        "$schema": DIALECT,
        "title": f"gpuscale {command} --json",
        "type": "object",
        "properties": properties,
        "required": ["schema", "command", "inputs", "summary", "result", "warnings"],
        "$defs": schema.get("$defs", {}),
    }


def described(records: dict[str, Any]) -> None:
    """Say the units, keep what people need of pydantic's words, and require every key."""
    for record in records.values():
        for key, value in record.get("properties", {}).items():
            value.pop("title", None)
            value.pop("default", None)
            if unit := UNIT_TEXT.get(dimension_of(key), ""):
                value["description"] = unit
        if record.get("properties"):
            record["required"] = sorted(record["properties"])


SWEEP = "sweep:SweepAnswer"


def complete_command(incomplete: str) -> list[str]:
    """Commands that start as typed."""
    return [name for name in (*COMMANDS, "sweep") if name.startswith(incomplete)]


@dataclass
class Schema(Question):
    """Print the JSON Schema of a command's answer."""

    NAME: ClassVar[str] = "schema"
    EXAMPLE: ClassVar[str] = "gpuscale schema memory"
    name: Asked[str] = text(
        "A command, or sweep.", ..., metavar="COMMAND", complete=complete_command
    )

    def answer(self) -> Document:
        """Print it."""
        import json

        known = [*COMMANDS, "sweep"]
        if self.name not in known:
            raise unknown_name("command", self.name, known, f"known: {', '.join(known)}")
        found = schema_of(self.name)
        said = Text(json.dumps(found, indent=1))
        return Document("schema", {"command": self.name}, found, [said])


def schema_of(name: str) -> dict[str, Any]:
    """Make the schema of a command's answer, or of a sweep."""
    results = SWEEP if name == "sweep" else question_of(name).RESULTS
    return of_types(name, [_found(result) for result in results.split()], RequirementVerdict)


def _found(result: str) -> Any:
    module, _, name = result.partition(":")
    return getattr(importlib.import_module(f".{module}", "gpuscale.answers"), name)
