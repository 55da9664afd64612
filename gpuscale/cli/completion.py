"""Shell completion of preset names: file names and aliases, no preset is read."""

from __future__ import annotations

from collections.abc import Callable

Completer = Callable[[str], list[str]]

KINDS = {
    "model": ("model",),
    "cluster": ("cluster", "gpu"),  # a GPU means its usual node
    "gpu": ("gpu",),
    "software": ("software",),
    "preset": ("gpu", "cluster", "model", "software", "fabric", "arch", "link"),
    "comparable": ("gpu", "cluster", "model"),
}
"""Name or kind of a field -> the presets that complete it, in every command."""


def completer(kind: str | Completer) -> Completer | None:
    """Find what completes a kind of name; None where nothing does."""
    if not isinstance(kind, str):
        return kind
    return _starting(KINDS[kind]) if kind in KINDS else None


def _starting(kinds: tuple[str, ...]) -> Completer:
    def complete(incomplete: str) -> list[str]:
        from gpuscale.errors import GpuscaleError
        from gpuscale.io.presets import known_names, normalised

        start = normalised(incomplete)
        try:
            names = dict.fromkeys(name for kind in kinds for name in known_names(kind))
        except GpuscaleError:  # a user's alias file is broken: the command itself will say so
            return []
        return [name for name in names if name.startswith(start)]

    return complete
