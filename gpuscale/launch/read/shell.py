"""Shell scripts read statically: variables, arrays and defaults are put in, nothing is executed.

What a person writes in launch scripts: assignments (also of arrays, `+=`, `export`, `local`),
`${A:-default}`, `"${ARRAY[@]}"`, `$((arithmetic))`, here-documents, `if` with plain tests. What
needs the machine (a command substitution, an unset variable) is left as it is and listed.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGN = re.compile(
    r"(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)="
)
_BRACED = re.compile(r"([A-Za-z_]\w*|[0-9@*#]+)(\[[@*\d]+\])?(?:(:?[-=+?])(.*))?$", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
MAX_CHARACTERS = 2_000_000
UNSET = "\x00"
"""Mark of what could not be put in, before the variable's own text."""


@dataclass(slots=True)
class Script:
    """Commands of a script in order, as words; and what was not known."""

    commands: list[list[str]] = field(default_factory=list)
    variables: dict[str, str | list[str]] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)  # here-documents by file name


def read_script(text: str, variables: dict[str, str] | None = None) -> Script:
    """Read a script.

    Parameters
    ----------
    text : str
        The script.
    variables : dict, optional
        Variables known from outside (of the environment, or given by a person).

    Examples
    --------
    >>> read_script('TP=${TP:-4}; A=(--tp $TP); run "${A[@]}" --n $((TP*2))').commands
    [['run', '--tp', '4', '--n', '8']]
    """
    script = Script(variables=dict(variables or {}))
    state = _Conditions()
    for line in _logical_lines(text, script):
        for part in _statements(line):
            _statement(part, script, state)
    script.unresolved = list(dict.fromkeys(script.unresolved))
    return script


class _Conditions:
    """Nested `if`s: which branch is read. An unknown test reads its first branch."""

    def __init__(self) -> None:
        self.stack: list[tuple[bool, bool]] = []  # (reading, a branch was read)

    @property
    def reading(self) -> bool:
        return all(reading for reading, _ in self.stack)


def _logical_lines(text: str, script: Script) -> list[str]:
    """Lines with continuations, open quotes and open brackets joined; here-documents taken out."""
    lines = text[:MAX_CHARACTERS].replace("\r\n", "\n").split("\n")
    joined: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        while at < len(lines) and _open(line):
            line = line[:-1] + " " + lines[at] if line.endswith("\\") else line + "\n" + lines[at]
            at += 1
        heredoc = _HEREDOC.search(line)
        if heredoc and not line.lstrip().startswith("#"):
            body = []
            while at < len(lines) and lines[at].strip() != heredoc[2]:
                body.append(lines[at])
                at += 1
            at += 1
            target = re.search(r">\s*(\S+)", line.replace(heredoc[0], ""))
            if target:
                script.documents[target[1].strip("'\"")] = "\n".join(body) + "\n"
            elif "\n".join(body).strip():  # handed to another shell: read as if it stood here
                lines[at:at] = body
            continue
        joined.append(line)
    return joined


def _open(line: str) -> bool:
    """Whether a statement goes on in the next line."""
    stripped = line.lstrip()
    if stripped.startswith("#"):
        return False
    if line.endswith("\\"):
        return True
    quote, depth = "", 0
    i = 0
    while i < len(line):
        c = line[i]
        if quote:
            if c == "\\" and quote == '"':
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c == "\\":
            i += 1
        elif c == "#" and (i == 0 or line[i - 1].isspace()):
            end = line.find("\n", i)
            if end < 0:
                break
            i = end
        elif c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
        i += 1
    return bool(quote) or (depth > 0 and bool(_ASSIGN.search(line)))


def _statements(line: str) -> list[str]:
    """Parts of a line between `;`, `&&` and `||` outside quotes and brackets."""
    parts, start, quote, depth, i = [], 0, "", 0, 0
    while i < len(line):
        c = line[i]
        if quote:
            if c == "\\" and quote == '"':
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c == "\\":
            i += 1
        elif c == "#" and (i == 0 or line[i - 1].isspace()):
            end = line.find("\n", i)
            line = line[:i] + (line[end:] if end >= 0 else "")
            continue
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif depth <= 0 and (
            c == ";"
            or (line[i : i + 2] in ("&&", "||") and not line[start:].lstrip().startswith("if"))
        ):
            parts.append(line[start:i])
            i += 0 if c == ";" else 1
            start = i + 1
        i += 1
    return [p.strip() for p in [*parts, line[start:]] if p.strip()]


def _statement(part: str, script: Script, state: _Conditions) -> None:
    word = part.split(None, 1)[0]
    if word in ("if", "elif", "else", "fi", "then"):
        _branch(word, part, script, state)
        return
    if not state.reading or word in ("for", "while", "do", "done", "case", "esac", "function"):
        return
    assigned = _ASSIGN.match(part)
    if assigned and assigned.end() <= len(part):
        rest = _assign(part, assigned, script)
        if not rest:
            return
        part = rest
    words = _words(part, script)
    if words[:1] == ["export"]:
        return
    if words:
        script.commands.append(words)


