"""Questions of the page in the browser: texts of a form in, one answer as HTML and JSON out."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from gpuscale.answers.answer import ask
from gpuscale.answers.ask import fields_of
from gpuscale.answers.table import question_of
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.answers.ask import Question
    from gpuscale.render.document import Document

LAUNCHERS = {"run.sh": "torchrun", "run.sbatch": "slurm"}


def command_line(question: type[Question], given: Mapping[str, Any]) -> str:
    """Command line that asks the same.

    Examples
    --------
    >>> command_line(question_of("memory"), {"model": "llama3-8b", "gpu": "rtx-3090", "gpus": "2"})
    'gpuscale memory llama3-8b --gpu rtx-3090 --gpus 2'
    """
    words = ["gpuscale", question.NAME]
    asked = [(name, *found) for name, found in fields_of(question).items() if name in given]
    for name, field, positional in sorted(asked, key=lambda one: not one[2]):
        value = given[name]
        flag = [] if positional else [f"--{name.replace('_', '-')}"]
        if field.kind == "flag":
            words += flag if str(value).lower() in ("true", "1", "on") else []
        else:
            words += [*flag, str(value)]
    return shlex.join(words)


def asked_json(name: str, given_json: str) -> str:
    """Answer a form.

    Parameters
    ----------
    name : str
        A command: plan, memory, serve, ...
    given_json : str
        Its options as a JSON table of texts; empty ones are left out.

    Returns
    -------
    str
        JSON: ``command``, and either ``error`` with ``hint`` or ``head``, ``body`` (HTML),
        ``answer`` (as ``--json``), ``text``, ``no`` and ``launch`` files.
    """
    question = question_of(name)
    given = {k: v for k, v in json.loads(given_json).items() if str(v).strip()}
    made: dict[str, Any] = {"command": command_line(question, given)}
    try:
        _refuse_unsaid(question, given)
        document = ask(question(**given))
        from gpuscale.render.data import to_json
        from gpuscale.render.html_report import body_html, head_html, to_html
        from gpuscale.render.plain import to_text

        made |= {
            "head": head_html(document),
            "body": body_html(document),
            "answer": json.loads(to_json(document, {})),
            "text": to_text(document),
            "report": to_html(document, made["command"]),
            "no": document.answered_no,
            "launch": _launches(document.launch),
            "memory": _memory(document),
        }
    except GpuscaleError as error:
        made |= {"error": str(error), "hint": getattr(error, "hint", "") or ""}
    return json.dumps(made)


def _refuse_unsaid(question: type[Question], given: Mapping[str, Any]) -> None:
    """Refuse options that a question has not, and the lack of those that it must have."""
    fields = fields_of(question)
    for key in given:
        if key not in fields:
            raise unknown_name("option", key, fields)
    for name, (field, _) in fields.items():
        if field.default is ... and name not in given:
            raise GpuscaleError(f"missing: {name.replace('_', ' ')}")


def _memory(document: Document) -> dict[str, Any] | None:
    """Parts of the memory and what is usable, where the answer draws them."""
    from gpuscale.render.document import Bars

    for block in document.blocks:
        if isinstance(block, Bars) and block.limit:
            return {"parts": [list(row) for row in block.rows if row[1]], "usable": block.limit}
    result = document.result
    total, usable = (getattr(result, key, None) for key in ("peak_bytes", "capacity_bytes"))
    if not total or not usable:
        return None
    return {"parts": [["needed", total, f"{total / 1e9:,.1f} GB"]], "usable": usable}


def _launches(write: Any) -> dict[str, str]:
    """Launch files of an answer, where its framework can be written."""
    files = {}
    for file, wrapper in LAUNCHERS.items() if write else ():
        try:
            files[file] = write(wrapper)
        except GpuscaleError:
            continue
    return files


def names_json() -> str:
    """Names that the form offers, as JSON: models, GPUs, clusters; and the style of pictures."""
    from gpuscale.io.presets import preset_names
    from gpuscale.render.svg import style

    kinds = (("models", "model"), ("gpus", "gpu"), ("clusters", "cluster"))
    return json.dumps({key: preset_names(kind) for key, kind in kinds} | {"style": style()})
