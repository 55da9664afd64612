"""Options that several questions have: each is said once, so it means the same everywhere.

A question takes a group by inheriting it, or one option by calling its function.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, overload

from gpuscale.answers.ask import Asked, text, whole

DEFAULT_CLUSTER = "dgx-h100"

CLUSTER = "Cluster preset, GPU name (its usual node), TOML file, or -."
MODEL = "Model preset, TOML file, Hugging Face config.json or folder, or -."


def catalogue() -> Asked[str]:
    """Which hardware figures."""
    return text("Hardware figures: vendor, or documents (as they round).", "vendor")


@overload
def model(default: EllipsisType) -> Asked[str]: ...


@overload
def model(default: None = None) -> Asked[str | None]: ...


def model(default: Any = None) -> Any:
    """Model, as an argument."""
    return text(MODEL, default)


@overload
def seq_len(default: int, **more: Any) -> Asked[int]: ...


@overload
def seq_len(default: None = None, **more: Any) -> Asked[int | None]: ...


def seq_len(default: Any = None, **more: Any) -> Any:
    """Tokens of a sequence; of positions, k is 1,024."""
    help = "Tokens of a sequence; 32k is 32,768."
    return whole(help, default, dim="positions", most=2**30, flags=("--seq",), **more)
