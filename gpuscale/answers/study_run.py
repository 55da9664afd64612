"""Running a study: its jobs on an executor, its file that grows a row an answer, its ranking."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from gpuscale.answers.progress import JobsProgress
from gpuscale.answers.study_jobs import StudyFile, StudyJob, answer_job, read_study
from gpuscale.answers.sweep import amount
from gpuscale.answers.table import question_of
from gpuscale.core.records import dataclass, fields
from gpuscale.errors import GpuscaleError
from gpuscale.foreign import csv_cell, line
from gpuscale.io.text import read_lines
from gpuscale.render.document import Bars, Column, Document, Point, Table, Text
from gpuscale.render.save import check_target, is_stream

if TYPE_CHECKING:
    from gpuscale.answers.study import Study

MOST_ROWS = 4_000_000

SYNC_S = 1.0
"""How often what is written is forced to the disk."""


class Rows:
    """Rows of a study, appended as they come."""

    def __init__(self, path: Path, columns: Sequence[str], fresh: bool) -> None:
        self.path, self.columns = path, list(columns)
        self.done: dict[str, dict[str, str]] = {}
        self.synced_s = time.monotonic()
        try:
            if path.exists() and not fresh:
                self._read()
            self.file: TextIO = path.open("w" if fresh else "a", encoding="utf-8", newline="")
        except OSError as error:
            raise GpuscaleError(f"{path}: cannot be written: {error.strerror}") from None
        self.writer = csv.writer(self.file, lineterminator="\n")
        if not self.done and path.stat().st_size == 0:
            self.writer.writerow(self.columns)
            self.file.flush()

    def _read(self) -> None:
        """Take what is there; a line that was cut off in writing is asked again."""
        text = "".join(read_lines(self.path, MOST_ROWS))
        whole = text[: text.rfind("\n") + 1]
        lines = list(csv.reader(whole.splitlines()))
        if not text:
            return
        if lines[:1] != [self.columns]:
            raise GpuscaleError(
                f"{self.path}: holds another study (other columns)",
                "give another --out, or --fresh to start over",
            )
        if whole != text:
            self.path.write_text(whole, encoding="utf-8")
        for cells in lines[1:]:
            if len(cells) == len(self.columns):
                self.done[cells[0]] = dict(zip(self.columns, cells, strict=True))

    def add(self, row: dict[str, object]) -> None:
        """Write one row."""
        cells = [_cell(row.get(c)) for c in self.columns]
        self.writer.writerow(cells)
        self.file.flush()
        self.done[cells[0]] = dict(zip(self.columns, cells, strict=True))
        if time.monotonic() - self.synced_s > SYNC_S:
            os.fsync(self.file.fileno())
            self.synced_s = time.monotonic()

    def close(self) -> None:
        """Leave the file whole."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    return str(csv_cell(line(value))) if isinstance(value, str) else str(value)


SUMMED_UP = 5
"""Best jobs that a summary names."""

AHEAD = 4
"""Jobs handed to a process before it asks for more."""


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """What became of a study."""

    question: str
    n_jobs: int
    n_answered: int  # of them, yes or no
    n_no: int
    n_errors: int
    n_kept: int  # answered before, not asked again
    file: str
    rank: str
    best: tuple[Mapping[str, Any], ...]


def known_keys(asked: Study) -> tuple[str, ...]:
    """Keys of a study's answer, those of its best rows among them."""
    columns, _ = _columns(asked, read_study(asked.file))
    return (*(f.name for f in fields(StudyAnswer)), *(f"best.{c}" for c in columns))


def _columns(asked: Study, study: StudyFile) -> tuple[list[str], str]:
    """Columns of a study's file, and the key that it is ranked by."""
    shown = study.show or _headlines(study.question)
    rank = asked.rank or study.rank or shown[0]
    columns = ["key", *study.varied, "answer", "note", *shown, rank.lstrip("-")]
    return list(dict.fromkeys(columns)), rank


def study_document(asked: Study) -> Document:
    """Run what is left of a study, and rank all of it."""
    study = read_study(asked.file)
    columns, rank = _columns(asked, study)
    out = asked.out or Path(asked.file).with_suffix(".csv").name
    target = check_target(out, "--out", (".csv",))
    if is_stream(target):
        raise GpuscaleError(f"--out {out}: a study goes on in its file: name a regular one")
    rows = Rows(target, columns, asked.fresh)
    left = [job for job in study.jobs if job.key not in rows.done]
    n_kept = len(study.jobs) - len(left)
    interrupted = False
    try:
        _run(asked, study, left, rows)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        rows.close()
    return _document(
        asked, study, rows=rows, rank=rank, n_kept=n_kept, target=target, interrupted=interrupted
    )


def _headlines(question: str) -> tuple[str, ...]:
    found = tuple(getattr(question_of(question), "HEADLINES", "").split())
    if not found:
        raise GpuscaleError(
            f"study: `{question}` has no headline numbers", "say them: show = [...]"
        )
    return found


