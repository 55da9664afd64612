"""What an answer about files does not repeat, covered in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace

from gpuscale.answers.launch_check.records import Checked
from gpuscale.core.layout import PRECISIONS, RECOMPUTE
from gpuscale.io.presets import known_names
from gpuscale.launch.read.kinds import KINDS
from gpuscale.launch.read.secrets import Hidden

WRITTEN = ("missing", "broken", "not_understood", "unresolved", "notes", "diff", "said_by")
"""Parts of a report in which words of files may stand."""


def hidden_of(given: Collection[str], files: Mapping[str, str]) -> Hidden:
    """Collect what is not repeated of some files; names and formats of the program's own are."""
    names = {name for kind in ("model", "gpu", "cluster", "software") for name in known_names(kind)}
    return Hidden(files, given, {*names, *KINDS, *RECOMPUTE, *PRECISIONS, "lora", "qlora", "dora"})


def covered(found: Checked, hidden: Hidden) -> Checked:
    """Cover in an answer what it does not repeat."""
    report = found.report
    shown = {name: hidden.within(getattr(report, name)) for name in WRITTEN}
    said = {f.name: hidden.within(getattr(report.said, f.name)) for f in fields(report.said)}
    if report.n_params is None:
        shown["model"] = hidden.masked(report.model)
    report = replace(report, **shown, said=replace(report.said, **said))
    return replace(found, report=report, warnings=hidden.within(tuple(found.warnings)))
