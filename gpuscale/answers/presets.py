"""Presets: what is shipped, and one preset as TOML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Converted, WhatIf, text, texts
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.presets import find_preset, known_names, preset_aliases, preset_files
from gpuscale.meant import packaged

if TYPE_CHECKING:
    from gpuscale.render.document import Document


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


LISTED = ("gpu", "cluster", "model", "software", "fabric", "arch", "link", "switch")


@dataclass
class Presets(WhatIf):
    """List the presets, or show one as TOML.

    What `show` prints can be saved, edited and given back wherever a preset's name is taken.
    """

    NAME: ClassVar[str] = "presets"
    RESULTS: ClassVar[str] = "presets:PresetList presets:PresetTable"
    EXAMPLE: ClassVar[str] = "gpuscale presets show dgx-h100 > mine.toml"
    words: Converted[tuple[str, ...], Sequence[str]] = texts(
        "Text that a listed name, alias or title holds; or `show` and a preset's name.",
        metavar="[FILTER | show NAME]",
        complete="preset",
    )
    _: KW_ONLY
    kind: Asked[str | None] = text(f"One kind only: {', '.join(LISTED)}.")
    catalogue: Asked[str] = options.catalogue()

    def answer(self) -> Document:
        """List them, or show one."""
        from gpuscale.io.hardware import check_catalogue

        check_catalogue(self.catalogue)
        if self.kind is not None and self.kind not in LISTED:
            raise unknown_name("kind of preset", self.kind, LISTED, f"known: {', '.join(LISTED)}")
        given = list(self.words)
        kinds = _kinds(self.kind, self.catalogue)
        if given[:1] == ["show"]:
            if len(given) != 2:
                raise GpuscaleError("`presets show` takes one name", "gpuscale presets show h100")
            return _show(self, given[1], kinds)
        if self.set:
            raise GpuscaleError("--set: nothing to change in a list", "use `presets show NAME`")
        return _list(" ".join(given), kinds)


@dataclass(frozen=True, slots=True)
class PresetList:
    """Presets that are shipped."""

    presets: tuple[Listed, ...]


PresetTable = dict[str, Any]
"""A preset as its file says it."""


def _kinds(kind: str | None, catalogue: str) -> tuple[str, ...]:
    kinds: tuple[str, ...] = (kind,) if kind else LISTED
    if catalogue == "vendor":
        return kinds
    kinds = tuple(k for k in ("gpu", "cluster") if k in kinds)
    if not kinds:
        raise GpuscaleError("the documents' catalogue has kinds gpu and cluster only")
    return tuple(f"{k}/documents" for k in kinds)


def _list(text: str, kinds: tuple[str, ...]) -> Document:
    from gpuscale.render.document import Document, Table, Text

    found = [p for kind in kinds for p in list_presets(kind, text)]
    if not found:
        raise GpuscaleError(
            f"no preset holds `{text[:60]}` in its name, alias or title",
            "list all with `gpuscale presets`",
        )
    columns = {"kind": "kind", "name": "name", "aliases": "also", "figures": "figures"}
    rows = [(p.kind, p.name, " ".join(p.aliases), p.figures or p.title) for p in found]
    table = Table.of(columns, [dict(zip(columns, row, strict=True)) for row in rows])
    return Document(
        command="presets",
        inputs={"filter": text, "kinds": list(kinds)},
        result=PresetList(tuple(found)),
        blocks=[
            table,
            Text(f"{len(rows)} presets; `gpuscale presets show NAME` prints one with its sources."),
        ],
    )


def _show(asked: Presets, name: str, kinds: tuple[str, ...]) -> Document:
    from gpuscale.io.text import parse_toml, read_text
    from gpuscale.render.document import Document, Text

    kind, path = _find(name, kinds)
    text = read_text(path)
    table: dict[str, Any] = parse_toml(text, str(path))
    changes: tuple[str, ...] = ()
    if asked.set:
        text, changes = _changed(asked, kind, path)
        table = parse_toml(text, "changed preset")
    text = "".join(f"# {line}\n" for line in changes) + text
    return Document(
        command="presets",
        inputs={"name": name, "kind": kind, "file": str(path), "changes": list(changes)},
        result=table,
        blocks=[Text(text.rstrip("\n"))],
    )


def _find(name: str, kinds: tuple[str, ...]) -> tuple[str, Path]:

    for kind in kinds:
        path = find_preset(kind, name)
        if path is not None:
            return kind, path
    raise unknown_name("preset", name, [n for kind in kinds for n in known_names(kind)])


def _changed(asked: Presets, kind: str, path: Path) -> tuple[str, tuple[str, ...]]:
    from gpuscale.io.inputs import load_inputs
    from gpuscale.io.toml_out import spec_to_toml

    base, _, folder = kind.partition("/")
    if base not in ("gpu", "cluster", "model"):
        raise GpuscaleError(f"--set: {kind} presets are changed in a file", "save and edit it")
    named: Any = {base: str(path)}
    loaded = load_inputs(asked, catalogue=folder or "vendor", **named)
    return spec_to_toml(loaded.specs[base]), loaded.changes
