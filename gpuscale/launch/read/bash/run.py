"""Shell scripts read statically: what they would do is followed, and nothing is executed.

What needs the machine (the output of a program, a variable of the environment) stays unknown and is
listed. A test of what is not known is taken as true; a branch that then leaves the script is not
the one a job goes through. Of a loop that starts programs the first round is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from gpuscale.errors import GpuscaleError
from gpuscale.launch.found import UNSET
from gpuscale.launch.read.bash import builtins, flow, tree
from gpuscale.launch.read.bash.builtins import Break, Continue, Leave, Return
from gpuscale.launch.read.bash.conditions import LIKELY, SURE, Condition, sure
from gpuscale.launch.read.bash.launchers import outside_variables
from gpuscale.launch.read.bash.syntax import Parser
from gpuscale.launch.read.bash.words import (
    Script,
    assign,
    read_here,
    read_text,
    summed,
    unknown_to_all,
    words_of,
)

PREFIXES = ("exec", "command", "nohup", "time", "builtin")
MOST_NESTED = 120
MOST_SCRIPTS = 4
SCRIPTS = (".sh", ".bash", ".env", ".slurm", ".sbatch")
NO_SHELL = r"python|perl|cat$|tee$|ftp|mysql|jq$"
"""Programs whose here-document is no script of a shell."""


def read_script(
    text: str,
    variables: Mapping[str, str] | None = None,
    find: Callable[[str], tuple[str, str] | None] = unknown_to_all,
) -> Script:
    """Read a script.

    `text`: the script. `variables`: variables known from outside (of the environment, or given by a
    person). `find`: name and text of a script that it starts, by the path as written.

    >>> read_script('TP=${TP:-4}; A=(--tp $TP); run "${A[@]}" --n $((TP*2))').commands
    [['run', '--tp', '4', '--n', '8']]
    """
    known: dict[str, str | list[str]] = dict(variables or {})
    script = Script(variables=dict(known), given=frozenset(known), find=find, output=_output)
    script = _followed(text, script)
    if not any(map(flow.starts, script.commands)):  # what is not said switches all of it on
        given = Script(variables=known, find=find, output=_output, switched=True)
        given = _followed(text, given)
        script = given if any(map(flow.starts, given.commands)) else script
    script.unresolved = list(dict.fromkeys(script.unresolved))
    return script


def _followed(text: str, script: Script) -> Script:
    """Follow a text from its beginning; of one that starts nothing its functions too."""
    script.headers = text
    _read(text, script)
    if not any(map(flow.starts, script.commands)):
        for name, body in list(script.functions.items()):
            if name not in script.called and name not in builtins.LEAVING:
                with suppress(Leave, Return, Break, Continue):
                    run(body, script)
    return script


def read_document(name: str, script: Script) -> str:
    """Text of a file that a script writes; in a table what is not known is `null`."""
    text = script.documents[name]
    if name.endswith((".json", ".yaml", ".yml")):
        text = re.sub(UNSET + r"(\$\{[^}]*\}|\$\(.*?\)|\S?\w+)", "null", text)
    return text.replace(UNSET, "")


def _read(text: str, script: Script) -> None:
    """Follow a text; an `exit` before it starts anything is passed over."""
    script.budget.look_at(len(text))
    n_before = len(script.commands)
    for node in Parser(text.replace("\r\n", "\n")).block().nodes:
        try:
            run(node, script)
        except Leave:
            if any(map(flow.starts, script.commands[n_before:])):
                return
        except Return:
            return
        except (Break, Continue):
            pass


def run(node: tree.Node, script: Script) -> int:
    """Follow a command; give its status, which is negative for a failure."""
    script.budget.look_at(20)
    script.budget.depth += 1
    try:
        if script.budget.depth > MOST_NESTED:
            raise GpuscaleError("a script whose commands start one another without an end")
        return _run(node, script)
    finally:
        script.budget.depth -= 1


def _run(node: tree.Node, script: Script) -> int:
    if isinstance(node, tree.Simple):
        return _simple(node, script)
    if isinstance(node, tree.Block):
        return _block(node, script)
    if isinstance(node, tree.Chain):
        return flow.chain(node, script, run)
    if isinstance(node, tree.Pipeline):
        return _pipeline(node, script)
    if isinstance(node, tree.If):
        return flow.conditional(node, script, run)
    if isinstance(node, (tree.For, tree.Counting, tree.While)):
        return flow.loop(node, script, run)
    if isinstance(node, tree.Cases):
        return flow.case(node, script, run)
    if isinstance(node, tree.Function):
        script.functions[node.name] = node.body
        return SURE
    if isinstance(node, tree.Tested):
        return _tested(node.words, 2, script)
    counted = script.arguments is None and "$#" in node.text
    value = summed(node.text, script)
    if UNSET in value:
        return LIKELY
    return sure(value != "0") // (SURE if counted else 1)


def _tested(raw: list[str], brackets: int, script: Script) -> int:
    """Follow a test; what is taken as true is said, what is only looked at is not."""
    before = len(script.unresolved)
    condition = Condition(raw, script, brackets)
    status = condition.status()
    del script.unresolved[before:]
    if status == LIKELY and condition.taken:
        shown = " ".join(["[" * brackets, *raw, "]" * brackets])
        script.unresolved.append(f"if {shown[:60]}: taken as true")
    return status


def _output(text: str, script: Script) -> str | None:
    """Output of `$(...)`: in a shell of its own."""
    copy = _copy(script)
    copy.printed = []
    try:
        run(Parser(text).block(), copy)
    except (Leave, Return, Break, Continue):
        pass
    if any(part is None for part in copy.printed):
        return None
    return "".join(part or "" for part in copy.printed).rstrip("\n")


def _copy(script: Script) -> Script:
    """Shell that knows what another knows, and changes nothing of it."""
    script.budget.look_at(len(script.variables))
    return Script(
        variables=dict(script.variables),
        tables=dict(script.tables),
        arguments=script.arguments,
        functions=script.functions,
        documents=dict(script.documents),
        budget=script.budget,
        output=script.output,
    )


def _block(node: tree.Block, script: Script) -> int:
    if node.redirects:
        inner = tree.Block(node.nodes, node.apart)
        return _redirected(node.redirects, script, inner)
    status = SURE
    try:
        for one in node.nodes:
            status = run(one, script)
    except Leave:
        if not node.apart:
            raise
    return status


def _redirected(redirects: list[tree.Redirect], script: Script, node: tree.Node) -> int:
    """Follow a command with its input and output put elsewhere."""
    stdin, printed = script.stdin, script.printed
    target = ""
    for one in redirects:
        if one.sign in ("<<", "<<-"):
            script.stdin = one.body if one.quoted else read_here(one.body, script)
        elif one.sign == "<<<":
            script.stdin = read_text(one.target, script) + "\n"
        elif one.sign == "<":
            script.stdin = _of_file(one.target, script)
        elif one.sign in (">", ">>", ">|", "&>", "&>>") and one.number in ("", "1"):
            target = read_text(one.target, script)
            script.printed = []
        elif one.sign == ">&" and one.number in ("", "1"):
            script.printed = []
    try:
        status = run(node, script)
        made = script.printed
    finally:
        script.stdin, script.printed = stdin, printed
    if target and made is not None and made and not any(part is None for part in made):
        name = target.rsplit("/", 1)[-1] if UNSET in target else target
        kept = any(one.sign in (">>", "&>>") for one in redirects)
        before = script.documents.get(name, "") if kept else ""
        script.documents[name] = before + "".join(part or "" for part in made)
    return status


def _of_file(raw: str, script: Script) -> str | None:
    if raw.startswith("<("):
        return script.output(raw[2:-1], script)
    name = read_text(raw, script)
    return script.documents.get(name)


def _pipeline(node: tree.Pipeline, script: Script) -> int:
    stdin, printed = script.stdin, script.printed
    status = SURE
    try:
        for i, part in enumerate(node.parts):
            last = i == len(node.parts) - 1
            script.printed = printed if last else []
            status = run(part, script)
            if not last and script.printed is not None:
                parts = script.printed
                known = not any(one is None for one in parts)
                script.stdin = "".join(one or "" for one in parts) if known else None
    finally:
        script.stdin, script.printed = stdin, printed
    return -status if node.negated else status


def _simple(node: tree.Simple, script: Script) -> int:
    if node.redirects:
        return _redirected(node.redirects, script, tree.Simple(node.words))
    raw = list(node.words)
    before, names = dict(script.variables), []
    while raw and (match := tree.ASSIGN.match(raw[0])):
        names.append(match[1])
        assign(raw.pop(0), script)
    if not raw or not names:
        return _command(raw, script)
    told, n_before = {name: script.variables.get(name, "") for name in names}, len(script.commands)
    try:
        return _command(raw, script)
    finally:  # for this command alone
        script.own = dict.fromkeys(map(tuple, script.commands[n_before:]), told) | script.own
        for name in names:
            script.variables.pop(name, None)
        script.variables |= {name: before[name] for name in names if name in before}


def _command(raw: list[str], script: Script) -> int:
    """Follow a command as written, without the assignments before it."""
    while raw and raw[0] in PREFIXES:
        raw.pop(0)
    if not raw:
        return SURE
    if (does := builtins.RAW.get(raw[0])) is not None:
        return does(raw, script)
    if raw[0] in ("[", "test"):
        inner = raw[1:-1] if raw[0] == "[" and raw[-1] == "]" else raw[1:]
        return _tested(inner, 1, script)
    n_unresolved = len(script.unresolved)
    words = words_of(raw, script)
    if not words:
        return SURE
    if (body := script.functions.get(words[0])) is not None:
        return _called(body, words, script)
    if (known := builtins.KNOWN.get(words[0])) is not None:
        return known(words, script)
    if words[0] in ("eval", "source", "."):
        return _taken(words, script)
    given = script.stdin
    text = builtins.output(words, given) if given is not None else None
    if words[0].rsplit("/", 1)[-1] in builtins.SHOWING or text is not None:
        if script.printed is not None:
            script.printed.append(text)
        else:
            del script.unresolved[n_unresolved:]  # what is only shown
        return SURE
    if script.printed is not None:
        script.printed.append(None)
    return _started(words, script)


def _called(body: tree.Node, words: list[str], script: Script) -> int:
    """Follow a function with its arguments."""
    script.called.add(words[0])
    arguments, script.arguments = script.arguments, words[1:]
    if words[1:] == [UNSET + "$@"]:
        script.arguments = None
    try:
        return run(body, script)
    except Return as back:
        return back.status
    finally:
        script.arguments = arguments


def _taken(words: list[str], script: Script) -> int:
    """Follow what `eval` or `source` reads."""
    if words[0] == "eval":
        text = " ".join(words[1:])
        if "eval" not in words[1:2]:
            run(Parser(text.replace(UNSET, "")).block(), script)
        return SURE
    _begun(words[1:], script)
    return SURE


def _started(words: list[str], script: Script) -> int:
    """Note a command; follow the scripts and texts that it starts."""
    script.commands.append(words)
    if words[0] == "tee" and script.stdin and len(words) > 1:
        script.documents[words[-1]] = script.stdin
        return SURE
    base = [w.rsplit("/", 1)[-1] for w in words]
    at = next((i for i, w in enumerate(base) if w in ("bash", "sh", "sbatch", "zsh")), None)
    if "sbatch" in base:
        script.headers += "".join(f"\n#SBATCH {w}" for w in words if w.startswith("-"))
    begun = at is not None and _begun(words[at + 1 :], script)
    begun = begun or (
        len(words) > 0 and base[0].endswith((".sh", ".slurm", ".sbatch")) and _begun(words, script)
    )
    handed = builtins.handed_on(words)
    if script.stdin and not begun and not re.match(NO_SHELL, base[0]):
        text = script.stdin
        if not any(w.endswith(".py") for w in words):
            handed.append(text)
            if "#SBATCH" in text and text not in script.headers:
                script.headers += "\n" + text
    stdin, script.stdin = script.stdin, ""
    arguments = script.arguments
    for text in handed:
        at = words.index(text) if text in words else 0
        told = words[at + 2 :] if words[at - 1] in ("-c", "-lc") else []
        script.arguments = told or arguments
        _read(text.replace(UNSET, ""), script)
    script.stdin, script.arguments = stdin, arguments
    return LIKELY


def _begun(words: list[str], script: Script) -> bool:
    """Follow the script beside, or written before, that a command names, with its arguments."""
    rest = [w for w in words if not w.startswith("-")]
    name = next((w for w in rest if "." in w or w in script.documents), "") if rest else ""
    text = script.documents.get(name) or script.documents.get(name.rsplit("/", 1)[-1])
    if text is None and name.endswith(SCRIPTS):
        text = (script.find(name) or ("", None))[1]
    if text is None or script.budget.scripts > MOST_SCRIPTS:
        return False
    script.budget.scripts += 1
    arguments, script.arguments = script.arguments, rest[rest.index(name) + 1 :]
    if name in script.documents and "#SBATCH" in text:
        script.headers += "\n" + text.replace(UNSET, "")
    script.variables |= outside_variables(text)
    _read(text.replace(UNSET, ""), script)
    script.arguments = arguments
    script.budget.scripts -= 1
    return True
