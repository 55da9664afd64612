"""Records of every room: declared, made of others, and the term of an explanation.

`dataclass` and `NamedTuple` are as those of the standard library, and quicker to declare: those
import `inspect`, search each field's type and compile up to six methods of a record, 180 of which a
command declares. Here nothing is compiled but what makes a record that is made often.
"""

from __future__ import annotations

import re
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

OFTEN = 24
"""A record that is made more often is made by compiled code."""

if TYPE_CHECKING:
    from dataclasses import *  # noqa: F403
    from dataclasses import MISSING, field, fields
    from typing import NamedTuple as NamedTuple
else:
    MISSING = object()

    class KW_ONLY:
        """Type of a field after which all are given by name."""

    class field(SimpleNamespace):
        """A field of a record, as `dataclasses.field`."""

        default = default_factory = MISSING
        init = repr = compare = True
        hash = None

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, slots=False, kw_only=False):
        """Make a record of a class, as `dataclasses.dataclass` does.

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: float
        ...     y: float = 0.0
        >>> Point(1.0), Point(1.0) == Point(1.0, 0.0), len({Point(1.0), Point(1.0)})
        (Point(x=1.0, y=0.0), True, 1)
        """

        def record(cls):
            own = {k for k, v in vars(cls).items() if (k, v) != ("__hash__", None)}
            found = _declared(cls, kw_only)
            made = _slotted(cls, found) if slots else cls
            made.__record__, made.__dataclass_fields__ = found, _Standard()
            made.__match_args__ = tuple(n for n, f in found.items() if f.init and not f.kw_only)
            for name, method in _methods(made, frozen, eq, repr).items():
                if name not in own:
                    setattr(made, name, method)
            return made

        return record if cls is None else record(cls)

    def is_dataclass(what):
        """Whether it is a record, or the class of some."""
        return hasattr(what, "__record__") or hasattr(what, "__dataclass_fields__")

    def fields(record):
        """Fields of a record or of its class."""
        known = getattr(record, "__record__", None)  # none: the standard library made it
        return tuple((record.__dataclass_fields__ if known is None else known).values())

    def replace(record, /, **changes):
        """Make a record like another with some fields changed, as `dataclasses.replace`."""
        cls = record.__class__
        return cls(**{name: getattr(record, name) for name in _taken(cls)} | changes)

    def asdict(record):
        """Make a mapping of a record, and of those within it, as `dataclasses.asdict`."""
        return {f.name: _copied(getattr(record, f.name)) for f in fields(record)}

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


def _declared(cls: Any, kw_only: bool) -> dict[str, Any]:
    """Name -> field of a record, those of its bases first."""
    found: dict[str, Any] = {}
    for base in cls.__mro__[:0:-1]:
        found |= vars(base).get("__record__", {})
    for name, kind in vars(cls).get("__annotations__", {}).items():
        if kind.endswith("KW_ONLY"):
            kw_only = True
        elif not kind.startswith("ClassVar"):
            one: Any = getattr(cls, name, MISSING)
            if not isinstance(one, field):  # type: ignore[arg-type]
                one = field(default=MISSING if isinstance(one, MemberDescriptorType) else one)
            elif one.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
            one.name, one.type, one.kw_only = name, kind, kw_only
            found[name] = one
    return found


