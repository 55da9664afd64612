"""Facts of frameworks kept as data: options of their own parsers, engines, kinds of files."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from gpuscale.io.text import Table


@lru_cache(maxsize=1)
def written_frameworks() -> tuple[str, ...]:
    """Training frameworks whose files are written: those whose data say how a method is.

    >>> "megatron" in written_frameworks(), "deepspeed-config" in written_frameworks()
    (True, False)
    """
    from gpuscale.io.presets import preset_files

    found = preset_files("framework").items()
    return tuple(n for n, f in found if "[[writing]]\nmethods" in f.read_text("utf-8"))


class Options(NamedTuple):
    """Option -> how many values it takes: "0", "1", a number, or "+", "*" for any."""

    version: str
    arity: dict[str, str]


@lru_cache(maxsize=8)
def known_options(framework: str) -> Options:
    """Options of a framework.

    >>> known_options("megatron").arity["--tensor-model-parallel-size"]
    '1'
    """
    text = (
        resources.files("gpuscale.launch").joinpath("data", f"{framework}.json").read_text("utf-8")
    )
    table = json.loads(text)
    arity = {name: n for n, names in table["options"].items() for name in names.split()}
    return Options(table["version"], arity)


@lru_cache(maxsize=8)
def launch_table(name: str) -> Table:
    """Table of a TOML file of `gpuscale/launch/data`."""
    from gpuscale.io.text import parse_toml

    file = resources.files("gpuscale.launch").joinpath("data", f"{name}.toml")
    return parse_toml(file.read_text("utf-8"), file.name)
