"""Frameworks that one nested table configures: which a table is of, and what reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuscale.core.dataclasses import dataclass
from gpuscale.launch.dialects.data import dialect
from gpuscale.launch.dialects.heard import known_keys, put_unheard
from gpuscale.launch.dialects.nested import Nested
from gpuscale.launch.dialects.rows import put
from gpuscale.launch.found import Found
from gpuscale.launch.options import launch_table
from gpuscale.launch.read import pretraining, rl, tuning

READERS = {**dict.fromkeys(pretraining.OWN, pretraining.put_own_shape), **rl.READERS}
READERS |= tuning.READERS


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of launch file (`launch/data/kinds.toml`)."""

    kind: str  # as `Found.kind`
    title: str  # what an answer calls such a file
    software: str = ""  # preset of the framework family
    group: str = ""  # rl, shape (it trains one of its own), hub (it tunes a model of the hub)
    told_by: tuple[str, ...] = ()  # alternatives; of one all paths (apart by spaces) must be there
    beside: str = ""  # key that names another file of the same kind
    tunes: bool = False  # a model of the hub
    preset: bool = False  # of its name
    length: bool = False  # is asked for where no file says it

    @property
    def method(self) -> str:
        """What its files train where they do not say."""
        return "pretrain" if self.group == "shape" else "full"

    def is_of(self, table: Mapping[str, Any]) -> bool:
        """Whether a table is such a configuration."""
        at = Nested(Found(""), table)
        return any(all(at.get(path) is not None for path in one.split()) for one in self.told_by)

    def found(self, table: Mapping[str, Any]) -> Found:
        """Read a configuration."""
        found = Found(self.kind, software=self.software, method=self.method)
        at = Nested(found, table)
        put(dialect(self.kind), at)
        found.cp_kind = found.cp_kind if found.cp > 1 else None
        if found.lora_rank and (self.group == "rl" or self.kind not in READERS):
            found.method = "lora"
        put_beyond(at)
        if reader := READERS.get(self.kind):
            reader(at)
        put_unheard(found, table, at.heard, known_keys(self.kind))
        if self.beside and (other := at.text(self.beside)):
            found.beside.append(other)
        return found


def put_beyond(at: Nested) -> None:
    """Say what a file has of which its framework's file says that it is not predicted."""
    for asked, why in dialect(at.found.kind).beyond.items():
        path, _, like = asked.partition(" ~ ")
        value = at.get(path)
        if value is not None and re.search(like, str(value), re.IGNORECASE):
            at.found.beyond.append(why.format(value))


KINDS = {
    one["kind"]: Kind(**{**one, "told_by": tuple(one.get("told_by", ()))})
    for one in launch_table("kinds")["kind"]
}
"""Kinds by their names, the one that decides first."""


def of_table(table: Mapping[str, Any], *groups: str) -> Found | None:
    """Read a table by the first kind of some groups that it is of."""
    chosen = (one for one in KINDS.values() if one.group in groups and one.is_of(table))
    return next((one.found(table) for one in chosen), None)
