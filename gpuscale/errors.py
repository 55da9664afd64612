"""Exit codes and the one error type that reaches a person."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable


class Exit(enum.IntEnum):
    """Exit codes; they are part of the interface."""

    OK = 0
    NO = 1  # answered, and the answer is no: does not fit, limit exceeded
    USAGE = 2  # bad flag, file or preset
    BUG = 70
    INTERRUPT = 130


class GpuscaleError(Exception):
    """Bad input: one line of what and where, one of what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint and hasattr(self, "add_note"):  # Python 3.11: a traceback shows it too
            self.add_note(f"hint: {hint}")


class MissingFile(GpuscaleError):
    """A file that is not there; the message begins with its path."""


class RuleError(GpuscaleError):
    """A layout that a framework, or the model, does not allow."""


class NoLaunch(GpuscaleError):
    """A file that starts no training and no serving that is known."""


def typo_of(name: str, known: Iterable[str]) -> str:
    """Known name of which another is a likely typing mistake; empty if there is none.

    A few letters wrong, left out, added or swapped. Of digits none may be another, since `4070` is
    no mistyped `4090`; a name with digits is of a family of products, so that less may differ:
    `b100` is no mistyped `a100`, nor `5070` a `5070ti`.

    >>> typo_of("h100-smx", ["h100-sxm", "h200-sxm"]), typo_of("dgx-h10", ["dgx-h100"])
    ('h100-sxm', 'dgx-h100')
    >>> typo_of("4070", ["4090"]), typo_of("--lora", ["--format"]), typo_of("gpt-5", ["gpt-3"])
    ('', '', '')
    >>> typo_of("b100", ["a100"]), typo_of("a1000", ["a100"]), typo_of("5070", ["5070ti"])
    ('', '', '')
    """
    wanted = name.strip().lower()[:60]
    product = any(c.isdigit() for c in wanted)
    limit = 1 if len(wanted) < (10 if product else 6) else 2 if len(wanted) < 16 else 3
    found = [
        (distance, sorted(other) != sorted(wanted), other)  # letters swapped first
        for other in known
        if abs(len(other) - len(wanted)) <= limit
        and _same_digits(wanted, other.lower())
        and not (product and len(wanted) < 6 and _other_letters(wanted, other.lower()))
        and (distance := _apart(wanted, other.lower())) <= limit
    ]
    return min(found)[-1] if found else ""


def _same_digits(one: str, other: str) -> bool:
    """Whether the digits of two names agree; of the second, some more may follow, of no size."""
    ends = {name.rpartition("-")[2] for name in (one, other)}
    if len(ends) == 2 and all(end[:1].isdigit() and end[-1] in "bm" for end in ends):
        return False  # qwen3.5-2b is no mistyped qwen3.5-27b
    a, b = ("".join(c for c in name if c.isdigit()) for name in (one, other))
    return a == b or bool(a and b.startswith(a))


def _other_letters(one: str, other: str) -> bool:
    """Whether each of two names has a letter that the other lacks."""
    a, b = ({c for c in name if c.isalpha()} for name in (one, other))
    return bool(a - b and b - a)


def _apart(one: str, other: str) -> int:
    """Edits between two names; letters doubled otherwise are one: `lamma` is a mistyped `llama`."""
    from gpuscale.meant import edits

    single = [re.sub(r"([a-z])\1", r"\1", name) for name in (one, other)]
    return 1 if single[0] == single[1] else edits(one, other)


def unknown_name(
    kind: str, name: str, known: Iterable[str], hint: str = "list them with `gpuscale presets`"
) -> GpuscaleError:
    """Error for a name that is not in `known`; the hint says what it means, or the closest one."""
    from gpuscale.meant import family, meant

    shown, known = name if len(name) <= 60 else name[:57] + "...", list(known)
    said = meant(kind, name)
    if not said and (close := typo_of(name, known)):
        said = f"did you mean `{close}`?"
    if not said and ("preset" in kind or "GPU" in kind):
        said = family(name, known)
        if said.startswith("of ") and "model" in kind:
            said += "; of any other give its config.json"
    return GpuscaleError(f"unknown {kind} `{shown!s}`", said or hint)
