r"""Programs whose output a script itself says: `echo`, `printf`, `tr`, `expr`."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpuscale.launch.read.bash.sums import NotKnown, total
from gpuscale.launch.read.found import UNSET


def output(words: list[str], stdin: str) -> str | None:
    r"""Output of a program with its arguments; None where the machine is needed.

    Examples
    --------
    >>> output(["expr", "16", "/", "8"], ""), output(["date"], "")
    ('2\n', None)
    """
    name, rest = words[0].rsplit("/", 1)[-1], words[1:]
    does = PROGRAMS.get(name)
    if does is None or (name not in PASSING and UNSET in " ".join([*rest, stdin])):
        return None
    try:
        return does(rest, stdin)
    except (NotKnown, ValueError, IndexError):
        return None


def _echo(words: list[str], _stdin: str) -> str:
    ends = "" if words[:1] == ["-n"] else "\n"
    while words and re.fullmatch(r"-[neE]+", words[0]):
        if "e" in words[0]:
            words = [w.replace("\\n", "\n").replace("\\t", "\t") for w in words]
        words = words[1:]
    return " ".join(words) + ends


def _printf(words: list[str], _stdin: str) -> str:
    form, *given = [w for w in words if w != "--"]
    form = form.replace("\\n", "\n").replace("\\t", "\t")
    holes = len(re.findall(r"%(?!%)[-0-9.]*[a-z]", form))
    made = []
    for at in range(0, max(len(given), 1), holes or max(len(given), 1)):
        parts = iter(given[at : at + holes])
        made.append(re.sub(r"%([-0-9.]*)([a-z%])", lambda m: _put(m, next(parts, "")), form))  # noqa: B023
    return "".join(made)


def _put(hole: re.Match[str], text: str) -> str:
    if hole[2] == "%" or len(hole[1]) > 3:
        return "%"
    if hole[2] in "di" and text.lstrip("-").isdigit():
        return f"%{hole[1]}d" % int(text)
    return text


def _cat(words: list[str], stdin: str) -> str:
    if any(not w.startswith("-") for w in words):
        raise NotKnown  # a file
    return stdin


def _tr(words: list[str], stdin: str) -> str:
    sets = [w.replace("\\n", "\n").replace("\\t", "\t") for w in words if w[0] != "-"]
    if any("[" in one or "-" in one[1:-1] for one in sets) or len(sets) + ("-d" in words) < 2:
        raise NotKnown  # classes, ranges, squeezing
    new = "" if "-d" in words else sets[1]
    return stdin.translate({ord(a): new[i : i + 1] or new[-1:] for i, a in enumerate(sets[0])})


def _expr(words: list[str], _stdin: str) -> str:
    return f"{total(' '.join(words), lambda _: None, lambda _n, _v: None)}\n"


SHOWING = frozenset(("echo", "printf", "cat"))
PASSING = SHOWING | {"tr"}
"""Programs that hand on what is not known, as it stands in their text."""
PROGRAMS: dict[str, Callable[[list[str], str], str]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tr": _tr,
    "expr": _expr,
    "which": lambda words, _stdin: f"{words[-1]}\n",
}
