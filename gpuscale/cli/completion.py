"""Shell completion of preset names: file names and aliases, no preset is read."""

from __future__ import annotations

from collections.abc import Callable

Completer = Callable[[str], list[str]]


def _starting(kinds: tuple[str, ...], incomplete: str) -> list[str]:
    from gpuscale.errors import GpuscaleError
    from gpuscale.io.presets import known_names, normalised

    start = normalised(incomplete)
    try:
        names = dict.fromkeys(name for kind in kinds for name in known_names(kind))
    except GpuscaleError:  # a user's alias file is broken: the command itself will say so
        return []
    return [name for name in names if name.startswith(start)]


def complete_gpu(incomplete: str) -> list[str]:
    """Names and aliases of GPUs."""
    return _starting(("gpu",), incomplete)


def complete_cluster(incomplete: str) -> list[str]:
    """Names and aliases of clusters, and of GPUs, which mean their usual node."""
    return _starting(("cluster", "gpu"), incomplete)


def complete_model(incomplete: str) -> list[str]:
    """Names and aliases of models."""
    return _starting(("model",), incomplete)


def complete_software(incomplete: str) -> list[str]:
    """Names and aliases of software profiles."""
    return _starting(("software",), incomplete)


def complete_preset(incomplete: str) -> list[str]:
    """Names and aliases of all presets."""
    return _starting(("gpu", "cluster", "model", "software", "fabric", "arch", "link"), incomplete)


def complete_comparable(incomplete: str) -> list[str]:
    """Names and aliases of what `compare` takes besides files."""
    return _starting(("gpu", "cluster", "model"), incomplete)


BY_NAME = {
    "model": complete_model,
    "cluster": complete_cluster,
    "gpu": complete_gpu,
    "software": complete_software,
    "preset": complete_preset,
    "comparable": complete_comparable,
}
"""What completes a field of this name or kind, in every command."""


def completer(kind: str | Completer) -> Completer | None:
    """Find what completes a kind of name; None where nothing does."""
    return BY_NAME.get(kind) if isinstance(kind, str) else kind
