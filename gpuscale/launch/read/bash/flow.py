"""Branches and loops of a script: which are followed, and what is forgotten of one that leaves."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator

from gpuscale.launch.found import UNSET, launch_table
from gpuscale.launch.read.bash import builtins, tree
from gpuscale.launch.read.bash.builtins import Break, Continue, Leave
from gpuscale.launch.read.bash.conditions import LIKELY, SURE, sure
from gpuscale.launch.read.bash.launchers import LAUNCHERS
from gpuscale.launch.read.bash.words import Script, read_text, summed, words_of

_WORDS = launch_table("words")["flow"]
FRONTS = tuple(_WORDS["fronts"])
MOST_ROUNDS = 256
MOST_WAITS = 32
"""Rounds of a `while`, which mostly waits for something."""
Run = Callable[[tree.Node, Script], int]
"""Follows a command and gives its status."""


def starts(words: list[str]) -> bool:
    """Whether a command starts a program that trains or serves."""
    return words[0] in FRONTS or any(
        w.endswith(".py") or w in ("-m", "serve") or w.rsplit("/", 1)[-1] in LAUNCHERS
        for w in words
    )


class Before:
    """What a script knew before a branch that may be left, to go back to."""

    def __init__(self, script: Script) -> None:
        self.variables, self.tables = dict(script.variables), dict(script.tables)
        self.n_commands, self.n_unresolved = len(script.commands), len(script.unresolved)
        script.budget.look_at(len(script.variables))

    def put_back(self, script: Script) -> bool:
        """Forget what was read since, unless it started a program."""
        if any(map(starts, script.commands[self.n_commands :])):
            return False
        script.variables, script.tables = self.variables, self.tables
        del script.commands[self.n_commands :], script.unresolved[self.n_unresolved :]
        return True


def _branched(branches: Iterator[tuple[int, tree.Node | None]], script: Script, run: Run) -> int:
    """Follow the first branch whose test holds and that does not leave the script."""
    unlikely: list[tuple[tree.Node | None, list[tuple[str, str]]]] = []
    left: Leave | None = None
    for status, body in branches:
        assumed, script.assumed = script.assumed, []
        if status < 0:
            unlikely += [(body, assumed)] if status == -LIKELY else []
            continue
        done = None if status == SURE and not unlikely else Before(script)
        if status < SURE:
            script.variables.update(assumed)
        try:
            return run(body, script) if body is not None else SURE
        except Leave as exit_:
            if done is None or not done.put_back(script):
                raise
            left = exit_
    for body, assumed in unlikely if left is not None else []:
        script.variables.update(assumed)
        return run(body, script) if body is not None else SURE
    return SURE


def conditional(node: tree.If, script: Script, run: Run) -> int:
    """Follow an `if`.

    What is compared with something that is not known is what a job is asked for, where every branch
    needs it; with an `else`, or where a variable alone switches something on, it is not said.
    """
    alone = len(node.branches) == 1
    otherwise = node.branches[-1][0] is None

    def branches() -> Iterator[tuple[int, tree.Node | None]]:
        for condition, body in node.branches:
            script.assumed, script.asked = [], ""
            status = SURE if condition is None else run(condition, script)
            if status == LIKELY and (
                (otherwise and script.asked) or (alone and script.asked == "unset")
            ):
                status = _not_said(script)
            yield status, body

    return _branched(branches(), script, run)


def _not_said(script: Script) -> int:
    """Take the test that was noted last as false."""
    if script.unresolved and script.unresolved[-1].startswith("if "):
        script.unresolved[-1] = script.unresolved[-1].replace("taken as true", "taken as false")
    return -LIKELY


def case(node: tree.Cases, script: Script, run: Run) -> int:
    """Follow a `case`; of a word that is not known the first branch."""
    value = read_text(node.word, script)
    name = re.fullmatch(r"\"?\$\{?([A-Za-z_]\w*|\d)\}?\"?", node.word)

    def branches() -> Iterator[tuple[int, tree.Node | None]]:
        for patterns, body in node.branches:
            texts = [read_text(one, script) for one in patterns]
            script.assumed = []
            if UNSET not in value:
                yield sure(any(fnmatch.fnmatchcase(value, one) for one in texts)), body
                continue
            script.unresolved.append(f"case {node.word}: its first branch")
            if name and texts and not re.search(r"[*?\[]", texts[0]):
                script.assumed = [(name[1], texts[0])]
            yield LIKELY, body
        yield SURE, None

    return _branched(branches(), script, run)


def chain(node: tree.Chain, script: Script, run: Run) -> int:
    """Follow commands joined by `&&` and `||`."""
    script.assumed, script.asked = [], ""
    status = run(node.first, script)
    tests = isinstance(node.first, (tree.Tested, tree.Simple))
    if status == LIKELY and tests and script.asked == "unset" and len(node.rest) == 1:
        status = _not_said(script)
    for sign, following in node.rest:
        if (status > 0) != (sign == "&&"):
            continue
        before = None if abs(status) == SURE else Before(script)
        assumed, script.assumed = script.assumed, []
        if status == LIKELY:
            script.variables.update(assumed)
        try:
            then = run(following, script)
        except Leave:
            if before is None or not before.put_back(script):
                raise
            then = -SURE
        unsure = abs(status) < SURE and isinstance(following, tree.Tested)
        status = min(status, then) if unsure and sign == "&&" else then
        script.assumed = assumed + script.assumed if unsure else script.assumed
    return status


def loop(node: tree.For | tree.Counting | tree.While, script: Script, run: Run) -> int:
    """Follow a loop: all of its rounds, or the first where it starts a program or only waits."""
    n_before = len(script.commands)
    words = [
        w for one in builtins.within(node.body) if isinstance(one, tree.Simple) for w in one.words
    ]
    waits = "sleep" in words and not any("+=" in w for w in words)
    try:
        for shown in _rounds(node, script, run):
            try:
                run(node.body, script)
            except Continue as again:
                if again.levels > 1:
                    raise Continue(again.levels - 1) from None
            if any(map(starts, script.commands[n_before:])):
                if shown:
                    script.unresolved.append(shown)
                break
            if waits:
                break
    except Break as broken:
        if broken.levels > 1:
            raise Break(broken.levels - 1) from None
    return SURE


def _rounds(node: tree.For | tree.Counting | tree.While, script: Script, run: Run) -> Iterator[str]:
    """Set a loop's variables round by round; give what is said where the first alone is read."""
    if isinstance(node, tree.For):
        raw = ['"$@"'] if node.words is None else node.words
        words = words_of(raw, script)
        if script.arguments is None and words and words[0] == UNSET + "$@":
            builtins.forget(node.body, script)
            return
        for word in words[:MOST_ROUNDS]:
            script.variables[node.name] = word
            several = len(words) > 1 and UNSET not in word
            yield f"for {node.name}: its first value, {word[:40]}" if several else ""
        return
    if isinstance(node, tree.Counting):
        summed(node.first, script)
    elif builtins.over_arguments(node, script):
        builtins.forget(node.body, script)
        return
    for _ in range(MOST_WAITS if isinstance(node, tree.While) else MOST_ROUNDS):
        status = (
            _counts(node.condition, script)
            if isinstance(node, tree.Counting)
            else run(node.condition, script) * (-1 if node.until else 1)
        )
        if status < 0:
            return
        yield ""
        if status < SURE:
            return
        if isinstance(node, tree.Counting):
            summed(node.step, script)


def _counts(condition: str, script: Script) -> int:
    value = summed(condition, script) if condition.strip() else "1"
    return LIKELY if UNSET in value else sure(value != "0")
