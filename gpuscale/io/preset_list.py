"""Listing presets: a few figures from the head of each file, without parsing it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import preset_aliases, preset_files
from gpuscale.meant import packaged

HEAD_BYTES = 6000
"""How much of a file is read; the figures come before the sources."""

_LINE = re.compile(r"^([a-z0-9_]+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|[^#\n]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the list of presets."""

    kind: str
    name: str
    aliases: tuple[str, ...]
    title: str
    figures: str


def list_presets(kind: str, text: str = "") -> tuple[Listed, ...]:
    """Presets of a kind whose name, alias or title contains `text`.

    >>> [p.name for p in list_presets("gpu", "h100-s")]
    ['h100-sxm']
    """
    names: dict[str, list[str]] = {}
    for alias, name in preset_aliases(kind).items():
        names.setdefault(name, []).append(alias)
    lines = (_listed(kind, n, p, tuple(names.get(n, ()))) for n, p in preset_files(kind).items())
    wanted = text.lower()
    return tuple(
        line for line in lines if wanted in " ".join((line.name, *line.aliases, line.title)).lower()
    )


def _listed(kind: str, name: str, path: Path, aliases: tuple[str, ...]) -> Listed:
    values = _head(path)
    shown = [
        wording.format(values[key])
        for key, (wording,) in packaged("labels.toml")["listed"].get(kind.split("/")[0], {}).items()
        if key in values and not (key == "fp16_flop_per_s" and "bf16_flop_per_s" in values)
    ]
    return Listed(kind, name, aliases, values.get("title", ""), ", ".join(shown))


def _head(path: Path) -> dict[str, str]:
    """Top-level keys with simple values, as far as the head of the file shows them."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(HEAD_BYTES)
    except OSError as error:
        raise GpuscaleError(f"{path}: cannot be read: {error.strerror}") from None
    head = re.split(r"^\[", text, maxsplit=1, flags=re.MULTILINE)[0]
    return {key: value.strip().strip('"') for key, value in _LINE.findall(head)}