def _slotted(cls: Any, found: Mapping[str, Any]) -> Any:
    """Make a class like another whose records have a slot for each field and no other."""
    has = {name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
    left_out = {*found, "__dict__", "__weakref__"}
    own = {name: value for name, value in vars(cls).items() if name not in left_out}
    own["__slots__"] = tuple(name for name in found if name not in has)
    made = type(cls)(cls.__name__, cls.__bases__, own)
    made.__qualname__ = cls.__qualname__
    return made


class _Standard:
    """Fields of a record as the standard library has them, for what asks it."""

    def __get__(self, instance: Any, owner: Any) -> dict[str, Any]:
        import dataclasses as standard

        found: dict[str, Any] = {}
        for name, one in owner.__record__.items():
            said = {k: v for k, v in vars(one).items() if v is not MISSING}
            del said["name"], said["type"]
            found[name] = made = standard.field(**said)
            made.name, made.type, made._field_type = name, one.type, standard._FIELD  # type: ignore
        return found


def _copied(value: Any) -> Any:
    """Copy what a field holds: records as mappings, and what lists and mappings hold alike."""
    if is_dataclass(value):
        return asdict(value)  # type: ignore[arg-type]
    if isinstance(value, (list, tuple)):
        return getattr(type(value), "_make", type(value))(map(_copied, value))
    if isinstance(value, dict):
        return {_copied(key): _copied(one) for key, one in value.items()}
    return value


def _methods(cls: Any, frozen: bool, eq: bool, repr: bool) -> dict[str, Any]:
    """Name -> method, of those that a class does not write itself."""
    found: dict[str, Any] = {"__init__": _MakeRecord(cls, frozen)}
    if repr:
        found["__repr__"] = _repr
    if eq:
        values = attrgetter(*(f.name for f in fields(cls) if f.compare), "__class__")
        counted = (f for f in fields(cls) if (f.compare if f.hash is None else f.hash))
        hashed = attrgetter(*(f.name for f in counted), "__class__")
        found["__hash__"] = (lambda self: hash(hashed(self))) if frozen else None
        found["__eq__"] = lambda self, other: (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )
    if frozen:
        found |= {"__setattr__": _kept, "__delattr__": _kept}
        found |= {"__getstate__": _state, "__setstate__": _set_state}
    return found


def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _kept(self: Any, name: str, *value: object) -> None:
    raise unchanging(name, "assign to" if value else "delete")


def unchanging(name: str, deed: str = "assign to") -> AttributeError:
    """Error of a record that does not change."""
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(f"cannot {deed} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


class _MakeRecord:
    """`__init__` of a record, compiled when it was made `OFTEN`, or is looked at."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        self.cls, self.left = cls, OFTEN
        self.set = object.__setattr__ if frozen else setattr

    def __get__(self, instance: Any, owner: Any) -> Any:
        self.left -= 1
        if isinstance(instance, self.cls) and self.left >= 0:  # Python 3.14 looks by another
            return partial(self.fill, instance)
        return self.compiled().__get__(instance, owner)

    def compiled(self) -> Any:
        """Compile it once, in its own place."""
        if self.cls.__dict__["__init__"] is self:
            self.cls.__init__ = _compiled(self.cls, self.set is object.__setattr__)
        return self.cls.__dict__["__init__"]

    def fill(self, record: Any, /, *given: Any, **named: Any) -> None:
        """Give a record what its fields are given, and their defaults."""
        values = dict(zip(self.cls.__match_args__, given)) | named  # noqa: B905
        known = _taken(self.cls)
        missing = any(must and name not in values for name, must in known.items())
        if missing or len(values) < len(given) + len(named) or not values.keys() <= known.keys():
            self.compiled()(record, *given, **named)  # which says what is wrong
        for name, one in self.cls.__record__.items():
            value = values.get(name, one.default)
            if value is MISSING and one.default_factory is not MISSING:
                value = one.default_factory()
            if value is not MISSING:  # else it is set after all others
                self.set(record, name, value)
        if hasattr(record, "__post_init__"):
            record.__post_init__()


@cache
def _taken(cls: Any) -> dict[str, bool]:
    """Name -> whether it must be given, of the fields that a record is made of."""
    return {f.name: f.default is f.default_factory is MISSING for f in fields(cls) if f.init}


def _compiled(cls: Any, frozen: bool) -> Any:
    """Compile `__init__`, with an assignment for each field."""
    known: dict[str, Any] = {"__f": cls.__record__, "__M": MISSING, "__set": object.__setattr__}
    places, named, body = ["self"], ["*"], []
    for name, one in cls.__record__.items():
        given, value, alone = name, name, f"__f[{name!r}].default"  # alone: it is no argument
        if one.default is not MISSING:
            given = f"{name}={alone}"
        elif one.default_factory is not MISSING:
            given, alone = f"{name}=__M", f"__f[{name!r}].default_factory()"
            value = f"{alone} if {name} is __M else {name}"
        elif not one.init:
            continue
        if one.init:
            (named if one.kw_only else places).append(given)
        else:
            value = alone
        if not frozen:
            body.append(f"self.{name} = {value}")
        elif isinstance(slot := getattr(cls, name, None), MemberDescriptorType):
            known[f"__set_{name}"] = slot.__set__
            body.append(f"__set_{name}(self, {value})")
        else:
            body.append(f"__set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join(places + (named if named[1:] else []))
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


_NAMES = r"(?<![\w.])[A-Za-z_]\w*(?![\w(])"


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

    inputs = {key: found(key) for key in dict.fromkeys(re.findall(_NAMES, formula))}
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


@cache
def _arguments(kind: Callable[..., Any]) -> Sequence[str]:
    if is_dataclass(kind):
        return [*_taken(kind)]
    from inspect import signature

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
