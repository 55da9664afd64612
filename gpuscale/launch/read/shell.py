"""Shell scripts read statically: variables, arrays and defaults are put in, nothing is executed.

What a person writes in launch scripts: assignments (also of arrays, `+=`, `export`, `local`),
`${A:-default}`, `"${ARRAY[@]}"`, `$((arithmetic))`, here-documents, `if` and `case` with plain
tests, the first round of a `for`, commands handed to another shell (`bash -c "..."`, `eval`). What
needs the machine (a command substitution, an unset variable) is left as it is and listed.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gpuscale.launch.read.branches import Before, Conditions
from gpuscale.launch.read.found import UNSET
from gpuscale.launch.read.words import (
    Script,
    as_list,
    begins_comment,
    closing,
    end_of_word,
    read_text,
    unquoted,
    words_of,
)

_ASSIGN = re.compile(
    r"(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)="
)
_HEREDOC = re.compile(r"(?<!<)<<-?\s*(['\"]?)(\w+)\1")


def read_script(
    text: str,
    variables: Mapping[str, str] | None = None,
    beside: Mapping[str, str] = MappingProxyType({}),
) -> Script:
    """Read a script.

    `text`: the script. `variables`: variables known from outside (of the environment, or given by a
    person). `beside`: texts of the scripts that it may start or source, by file name.

    Examples
    --------
    >>> read_script('TP=${TP:-4}; A=(--tp $TP); run "${A[@]}" --n $((TP*2))').commands
    [['run', '--tp', '4', '--n', '8']]
    """
    script = Script(variables=dict(variables or {}), beside=beside)
    _read_lines(text, script)
    script.unresolved = list(dict.fromkeys(script.unresolved))
    return script


def _read_lines(text: str, script: Script) -> None:
    state = Conditions()
    script.look_at(len(text))
    for line in _logical_lines(text, script):
        for part in _statements(line):
            _statement(part, script, state)


STARTS = re.compile(
    r"(?:^|[;&|\s'\"])(?:source|\.|bash|sh|sbatch)\s+(?:-\w+\s+)*[\"']?[^\s\"';|&]*?([\w.-]+\.(?:sh|env|slurm|sbatch|bash))\b"
)


def started_by(text: str, among: Mapping[str, str] | None = None, itself: str = "") -> list[str]:
    """Names of the scripts that a script starts or sources, those of `among` where it is given."""
    known = [n for line in text.split("\n") if line[:1] != "#" for n in STARTS.findall(line)]
    return [n for n in dict.fromkeys(known) if n != itself and (among is None or n in among)]


def _start(words: list[str], script: Script) -> None:
    """Read the script beside that a command sources or starts, with its arguments."""
    at = next(
        (i for i, w in enumerate(words) if w in ("source", ".", "bash", "sh", "sbatch")), None
    )
    rest = [w for w in words[at + 1 :] if not w.startswith("-")] if at is not None else []
    text = script.beside.get(rest[0].rsplit("/", 1)[-1]) if rest else None
    if text is None or script.depth > 3:
        return
    script.variables |= {str(i): word for i, word in enumerate(rest[1:], 1)}
    script.depth += 1
    _read_lines(text, script)
    script.depth -= 1


def _logical_lines(text: str, script: Script) -> list[str]:
    """Lines with continuations, open quotes and open brackets joined; here-documents taken out."""
    lines = text.replace("\r\n", "\n").split("\n")
    joined: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        while at < len(lines) and _goes_on(line):
            line = line[:-1] + " " + lines[at] if line.endswith("\\") else line + "\n" + lines[at]
            at += 1
            script.look_at(len(line))
        heredoc = _HEREDOC.search(line)
        if heredoc and not line.lstrip().startswith("#"):
            body = []
            while at < len(lines) and lines[at].strip() != heredoc[2]:
                body.append(lines[at])
                at += 1
            at += 1
            if at < len(lines) and lines[at].strip() in (")", ')"', "`"):  # end of NAME=$(cat <<EOF
                at += 1
            script.look_at(len(body) + sum(map(len, body)))
            target = re.search(r">\s*(\S+)", line.replace(heredoc[0], ""))
            put = re.match(r"\s*(?:IFS=\S*\s+)?read\b[^<]*?([A-Za-z_]\w*)\s*<<", line)
            if put:  # a variable that holds the text
                text = " ".join(body).replace("\\", " ").replace('"', '\\"')
                joined.append(f'{put[1]}="{text}"')
            elif target:
                name = target[1].strip("'\"")
                script.documents[name] = "\n".join(body) + "\n"
                if heredoc[1]:
                    script.quoted.add(name)
            elif "\n".join(body).strip():  # handed to another shell: read as if it stood here
                lines[at:at] = body
            continue
        joined.append(line)
    return joined


def _goes_on(line: str) -> bool:
    """Whether the next line belongs to a line; one that begins a here-document is whole."""
    return _open(line) and (line.endswith("\\") or not _HEREDOC.search(line))


def _open(line: str) -> bool:
    """Whether a statement goes on in the next line."""
    stripped = line.lstrip()
    if stripped.startswith("#"):
        return False
    if line.endswith("\\"):
        return True
    depth, quoted = 0, False
    for i, c in unquoted(line, comments=True):
        depth += (c == "(") - (c == ")")
        quoted = i == len(line)
    return quoted or (depth > 0 and bool(_ASSIGN.search(line)))


def _without_comments(line: str) -> str:
    """Cut the comments out of a line, which may hold several lines of a script."""
    found = [i for i, _ in unquoted(line, comments=True) if begins_comment(line, i)]
    for start in reversed(found):
        end = line.find("\n", start)
        line = line[:start] + (line[end:] if end >= 0 else "")
    return line


def _statements(line: str) -> list[str]:
    """Parts of a line between `;`, `&&` and `||` outside quotes and brackets."""
    line = _without_comments(line)
    parts, start, depth = [], 0, 0
    for i, c in unquoted(line):
        if i < start:
            continue
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif depth <= 0 and (
            c == ";"
            or (line[i : i + 2] in ("&&", "||") and not line[start:].lstrip().startswith("if"))
        ):
            parts.append(line[start:i])
            start = i + (1 if c == ";" else 2)
    return [p.strip() for p in [*parts, line[start:]] if p.strip()]


def _statement(part: str, script: Script, state: Conditions) -> None:
    in_case = bool(state.words) and state.words[-1] is not None
    if part.startswith("(") and not part.startswith("((") and not in_case:  # a shell of its own
        for one in _statements(part[1 : closing(part, 0)]):
            _statement(one, script, state)
        return
    word, _, rest = part.partition(" ")
    if word == "do" and rest.strip():
        _statement(rest.strip(), script, state)
        return
    word = part.split(None, 1)[0]
    if word in ("if", "elif", "else", "fi", "then"):
        _branch(word, part, script, state)
        return
    if word in ("case", "esac") or in_case:
        part = _case(word, part, script, state)
    if word == "do":
        part = ""
    if word in ("for", "while", "until"):  # a loop over the arguments is not read
        arguments = "getopts" in part or "$#" in part or '"$1"' in part
        state.open((not arguments, True), None)
        state.over_arguments = state.over_arguments or (len(state.stack) if arguments else 0)
    if word == "done":
        state.close()
    if state.over_arguments and (said := _ASSIGN.match(part)):
        if script.variables.get(said[1]) == "":  # empty until an argument says it
            script.variables[said[1]] = UNSET + "$" + said[1]
    if not part or not state.reading or word in ("while", "until", "done", "function"):
        return
    if word == "for":
        _first_round(part, script)
        return
    while assigned := _ASSIGN.match(part):
        part = _assign(part, assigned, script)
        if not part:
            return
    words = words_of(part, script)
    if words[:1] == ["export"]:
        return
    if words[:1] and words[0] in LEAVING:
        state.leave(script)
        return
    if words[:1] == ["read"] and "<<<" in words:
        _read(words, script)
        return
    if words:
        script.commands.append(words)
        if script.beside:
            _start(words, script)
        for inner in _handed_on(words):
            for line in _logical_lines(inner, script):
                for one in _statements(line):
                    _statement(one, script, state)


LEAVING = ("exit", "die", "usage", "print_usage")


def _read(words: list[str], script: Script) -> None:
    """Do a `read` from a text: `IFS=, read -r A B <<< "$C"`, with -a one array."""
    at = words.index("<<<")
    text = words[at + 1] if at + 1 < len(words) else ""
    names = [w for w in words[1:at] if not w.startswith("-")]
    between = script.variables.get("IFS", " ")
    between = (
        between if isinstance(between, str) and between.strip() and UNSET not in between else ""
    )
    parts = text.split(between[0]) if between else text.split()
    if UNSET in text or not names:
        return
    if any(w.startswith("-") and "a" in w for w in words[1:at]):
        script.variables[names[0]] = parts
        return
    for i, name in enumerate(names):
        script.variables[name] = parts[i].strip() if i < len(parts) else ""


def _handed_on(words: list[str]) -> list[str]:
    """Commands that a command hands to another shell."""
    if words[0] == "eval":
        return [" ".join(words[1:])] if len(words) > 1 and words[1] != "eval" else []
    found = []
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.lower() in ("--command", "--wrap") and " " in value:
            found.append(value)
        before = words[i - 1].rsplit("/", 1)[-1] if i else ""
        if before in ("bash", "sh", "--command", "--COMMAND", "-c", "-lc") and " " in word:
            if before in ("-c", "-lc") and not words[i - 2].endswith(("sh", "/env")):
                continue
            found.append(word)
    return found


def _first_round(part: str, script: Script) -> None:
    """Set the variable of a `for` to the first of its values, and say so."""
    match = re.match(r"for\s+([A-Za-z_]\w*)\s+in\s+(.+)", part, re.DOTALL)
    if not match:
        return
    first = next(iter(words_of(match[2], script)), "")
    if braces := re.match(r"\{(\w+)(?:\.\.|,)", first):
        first = braces[1]
    script.variables[match[1]] = first
    if UNSET not in first:
        script.unresolved.append(f"for {match[1]}: its first value, {first[:40]}")


def _case(word: str, part: str, script: Script, state: Conditions) -> str:
    """Read a line of a `case`; give back what of it is a statement of the branch that is read."""
    if word == "case":
        match = re.match(r"case\s+(.+?)\s+in\b(.*)", part, re.DOTALL)
        value = read_text(match[1].strip(), script) if match else ""
        if UNSET in value:
            script.unresolved.append(f"case {match[1] if match else ''}: its first branch")
        state.open((False, False), value)
        part = match[2].strip() if match else ""
    if word == "esac":
        state.close()
        return ""
    pattern = re.match(r"\(?\s*([^\s()]+(?:\s*\|\s*[^\s()]+)*)\s*\)(?!\S)\s*(.*)", part, re.DOTALL)
    if not pattern:
        return part
    _, read = state.stack.pop()
    value = state.words[-1] or ""
    names = [read_text(one.strip(), script) for one in pattern[1].split("|")]
    taken = not read and (UNSET in value or any(fnmatch.fnmatchcase(value, n) for n in names))
    state.stack.append((taken, read or taken))
    return pattern[2]


def _branch(word: str, part: str, script: Script, state: Conditions) -> None:
    rest = part[len(word) :].strip()
    if word == "if":
        before = Before(script) if state.reading else None
        taken = _test(rest, script)
        state.open((taken, taken), None, before if taken else None)
    elif word == "fi":
        state.close()
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
    negated = text.strip().startswith("! ")
    inner = text.strip().removeprefix("! ").strip().removeprefix("((").removesuffix("))")
    inner = re.sub(r"^\[\[?|\]\]?$", "", inner.strip()).strip()
    negated, inner = negated != inner.startswith("! "), inner.removeprefix("! ").strip()
    words = words_of(inner, Script(variables=script.variables))
    if len(words) == 2 and words[0] in ("-z", "-n"):
        known = UNSET not in words[1] and bool(words[1])
        return (known == (words[0] == "-n")) != negated
    if words[:1] in (["-z"], ["-n"]):
        return (words[0] == "-z") != negated
    if len(words) == 3 and UNSET not in words[0] + words[2]:
        left, sign, right = words
        if sign in ("=", "==", "!="):
            return ((left == right) == (sign != "!=")) != negated
        compare = _COMPARE.get(sign)
        if compare and left.lstrip("-").isdigit() and right.lstrip("-").isdigit():
            return compare(int(left), int(right)) != negated
    if words[:1] and words[0].strip("! ")[:2] in ("-d", "-e", "-f", "-h", "-L"):
        return True
    if any(UNSET in word for word in words):
        script.unresolved.append(f"if {' '.join(text.split())[:60]}: taken as true")
    if len(words) == 3 and not negated and words[1] in ("=", "==") and UNSET not in words[2]:
        named = re.match(r"[\"']?\$\{?(\w+)\}?[\"']?\s", inner)
        if named and "*" not in words[2]:  # what is taken as true stays so
            script.variables[named[1]] = words[2]
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
        end = closing(value, 0)
        words = words_of(value[1:end].replace("\n", " "), script)
        if more:
            words = as_list(script.variables.get(name, [])) + words
        script.variables[name] = words
        return ""
    end = end_of_word(value)
    text = read_text(value[:end], script)
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
