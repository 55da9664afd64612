"""Arithmetic of bash: whole numbers with C's operators, by variables' names.

Its grammar is Python's but for a few signs: an expression is put into Python's and its tree walked.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

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
