"""Records of every room: declared, made of others, and the term of an explanation.

Methods of a record are compiled when the first is made, not where it is declared: the standard
`dataclasses.dataclass` compiles six methods of a frozen record, for 1.8 ms, and a command declares
180 of which it makes half. Here `__init__` alone is compiled; the others are written once.
`typing.NamedTuple` compiles the type of every field, 640 in a command: here they stay texts.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import *  # noqa: F403
from dataclasses import MISSING, FrozenInstanceError, field, fields
from functools import cache, lru_cache
from inspect import signature
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple
else:

    class _Named(type):
        def __new__(cls, name, bases, own):
            if not bases:
                return super().__new__(cls, name, bases, own)
            types = own.get("__annotations__", {})
            defaults = [own[n] for n in types if n in own]
            made = namedtuple(name, types, defaults=defaults, module=own["__module__"])
            made.__annotations__ = types
            for key in own.keys() - types.keys() - {"__annotations__", "__module__"}:
                setattr(made, key, own[key])
            return made

    class NamedTuple(metaclass=_Named):
        """What a class is a named tuple by, as `typing.NamedTuple`."""

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, **how):
        """Make a record of a class, as `dataclasses.dataclass` does (`slots`, `kw_only` too).

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: float
        ...     y: float = 0.0
        >>> Point(1.0), Point(1.0) == Point(1.0, 0.0), len({Point(1.0), Point(1.0)})
        (Point(x=1.0, y=0.0), True, 1)
        """

        def record(cls):
            own = {k for k, v in vars(cls).items() if (k, v) != ("__hash__", None)}
            made = dataclasses.dataclass(init=False, repr=False, eq=False, **how)(cls)
            for name, method in _methods(made, frozen, eq, repr).items():
                if name not in own:
                    setattr(made, name, method)
            return made

        return record if cls is None else record(cls)

    def replace(record, /, **changes):
        """Make a record like another with some fields changed, as `dataclasses.replace`."""
        cls = record.__class__
        return cls(**{name: getattr(record, name) for name in _given(cls)} | changes)

    _given = cache(lambda cls: [f.name for f in fields(cls) if f.init])


def _methods(cls: Any, frozen: bool, eq: bool, repr: bool) -> dict[str, Any]:
    """Name -> method, of those that a class does not write itself."""
    found: dict[str, Any] = {"__init__": _Init(cls, frozen)}
    if repr:
        found["__repr__"] = _repr
    if eq:
        values = _values(f.name for f in fields(cls) if f.compare)
        hashed = _values(f.name for f in fields(cls) if (f.compare if f.hash is None else f.hash))
        found["__hash__"] = (lambda self: hash(hashed(self))) if frozen else None
        found["__eq__"] = lambda self, other: (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )
    if frozen:
        found |= {"__setattr__": _kept, "__delattr__": _kept}
        found |= {"__getstate__": _state, "__setstate__": _set_state}
    return found


def _values(names: Any) -> Any:
    """Return what takes the values of a record's fields as a tuple."""
    found = tuple(names)
    several = len(found) > 1
    return attrgetter(*found) if several else lambda self: tuple(getattr(self, n) for n in found)


