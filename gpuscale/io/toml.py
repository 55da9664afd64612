"""Reading TOML, with one clear line for every way in which that fails."""

from __future__ import annotations

import os
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.text import read_text, shown_name

Table = dict[str, Any]
"""What a file of TOML, YAML or JSON says, or what is written into one: nothing of it is checked."""


def parse_toml(text: str, where: str) -> Table:
    """Read TOML text; `where` names it in errors.

    Raises GpuscaleError with the line and column of what cannot be read.
    """
    import tomli

    try:
        return tomli.loads(text)
    except (tomli.TOMLDecodeError, ValueError) as error:
        raise GpuscaleError(f"{where}: not valid TOML: {_short(error)}") from None
    except RecursionError:
        raise GpuscaleError(f"{where}: not valid TOML: nested too deeply") from None


def read_toml(path: str | os.PathLike[str]) -> Table:
    """Read a TOML file, ``-`` from standard input; see `read_text` and `parse_toml` for errors."""
    return parse_toml(read_text(path), shown_name(path))


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else text[:157] + "..."
