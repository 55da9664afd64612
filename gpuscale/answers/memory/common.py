"""What the memory documents share: loading hardware, degrees, formatting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.values import whole
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuscale.io.inputs import Loaded


def load(given: dict[str, Any], **others: Any) -> Loaded:
    """Load cluster and model, with the what-if settings."""
    from gpuscale.io.inputs import load_inputs

    return load_inputs(
        given["common"],
        cluster=given["cluster"] or given["gpu"] or "dgx-h100",
        model=given["model"],
        catalogue=given["catalogue"],
        others=others or None,
    )


def degree(given: dict[str, Any], name: str, most: float = 1e6) -> int:
    """Read one degree or count, of at least 1."""
    return whole(given[name], f"--{name.replace('_', '-')}", most=most)


def choice(given: dict[str, Any], name: str, known: Iterable[str]) -> str:
    """Read a word out of a list."""
    text = str(given[name]).strip().lower()
    names = list(known)
    if text not in names:
        raise unknown_name(name.replace("_", " "), text, names, f"known: {', '.join(names)}")
    return text


def zero_stage(given: dict[str, Any], default: int) -> int:
    """Read the ZeRO stage."""
    if given["zero"] is None:
        return default
    stage = whole(given["zero"], "--zero", least=0, most=3)
    return stage


def data_parallel(given: dict[str, Any], model_parallel: int) -> int:
    """Data-parallel degree from --dp or --gpus."""
    if given["gpus"] is None:
        return degree(given, "dp") if given["dp"] is not None else 1
    n_gpus = degree(given, "gpus", most=1e7)
    if n_gpus % model_parallel:
        raise GpuscaleError(
            f"--gpus {n_gpus} is no multiple of tp*pp*cp = {model_parallel}",
            f"{max(1, n_gpus // model_parallel) * model_parallel} would be",
        )
    dp = n_gpus // model_parallel
    if given["dp"] is not None and degree(given, "dp") != dp:
        raise GpuscaleError(f"--gpus {n_gpus} with tp*pp*cp = {model_parallel} means dp = {dp}")
    return dp


def gb(value: float) -> str:
    """Bytes as GB with two or three digits behind the point."""
    return f"{value / 1e9:,.2f} GB"


def rows_max(rows: Iterable[tuple[Any, ...]]) -> float:
    """Return the largest bar: the last cell of each row."""
    return max((float(row[-1]) for row in rows), default=0.0)


def width_text(largest: float, limit: float, word: str) -> str:
    """Say what the full width of the bars is: the limit, or the largest bar if that is more."""
    if largest <= limit:
        return f"full width: {gb(limit)} {word}"
    return f"full width: {gb(largest)}, of which {gb(limit)} is {word}"


def verdict(total: float, usable: float, hbm: float) -> str:
    """Say whether it fits, and by how much."""
    word = "fits" if total <= usable else "does not fit"
    left = usable - total
    by = f"{gb(left)} left" if left >= 0 else f"{gb(-left)} too much"
    return f"{word}: {gb(total)} of {gb(usable)} usable ({gb(hbm)} HBM), {by}"
