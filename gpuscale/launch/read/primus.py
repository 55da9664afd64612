"""Primus: one YAML over Megatron, torchtitan or MaxText, whose model is a file of its own."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpuscale.io.toml import Table
from gpuscale.launch.dialects.data import dialect
from gpuscale.launch.read import maxtext, torchtitan
from gpuscale.launch.read.found import Found
from gpuscale.launch.read.keyed import read_bridge
from gpuscale.launch.read.tables import tables_in


def _megatron(overrides: Table) -> Found:
    found = read_bridge(overrides)
    found.kind, found.software = "megatron", "megatron-core"
    return found


READERS: dict[str, Callable[[Table], Found]] = {
    "megatron": _megatron,
    "torchtitan": torchtitan.read_toml,
    "maxtext": maxtext.read,
}
"""Framework -> what reads the keys that override its own."""
NAMES = {file: model for model, file in dialect("primus").names.items()}


def read_primus(table: Table) -> Found | None:
    """Read a YAML of Primus: a framework's options as overrides of a model's own file."""
    for section in tables_in(table.get("modules")):
        overrides, reader = section.get("overrides"), READERS.get(str(section.get("framework")))
        if reader and isinstance(overrides, dict):
            found = reader(overrides)
            found.version, found.not_understood, found.model = "Primus", [], None
            stem = re.sub(r"\.ya?ml$", "", str(section.get("model", "")))
            name = stem.lower().removesuffix("-fp8")
            if name != stem.lower():
                found.precision = "fp8"
            module, _, flavor = name.rpartition("_")
            named = torchtitan.MODELS.get((module, flavor)) or name.replace("_", "-")
            own = NAMES.get(f"{stem}.yaml") if section["framework"] == "megatron" else None
            found.model_name = own or maxtext.MODELS.get(named, named) or None
            return found
    return None
