"""Option names that a framework's own parser knows, kept as data with the version they are from."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from typing import NamedTuple


class Options(NamedTuple):
    """Option -> how many values it takes: "0", "1", a number, or "+", "*" for any."""

    version: str
    arity: dict[str, str]


@lru_cache(maxsize=8)
def known_options(framework: str) -> Options:
    """Options of a framework.

    Examples
    --------
    >>> known_options("megatron").arity["--tensor-model-parallel-size"]
    '1'
    """
    text = (
        resources.files("gpuscale.launch").joinpath("data", f"{framework}.json").read_text("utf-8")
    )
    table = json.loads(text)
    arity = {name: n for n, names in table["options"].items() for name in names.split()}
    return Options(table["version"], arity)
