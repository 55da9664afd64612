"""Words of a script: quotes, variables, arrays, defaults and arithmetic, put in statically."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from gpuscale.core.records import dataclass, field
from gpuscale.errors import GpuscaleError
from gpuscale.launch.found import UNSET, is_unknown
from gpuscale.launch.read.bash import sums
from gpuscale.launch.read.bash.sums import NotKnown, total
from gpuscale.launch.read.bash.syntax import Parser, end_of
from gpuscale.launch.read.bash.tree import ASSIGN, Node
from gpuscale.launch.secrets import is_secret

MOST_READ = 5_000_000
DEEPEST = 40


@dataclass(slots=True)
class Budget:
    """What is read, each character as often as it is looked at, over a script and all it starts."""

    read: int = 0
    depth: int = 0
    scripts: int = 0  # that start one another just now

    def look_at(self, n_characters: int) -> None:
        """Count what is read; a script that grows without measure is given up."""
        self.read += n_characters
        if self.read > MOST_READ:
            raise GpuscaleError(
                "a script that grows without measure: variables in variables, loops in loops, or "
                "one statement over thousands of lines"
            )


def unknown_to_all(*_: object) -> None:
    """Know no output of a command, and no file beside."""


@dataclass(slots=True)
class Script:
    """Commands of a script in order, as words; what it knows, and what was not known."""

    commands: list[list[str]] = field(default_factory=list)
    variables: dict[str, str | list[str]] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)  # associative arrays
    arguments: list[str] | None = None  # None: they are given when it is started
    functions: dict[str, Node] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    unresolved: list[str] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)  # files that it writes, by name
    headers: str = ""  # its text and those of the jobs that it submits
    find: Callable[[str], tuple[str, str] | None] = unknown_to_all  # text of a script beside
    budget: Budget = field(default_factory=Budget)
    output: Callable[[str, Script], str | None] = unknown_to_all  # of `$(...)`
    printed: list[str | None] | None = None  # where output is asked for
    stdin: str | None = ""
    assumed: list[tuple[str, str]] = field(default_factory=list)  # what a test is taken to say
    switched: bool = False  # what compares an unset variable is taken as true
    asked: str = ""  # the test that compares what is `unset`, or `given` when it is started
    chosen: dict[str, str] = field(default_factory=dict)  # argument that is not given -> its test
    given: frozenset[str] = frozenset()  # variables known from outside
    own: dict[tuple[str, ...], dict[str, str | list[str]]] = field(default_factory=dict)
    """Command -> the variables that are set for it alone."""


def as_list(value: str | list[str]) -> list[str]:
    """Words of a variable, an array or not."""
    return value if isinstance(value, list) else shlex.split(value)


def words_of(raw: list[str], script: Script) -> list[str]:
    """Words of a command with all that is known put in."""
    return [word for one in raw for braced in sums.braces(one) for word in fields(braced, script)]


def read_text(raw: str, script: Script) -> str:
    """Text of a raw word: quotes taken off, variables put in."""
    return " ".join(_Fields(raw, script, splits=False).read())


def fields(raw: str, script: Script) -> list[str]:
    """Words that one raw word gives: an array or an unquoted variable gives several."""
    return _Fields(raw, script, splits=True).read()


def read_here(body: str, script: Script) -> str:
    """Text of a here-document with variables put in."""
    return "".join(_Fields(body, script, splits=False, quoted=True).read())


class _Fields:
    """Walks over one raw word."""

    def __init__(self, raw: str, script: Script, splits: bool, quoted: bool = False) -> None:
        self.raw, self.script, self.splits = raw, script, splits
        self.here = quoted  # a here-document: quotes mean nothing in it
        self.quoted = quoted
        self.done: list[str] = []
        self.now: list[str] | None = None

    def read(self) -> list[str]:
        raw, i = self.raw, 0
        self.script.budget.look_at(len(raw))
        while i < len(raw):
            c = raw[i]
            if c == '"' and not self.here:
                self.quoted = not self.quoted
                self._put("" if self.quoted else None)
                i += 1
            elif c == "'" and not self.quoted:
                end = raw.find("'", i + 1)
                end = len(raw) if end < 0 else end
                self._put(raw[i + 1 : end])
                i = end + 1
            elif c == "\\" and i + 1 < len(raw):
                kept = self.quoted and raw[i + 1] not in '$`"\\\n'
                self._put("" if raw[i + 1] == "\n" else raw[i] * kept + raw[i + 1])
                i += 2
            elif c == "`" or (c == "$" and i + 1 < len(raw)):
                i = self._dollar(i)
            else:
                plain = _PLAIN.match(raw, i)
                end = plain.end() if plain else i + 1
                self._put(raw[i:end])
                i = end
        self._end()
        return self.done

    def _put(self, text: str | None) -> None:
        if text is not None:
            self.now = self.now or []
            self.now.append(text)

    def _end(self) -> None:
        if self.now is not None:
            self.done.append("".join(self.now))
        self.now = None

    def _dollar(self, i: int) -> int:
        raw = self.raw
        if raw.startswith("$'", i) and not self.quoted:
            end = raw.find("'", i + 2)
            end = len(raw) if end < 0 else end
            self._put(raw[i + 2 : end].replace("\\n", "\n").replace("\\t", "\t"))
            return end + 1
        value, end = expansion(raw, i, self.script)
        if isinstance(value, list):
            whole = self.quoted or not self.splits
            self._several(value if whole else [w for v in value for w in v.split() or [v]])
        elif self.quoted or not self.splits:
            self._put(value)
        else:
            whole = i == 0 and end >= len(raw)
            self._several(_split(value, self.script, whole), value)
        return end

    def _several(self, parts: list[str], value: str = "x") -> None:
        """Put the words of an expansion: the first goes on, the last stays open."""
        if not parts:
            if self.quoted and self.now is not None and not "".join(self.now):
                self.now = None  # "${A[@]}" of an empty array is no word
            return
        if value[:1].isspace():
            self._end()
        for n, part in enumerate(parts):
            if n:
                self._end()
            self._put(part)
        if value[-1:].isspace():
            self._end()


_PLAIN = re.compile(r"[^\\'\"`$]+")


def _split(value: str, script: Script, whole: bool) -> list[str]:
    """Words of an unquoted value; quotes in a whole command that a variable holds are obeyed."""
    between = script.variables.get("IFS")
    if isinstance(between, str) and between.strip() and UNSET not in between:
        return [part for part in re.split(f"[{re.escape(between)}]", value) if part]
    if whole and re.search(r"(^|[\s=])['\"]", value) and "{" not in value:
        try:
            return shlex.split(value)
        except ValueError:
            pass
    return value.split()


def unknown(text: str, script: Script) -> str:
    """Mark of what is not known, one word whatever splits it later; it is listed."""
    script.unresolved.append(text)
    return UNSET + re.sub(r"[\s'\"]+", "" if text.startswith("$((") else "_", text)


def expansion(raw: str, i: int, script: Script) -> tuple[str | list[str], int]:
    """(value, next place) of what begins with a dollar sign or a backtick."""
    if raw[i] == "`":
        end = end_of(raw, i)
        inner = raw[i + 1 : end - 1].replace("\\`", "`")
        return _substituted(f"$({inner})", script), end
    following = raw[i + 1]
    if following == "(":
        end = end_of(raw, i + 1)
        if raw[i + 2 : i + 3] == "(" and raw[end - 2 : end] == "))":
            return summed(raw[i + 3 : end - 2], script), end
        return _substituted(raw[i:end], script), end
    if following == "{":
        end = end_of(raw, i + 1)
        return _braced(raw[i + 2 : end - 1], script), end
    if following == "[":
        end = end_of(raw, i + 1)
        return summed(raw[i + 2 : end - 1], script), end
    match = _NAME.match(raw, i + 1)
    if not match:
        return "$", i + 1
    shown = "$" + match[0]
    value = lookup(match[0], script)
    if value is None:
        return unknown(shown, script), match.end()
    if isinstance(value, list) and match[0] not in "@*":
        whole = not raw[:i].strip('"') and not raw[match.end() :].strip('"')  # without brackets
        value = value[0] if value and not whole else value
    return value, match.end()


_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")


def lookup(name: str, script: Script) -> str | list[str] | None:
    """Value of a variable or argument; None where it is not known."""
    script.budget.look_at(8)
    given = script.arguments
    if name.isdigit() and name != "0" and given is not None:
        return given[int(name) - 1] if int(name) <= len(given) else ""
    if name in "@*":
        said = script.variables.get("@")
        return given if given is not None else said if said is None else as_list(said)
    if name == "#":
        return str(len(given or ()))
    if name == "?":
        return "0"
    value = None if is_secret(name) else script.variables.get(name)
    script.budget.look_at(
        sum(len(part) + 8 for part in value) if isinstance(value, list) else len(value or "")
    )
    return value


def _substituted(text: str, script: Script) -> str:
    """Value of `$(...)` where the script says it itself."""
    script.budget.look_at(len(text))
    value = script.output(text[2:-1], script)
    return unknown(text, script) if value is None else value


def _braced(inner: str, script: Script) -> str | list[str]:
    """Value of `${...}`."""
    script.budget.look_at(len(inner))
    script.budget.depth += 1
    try:
        if script.budget.depth > DEEPEST or not (said := sums.parsed(inner)):
            return unknown("${" + inner + "}", script)
        shown = inner.partition("?")[0].rstrip(":") if said.sign in ("?", ":?") else inner
        return _parameter(said, "${" + shown + "}", script)
    finally:
        script.budget.depth -= 1


def _parameter(said: sums.Parameter, shown: str, script: Script) -> str | list[str]:
    value = element(said.name, said.place, script)
    if said.before == "!":
        if said.place in ("@", "*"):
            table = script.tables.get(said.name)
            listed = value if isinstance(value, list) else []
            return list(table) if table is not None else [str(i) for i in range(len(listed))]
        value = lookup(value, script) if isinstance(value, str) and UNSET not in value else None
    if said.before == "#":
        many = said.place in ("@", "*") or said.name in "@*"
        if value is None or UNSET + "$(" in "".join(value) or value[:1] == UNSET:
            return unknown(shown, script)
        return str(len(value if many or isinstance(value, str) else "".join(value[:1])))
    sign = said.sign
    if sign.strip(":") in tuple("-=?+"):
        known = value is not None and not (sign[0] == ":" and not value)
        known = known and not is_unknown(value if isinstance(value, str) else " ".join(value or []))
        if sign[-1] == "+":
            return read_text(said.rest, script) if known else ""
        if not known and sign[-1] in "-=":
            text = read_text(said.rest, script)
            if sign[-1] == "=":
                script.variables[said.name] = text
            return text
        return value if known and value is not None else unknown(shown, script)
    if value is None:
        return unknown(shown, script)
    if not sign:
        return value
    try:
        rest = [summed(one, script) for one in said.rest.split(":")] if sign == ":" else []
        return sums.changed(value, sign, rest)
    except ValueError:
        return unknown(shown, script)


def element(name: str, index: str, script: Script) -> str | list[str] | None:
    """Value of a variable, of all elements of an array or of one of them."""
    table = script.tables.get(name)
    if table is not None and index:
        return list(table.values()) if index in "@*" else table.get(read_text(index, script))
    value = lookup(name, script)
    if not index or value is None:
        return value
    listed = value if isinstance(value, list) else [value]
    if index in "@*":
        return listed
    try:
        place = int(summed(index, script))
        return listed[place]
    except (ValueError, IndexError):
        return None


def summed(text: str, script: Script) -> str:
    """Value of an integer expression, or the text itself where a part is unknown."""
    known = read_text(text, script) if "$" in text or "`" in text else text

    def get(name: str) -> str | None:
        base, _, index = name.partition("[")
        value = element(base, index.rstrip("]"), script)
        value = value[0] if isinstance(value, list) and value else value
        return value if isinstance(value, str) and UNSET not in value else None

    def put(name: str, value: str) -> None:
        assign(f"{name}={value}", script)

    try:
        script.budget.look_at(len(known))
        if UNSET in known:
            raise NotKnown
        return str(total(known, get, put))
    except NotKnown:
        shown = "$((" + re.sub(r"\s+", "", text) + "))"
        script.unresolved.append(shown)
        return UNSET + shown


def assign(raw: str, script: Script, table: bool = False) -> None:
    """Do one assignment: of a text, an array or an element of one."""
    match = ASSIGN.match(raw)
    if not match:
        return
    name, index, more, value = match[1], match[2], match[3], raw[match.end() :]
    before = script.variables.get(name)
    if value.startswith("(") and index is None:
        inner = Parser(value[1:-1] if value.endswith(")") else value[1:]).words()
        keyed = [m for one in inner if (m := re.match(r"\[(.+?)\]=", one))]
        if table or name in script.tables or (keyed and not keyed[0][1].isdigit()):
            made = {read_text(m[1], script): read_text(m.string[m.end() :], script) for m in keyed}
            script.tables[name] = (script.tables.get(name, {}) if more else {}) | made
            return
        words = words_of([re.sub(r"^\[\d+\]=", "", one) for one in inner], script)
        script.budget.look_at(sum(map(len, words)))
        script.variables[name] = (as_list(before) if more and before else []) + words
        return
    text = read_text(value, script)
    if UNSET in text and name in script.given:
        return  # a person says what its command would print
    if index is not None:
        _put_element(name, index, text, script)
    elif more and isinstance(before, list):
        script.variables[name] = [*before, text]
    else:
        script.variables[name] = (
            (before or "") + text if more and not isinstance(before, list) else text
        )


def _put_element(name: str, index: str, text: str, script: Script) -> None:
    if name in script.tables:
        script.tables[name] = script.tables[name] | {read_text(index, script): text}
        return
    before = script.variables.get(name, [])
    listed = list(before) if isinstance(before, list) else [before]
    place = summed(index, script) if index else str(len(listed))
    if place.isdigit() and int(place) <= len(listed) + 1000:
        listed += [""] * (int(place) + 1 - len(listed))
        listed[int(place)] = text
        script.variables[name] = listed
