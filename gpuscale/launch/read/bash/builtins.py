r"""Commands that bash itself does; programs whose output a script itself says: `printf`, `tr`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from gpuscale.core.records import fields as fields_of
from gpuscale.core.records import is_dataclass
from gpuscale.launch.found import UNSET
from gpuscale.launch.read.bash.conditions import LIKELY, SURE
from gpuscale.launch.read.bash.sums import NotKnown, total
from gpuscale.launch.read.bash.tree import ASSIGN, Node, Simple, Tested, While
from gpuscale.launch.read.bash.words import Script, assign, words_of


def output(words: list[str], stdin: str) -> str | None:
    r"""Output of a program with its arguments; None where the machine is needed.

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


def _printed(words: list[str], _stdin: str) -> str:
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
    "printf": _printed,
    "cat": _cat,
    "tr": _tr,
    "expr": _expr,
    "which": lambda words, _stdin: f"{words[-1]}\n",
}


LEAVING = ("exit", "die", "usage", "print_usage")


class Leave(Exception):
    """The script ends here."""


class Return(Exception):
    """A function ends here."""

    def __init__(self, status: int) -> None:
        self.status = status


class Break(Exception):
    """So many loops end here."""

    def __init__(self, levels: int) -> None:
        self.levels = levels


class Continue(Break):
    """The next round of a loop begins."""


def _declare(raw: list[str], script: Script) -> int:
    """Do `export`, `local`, `declare` and kin: their assignments."""
    flags = "".join(w for w in raw[1:] if re.match("[-+]", w))
    for one in raw[1:]:
        if ASSIGN.match(one):
            assign(one, script, table="A" in flags)
        elif one[:1] not in "-+$" and raw[0] != "export":
            if "A" in flags:
                script.tables.setdefault(one, {})
            elif raw[0] == "local":
                script.variables.setdefault(one, "")
        elif one[:1] == "$":
            for word in words_of([one], script):
                assign(word, script) if ASSIGN.match(word) else None
    return SURE


def _leave(_words: list[str], _script: Script) -> int:
    raise Leave


def _return(words: list[str], _script: Script) -> int:
    raise Return(-SURE if words[1:2] not in ([], ["0"]) else SURE)


def _levels(words: list[str]) -> int:
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 1


def _break(words: list[str], _script: Script) -> int:
    raise Break(_levels(words))


def _continue(words: list[str], _script: Script) -> int:
    raise Continue(_levels(words))


def _shift(words: list[str], script: Script) -> int:
    if script.arguments is not None:
        script.arguments = script.arguments[_levels(words) :]
    return SURE


def _set(words: list[str], script: Script) -> int:
    if "--" in words:
        script.arguments = words[words.index("--") + 1 :]
    return SURE


def _unset(words: list[str], script: Script) -> int:
    for name in words[1:]:
        script.variables.pop(name, None)
        script.tables.pop(name, None)
    return SURE


def _printf(words: list[str], script: Script) -> int:
    if words[1:2] == ["-v"] and len(words) > 3:
        script.variables[words[2]] = output(["printf", *words[3:]], "") or ""
    elif script.printed is not None:
        script.printed.append(output(words, script.stdin or ""))
    return SURE


def _read(words: list[str], script: Script) -> int:
    """Do a `read`: a line of the input into variables, or with -a into one array."""
    names, flags = _names(words[1:])
    if script.stdin is None or UNSET in script.stdin or not names:
        script.variables |= {name: f"{UNSET}${name}" for name in names}
        return LIKELY
    if not script.stdin:
        return -SURE if script.stdin == "" and not flags.startswith("p") else LIKELY
    if "d" in flags:
        line, script.stdin = script.stdin, ""
    else:
        line, _, script.stdin = script.stdin.partition("\n")
    between = script.variables.get("IFS", " ")
    spaces = not isinstance(between, str) or not between.strip() or UNSET in between
    parts = line.split() if spaces else line.split(str(between)[0])
    if "a" in flags:
        script.variables[names[0]] = parts
    elif len(names) == 1:
        script.variables[names[0]] = line.strip()
    else:
        last = [(" " if spaces else str(between)[0]).join(parts[len(names) - 1 :])]
        parts = parts[: len(names) - 1] + last
        for i, name in enumerate(names):
            script.variables[name] = parts[i].strip() if i < len(parts) else ""
    return SURE


def _names(words: list[str]) -> tuple[list[str], str]:
    """Variables of a `read` or `mapfile`, and its flags."""
    names, flags, skip = [], "", False
    for word in words:
        if word.startswith("-"):
            flags += word[1:]
            skip = word[-1:] in "dpntuO" and "t" not in word[1:2]
        elif skip:
            skip = False
        elif re.fullmatch(r"[A-Za-z_]\w*", word):
            names.append(word)
    return names, flags


def _unknown(words: list[str], script: Script) -> int:
    """Leave an array open that a `mapfile` fills."""
    script.variables |= {name: f"{UNSET}${name}" for name in _names(words[1:])[0][-1:]}
    return SURE


Does = Callable[[list[str], Script], int]


def _nothing(_words: list[str], _script: Script) -> int:
    return SURE


def _fails(_words: list[str], _script: Script) -> int:
    return -SURE


RAW: dict[str, Does] = dict.fromkeys(
    ("export", "local", "declare", "readonly", "typeset"), _declare
)
"""Builtins that are given their words as written."""
KNOWN: dict[str, Does] = {
    **dict.fromkeys(": true trap wait cd pushd popd shopt ulimit".split(), _nothing),
    "false": _fails,
    **dict.fromkeys(LEAVING, _leave),
    "return": _return,
    "break": _break,
    "continue": _continue,
    "shift": _shift,
    "set": _set,
    "unset": _unset,
    "printf": _printf,
    "read": _read,
    "mapfile": _unknown,
    "readarray": _unknown,
    "getopts": _fails,
}


def handed_on(words: list[str]) -> list[str]:
    """Texts that a command hands to another shell."""
    found = []
    for i, word in enumerate(words):
        name, _, value = word.partition("=")
        if name.lower() in ("--command", "--wrap") and " " in value:
            found.append(value)
        before = words[i - 1].rsplit("/", 1)[-1] if i else ""
        if (
            before in ("bash", "sh", "--command", "--COMMAND", "--wrap", "-c", "-lc")
            and " " in word
        ):
            if before in ("-c", "-lc") and not words[i - 2].endswith(("sh", "/env")):
                continue
            found.append(word)
    if words[0] in ("ssh", "pdsh") and " " in words[-1] and words[-1] not in found:
        found.append(words[-1])
    return found


def within(node: Any) -> Iterator[Simple | Tested]:
    """Walk over the simple commands and tests of a tree."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, (Simple, Tested)):
            yield one
        elif isinstance(one, (list, tuple)):
            stack += one
        elif is_dataclass(one):
            stack += [getattr(one, part.name) for part in fields_of(one)]


def over_arguments(node: While, script: Script) -> bool:
    """Whether a loop goes over arguments that are not known, or by `getopts`, which is not read."""
    words = {w for one in within(node) for w in (one.words if isinstance(one, Simple) else [])}
    return "getopts" in words or (script.arguments is None and "shift" in words)


def forget(body: Node, script: Script) -> None:
    """Take what a loop over arguments sets, and nothing else has, as not known."""
    for one in within(body):
        for word in one.words if isinstance(one, Simple) else []:
            if (match := ASSIGN.match(word)) and script.variables.get(match[1]) == "":
                script.variables[match[1]] = f"{UNSET}${match[1]}"
