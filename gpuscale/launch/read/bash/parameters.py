"""What `${...}` and `{a,b}` do with a text: slice, change of case, braces."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.found import UNSET

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
