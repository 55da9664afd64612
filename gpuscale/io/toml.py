"""Reading text and TOML files, with one clear line for every way in which that fails."""

from __future__ import annotations

import os
from typing import Any

from gpuscale.errors import GpuscaleError

MAX_BYTES = 5_000_000
"""Largest file read; a spec has a few kilobytes."""


def read_text(path: str | os.PathLike[str]) -> str:
    """Text of a small UTF-8 file.

    Raises
    ------
    GpuscaleError
        If the file cannot be read, is empty, binary or larger than `MAX_BYTES`.
    """
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise GpuscaleError(f"{shown}: is a folder, not a file") from None
    except FileNotFoundError:
        raise GpuscaleError(f"{shown}: no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GpuscaleError(f"{shown}: cannot be read: {reason}") from None
    return decode(data, shown)


def decode(data: bytes, where: str) -> str:
    """Text of what was read, refused when it is empty, binary or too large."""
    if len(data) > MAX_BYTES:
        raise GpuscaleError(f"{where}: larger than {MAX_BYTES / 1e6:.0f} MB, no spec is that large")
    if not data.strip():
        raise GpuscaleError(f"{where}: is empty")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise GpuscaleError(f"{where}: is not text (UTF-8)") from None
    if "\x00" in text:
        raise GpuscaleError(f"{where}: is a binary file")
    return text


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Read TOML text; `where` names it in errors.

    Raises
    ------
    GpuscaleError
        With the line and column of what cannot be read.

    Examples
    --------
    >>> parse_toml('hidden_size = 4096', "x.toml")
    {'hidden_size': 4096}
    """
    import tomli

    try:
        return tomli.loads(text)
    except (tomli.TOMLDecodeError, ValueError) as error:
        raise GpuscaleError(f"{where}: not valid TOML: {_short(error)}") from None
    except RecursionError:
        raise GpuscaleError(f"{where}: not valid TOML: nested too deeply") from None


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file; see `read_text` and `parse_toml` for the errors."""
    return parse_toml(read_text(path), os.fspath(path))


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else text[:157] + "..."