def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _kept(self: Any, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


class _Init:
    """`__init__` of a record, compiled when it is looked up."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        self.cls, self.frozen = cls, frozen

    def __get__(self, instance: Any, owner: Any) -> Any:
        if self.cls.__dict__["__init__"] is self:
            self.cls.__init__ = _compiled(self.cls, self.frozen)
        return self.cls.__dict__["__init__"].__get__(instance, owner)


def _compiled(cls: Any, frozen: bool) -> Any:
    """Compile `__init__`, with an assignment for each field."""
    known: dict[str, Any] = {"__MISSING": MISSING, "__set": object.__setattr__}
    places: list[str] = []
    named: list[str] = []
    body = []
    for one in fields(cls):
        name = given = value = one.name
        alone = ""  # of a field that is no argument
        if one.default is not MISSING:
            known[f"__default_{name}"], alone = one.default, f"__default_{name}"
            given = f"{name}={alone}"
        elif one.default_factory is not MISSING:
            known[f"__make_{name}"], alone = one.default_factory, f"__make_{name}()"
            given, value = f"{name}=__MISSING", f"{alone} if {name} is __MISSING else {name}"
        if one.init:
            (named if one.kw_only else places).append(given)
        elif alone:
            value = alone
        else:
            continue
        if not frozen:
            body.append(f"self.{name} = {value}")
        elif isinstance(slot := getattr(cls, name, None), MemberDescriptorType):
            known[f"__set_{name}"] = slot.__set__
            body.append(f"__set_{name}(self, {value})")
        else:
            body.append(f"__set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join(["self", *places, *(["*", *named] if named else [])])
    lines = "\n  ".join(body or ["pass"])
    text = (
        f"def make({', '.join(known)}):\n def __init__({arguments}):\n  {lines}\n return __init__"
    )
    space: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), space)
    made = space["make"](**known)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {f.name: f.type for f in fields(cls) if f.init} | {"return": "None"}
    return made


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Term:
    """One number of an answer, explained.

    `formula` is arithmetic over the names in `inputs` (Python operators, ``max``, ``min``,
    ``ceil``, ``floor``, ``exp``, ``expm1``, ``log``, ``log2``, ``sqrt``, ``sum``, ``tanh``), so
    that evaluating it gives `value`. Inputs are those that the computation took, never made from
    its result; each child explains an input of its name. An empty formula means that the value is
    given, measured, simulated or searched for, and `source` tells which.
    """

    name: str
    value: float
    unit: str  # dimension of `core.quantity`, e.g. "s", "bytes", "count", "frac"; "" is a ratio
    formula: str = ""
    inputs: dict[str, float] = field(default_factory=dict)
    source: str = ""
    children: tuple[Term, ...] = ()


_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w(])")


def term_of(name: str, unit: str, formula: str, source: str, *given: object, **more: float) -> Term:
    """Term whose value and inputs are found by their names: in `more`, then in the records given.

    Terms among those given are its children, each an input of its name.

    >>> term_of("tokens_per_s", "", "tokens / step_s", "", tokens=8, step_s=2.0, tokens_per_s=4.0)
    Term(name='tokens_per_s', value=4.0, unit='', formula='tokens / step_s', \
inputs={'tokens': 8.0, 'step_s': 2.0}, source='', children=())
    """
    children = tuple(g for g in given if isinstance(g, Term))
    known = {child.name: child.value for child in children} | more

    def found(key: str) -> float:
        if key in known:
            return float(known[key])
        return float(getattr(next(g for g in given if hasattr(g, key)), key))

    inputs = {key: found(key) for key in dict.fromkeys(_NAMES.findall(formula))}
    return Term(name, found(name), unit, formula, inputs, source, children=children)


def total_of(
    name: str,
    value: float,
    unit: str,
    parts: Mapping[str, float],
    source: str,
    children: tuple[Term, ...] = (),
) -> Term:
    """Term of a sum of parts."""
    formula = " + ".join(parts)
    return Term(name, value, unit, formula, dict(parts), source, children=children)


@lru_cache(maxsize=256)
def _arguments(kind: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(signature(kind).parameters)


def made_of(kind: Callable[..., T], /, *given: object, **more: Any) -> T:
    """Call with arguments found by their names: in `more`, then in the first record that has each.

    What none of them has is left to its default.

    >>> made_of(Term, Term("a", 1.0, "s", source="b"), name="c")
    Term(name='c', value=1.0, unit='s', formula='', inputs={}, source='b', children=())
    """
    for name in _arguments(kind):
        owner = next((g for g in given if hasattr(g, name)), None)
        if name not in more and owner is not None:
            more[name] = getattr(owner, name)
    return kind(**more)
