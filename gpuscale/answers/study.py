"""Studies: a grid or list of jobs on many processes, written as they are answered."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers.ask import Asked, Question, flag, text, whole
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.render.document import Document


@dataclass
class Study(Question):
    """Many jobs of a file on a process pool: a grid or a list, written as they are answered.

    A study that was stopped goes on where it was; it ends with a ranking and a picture.
    """

    NAME: ClassVar[str] = "study"
    EXAMPLE: ClassVar[str] = "gpuscale study study.toml --jobs 8"
    RESULTS: ClassVar[str] = "study_run:StudyAnswer"
    file: Asked[str] = text("Study file: [common], [grid] and [[job]] of a question.", ...)
    _: KW_ONLY
    jobs: Asked[int | None] = whole("Processes. [default: one per core]", most=1024)
    out: Asked[str | None] = text(
        "Answers, a .csv file. [default: the study's name with .csv]", metavar="FILE"
    )
    fresh: Asked[bool] = flag("Start over; else what is in the file is not asked again.")
    rank: Asked[str | None] = text(
        "Key to rank by, smallest first; with a leading - largest first. [default: the file's]"
    )
    top: Asked[int] = whole("Best jobs to show.", 10, most=1000)

    def known_keys(self) -> tuple[str, ...]:
        """Keys that its answer may have, for a requirement on it."""
        from gpuscale.answers.study_run import known_keys

        return known_keys(self)

    def answer(self) -> Document:
        """Run the study."""
        from gpuscale.answers.study_run import study_document

        return study_document(self)
