"""Words of a shell script: quotes, variables, arrays, defaults and arithmetic, statically."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.found import UNSET
from gpuscale.launch.read.program_text import unwarned
from gpuscale.launch.read.substitutions import value_of

_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"([A-Za-z_]\w*|[0-9@*#]+)(\[[@*\d]+\])?(?:(:?[-=+?])(.*))?$", re.DOTALL)
MOST_READ = 5_000_000


@dataclass(slots=True)
class Script:
    """Commands of a script in order, as words; and what was not known."""

    commands: list[list[str]] = field(default_factory=list)
    variables: dict[str, str | list[str]] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)  # here-documents by file name
    quoted: set[str] = field(default_factory=set)  # those whose text stands as it is
    beside: Mapping[str, str] = field(default_factory=dict)  # texts of scripts, by file name
    depth: int = 0  # of scripts that start scripts
    read: int = 0  # characters, each as often as it was looked at

    def look_at(self, n_characters: int) -> None:
        """Count what is read; a script that grows without measure is given up."""
        self.read += n_characters
        if self.read > MOST_READ:
            raise GpuscaleError(
                "a script that grows without measure: variables in variables, or one statement "
                "over thousands of lines"
            )


def as_list(value: str | list[str]) -> list[str]:
    """Words of a variable, an array or not."""
    return value if isinstance(value, list) else shlex.split(value)


def closing(text: str, start: int) -> int:
    """Place of the bracket that closes the one at `start`."""
    pairs = {"(": ")", "{": "}"}
    opener, closer = text[start], pairs[text[start]]
    depth, quote, i = 0, "", start
    while i < len(text):
        c = text[i]
        if quote:
            if c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c == opener:
            depth += 1
        elif c == closer:
            depth -= 1
            if depth == 0:
                return i
        i += 1
    return len(text)


def unquoted(text: str, *, comments: bool = False) -> Iterator[tuple[int, str]]:
    """(place, character) of what stands outside quotes and escapes.

    A quote that is left open comes last, at the end of the text. With `comments`, of a comment
    only its `#`.

    >>> [c for _, c in unquoted("a 'b' # c", comments=True)]
    ['a', ' ', ' ', '#']
    """
    quote, i = "", 0
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\" and quote == '"':
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"`":
            quote = c
        elif c == "\\":
            i += 1
        else:
            yield i, c
            if comments and begins_comment(text, i):
                end = text.find("\n", i)
                i = len(text) if end < 0 else end
        i += 1
    if quote:
        yield len(text), quote


def begins_comment(text: str, i: int) -> bool:
    """Whether the unquoted character at a place begins a comment."""
    return text[i : i + 1] == "#" and (i == 0 or text[i - 1].isspace())


def end_of_word(text: str) -> int:
    """Place where the first word ends."""
    depth = 0
    for i, c in unquoted(text):
        if c in "({":
            depth += 1
        elif c in ")}":
            depth -= 1
        elif c.isspace() and depth <= 0:
            return i
    return len(text)


def words_of(text: str, script: Script) -> list[str]:
    """Words of a command with all that is known put in."""
    words: list[str] = []
    i = 0
    while i < len(text):
        if text[i].isspace():
            i += 1
            continue
        end = i + end_of_word(text[i:])
        words += _word(text[i:end], script)
        i = end
    return words


def _word(raw: str, script: Script) -> list[str]:
    """One raw word: an array or an unquoted variable gives several words."""
    bare = raw.strip('"')
    if bare in ("$@", "$*", "${@}") and isinstance(given := script.variables.get("@"), str):
        return shlex.split(given)
    match = re.fullmatch(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?\}|\$([A-Za-z_]\w*)", bare)
    if match:
        value = script.variables.get(match[1] or match[2])
        script.look_at(sum(len(part) + 8 for part in value or ()))
        if isinstance(value, list):
            whole = raw.startswith('"')
            return [w for one in value for w in ([one] if whole or not one else one.split())]
        if value is not None and not raw.startswith('"'):
            try:
                return shlex.split(value)
            except ValueError:
                return [value]
        if value == "":
            return [""] if raw.startswith('"') else []
    text = read_text(raw, script)
    return [text] if text or raw[:1] in "'\"" else []


def read_document(name: str, script: Script) -> str:
    """Text of a here-document with variables put in; one that is not known is `null`."""
    body = script.documents[name]
    if name in script.quoted:
        return body

    def value(match: re.Match[str]) -> str:
        text = read_text(match[0], script)
        return "null" if UNSET in text else text

    return re.sub(r"\$\{[^}]*\}|\$[A-Za-z_]\w*", value, body)


def read_text(raw: str, script: Script) -> str:
    """Text of a raw word: quotes taken off, variables put in."""
    made: list[str] = []
    i, quote = 0, ""
    while i < len(raw):
        c = raw[i]
        if quote == "'":
            if c == "'":
                quote = ""
            else:
                made.append(c)
            i += 1
        elif c == "\\" and i + 1 < len(raw):
            made.append("" if raw[i + 1] == "\n" else raw[i + 1])
            i += 2
        elif c == '"' or (c == "'" and not quote):
            quote = "" if quote == c else c
            i += 1
        elif c == "$" and i + 1 < len(raw):
            value, i = _dollar(raw, i, script)
            made.append(value)
        elif c == "`":
            end = raw.find("`", i + 1)
            end = len(raw) - 1 if end < 0 else end
            made.append(_substituted(f"$({raw[i + 1 : end]})", script))
            i = end + 1
        else:
            made.append(c)
            i += 1
    return "".join(made)


def _unknown(text: str, script: Script) -> str:
    script.unresolved.append(text)
    between = "" if text.startswith("$((") else "_"
    return UNSET + re.sub(r"[\s'\"]+", between, text)  # one word, whatever splits it later


def _substituted(text: str, script: Script) -> str:
    """Value of `$(...)` where the script says it itself."""
    known = Script(variables=script.variables)
    inner = re.sub(
        r"\$\{?([A-Za-z_]\w*)\}?", lambda m: _value(m[1], m[0], known), text[2:-1].strip()
    )
    script.look_at(len(inner))
    value = value_of(inner, script.variables)
    return _unknown(text, script) if value is None else value


def _dollar(raw: str, i: int, script: Script) -> tuple[str, int]:
    """(value, next place) of what begins with a dollar sign."""
    if raw.startswith("$((", i):
        end = raw.find("))", i)
        end = len(raw) if end < 0 else end
        return _arithmetic(raw[i + 3 : end], script), end + 2
    if raw[i + 1] == "(":
        end = closing(raw, i + 1)
        return _substituted(raw[i : end + 1], script), end + 1
    if raw[i + 1] == "{":
        end = closing(raw, i + 1)
        return _braced(raw[i + 2 : end], script), end + 1
    name = _NAME.match(raw, i + 1)
    if not name:
        if raw[i + 1].isdigit():
            return _value(raw[i + 1], raw[i : i + 2], script), i + 2
        if raw[i + 1] in "@*#?":
            return _unknown(raw[i : i + 2], script), i + 2
        return "$", i + 1
    return _value(name[0], "$" + name[0], script), name.end()


def _value(name: str, shown: str, script: Script) -> str:
    value = script.variables.get(name)
    if value is None:
        return _unknown(shown, script)
    text = value if isinstance(value, str) else shlex.join(value)
    script.look_at(len(text))
    return text


def _braced(inner: str, script: Script) -> str:
    script.look_at(len(inner))
    match = _BRACED.match(inner)
    shown = "${" + inner + "}"
    if not match:
        return _unknown(shown, script)
    name, _, sign, other = match.groups()
    value = script.variables.get(name)
    known = value is not None and (value != "" or not (sign or "").startswith(":"))
    if known and UNSET in (value if isinstance(value, str) else " ".join(value or [])):
        known = not sign
    if sign and sign[-1] == "+":
        return read_text(other, script) if known else ""
    if known:
        return _value(name, shown, script)
    if sign and sign[-1] in "-=":
        text = read_text(other, script)
        if sign[-1] == "=":
            script.variables[name] = text
        return text
    return _unknown(shown, script)


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def _arithmetic(text: str, script: Script) -> str:
    """Value of an integer expression, or the text itself where a part is unknown."""
    if UNSET in (known := read_text(text, script)):
        return UNSET + "$((" + re.sub(r"\s+", "", text) + "))"
    inner = re.sub(r"(?<!\w)\$?\{?([A-Za-z_]\w*)\}?", lambda m: _value(m[1], m[1], script), known)
    if UNSET in inner:
        return UNSET + "$((" + re.sub(r"\s+", "", text) + "))"
    try:
        with unwarned():
            return str(_evaluate(ast.parse(inner.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return _unknown("$((" + text + "))", script)


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    raise ValueError("not integer arithmetic")