def _run(asked: Study, study: StudyFile, left: list[StudyJob], rows: Rows) -> None:
    """Answer what is left; every answer is in the file before the next is waited for."""
    progress = JobsProgress(len(left))
    show = tuple(c for c in rows.columns if c not in ("key", "answer", "note", *study.varied))
    width = min(asked.jobs or os.cpu_count() or 1, len(left))
    if width <= 1:
        for job in left:
            _keep(rows, job, answer_job(study.question, job.fields, show))
            progress.step()
    else:
        with ProcessPoolExecutor(width) as pool:
            _on_pool(
                pool,
                AHEAD * width,
                question=study.question,
                left=left,
                show=show,
                rows=rows,
                progress=progress,
            )
    progress.clear()


def _on_pool(
    pool: Executor,
    most: int,
    question: str,
    left: list[StudyJob],
    show: tuple[str, ...],
    rows: Rows,
    progress: JobsProgress,
) -> None:
    waiting: dict[Future[dict[str, object]], StudyJob] = {}
    jobs = iter(left)
    try:
        while True:
            for job in jobs:
                waiting[pool.submit(answer_job, question, dict(job.fields), show)] = job
                if len(waiting) >= most:
                    break
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                _keep(rows, waiting.pop(future), future.result())
                progress.step()
    except KeyboardInterrupt:
        for future in waiting:
            future.cancel()
        raise


def _keep(rows: Rows, job: StudyJob, found: Mapping[str, Any]) -> None:
    rows.add({**job.fields, "key": job.key, **found})


def ranked(rows: list[dict[str, str]], rank: str) -> list[dict[str, str]]:
    """Rows that were answered yes and have the key, best first.

    >>> rows = [{"answer": "yes", "t": v} for v in ("2.0", "1.0", "")]
    >>> [r["t"] for r in ranked(rows, "t")], [r["t"] for r in ranked(rows, "-t")]
    (['1.0', '2.0'], ['2.0', '1.0'])
    """
    key, sign = rank.lstrip("-"), -1.0 if rank.startswith("-") else 1.0
    found = []
    for row in rows:
        try:
            found.append((sign * float(row[key]), row.get("key", ""), row))
        except (KeyError, ValueError):
            continue
    return [row for *_, row in sorted(found, key=lambda f: f[:2]) if row["answer"] == "yes"]


def _document(
    asked: Study,
    study: StudyFile,
    rows: Rows,
    rank: str,
    n_kept: int,
    target: Path,
    interrupted: bool,
) -> Document:
    keys = {job.key for job in study.jobs}
    done = [row for key, row in rows.done.items() if key in keys]
    best = ranked(done, rank)[: asked.top]
    key = rank.lstrip("-")
    shown = [c for c in rows.columns if c not in ("key", "answer", "note")]
    answer = StudyAnswer(
        question=study.question,
        n_jobs=len(study.jobs),
        n_answered=sum(row["answer"] in ("yes", "no") for row in done),
        n_no=sum(row["answer"] == "no" for row in done),
        n_errors=sum(row["answer"] == "error" for row in done),
        n_kept=n_kept,
        file=str(target),
        rank=rank,
        best=tuple({c: number(row[c]) for c in shown} for row in best),
    )
    head = (
        f"{answer.n_jobs:,} jobs of `{study.question}`: {answer.n_answered:,} answered, of which "
        f"{answer.n_no:,} no; {answer.n_errors:,} errors; {n_kept:,} were there already. {target}"
    )
    columns = [
        Column(c, c, lambda v, c=c: amount(c, v), right=c not in study.varied)  # type: ignore[misc]
        for c in shown
    ]
    table = Table(columns, [[number(row[c]) for c in shown] for row in best], f"best by {rank}")
    names = [" ".join(str(row[f]) for f in study.varied) for row in best]
    values = [float(row[key]) for row in best]
    bars = [(n, v, amount(key, v)) for n, v in zip(names, values, strict=True)]
    warnings = []
    if answer.n_errors:
        first = next(row["note"] for row in done if row["answer"] == "error")
        warnings.append(f"{answer.n_errors:,} jobs have no answer, the first: {first}")
    if interrupted:
        warnings.append("stopped; the same command goes on where it was")
    return Document.layered(
        "study",
        {"file": asked.file, "question": study.question, "varied": list(study.varied)},
        answer,
        _summary(head, key, bars),
        {
            "best": [Text(head), *([table] if best else [])],
            "bars": [Bars(bars, title=key)] if best else [],
        },
        warnings=warnings,
        answered_no=not best and not interrupted,
        interrupted=interrupted,
    )


def _summary(head: str, key: str, bars: Sequence[tuple[str, float, str]]) -> list[Point]:
    """Sum up what became of the jobs, and the best of them."""
    found = [Point("verdict", f"{head}.", tone="good" if bars else "bad")]
    for place, (name, _, said) in enumerate(bars[:SUMMED_UP], 1):
        found.append(Point(f"{place}.", said, name if place > 1 else f"{name} ({key})"))
    return found


def number(text: str) -> Any:
    """Value of a cell.

    >>> number("8"), number("0.5"), number("dgx-h100"), number(""), number("True")
    (8, 0.5, 'dgx-h100', None, True)
    """
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
