"""Presets found by name or alias, the package's own read unchecked; errors of files as one line.

A name or an alias is found without reading the other files. Reading the package's own is as
pydantic's, which needs a quarter of a second to be imported and to learn the records: a whole
number becomes a float where one is wanted, a list a tuple, text with a unit an amount.
`tests/io/test_own_files.py` reads every file both ways.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from gpuscale.core.records import fields, is_dataclass
from gpuscale.errors import GpuscaleError, typo_of, unknown_name

if TYPE_CHECKING:
    import pydantic


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


T = TypeVar("T")
Reader = Callable[[Any], Any]


def made(kind: type[T], table: Any) -> T:
    """Make a record of a table, or return it where it is one."""
    if isinstance(table, kind):
        return table
    readers = _readers(kind)  # type: ignore[arg-type]
    return kind(**{key: readers[key](value) for key, value in table.items()})


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    """Field -> what reads its value."""
    hints = {
        name: _hint(text, base.__module__)
        for base in reversed(kind.__mro__)
        for name, text in vars(base).get("__annotations__", {}).items()
    }
    return {f.name: _reader(hints[f.name]) for f in fields(kind)}


@cache
def _hint(text: str, module: str) -> Any:
    """Type that a text means in a module."""
    return eval(text, vars(sys.modules[module]))


@cache
def _reader(hint: Any) -> Reader:
    """Return what reads a value of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is float:
        return lambda value: float(value) if type(value) is int else value
    if is_dataclass(hint):
        return partial(made, hint)  # type: ignore[arg-type]
    if origin is Annotated:
        inner = _reader(args[0])
        for one in (a for a in args[1:] if hasattr(a, "read")):
            return lambda value: inner(one.read(value))
        return inner
    if origin in (Union, UnionType):
        return _either(tuple(a for a in args if a is not NoneType))
    if origin is tuple and args[-1:] == (...,):
        each = _reader(args[0])
        return lambda value: tuple(map(each, value))
    if origin is tuple:
        parts = tuple(map(_reader, args))
        return lambda value: tuple(read(v) for read, v in zip(parts, value, strict=True))
    if origin in (dict, Mapping):
        item = _reader(args[1])
        return lambda value: {key: item(v) for key, v in value.items()}
    return lambda value: value


def _either(kinds: tuple[Any, ...]) -> Reader:
    """Return what reads a value of one of several types: tables and lists tell which."""
    records = [k for k in kinds if is_dataclass(k)]
    by_kind = {f.default: k for k in records[1:] for f in fields(k) if f.name == "kind"}
    tables = [k for k in kinds if get_origin(k) in (dict, Mapping)]
    lists = [k for k in kinds if get_origin(k) is tuple]
    plain = [k for k in kinds if k not in (*records, *tables, *lists)]

    def read(value: Any) -> Any:
        if isinstance(value, dict) and (records or tables):
            which: Any = by_kind.get(value.get("kind"), (records or tables)[0])
            return _reader(which)(value)
        if isinstance(value, list) and lists:
            return _reader(lists[0])(value)
        alone = value is not None and len(plain) == 1
        return _reader(plain[0])(value) if alone else value

    return read


UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
"""What pydantic calls a key that is not known, of a model and of a dataclass."""


def checked(kind: type[T], table: Any, where: str, *, own: bool = False) -> T:
    """Make a spec, or a record whose fields have bounds, of what a file says.

    `kind`: a dataclass. `where`: names the file in errors. `own`: of the package, as where `where`
    is a path below its presets: tests hold those. Raises GpuscaleError for a key or value that does
    not hold.
    """
    if own or is_own(where):
        try:
            return made(kind, table)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # somebody changed it: what is wrong is told below
    import pydantic

    from gpuscale.specs.fields import adapter

    try:
        value: T = adapter(kind).validate_python(table)  # type: ignore[arg-type]
        return value
    except pydantic.ValidationError as error:
        names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
        raise spec_error(where, error, names) from None


def spec_error(
    where: str, err: pydantic.ValidationError, known_keys: Sequence[str] = ()
) -> GpuscaleError:
    """Turn a pydantic error into one clear line.

    `where`: the file, preset or option that was read, as the person would name it. `err`: what
    pydantic found; the first unknown key or else the first problem is told, and the number of
    others. `known_keys`: keys to choose from, for a "did you mean" when a key is not known.
    Returns: with the message `where: key: problem`.
    """
    problems = err.errors(include_url=False, include_context=False)
    # a misspelt key is often the reason why another one is missing
    first = next((p for p in problems if p["type"] in UNKNOWN), problems[0])
    key = ".".join(_shown(p) for p in _written_keys(first["loc"]))
    message = f"{where}: {key + ': ' if key else ''}{_problem(first)}"
    if len(problems) > 1:
        more = len(problems) - 1
        message += f" (and {more} more problem{'s' if more > 1 else ''})"
    hint = ""
    if first["type"] in UNKNOWN and known_keys:
        close = typo_of(str(first["loc"][-1]), known_keys)
        hint = f"did you mean `{close}`?" if close else ""
    return GpuscaleError(message, hint)


def _shown(part: str | int) -> str:
    text = str(part)
    return text if len(text) <= 60 else text[:57] + "..."


def _written_keys(loc: tuple[str | int, ...]) -> list[str | int]:
    """Drop the union branches that pydantic puts among the keys; a person did not write them."""
    keys = [p for p in loc if not str(p).startswith(("function-", "Capabilities"))]
    if len(keys) > 2 and keys[0] in ("mixers", "ffns"):
        del keys[2]  # the kind of the mixer or FFN
    return keys


def _problem(item: Mapping[str, Any]) -> str:
    kind, message = item["type"], str(item["msg"])
    if kind in UNKNOWN:
        return "not a key that is known here"
    if kind == "missing":
        return "this key is required and missing"
    if kind == "union_tag_not_found":
        return "needs a `kind`"
    if kind == "int_parsing_size":
        message = "far too large"
    message = message.removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    value = item.get("input")
    if isinstance(value, bool | int | float | str) and repr(value)[:40] not in message:
        text = repr(value)
        message += f", got {text if len(text) <= 40 else text[:37] + '...'}"
    elif isinstance(value, dict | list) and kind != "value_error":
        message += f", got a {'table' if isinstance(value, dict) else 'list'}"
    return message
