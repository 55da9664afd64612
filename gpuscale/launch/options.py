"""Facts of frameworks kept as data: options of their own parsers, engines, kinds of files."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from gpuscale.core.dataclasses import NamedTuple
from gpuscale.io.text import Table

DATA = Path(__file__).parent / "data"


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
    table = json.loads((DATA / f"{framework}.json").read_text("utf-8"))
    arity = {name: n for n, names in table["options"].items() for name in names.split()}
    return Options(table["version"], arity)


@lru_cache(maxsize=8)
def launch_table(name: str) -> Table:
    """Table of a TOML file of `gpuscale/launch/data`."""
    from gpuscale.io.text import read_toml

    return read_toml(DATA / f"{name}.toml")
