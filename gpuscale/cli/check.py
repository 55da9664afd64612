"""`gpuscale check`: a file of jobs with requirements, reported like a test run."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from gpuscale.answers.ask import Asked, WhatIf, fields_of, text
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.core.records import KW_ONLY, dataclass, replace
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.foreign import clean
from gpuscale.io.presets import checked
from gpuscale.render.document import Block, Column, Document, Table, Text

MOST_JOBS = 1000


@dataclass(frozen=True, kw_only=True)
class JobCheck:
    """A command line and what its answer must meet: a table of the file."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    command: str
    name: str = ""
    require: tuple[str, ...] = ()
    answer: Literal["yes", "no", "any"] = "yes"  # "no": exit 1

    @property
    def args(self) -> list[str]:
        """Words of the command line."""
        return shlex.split(self.command.removeprefix("gpuscale "))


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job came out; `details` has a line for each thing that is wrong."""

    name: str
    command: str
    verdict: str  # passed, failed, error
    time_s: float
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedJobs:
    """How the jobs came out."""

    total: int
    passed: int
    jobs: tuple[JobOutcome, ...]


@dataclass
class Check(WhatIf):
    """Run the jobs of a file and hold their answers against the requirements in it."""

    NAME: ClassVar[str] = "check"
    RESULTS: ClassVar[str] = ".cli.check:CheckedJobs"
    EXAMPLE: ClassVar[str] = "gpuscale check jobs.toml --junit report.xml"
    file: Asked[str] = text("TOML with [[job]]: name, command, require.", ...)
    _: KW_ONLY
    junit: Asked[str | None] = text("Also write a JUnit XML report.", metavar="FILE")

    def answer(self) -> Document:
        """Run them."""
        from gpuscale.io.text import parse_toml, read_text, shown_name
        from gpuscale.render.save import check_target

        target = check_target(self.junit, "--junit", {".xml": "junit"}) if self.junit else None
        said = read_text(self.file)
        jobs = read_jobs(parse_toml(said, shown_name(self.file)), self.file)
        outcomes = [run_job(job, shared_options(self, job), said) for job in jobs]
        return _document(outcomes, self.file, {target: to_junit(outcomes)} if target else {})


def shared_options(asked: Check, job: JobCheck) -> tuple[str, ...]:
    """Options that ``--set`` and ``--calibration`` of the check mean for one of its jobs."""
    takes = fields_of(question_of(job.args[0]))
    found: list[str] = []
    if asked.set and "set" in takes:
        found += [word for change in asked.set for word in ("--set", change)]
    if asked.calibration is not None and "calibration" in takes:
        found += ["--calibration", asked.calibration]
    return tuple(found)


def read_jobs(data: dict[str, Any], where: str) -> list[JobCheck]:
    """Read the jobs of a file.

    Raises GpuscaleError if there is none, or one of them has an unknown key or command.
    """
    if "job" not in data and "model" in data:  # a plan.toml: one job, which must have an answer
        return [JobCheck(command=shlex.join(("plan", "--job", where)), name=where)]
    tables = data.get("job")
    if not isinstance(tables, list) or not tables or set(data) != {"job"}:
        raise GpuscaleError(
            f"{where}: must hold [[job]] tables and nothing else",
            "each with name, command and require, such as require = ['time_s<=2ms']",
        )
    if len(tables) > MOST_JOBS:
        raise GpuscaleError(f"{where}: more than {MOST_JOBS} jobs")
    return [_job(table, f"{where}: job {i + 1}") for i, table in enumerate(tables)]


def _job(table: Any, where: str) -> JobCheck:
    job = checked(JobCheck, table, where)
    try:
        args = job.args
    except ValueError as error:
        raise GpuscaleError(f"{where}: command: {error}") from None
    known = [name for name in COMMANDS if name != "check"]
    if not args or args[0] not in known:
        raise unknown_name(f"command in {where}:", args[0] if args else "", known)
    return replace(job, name=job.name or " ".join(args))


def run_job(job: JobCheck, shared: Sequence[str] = (), said: str = "") -> JobOutcome:
    """Run one job in this process; `said`: the file's text, which a job in `-` reads again."""
    import contextlib
    import io
    import json

    from gpuscale.cli.app import run

    asked = [word for r in job.require for word in ("--require", r)]
    out, err, start = io.StringIO(), io.StringIO(), time.perf_counter()
    piped, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(said.encode()))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([*job.args, *shared, "--json", *asked])
    finally:
        sys.stdin = piped
    took_s = time.perf_counter() - start
    line = " ".join(["gpuscale", *job.args, *shared])
    if code not in (0, 1):
        last = [t for t in err.getvalue().splitlines() if t.startswith("error: ")] or ["error"]
        return JobOutcome(job.name, line, "error", took_s, (last[-1],))
    verdicts = json.loads(out.getvalue()).get("requirements", [])
    wrong = [
        f"{v['requirement']}: have {v['have']}, need {v['need']}" for v in verdicts if not v["met"]
    ]
    answered = "yes" if code == 0 else "no"
    if job.answer not in ("any", answered) and not wrong:
        wrong.append(f"the answer is {answered}, {job.answer} is wanted")
    return JobOutcome(job.name, line, "failed" if wrong else "passed", took_s, tuple(wrong))


def to_junit(outcomes: list[JobOutcome]) -> str:
    """Write a report in JUnit's XML."""
    from xml.etree import ElementTree as Xml

    counts = {v: str(sum(o.verdict == v for o in outcomes)) for v in ("failed", "error")}
    suite = Xml.Element(
        "testsuite",
        name="gpuscale check",
        tests=str(len(outcomes)),
        failures=counts["failed"],
        errors=counts["error"],
        time=f"{sum(o.time_s for o in outcomes):.3f}",
    )
    for o in outcomes:
        case = Xml.SubElement(
            suite, "testcase", name=clean(o.name), classname="gpuscale", time=f"{o.time_s:.3f}"
        )
        if o.verdict != "passed":
            tag = "failure" if o.verdict == "failed" else "error"
            Xml.SubElement(case, tag, message=clean("; ".join(o.details))).text = clean(o.command)
    Xml.indent(suite)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(suite, encoding="unicode") + "\n"
    )


def _document(outcomes: list[JobOutcome], file: str, files: dict[Path, str]) -> Document:

    columns = [
        Column("verdict", "verdict", right=False),
        Column("name", "job", right=False),
        Column("time_s", "time", lambda v: f"{v:.2f} s"),
        Column("details", "what is wrong", right=False),
    ]
    rows = [
        (o.verdict if o.verdict == "passed" else o.verdict.upper(), o.name, o.time_s, detail)
        for o in outcomes
        for detail in (o.details or ("",))
    ]
    n_passed = sum(o.verdict == "passed" for o in outcomes)
    bad = len(outcomes) - n_passed
    result = CheckedJobs(len(outcomes), n_passed, tuple(outcomes))
    summary = f"{n_passed} passed" + (f", {bad} failed" if bad else "")
    blocks: list[Block] = [Table(columns, rows), Text(summary)]
    return Document("check", {"file": file}, result, blocks, answered_no=bad > 0, files=files)
