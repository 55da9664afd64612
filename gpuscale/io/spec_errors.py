"""Records of the package's own files, read unchecked; errors of a file of others as one line.

Reading is as pydantic's, which needs a quarter of a second to be imported and to learn the records:
a whole number becomes a float where one is wanted, a list a tuple, text with a unit an amount.
`tests/io/test_own_files.py` reads every file both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from gpuscale.errors import GpuscaleError, typo_of
from gpuscale.io.presets import is_own

if TYPE_CHECKING:
    import pydantic


T = TypeVar("T")
Reader = Callable[[Any], Any]


def made(kind: type[T], table: Any) -> T:
    """Make a record of a table, or return it where it is one."""
    if isinstance(table, kind):
        return table
    readers = _readers(kind)  # type: ignore[arg-type]
    return kind(**{key: readers[key](value) for key, value in table.items()})


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    """Field -> what reads its value."""
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: _reader(hints[f.name]) for f in fields(kind)}


@cache
def _reader(hint: Any) -> Reader:
    """Return what reads a value of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is float:
        return lambda value: float(value) if type(value) is int else value
    if is_dataclass(hint):
        return partial(made, hint)  # type: ignore[arg-type]
    if origin is Annotated:
        inner = _reader(args[0])
        for one in (a for a in args[1:] if hasattr(a, "read")):
            return lambda value: inner(one.read(value))
        return inner
    if origin in (Union, UnionType):
        return _either(tuple(a for a in args if a is not NoneType))
    if origin is tuple and args[-1:] == (...,):
        each = _reader(args[0])
        return lambda value: tuple(map(each, value))
    if origin is tuple:
        parts = tuple(map(_reader, args))
        return lambda value: tuple(read(v) for read, v in zip(parts, value, strict=True))
    if origin in (dict, Mapping):
        item = _reader(args[1])
        return lambda value: {key: item(v) for key, v in value.items()}
    return lambda value: value


def _either(kinds: tuple[Any, ...]) -> Reader:
    """Return what reads a value of one of several types: tables and lists tell which."""
    records = [k for k in kinds if is_dataclass(k)]
    by_kind = {f.default: k for k in records[1:] for f in fields(k) if f.name == "kind"}
    tables = [k for k in kinds if get_origin(k) in (dict, Mapping)]
    lists = [k for k in kinds if get_origin(k) is tuple]
    plain = [k for k in kinds if k not in (*records, *tables, *lists)]

    def read(value: Any) -> Any:
        if isinstance(value, dict) and (records or tables):
            which: Any = by_kind.get(value.get("kind"), (records or tables)[0])
            return _reader(which)(value)
        if isinstance(value, list) and lists:
            return _reader(lists[0])(value)
        alone = value is not None and len(plain) == 1
        return _reader(plain[0])(value) if alone else value

    return read


UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
"""What pydantic calls a key that is not known, of a model and of a dataclass."""


def checked(
    kind: type[T], table: Any, where: str, more_keys: Sequence[str] = (), *, own: bool = False
) -> T:
    """Make a spec, or a record whose fields have bounds, of what a file says.

    `kind`: a dataclass. `where`: names the file in errors. `more_keys`: further keys that a
    misspelt one may mean. `own`: of the package, as where `where` is a path below its presets:
    tests hold those. Raises GpuscaleError for a key or value that does not hold.
    """
    if own or is_own(where):
        try:
            return made(kind, table)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # somebody changed it: what is wrong is told below
    import pydantic

    from gpuscale.specs.fields import adapter

    try:
        value: T = adapter(kind).validate_python(table)  # type: ignore[arg-type]
        return value
    except pydantic.ValidationError as error:
        names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
        raise spec_error(where, error, [*names, *more_keys]) from None


def spec_error(
    where: str, err: pydantic.ValidationError, known_keys: Sequence[str] = ()
) -> GpuscaleError:
    """Turn a pydantic error into one clear line.

    `where`: the file, preset or option that was read, as the person would name it. `err`: what
    pydantic found; the first unknown key or else the first problem is told, and the number of
    others. `known_keys`: keys to choose from, for a "did you mean" when a key is not known.
    Returns: with the message `where: key: problem`.
    """
    problems = err.errors(include_url=False, include_context=False)
    # a misspelt key is often the reason why another one is missing
    first = next((p for p in problems if p["type"] in UNKNOWN), problems[0])
    key = ".".join(_shown(p) for p in _written_keys(first["loc"]))
    message = f"{where}: {key + ': ' if key else ''}{_problem(first)}"
    if len(problems) > 1:
        more = len(problems) - 1
        message += f" (and {more} more problem{'s' if more > 1 else ''})"
    hint = ""
    if first["type"] in UNKNOWN and known_keys:
        close = typo_of(str(first["loc"][-1]), known_keys)
        hint = f"did you mean `{close}`?" if close else ""
    return GpuscaleError(message, hint)


def _shown(part: str | int) -> str:
    text = str(part)
    return text if len(text) <= 60 else text[:57] + "..."


def _written_keys(loc: tuple[str | int, ...]) -> list[str | int]:
    """Drop the union branches that pydantic puts among the keys; a person did not write them."""
    keys = [p for p in loc if not str(p).startswith(("function-", "Capabilities"))]
    if len(keys) > 2 and keys[0] in ("mixers", "ffns"):
        del keys[2]  # the kind of the mixer or FFN
    return keys


def _problem(item: Mapping[str, Any]) -> str:
    kind, message = item["type"], str(item["msg"])
    if kind in UNKNOWN:
        return "not a key that is known here"
    if kind == "missing":
        return "this key is required and missing"
    if kind == "union_tag_not_found":
        return "needs a `kind`"
    if kind == "int_parsing_size":
        message = "far too large"
    message = message.removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    value = item.get("input")
    if isinstance(value, bool | int | float | str) and repr(value)[:40] not in message:
        text = repr(value)
        message += f", got {text if len(text) <= 40 else text[:37] + '...'}"
    elif isinstance(value, dict | list) and kind != "value_error":
        message += f", got a {'table' if isinstance(value, dict) else 'list'}"
    return message
