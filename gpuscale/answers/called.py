"""Options by the names that other tools give them, and what they are in the command that is run."""

from __future__ import annotations

from functools import cache
from typing import Any

from gpuscale.answers.ask import Question, fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.meant import packaged


@cache
def _words() -> dict[str, dict[str, Any]]:
    """Word -> topic of `data/called.toml`: `options` and what they are, or `elsewhere`."""
    return {word: topic for topic in packaged("called.toml")["topic"] for word in topic["words"]}


EVERYWHERE = {"explain", "format", "set"}
"""Options that every command has beside its own."""


def called(option: str, question: type[Question] | None) -> str:
    """Say what an unknown option is here; empty where it means nothing that is known.

    >>> called("--batch-size", question_of("serve"))
    '--concurrency (requests in flight)'
    >>> called("--num-gpus", question_of("plan"))
    '--gpus (their number)'
    """
    topic = _words().get(option.strip("-").lower().replace("_", "-"))
    if topic is None:
        return ""
    known = {name.replace("_", "-") for name in fields_of(question)} if question else set()
    own = [
        f"--{name}" + (f" ({what})" if what else "")
        for name, what in topic.get("options", {}).items()
        if name.split()[0] in known | EVERYWHERE
    ]
    return ", ".join(own) or str(topic.get("elsewhere", ""))


def owners(option: str) -> list[str]:
    """Commands that have an option of this name."""
    name = option.strip("-").lower().replace("-", "_")
    return [command for command in COMMANDS if name in fields_of(question_of(command))]
