"""A layout of what is said of it: the one way in which blanks are filled, whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuscale.core.context import DEFAULT_CONTEXT
from gpuscale.core.layout import Layout
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import capabilities_of
from gpuscale.specs.software import SoftwareSpec


def ranks_of(said: Mapping[str, Any], n_gpus: int, named: str = "--gpus {n_gpus}") -> int:
    """Data-parallel ranks of so many GPUs. [1].

    `said`: fields of a layout. `named`: what to call the GPUs. Raises GpuscaleError if the other
    degrees do not divide them.
    """
    split = (said.get("tp") or 1) * (said.get("pp") or 1) * (said.get("cp") or 1)
    if n_gpus % split:
        raise GpuscaleError(
            f"{named.format(n_gpus=n_gpus)} is no multiple of tp*pp*cp = {split}",
            f"{max(1, n_gpus // split) * split} would be",
        )
    return n_gpus // split


def settle(said: Mapping[str, Any], software: SoftwareSpec) -> Layout:
    """Layout of what is said of its fields; None is a blank.

    `software`: whose habits fill ZeRO stage, sequence parallelism, recomputation and the kind of
    context parallelism; other blanks are the defaults of `Layout`.
    """
    habits = {
        "zero_stage": software.zero_stage,
        "sequence_parallel": software.sequence_parallel,
        "recompute": software.recompute,
        "cp_kind": (capabilities_of(software).cp_kinds or (DEFAULT_CONTEXT,))[0],
    }
    whole = habits | {name: value for name, value in said.items() if value is not None}
    whole["sequence_parallel"] = whole["sequence_parallel"] and whole.get("tp", 1) > 1
    return Layout(**whole)
