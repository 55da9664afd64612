"""Reading the frameworks' files, and the habits of a version or a day."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.habits import Habit, habits_of, version_at
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import find_preset, looks_like_path, preset_aliases
from gpuscale.io.spec_errors import checked
from gpuscale.io.toml import read_toml

if TYPE_CHECKING:
    from gpuscale.specs.framework import FrameworkFile

_DATE = re.compile(r"20\d\d(-\d\d){1,2}")
_VERSION = re.compile(r"v?\d+(\.\d+)*([.-]?(a|b|rc|post|dev)\.?\d+)*", re.IGNORECASE)


class Named(NamedTuple):
    """A software or engine as a person names it."""

    name: str
    version: str = ""  # or a date, 2025-06 or 2025-06-30


def named(arg: str) -> Named:
    """Read ``NAME[:VERSION]``.

    Raises GpuscaleError for what is neither a version nor a date.

    >>> named("trl:0.24"), named("vllm:2025-06").version, named("./own.toml").name
    (Named(name='trl', version='0.24'), '2025-06', './own.toml')
    """
    name, colon, version = arg.rpartition(":")
    if not colon or looks_like_path(arg):
        return Named(arg)
    if not (_DATE.fullmatch(version) or _VERSION.fullmatch(version)) or not name:
        raise GpuscaleError(
            f"`{arg[:80]}`: neither a version nor a date behind the colon",
            f"for example {name[:40] or 'trl'}:0.24 or {name[:40] or 'trl'}:2025-06",
        )
    return Named(name, version.removeprefix("v"))


def load_framework(name: str) -> FrameworkFile | None:
    """File of a framework by its name or that of its software preset; None where there is none."""
    other = preset_aliases("software").get(name.strip().lower(), "")
    path = find_preset("framework", name) or (find_preset("framework", other) if other else None)
    return _read(path, path.stat().st_mtime_ns) if path else None


@lru_cache(maxsize=64)
def _read(path: Path, _stamp: int) -> FrameworkFile:
    from gpuscale.specs.framework import FrameworkFile

    return checked(FrameworkFile, read_toml(path), str(path))


def framework_habits(arg: str, facts: Mapping[str, str]) -> dict[str, Habit]:
    """Field -> habit of ``NAME[:VERSION]``, those of what the framework is like below its own.

    Raises GpuscaleError where a version is named of a framework whose versions are not known.
    """
    name, version = named(arg)
    if looks_like_path(name):
        return {}
    own = load_framework(name)
    preset = preset_aliases("software").get(name.strip().lower(), "")
    if own is not None and not (own.habit or own.like) and preset:
        own = load_framework(preset)  # a dialect alone: the habits of its engine
    if version and (own is None or not (own.habit or own.like)):
        raise GpuscaleError(
            f"what {name[:60]} does by version is not known here", f"--software {name[:60]}"
        )
    if own is None:
        return {}
    day = day_of(arg)
    at = version_at(own.dates, version) if _DATE.fullmatch(version) else version
    found = habits_of(own.habit, facts, at)
    if not own.like:
        return found
    base = framework_habits(f"{own.like}:{day}" if day else own.like, facts)
    inherited = {k: replace(h, note=h.note or f"from {own.like}") for k, h in base.items()}
    return {**inherited, **found}


def day_of(arg: str) -> str:
    """Day of the version that ``NAME[:VERSION]`` names; empty where none is, or it is not known."""
    name, version = named(arg)
    own = load_framework(name)
    return version if _DATE.fullmatch(version) else own.dates.get(version, "") if own else ""


STACKS = ((0.25, 1), (0.15, 2))
"""Share of jobs whose stack is so many years old, where no version is said: prior."""


def older_ways(arg: str, facts: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Field -> value that an older version has -> share of jobs, where ``arg`` names no version."""
    name, version = named(arg)
    own = None if version or looks_like_path(name) else load_framework(name)
    newest = max(own.dates.values(), default="") if own else ""
    if not newest:
        return {}
    now, found = framework_habits(name, facts), dict[str, dict[str, float]]()
    for share, years in STACKS:
        day = f"{int(newest[:4]) - years}{newest[4:7]}"
        for field, habit in framework_habits(f"{name}:{day}", facts).items():
            if field in now and habit.value != now[field].value:
                shares = found.setdefault(field, {})
                shares[str(habit.value)] = shares.get(str(habit.value), 0.0) + share
    return found
