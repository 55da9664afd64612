"""Arithmetic of bash, whole numbers with C's operators; what `${...}` and `{a,b}` do with a text.

The grammar of a sum is Python's but for a few signs: it is put into Python's, and read as that is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from gpuscale.core.records import NamedTuple
from gpuscale.errors import GpuscaleError
from gpuscale.launch.found import UNSET
from gpuscale.launch.values import Evaluator

LARGEST = 2**63
LONGEST = 2000
"""Characters of an expression."""
_NAME = r"\s*([A-Za-z_]\w*(?:\[[^\]]*\])?)\s*"
_SET = re.compile(_NAME + r"(\*\*|<<|>>|[-+*/%&|^]|)=(?!=)(.*)", re.DOTALL)
_COUNTED = re.compile(r"\s*(\+\+|--|)" + _NAME + r"(\+\+|--|)\s*")
_CHOICE = re.compile(r"([^?]+)\?([^?:]+):([^?:]+)")


class NotKnown(ValueError):
    """A part of a sum that only the machine knows, or that is no sum."""


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
            value = _value(part, get)
    return value


class _Sum(Evaluator):
    """A sum as C has it: `&&` gives 0 or 1. It cuts a division to zero, Python down."""

    rounds = False

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        value = super().value(node, depth)
        if self.rounds and isinstance(value, int) and value < 0:
            raise NotKnown
        return int(bool(value)) if isinstance(node, ast.BoolOp) and value is not None else value


def _value(text: str, get: Get) -> int:
    """Value of one sum: its names put in, one of Python's; not known where these differ."""
    if len(text) > LONGEST or re.search(r"#|!(?!=)[^&|]*[-+*/%<>=]", text):
        raise NotKnown
    known = re.sub(_NAME, lambda found: f" ({_named(found[1], get)}) ", text)
    known = re.sub(r"!(?!=)", " not ", known.replace("&&", " and ").replace("||", " or "))
    try:
        node = ast.parse(" ".join(known.replace("/", "//").split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotKnown from None
    made = _Sum()
    made.rounds = bool(re.search("[/%]", text))
    value = made.value(node)
    if not isinstance(value, int) or abs(value) >= LARGEST:
        raise NotKnown
    return int(value)


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


def changed(value: str | list[str], sign: str, numbers: list[str]) -> str | list[str]:
    """Slice a text or an array, or change the case of a text; ValueError for anything else.

    What is cut off or replaced by a pattern stays unknown: hardly any launch hangs on it.

    >>> changed("a/b/c.json", ":", ["2", "3"]), changed("7b", "^^", [])
    ('b/c', '7B')
    """
    if sign == ":":
        start, *length = [int(n) for n in numbers]
        end = (start if start >= 0 else len(value) + start) + length[0] if length else None
        return value[start:end]
    if isinstance(value, list) or sign[0] not in "^," or UNSET in value or len(value) > MOST:
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
