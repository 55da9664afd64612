"""`plan --measured`: a job asked as a plan, and what a run of it measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import Question, fields_of
from gpuscale.answers.table import question_of

if TYPE_CHECKING:
    from gpuscale.answers.plan import Plan

ONE = ("gpus", "cluster", "seq_len", "global_batch")
"""Fields of a plan that may be several: the first is the run's."""


def of_plan(asked: Plan) -> Question:
    """Make the question about the run of a plan."""
    diagnose: Any = question_of("diagnose")  # by name: it asks for plans itself
    known = fields_of(type(asked))
    given = {}
    for name in fields_of(diagnose):
        if name in known and name not in ("model", "software"):
            value = getattr(asked, name)
            if name in ONE and isinstance(value, tuple):
                value = value[0] if value else None
            if value not in (None, ()) and value != known[name][0].default:
                given[name] = str(value) if name == "gpus" else value
    kind = None if asked.method else "pretrain"
    model = (asked.model,) if asked.model else ()
    question: Question = diagnose(model, software=asked.software, kind=kind, **given)
    return question
