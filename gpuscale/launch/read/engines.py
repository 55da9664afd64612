"""Serving engines as their commands are written (`launch/data/engines.toml`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuscale.core.dataclasses import dataclass, field
from gpuscale.launch.options import launch_table


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine is started."""

    name: str
    title: str
    programs: str = ""  # pattern of a word that starts it; none: two words do (`PAIRS`), or a file
    options: Mapping[str, str] = field(default_factory=dict)  # option -> field, or what is made
    flags: Mapping[str, str] = field(default_factory=dict)  # options without a value -> likewise
    variables: str = ""  # before an option's name in a variable that says the same


def _engine(table: Mapping[str, object]) -> Engine:
    """Engine of a table whose options stand by field, several apart by spaces."""
    turned = {
        part: {option: name for name, words in given.items() for option in words.split()}
        for part in ("options", "flags")
        if isinstance(given := table.get(part), dict)
    }
    return Engine(**{**table, **turned})  # type: ignore[arg-type]


_TABLE = launch_table("engines")
ENGINES: dict[str, Engine] = {one["name"]: _engine(one) for one in _TABLE["engine"]}
"""Engine -> how it is started; the order in which a command is asked."""
PAIRS: dict[tuple[str, ...], str] = {tuple(k.split()): v for k, v in _TABLE["pairs"].items()}
"""A program and its first argument -> engine."""
IMAGES: dict[str, str] = _TABLE["images"]
"""Part of an image's name -> the program that it starts with the arguments that it is given."""
FORMATS: dict[str, str] = _TABLE["formats"]
"""An engine's word for a quantisation -> format of the weights; others leave them as published."""
DEVICES: dict[str, str] = _TABLE["devices"]
"""`--device` of the engines -> machines that no preset answers for."""


def program_of(image: str) -> str:
    """Program that an image starts by itself; empty where its arguments name one."""
    return next((program for part, program in IMAGES.items() if part in image), "")


def weights_of(word: str, engine: str) -> str | None:
    """Format of the weights that an engine's word means; None: as the checkpoint has them.

    >>> weights_of("awq_marlin", "vllm"), weights_of("bitsandbytes", "tgi"), weights_of("auto", "")
    ('awq', 'int8', None)
    """
    name = re.sub(r"[\s_]+", "-", word.strip().lower())
    if name == "bitsandbytes":  # TGI's is LLM.int8(), the others' 4 bits
        return "int8" if engine == "tgi" else "nf4"
    return FORMATS.get(name)


def cache_of(word: str) -> str | None:
    """Format of the cache that an engine's word means; None: 16 bits, or as the engine has it.

    >>> cache_of("fp8_e5m2"), cache_of("q8_0"), cache_of("auto")
    ('fp8', 'fp8', None)
    """
    name = word.strip().lower()
    return "fp8" if re.match(r"fp8|q[458]|iq4|int[48]|[48]$|nvfp4", name) else None


_WORDS = launch_table("words")["engines"]
SERVER = tuple(_WORDS["server"])
