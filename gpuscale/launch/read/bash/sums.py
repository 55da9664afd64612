"""Arithmetic of bash, whole numbers with C's operators; what `${...}` and `{a,b}` do with a text.

The grammar of a sum is Python's but for a few signs: it is put into Python's and its tree walked.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from gpuscale.core.records import NamedTuple
from gpuscale.errors import GpuscaleError
from gpuscale.launch.found import UNSET

LARGEST = 2**63
LONGEST = 2000
"""Characters of an expression."""
_NAME = r"\s*([A-Za-z_]\w*(?:\[[^\]]*\])?)\s*"
_SET = re.compile(_NAME + r"(\*\*|<<|>>|[-+*/%&|^]|)=(?!=)(.*)", re.DOTALL)
_COUNTED = re.compile(r"\s*(\+\+|--|)" + _NAME + r"(\+\+|--|)\s*")
_CHOICE = re.compile(r"([^?]+)\?([^?:]+):([^?:]+)")


class NotKnown(ValueError):
    """A part of a sum that only the machine knows, or that is no sum."""


def _divided(a: int, b: int) -> int:
    if b == 0:
        raise NotKnown
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: int, b: int) -> int:
    if not 0 <= b <= 64:
        raise NotKnown
    return int(a**b)


_OPERATORS: dict[type, Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.FloorDiv: _divided,
    ast.Mod: lambda a, b: a - b * _divided(a, b),
    ast.Pow: _power,
    ast.LShift: lambda a, b: a * _power(2, b),
    ast.RShift: lambda a, b: a // _power(2, b),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
Get = Callable[[str], "str | None"]


def total(text: str, get: Get, put: Callable[[str, str], None]) -> int:
    """Value of an expression, the last of several with commas; raises NotKnown.

    `get`: value of a variable by its name, None for one that is not known. `put`: sets one.

    >>> total("(a + 3) / 2 > 2 && !0", {"a": "4"}.get, lambda name, value: None)
    1
    """
    value = 0
    for part in text.replace('"', "").split(","):
        if found := _SET.fullmatch(part):
            name, sign, rest = found.groups()
            value = total(f"{name} {sign} ({rest})" if sign else rest, get, put)
            put(name, str(value))
        elif (found := _COUNTED.fullmatch(part)) and (found[1] or found[3]):
            value = _named(found[2], get)
            after = value + (1 if "+" in found[1] + found[3] else -1)
            put(found[2], str(after))
            value = after if found[1] else value
        elif found := _CHOICE.fullmatch(part):
            value = total(found[2 if total(found[1], get, put) else 3], get, put)
        elif part.strip():
            value = _value(_parsed(part), get)
    return value


def _parsed(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise NotKnown
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    try:
        text = re.sub(r"\b(\d+)#(\w+)", lambda m: str(int(m[2], int(m[1]))), text)
        return ast.parse(" ".join(text.split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotKnown from None


def _value(node: ast.expr, get: Get) -> int:
    value = 0
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, (ast.Name, ast.Subscript)):
        value = _named(ast.unparse(node), get)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        value = _OPERATORS[type(node.op)](_value(node.left, get), _value(node.right, get))
    elif isinstance(node, ast.UnaryOp):
        value = int(_OPERATORS[type(node.op)](_value(node.operand, get)))
    elif isinstance(node, ast.BoolOp):
        every = all if isinstance(node.op, ast.And) else any
        value = int(every([_value(one, get) for one in node.values]))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        left, right = _value(node.left, get), _value(node.comparators[0], get)
        value = int(_OPERATORS[type(node.ops[0])](left, right))
    else:
        raise NotKnown
    if abs(value) >= LARGEST:
        raise NotKnown
    return value


def _named(name: str, get: Get) -> int:
    if (text := get(name)) is None:
        raise NotKnown
    text = text.strip() or "0"
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if len(text) > 200 or text == name:
        raise NotKnown
    return total(text, lambda _: None, lambda _name, _value: None)


MOST = 4000
_PARSED = re.compile(
    r"([#!]?)([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[([^\]]*)\])?"
    r"(?:(:?[-=?+]|##?|%%?|//?|\^\^?|,,?|:|@)(.*))?",
    re.DOTALL,
)


class Parameter(NamedTuple):
    """`${!name[place]sign rest}`."""

    before: str
    name: str
    place: str
    sign: str
    rest: str


def parsed(inner: str) -> Parameter | None:
    """Parts of what stands in `${...}`; None for what is no parameter."""
    match = _PARSED.fullmatch(inner)
    return Parameter(*(part or "" for part in match.groups())) if match else None


def changed(value: str | list[str], sign: str, other: str, numbers: list[str]) -> str | list[str]:
    """Slice a text or change its case, or each text of an array; ValueError for anything else.

    What is cut off or replaced by a pattern stays unknown: hardly any launch hangs on it.

    >>> changed("a/b/c.json", ":", "", ["2", "3"]), changed("7b", "^^", "", [])
    ('b/c', '7B')
    """
    if sign == ":":
        start, *length = [int(n) for n in numbers]
        end = (start if start >= 0 else len(value) + start) + length[0] if length else None
        return value[start:end]
    if isinstance(value, list):
        return [
            one
            for part in value
            for one in (changed(part, sign, other, []),)
            if isinstance(one, str)
        ]
    if UNSET in value + other or len(value) > MOST:
        raise ValueError("not known")
    if sign[0] not in "^,":
        raise ValueError("not followed")
    change = str.upper if sign[0] == "^" else str.lower
    return change(value) if len(sign) == 2 else change(value[:1]) + value[1:]


def braces(raw: str, depth: int = 0) -> list[str]:
    """Words that a brace expansion gives.

    >>> braces("a{1..3}"), braces("{x,y}z"), braces("${a}")
    (['a1', 'a2', 'a3'], ['xz', 'yz'], ['${a}'])
    """
    match = _BRACES.search(raw)
    if not match or depth > 3 or any(c in raw for c in "'\"`"):
        return [raw]
    first, last, step = (int(match[i] or 1) for i in (2, 3, 4))
    step = abs(step) or 1
    if match[2] and abs(last - first) // step <= 1000:
        sign = 1 if last >= first else -1
        width = max(len(match[2]), len(match[3])) if match[2][0] == "0" != match[2] else 0
        parts = [str(n).zfill(width) for n in range(first, last + sign, sign * step)]
    else:
        parts = (match[1] or "").split(",")
    if len(parts) < 2:
        return [raw]
    made: list[str] = []
    for part in parts:
        made += braces(raw[: match.start()] + part + raw[match.end() :], depth + 1)
        if len(made) > MOST_WORDS:
            raise GpuscaleError(f"braces that make more than {MOST_WORDS:,} words")
    return made


MOST_WORDS = 20_000
_BRACES = re.compile(r"(?<![$\\])\{(?:([^{}\s]*,[^{}\s]*)|(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?)\}")
