"""Records of the package's own files, without the checks that its tests have made of them.

Reading is as pydantic's, which needs a quarter of a second to be imported and to learn the records:
a whole number becomes a float where one is wanted, a list a tuple, text with a unit an amount.
`tests/io/test_own_files.py` reads every file both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

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
