"""Finding presets: a name or an alias to a file, without reading the other files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from gpuscale.errors import GpuscaleError, unknown_name

KINDS = {
    "gpu": "GPU preset",
    "cluster": "cluster preset",
    "model": "model preset",
    "software": "software profile",
    "framework": "framework",
    "fabric": "fabric preset",
    "arch": "architecture preset",
    "link": "link preset",
    "switch": "switch preset",
    "run": "table of rates",
    "log": "table of what a program prints",
    "cause": "cause of a slow or large run",
    "gpu/documents": "GPU of the documents' catalogue",
    "cluster/documents": "cluster of the documents' catalogue",
}
"""Folder below a preset root -> what an error calls it."""

ALIASES_FILE = "_aliases.toml"

OWN = tuple(folder / "presets" for folder in Path(__file__).resolve().parents[1:3])
"""Inside the installed package, or beside it in a checkout."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]*")

_OWN_TEXT = tuple(f"{folder}{os.sep}" for folder in OWN)


def is_own(where: str) -> bool:
    """Whether a text is the path of a file of the package's own presets."""
    return where.startswith(_OWN_TEXT)


def preset_roots() -> tuple[Path, ...]:
    """Folders that hold presets, the first one wins.

    ``$GPUSCALE_PRESETS`` (several separated as in ``$PATH``), then the user's folder
    (``$XDG_CONFIG_HOME/gpuscale/presets``, by default below ``~/.config``), then the package's
    own, which lies inside the installed package or beside it in a checkout.
    """
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return _roots(os.environ.get("GPUSCALE_PRESETS", ""), config)


@lru_cache(maxsize=64)
def _roots(own: str, config: str) -> tuple[Path, ...]:
    roots = [Path(p) for p in own.split(os.pathsep) if p]
    return (*roots, Path(config) / "gpuscale" / "presets", *OWN)


def shipped(name: str) -> Path:
    """Folder or file of that name below the first preset root that has it.

    Raises GpuscaleError where none has.
    """
    for path in _below(preset_roots(), name):
        if path.exists():
            return path
    raise GpuscaleError(f"presets/{name} is missing: install gpuscale again")


def _folders(kind: str) -> tuple[Path, ...]:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    others = _below(preset_roots(), kind)[: -len(OWN)]
    return (*filter(os.path.isdir, others), *_own_folders(kind))


@lru_cache(maxsize=64)
def _own_folders(kind: str) -> tuple[Path, ...]:
    return tuple(filter(os.path.isdir, _below(OWN, kind)))


@lru_cache(maxsize=256)
def _below(roots: tuple[Path, ...], name: str) -> tuple[Path, ...]:
    return tuple(root / name for root in roots)


def preset_files(kind: str) -> dict[str, Path]:
    """Name -> file of every preset of a kind, sorted; file names are listed, nothing is read."""
    found: dict[str, Path] = {}
    for folder in _folders(kind):
        try:
            entries = sorted(os.listdir(folder))
        except OSError:
            continue
        for entry in entries:
            if entry.endswith(".toml") and not entry.startswith(("_", ".")):
                found.setdefault(entry[: -len(".toml")], folder / entry)
    return dict(sorted(found.items()))


def preset_names(kind: str) -> list[str]:
    """Names of all presets of a kind, sorted, without aliases."""
    return list(preset_files(kind))


def preset_aliases(kind: str) -> Mapping[str, str]:
    """Alias -> preset name of a kind; from `_aliases.toml` of each folder, the first one wins."""
    return _aliases(_folders(kind.split("/")[0]))


@lru_cache(maxsize=64)
def _aliases(folders: tuple[Path, ...]) -> dict[str, str]:
    from gpuscale.io.text import read_toml

    aliases: dict[str, str] = {}
    for path in (folder / ALIASES_FILE for folder in folders):
        for alias, target in (read_toml(path) if path.is_file() else {}).items():
            if not isinstance(target, str):
                raise GpuscaleError(f"{path}: {alias}: the name of a preset is wanted, in quotes")
            aliases.setdefault(normalised(alias), normalised(target))
    return aliases


def known_names(kind: str) -> list[str]:
    """Names and aliases that can be typed for a kind."""
    names = preset_names(kind)
    return names + [alias for alias, name in preset_aliases(kind).items() if name in names]


def normalised(name: str) -> str:
    """How names are compared: lower case, blanks and underscores as dashes.

    >>> normalised("DGX_H100")
    'dgx-h100'
    """
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def find_preset(kind: str, name: str) -> Path | None:
    """File of a preset by name or alias, or None where there is none of that name."""
    wanted = normalised(name[:200])
    if not _NAME.fullmatch(wanted):
        return None
    return _file(kind, wanted) or _file(kind, preset_aliases(kind).get(wanted, ""))


def _file(kind: str, name: str) -> Path | None:
    for folder in _folders(kind) if _NAME.fullmatch(name) else ():
        path = f"{folder}{os.sep}{name}.toml"
        if (_is_own_file if is_own(path) else os.path.isfile)(path):
            return Path(path)
    return None


_is_own_file = lru_cache(maxsize=2048)(os.path.isfile)  # own files stay while it runs


def preset_path(kind: str, name: str) -> Path:
    """File of a preset by name or alias.

    `kind`: one of `KINDS`: gpu, cluster, model, software, fabric, arch, link. `name`: preset name
    or alias; case, blanks and underscores do not matter. Raises GpuscaleError if there is none; the
    hint names the closest one.

    >>> preset_path("gpu", "H100").name
    'h100-sxm.toml'
    """
    path = find_preset(kind, name)
    if path is None:
        listing = f"list them with `gpuscale presets --kind {kind.split('/')[0]}`"
        raise unknown_name(KINDS[kind], name, known_names(kind), listing)
    return path


def looks_like_path(arg: str) -> bool:
    """Whether an argument means a file rather than a preset: a separator or a file ending."""
    separators = {os.sep, os.altsep or os.sep}
    return any(s in arg for s in separators) or arg.lower().endswith((".toml", ".json"))
