"""What a study asks: its file read, and its jobs with a key each."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.core.records import dataclass
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.text import read_toml

KEYS = ("question", "show", "rank", "common", "grid", "job", "set", "name")
MOST_JOBS = 2_000_000


@dataclass(frozen=True, slots=True)
class StudyJob:
    """One question of a study."""

    key: str  # of what is asked, whatever the order in the file
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A study as its file says it."""

    question: str
    show: tuple[str, ...]  # empty: the question's headlines
    rank: str
    varied: tuple[str, ...]  # fields that differ between jobs
    jobs: tuple[StudyJob, ...]


def read_study(path: str) -> StudyFile:
    """Read a study.

    Raises GpuscaleError for keys that are not known, fields that the question does not have, or no
    job.
    """
    from gpuscale.answers.ask import fields_of
    from gpuscale.answers.sweep import option_names
    from gpuscale.answers.table import COMMANDS, question_of

    table = read_toml(path)
    for key in table:
        if key not in KEYS:
            raise GpuscaleError(f"{path}: unknown key `{key}`", f"a study has {', '.join(KEYS)}")
    name = str(table.get("question", "plan"))
    if name not in COMMANDS or name == "study":
        raise unknown_name(f"question in {path}:", name, COMMANDS)
    known = option_names(question_of(name)) | {"set": "set"}
    common = fields_named(table.get("common", {}), known, f"{path}: common")
    grid = fields_named(table.get("grid", {}), known, f"{path}: grid")
    listed = table.get("job", [])
    if not isinstance(listed, list):
        raise GpuscaleError(f"{path}: write the jobs as [[job]] tables")
    own = [fields_named(job, known, f"{path}: job {n}") for n, job in enumerate(listed, 1)]
    if table.get("set"):
        common |= {"set": [str(s) for s in table["set"]]}
    jobs = [
        _job(name, common | point | job) for point in _points(grid, path) for job in own or [{}]
    ]
    if not grid and not own:
        raise GpuscaleError(f"{path}: no job", "give lists under [grid], or [[job]] tables")
    needed = [n for n, (field, _) in fields_of(question_of(name)).items() if field.default is ...]
    for key in needed:
        if any(key not in job.fields for job in jobs):
            raise GpuscaleError(f"{path}: {key} of {name} is missing", f"put {key} under [common]")
    unique = {job.key: job for job in jobs}
    fields = {f: None for job in own for f in job} | dict.fromkeys(grid)
    show = table.get("show", [])
    if not isinstance(show, list):
        raise GpuscaleError(f"{path}: show: a list of keys is wanted")
    return StudyFile(
        name,
        tuple(str(s) for s in show),
        str(table.get("rank", "")),
        tuple(fields),
        tuple(unique.values()),
    )


def fields_named(table: Any, known: Mapping[str, str], where: str) -> dict[str, Any]:
    """Values of a table by the fields of a question that its keys name."""
    if not isinstance(table, dict):
        raise GpuscaleError(f"{where}: a table is wanted")
    found = {}
    for key, value in table.items():
        name = key.replace("_", "-")
        if name not in known:
            raise unknown_name(f"option in {where}:", key, known, "an option of the question")
        found[known[name]] = value
    return found


def _points(grid: Mapping[str, Any], path: str) -> Sequence[dict[str, Any]]:
    """Points of a grid."""
    n = 1
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise GpuscaleError(f"{path}: grid: {key}: a list of values is wanted")
        n *= len(values)
    if n > MOST_JOBS:
        raise GpuscaleError(f"{path}: {n:,} jobs are more than {MOST_JOBS:,}", "narrow the grid")
    return [dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values())]


def _job(question: str, fields: Mapping[str, Any]) -> StudyJob:
    text = json.dumps([question, sorted(fields.items())], default=str)
    return StudyJob(hashlib.sha256(text.encode()).hexdigest()[:16], fields)


def answer_job(question: str, fields: Mapping[str, Any], show: Sequence[str]) -> dict[str, Any]:
    """Ask one question of a study; what a process of the pool runs.

    Returns: ``answer`` (yes, no, error), ``note`` and the shown keys of the result.
    """
    from gpuscale.answers.sweep import answered
    from gpuscale.answers.table import question_of

    kind = question_of(question)
    typed = {
        k: str(v) if type(v) in (int, float) else v for k, v in fields.items()
    }  # 30 is no time
    try:
        answer, note, values = answered(kind(**typed))
    except GpuscaleError as error:
        return {"answer": "error", "note": " ".join(error.message.split())}
    keys = show or getattr(kind, "HEADLINES", "").split() or tuple(values)[:20]
    return {"answer": answer, "note": note, **{key: values.get(key) for key in keys}}