def _branch(word: str, part: str, script: Script, state: _Conditions) -> None:
    rest = part[len(word) :].strip()
    if word == "if":
        taken = _test(rest, script)
        state.stack.append((taken, taken))
    elif word == "fi":
        if state.stack:
            state.stack.pop()
    elif word == "then":
        if rest:
            _statement(rest, script, state)
    elif state.stack:
        _, read = state.stack.pop()
        taken = not read and (word == "else" or _test(rest, script))
        state.stack.append((taken, read or taken))
        if word == "else" and rest:
            _statement(rest, script, state)


def _test(text: str, script: Script) -> bool:
    """Value of a plain `[ a = b ]`, `[[ -n $A ]]`, `(( a > b ))`; unknown ones are taken."""
    if "||" in text or "&&" in text:
        either = re.split(r"\|\||&&", text)
        return (any if "||" in text else all)(_test(one, script) for one in either)
    inner = text.strip().removeprefix("((").removesuffix("))")
    inner = re.sub(r"^\[\[?|\]\]?$", "", inner.strip()).strip()
    words = _words(inner, Script(variables=script.variables))
    if len(words) == 2 and words[0] in ("-z", "-n"):
        known = UNSET not in words[1] and bool(words[1])
        return known == (words[0] == "-n")
    if words[:1] in (["-z"], ["-n"]):
        return words[0] == "-z"
    if len(words) == 3 and UNSET not in words[0] + words[2]:
        left, sign, right = words
        if sign in ("=", "=="):
            return left == right
        if sign == "!=":
            return left != right
        compare = _COMPARE.get(sign)
        if compare and left.lstrip("-").isdigit() and right.lstrip("-").isdigit():
            return compare(int(left), int(right))
    return True


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def _assign(part: str, match: re.Match[str], script: Script) -> str:
    """Do an assignment; what follows it on the line is given back (`A=1 command`)."""
    name, more = match[1], match[2]
    value = part[match.end() :]
    if value.startswith("("):
        end = _closing(value, 0)
        words = _words(value[1:end].replace("\n", " "), script)
        if more:
            words = _as_list(script.variables.get(name, [])) + words
        script.variables[name] = words
        return ""
    end = _end_of_word(value)
    text = _text(value[:end], script)
    if more:
        before = script.variables.get(name, "")
        text = (before if isinstance(before, str) else " ".join(before)) + text
    script.variables[name] = text
    rest = value[end:].strip()
    if rest and not part.startswith(("export", "local", "readonly", "declare")):
        return rest
    if rest and (again := _ASSIGN.match("export " + rest)):
        return _assign("export " + rest, again, script)
    return ""


def _as_list(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else shlex.split(value)


def _closing(text: str, start: int) -> int:
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


def _end_of_word(text: str) -> int:
    quote, depth, i = "", 0, 0
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\" and quote == '"':
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c == "\\":
            i += 1
        elif c in "({":
            depth += 1
        elif c in ")}":
            depth -= 1
        elif c.isspace() and depth <= 0:
            return i
        i += 1
    return len(text)


def _words(text: str, script: Script) -> list[str]:
    """Words of a command with all that is known put in."""
    words: list[str] = []
    i = 0
    while i < len(text):
        if text[i].isspace():
            i += 1
            continue
        end = i + _end_of_word(text[i:])
        words += _word(text[i:end], script)
        i = end
    return words


def _word(raw: str, script: Script) -> list[str]:
    """One raw word: an array or an unquoted variable gives several words."""
    bare = raw.strip('"')
    match = re.fullmatch(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?\}|\$([A-Za-z_]\w*)", bare)
    if match:
        value = script.variables.get(match[1] or match[2])
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
    text = _text(raw, script)
    return [text] if text or raw[:1] in "'\"" else []


def _text(raw: str, script: Script) -> str:
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
            made.append(_unknown(raw[i : end + 1], script))
            i = end + 1
        else:
            made.append(c)
            i += 1
    return "".join(made)


def _unknown(text: str, script: Script) -> str:
    script.unresolved.append(text)
    return UNSET + text


def _dollar(raw: str, i: int, script: Script) -> tuple[str, int]:
    """(value, next place) of what begins with a dollar sign."""
    if raw.startswith("$((", i):
        end = raw.find("))", i)
        end = len(raw) if end < 0 else end
        return _arithmetic(raw[i + 3 : end], script), end + 2
    if raw[i + 1] == "(":
        end = _closing(raw, i + 1)
        return _unknown(raw[i : end + 1], script), end + 1
    if raw[i + 1] == "{":
        end = _closing(raw, i + 1)
        return _braced(raw[i + 2 : end], script), end + 1
    name = _NAME.match(raw, i + 1)
    if not name:
        if raw[i + 1].isdigit() or raw[i + 1] in "@*#?":
            return _unknown(raw[i : i + 2], script), i + 2
        return "$", i + 1
    return _value(name[0], "$" + name[0], script), name.end()


def _value(name: str, shown: str, script: Script) -> str:
    value = script.variables.get(name)
    if value is None:
        return _unknown(shown, script)
    return value if isinstance(value, str) else shlex.join(value)


def _braced(inner: str, script: Script) -> str:
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
        return _text(other, script) if known else ""
    if known:
        return _value(name, shown, script)
    if sign and sign[-1] in "-=":
        text = _text(other, script)
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
    inner = re.sub(
        r"\$?\{?([A-Za-z_]\w*)\}?", lambda m: _value(m[1], m[1], script), _text(text, script)
    )
    try:
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
