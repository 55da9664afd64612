"""Parts of a script: its commands as a tree, whose words stay as they are written."""

from __future__ import annotations

import re
from typing import TypeAlias

from gpuscale.core.records import dataclass, field

ASSIGN = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\n]*)\])?(\+?)=")
"""Beginning of an assignment: name, index, a plus."""


@dataclass(slots=True)
class Redirect:
    """`sign` and the word after it; of a here-document its text."""

    sign: str
    target: str
    body: str = ""
    quoted: bool = False
    number: str = ""


@dataclass(slots=True)
class Simple:
    """Assignments and a command with its arguments, as written."""

    words: list[str]
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class Pipeline:
    """Commands joined by `|`."""

    parts: list[Node]
    negated: bool


@dataclass(slots=True)
class Chain:
    """Commands joined by `&&` and `||`."""

    first: Node
    rest: list[tuple[str, Node]]


@dataclass(slots=True)
class Block:
    """Commands one after the other: a script, a group, a subshell, with its redirections."""

    nodes: list[Node]
    apart: bool = False
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True)
class If:
    """Conditions with their branches; the branch of `else` has no condition."""

    branches: list[tuple[Block | None, Block]]


@dataclass(slots=True)
class For:
    """A loop over words; None: over the arguments."""

    name: str
    words: list[str] | None
    body: Block


@dataclass(slots=True)
class Counting:
    """`for ((first; condition; step))`."""

    first: str
    condition: str
    step: str
    body: Block


@dataclass(slots=True)
class While:
    """`while`, or `until`."""

    condition: Block
    body: Block
    until: bool


@dataclass(slots=True)
class Cases:
    """A word and its branches, each with its patterns."""

    word: str
    branches: list[tuple[list[str], Block]]


@dataclass(slots=True)
class Function:
    """A function: nothing happens until it is called."""

    name: str
    body: Node


@dataclass(slots=True)
class Sum:
    """`((...))`."""

    text: str


@dataclass(slots=True)
class Tested:
    """`[[ ... ]]`: its words and signs."""

    words: list[str]


Node: TypeAlias = (
    "Simple | Pipeline | Chain | Block | If | For | Counting | While | Cases"
    " | Function | Sum | Tested"
)
