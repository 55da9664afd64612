"""Branches of a shell script: which are read, and what is forgotten of one that leads nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.launch.read.words import Script


class Before:
    """What a script knew where an `if` began, to go back to."""

    def __init__(self, script: Script) -> None:
        self.variables = dict(script.variables)
        self.n_commands, self.n_unresolved = len(script.commands), len(script.unresolved)

    def put_back(self, script: Script) -> bool:
        """Forget what was read since; a branch that starts a program is kept."""
        since = script.commands[self.n_commands :]
        if any(word.endswith(".py") for words in since for word in words):
            return False
        script.variables = self.variables
        del script.commands[self.n_commands :], script.unresolved[self.n_unresolved :]
        return True


class Conditions:
    """Nested `if`s and `case`s: which branch is read. An unknown test reads its first branch."""

    def __init__(self) -> None:
        self.stack: list[tuple[bool, bool]] = []  # (reading, a branch was read)
        self.words: list[str | None] = []  # what each open `case` compares; None: an `if`
        self.before: list[Before | None] = []  # of each, what was known when it began
        self.over_arguments = 0  # depth of a loop over the script's arguments

    @property
    def reading(self) -> bool:
        """Whether what stands here is read."""
        return all(reading for reading, _ in self.stack)

    def open(
        self, branch: tuple[bool, bool], compared: str | None, before: Before | None = None
    ) -> None:
        """Begin an `if`, a `case` or a loop."""
        self.stack.append(branch)
        self.words.append(compared)
        self.before.append(before)

    def close(self) -> None:
        """End the innermost."""
        if self.stack:
            self.stack.pop()
            self.words.pop()
            self.before.pop()
        if len(self.stack) < self.over_arguments:
            self.over_arguments = 0

    def leave(self, script: Script) -> None:
        """Take a branch that ends the script for one that a job does not go through."""
        before = self.before[-1] if self.before else None
        if before is not None and before.put_back(script):
            self.stack[-1] = (False, False)
