"""Tests of bash, `[ ... ]` and `[[ ... ]]`, with how sure their answer is.

A variable that nothing sets is taken as empty by `-z` and `-n`, and as what it is compared with by
`=`: what a person would give is what the script asks for.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable

from gpuscale.launch.found import UNSET, is_unknown
from gpuscale.launch.read.bash.words import Script, fields, read_text, summed

SURE, LIKELY = 2, 1
"""Of a status: the higher of two is their `or`, the lower their `and`, the negative their `not`."""
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
_FILES = tuple("-e -f -d -s -r -w -x -h -L -p -S -a".split())
LATER = r"ckpt|checkpoint|latest|resum|last_|iter|\.log$|\.lock$|\.pid$|done$|finished"
"""What names a file that a first run does not find."""
_NAMED = re.compile(r"\"?\$\{?(\w+)\}?\"?")


def sure(truth: bool) -> int:
    """Status of what is known."""
    return SURE if truth else -SURE


class Condition:
    """One test: its words as written and as they read."""

    def __init__(self, raw: list[str], script: Script, brackets: int) -> None:
        self.script, self.brackets, self.i = script, brackets, 0
        self.taken = False  # whether something that is not known is taken as true
        self.words: list[tuple[str, str]] = []  # (read, as written)
        for one in raw:
            if brackets == 2 or re.fullmatch(r'".*"', one, re.DOTALL):
                self.words.append((read_text(one, script), one))
            else:
                self.words += [(word, one) for word in fields(one, script)]

    def status(self) -> int:
        """Whether it holds, and how sure that is."""
        return self._either() if self.words else -SURE

    def _next(self, *signs: str) -> bool:
        if self.i < len(self.words) and self.words[self.i][1] in signs:
            self.i += 1
            return True
        return False

    def _either(self) -> int:
        value = self._both()
        while self._next("||", "-o"):
            value = max(value, self._both())
        return value

    def _both(self) -> int:
        value = self._one()
        while self._next("&&", "-a"):
            value = min(value, self._one())
        return value

    def _one(self) -> int:
        if self._next("!"):
            return -self._one()
        if self._next("(", "\\("):
            value = self._either()
            self._next(")", "\\)")
            return value
        rest = self.words[self.i :]
        if len(rest) > 2 and (rest[1][1] in _COMPARE or rest[1][1] in _SIGNS):
            self.i += 3
            return self._compared(rest[0], rest[1][1].strip("\\"), rest[2])
        if len(rest) > 1 and re.fullmatch(r"-[a-zA-Z]", rest[0][1]):
            self.i += 2
            return self._of_one(rest[0][1], rest[1][0])
        self.i += 1
        if not rest:
            return -SURE
        return LIKELY if UNSET in rest[0][0] else sure(bool(rest[0][0]))

    def _of_one(self, sign: str, text: str) -> int:
        if sign in ("-z", "-n"):
            empty = (LIKELY if is_unknown(text) else -LIKELY) if UNSET in text else sure(not text)
            return empty if sign == "-z" else -empty
        if sign == "-v":
            return SURE if text in self.script.variables else -LIKELY
        if sign in _FILES:
            written = text in self.script.documents
            later = re.search(LATER, text.rsplit("/", 1)[-1].lower())
            return SURE if written else -SURE if not text else -LIKELY if later else LIKELY
        return LIKELY

    def _compared(self, left: tuple[str, str], sign: str, right: tuple[str, str]) -> int:
        a, b = left[0], right[0]
        if sign in _COMPARE:
            return self._numbers(left, sign, right)
        if UNSET in a + b:
            return self._unknown(left, sign, right)
        if sign in ("=", "==", "!="):
            glob = self.brackets == 2 and not re.match("['\"]", right[1])
            alike = fnmatch.fnmatchcase(a, b) if glob else a == b
            return sure(alike == (sign != "!="))
        if sign in "<>":
            return sure(a < b if sign == "<" else a > b)
        if sign == "=~" and len(a) < 1000 and is_linear(b):
            try:
                return sure(re.search(b, a) is not None)
            except re.error:
                return LIKELY
        return LIKELY

    def _numbers(self, left: tuple[str, str], sign: str, right: tuple[str, str]) -> int:
        counted = self.script.arguments is None and "$#" in left[1] + right[1]
        texts = (left[0], right[0])
        values = [one if UNSET in one else summed(one, self.script) for one in texts]
        if any(UNSET in one for one in values):
            self.taken = True
            return LIKELY
        status = sure(_COMPARE[sign](int(values[0]), int(values[1])))
        return status // SURE if counted else status

    def _unknown(self, left: tuple[str, str], sign: str, right: tuple[str, str]) -> int:
        """Status of a comparison with what is not known: an empty text, or what is asked for."""
        a, b = left[0], right[0]
        if UNSET not in b and a.startswith(b + UNSET):  # with nothing: `= ""`, `x$A = x`
            return LIKELY if sign != "!=" else -LIKELY
        named = _NAMED.fullmatch(left[1])
        if sign in ("=", "==") and named and UNSET not in b and not re.search(r"[*?\[]", b):
            self.script.assumed.append((named[1], b))
            if argument := re.fullmatch(UNSET + r"\$\{?(\d+)\}?", a):
                self.script.chosen.setdefault(argument[1], f"{left[1]} {sign} {b}"[:60])
            if not self.script.switched and not self.script.asked:
                unset = a.strip(UNSET + "${}") == named[1] and not named[1].isdigit()
                self.script.asked = "unset" if unset else "given"
        self.taken = True
        return LIKELY


def is_linear(pattern: str) -> bool:
    """Whether a regular expression takes no longer than a few passes over a text.

    No group is repeated, and few parts without end.

    >>> is_linear("^[0-9]+(b|kb)$"), is_linear("^(a|a)*$"), is_linear("(a+)+")
    (True, False, False)
    """
    repeated = re.search(r"\)[?*+{]|[*+?}][*+{]", pattern)
    return not repeated and len(re.findall(r"[*+]|\{", pattern)) <= 3 and len(pattern) < 400


_SIGNS = ("=", "==", "!=", "=~", "<", ">", "\\<", "\\>", "-nt", "-ot", "-ef")
