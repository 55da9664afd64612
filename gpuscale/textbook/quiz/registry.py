"""What an answer's expression may call: functions of `core`, and look-ups in the catalogues."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.io.toml import read_toml

FUNCTIONS = Path(__file__).parent / "data" / "functions.toml"

MODULE_OF = {
    name: module for module, names in read_toml(FUNCTIONS).items() for name in names.split()
}
"""Name of a function -> its module."""

LOOKUPS = frozenset(
    "attention gpu layout link model node nvlink pod rate recipe rule unit_layout "
    "vendor_gpu".split()
)
"""Functions of `quiz.catalogue`."""

BUILTINS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "log10": math.log10}


def is_lookup(name: str) -> bool:
    """Whether a name only looks up specifications."""
    return name in LOOKUPS


@lru_cache(maxsize=512)
def resolve(name: str) -> Any:
    """Find the function of a name; its module is imported when it is first used.

    Raises KeyError if expressions may not use it.

    Examples
    --------
    >>> resolve("critical_intensity")(990e12, 3.35e12) > 295
    True
    """
    if name in BUILTINS:
        return BUILTINS[name]
    if name in LOOKUPS:
        return getattr(importlib.import_module("gpuscale.textbook.quiz.catalogue"), name)
    return getattr(importlib.import_module(f"gpuscale.{MODULE_OF[name]}"), name)


def summary(name: str) -> tuple[str, str]:
    """Say where a registered function is, and the first line of its docstring.

    Examples
    --------
    >>> summary("critical_intensity")[0]
    'gpuscale.core.kernel.chip'
    """
    function = resolve(name)
    doc = (function.__doc__ or "").strip().split("\n")[0]
    return str(function.__module__), doc
