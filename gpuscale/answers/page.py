"""Questions of the page in the browser: texts of a form in, one answer as HTML and JSON out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gpuscale.answers.answer import ask
from gpuscale.answers.ask import Question, fields_of
from gpuscale.answers.saved import command_line
from gpuscale.answers.table import question_of
from gpuscale.core.words import EVENT_KINDS
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.presets import preset_names
from gpuscale.render.document import Document
from gpuscale.render.palette import WORDS
from gpuscale.render.text import plain, to_json


@lru_cache(maxsize=8)
def _asked(name: str, given_json: str) -> Document:
    """Answer a form; the last answers are kept for what is made of them."""
    question = question_of(name)
    given = _given(given_json)
    _refuse_unsaid(question, given)
    return ask(question(**given))


def _given(given_json: str) -> dict[str, object]:
    return {k: v for k, v in json.loads(given_json).items() if str(v).strip()}


def asked_json(name: str, given_json: str) -> str:
    """Answer a form.

    `name`: a command: plan, memory, serve, ... `given_json`: its options as a JSON table of texts;
    empty ones are left out. Returns: JSON: ``command``, and either ``error`` with ``hint`` or
    ``answer`` (as ``--json``, with the summary), ``no``, and whether there is a ``launch`` file.
    """
    made: dict[str, object] = {"command": command_line(question_of(name), _given(given_json))}
    try:
        document = _asked(name, given_json)
        made |= {
            "answer": json.loads(to_json(document, {})),
            "no": document.answered_no,
            "launch": document.launch is not None,
        }
    except GpuscaleError as error:
        made |= {"error": str(error), "hint": getattr(error, "hint", "") or ""}
    return json.dumps(made)


def kept_json(name: str, given_json: str, what: str) -> str:
    """Make something of an answer: one of `MAKE`.

    Returns: JSON: a file with ``file``, ``type`` and ``text``; ``charts``, ``point``,
    ``events`` or ``details``; or ``error``.
    """
    try:
        document = _asked(name, given_json)
        made = MAKE[what](document, command_line(question_of(name), _given(given_json)))
    except GpuscaleError as error:
        made = {"error": str(error)}
    return json.dumps(made)


def _page(document: Document, command: str) -> dict[str, object]:
    from gpuscale.render.html_report import to_html

    return {"file": "answer.html", "type": "text/html", "text": to_html(document, command)}


def _picture(document: Document, _: str) -> dict[str, object]:
    from gpuscale.render.draw import to_svg
    from gpuscale.render.pictures_known import pictures

    found = pictures(document)
    if not found:
        raise GpuscaleError("this answer has no picture")
    return {"file": "answer.svg", "type": "image/svg+xml", "text": to_svg(found[0])}


def _launch(document: Document, _: str) -> dict[str, object]:
    if document.launch is None:
        raise GpuscaleError("this answer has no launch file")
    text = document.launch("torchrun")
    return {"file": "run.sh", "type": "text/x-shellscript", "text": text}


def _charts(document: Document, _: str) -> dict[str, object]:
    """Charts as data, the same that notebooks and files draw."""
    from gpuscale.render.pictures_known import pictures

    found = pictures(document)
    return {"charts": [{"kind": type(c).__name__.lower(), **plain(c)} for c in found]}


def _point(document: Document, _: str) -> dict[str, object]:
    """Give what a picture of many layouts has of one."""
    keys = ("fits", "peak_bytes", "step_s", "run_s")
    return {"point": {key: getattr(document.result, key, None) for key in keys}}


def _events(document: Document, _: str) -> dict[str, object]:
    """Give the whole step in time: stage, track, kind, start [s], length [s], micro-batch."""
    if document.timeline is None:
        return {"events": []}
    line = document.timeline()
    rows = [
        (e.device, e.track, EVENT_KINDS[e.kind], e.start_s, e.duration_s, e.micro_batch)
        for e in line.events
    ]
    return {"events": rows, "total_s": line.total_s}


def _details(document: Document, _: str) -> dict[str, object]:
    """Give the named details as HTML, then how the numbers come about and the inputs."""
    from gpuscale.render.html_report import folded, sections, written

    named = document.details or {"answer": document.blocks}
    shown = {name: "".join(written(list(sections(blocks)))) for name, blocks in named.items()}
    return {"details": shown | {"how": "".join(folded(document))}}


MAKE = {
    "page": _page,
    "picture": _picture,
    "launch": _launch,
    "charts": _charts,
    "events": _events,
    "point": _point,
    "details": _details,
}
"""What can be made of an answer."""


def _refuse_unsaid(question: type[Question], given: Mapping[str, Any]) -> None:
    """Refuse options that a question has not, and the lack of those that it must have."""
    fields = fields_of(question)
    if unknown := [name for name in given if name not in fields]:
        raise unknown_name("option", unknown[0], fields)
    if lost := [n for n, (field, _) in fields.items() if field.default is ... and n not in given]:
        raise GpuscaleError(f"missing: {lost[0].replace('_', ' ')}")


def names_json() -> str:
    """Names that the form offers, as JSON: models, GPUs, clusters; and what words mean."""
    kinds = (("models", "model"), ("gpus", "gpu"), ("clusters", "cluster"))
    return json.dumps({key: preset_names(kind) for key, kind in kinds} | {"words": dict(WORDS)})
