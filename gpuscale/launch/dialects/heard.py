"""Keys of a launch file that nobody reads: shown, or asked for where they say how a job runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from gpuscale.io.toml import Table
from gpuscale.launch.found import UNSET, Found
from gpuscale.launch.options import known_options, launch_table

NEUTRAL = frozenset(launch_table("keys")["neutral"])
"""Values with which a key changes nothing."""
SIZES = frozenset(("rank", "dim", "degree", "size", "stage", "bits"))
"""Last parts of keys that say nothing without the part before."""
DEEPEST = 12


class Heard(Table):
    """A table that remembers the keys that it was asked for."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        super().__init__(table)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """Value of a key, which is then heard."""
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        """Value of a key, which is then heard."""
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        """Whether it has a key, which is then heard."""
        self.asked.add(str(key))
        return super().__contains__(key)


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """(keys that say how a job runs, those of them without effect, paths of what is read apart)."""
    table = launch_table("keys")
    telling, idle, apart = (re.compile("|".join(table[n])) for n in ("telling", "idle", "apart"))
    return telling, idle, apart


def put_unheard(found: Found, table: Mapping[str, Any], heard: set[str], known: set[str]) -> None:
    """Put the keys that nobody read on the record.

    `heard`: those that a reader asked for, with their paths. `known`: all that the framework has;
    empty: not known. One that says parallelism, sharding, quantisation, precision, adapters,
    recomputation, offload, batch or samples is asked for, another is shown where the framework
    does not have it.
    """
    apart, launcher = _patterns()[2], known_keys("accelerate")
    for path, value in leaves(table):
        last = path.rpartition(".")[2].lower()
        idle = isinstance(value, list) or last in ("enabled", "enable") or last in launcher
        if idle or path in heard:
            continue
        last = "_".join(path.lower().split(".")[-2:]) if last in SIZES else last  # `lora.rank`
        if (tells := says_how(last, value)) is None or apart.search(path):
            continue
        if tells:
            found.asked[path] = str(value).strip()[:40]
        elif tells is False and known and path not in known and last not in known:
            found.not_understood.append(path)


def says_how(key: str, value: Any) -> bool | None:
    """Whether a key and its value say how a job runs; None for a key that is known to be idle.

    >>> says_how("hybrid_context_parallel", True), says_how("lr", 1), says_how("eval_batch_size", 4)
    (True, False, None)
    """
    telling, idle, _ = _patterns()
    text = str(value).strip().lower()
    if idle.search(key):
        return None
    if not telling.search(key):
        return False
    rest = text in NEUTRAL or re.search(rf"/|{UNSET}|^\$\{{[\w.]+\}}$", text)  # of another key
    return None if rest or (key.endswith("_dtype") and "32" in text) else True


def leaves(table: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(path, value) of every leaf of a nested table, lists whole."""
    for key, value in dict(table).items():
        path = f"{before}{key}"
        if isinstance(value, Mapping) and depth < DEEPEST:
            yield from leaves(value, f"{path}.", depth + 1)
        elif not isinstance(value, Mapping):
            yield path, value


@lru_cache(maxsize=16)
def known_keys(framework: str) -> set[str]:
    """All keys that a framework has, by its own classes; empty where they are not kept here."""
    try:
        return set(known_options(framework).arity)
    except FileNotFoundError:
        return set()
