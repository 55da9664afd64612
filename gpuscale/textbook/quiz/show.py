"""Answers as text: stated and exact value in the document's own unit, the note in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuscale.core.quantity import format_si
from gpuscale.io.toml import read_toml
from gpuscale.textbook.quiz.evaluate import QuizQuestion

UNITS = read_toml(Path(__file__).parent / "data" / "units.toml")
DIMENSION: dict[str, str] = UNITS["dimension"]
"""Unit of an answer -> dimension of `core.quantity`."""

_PLAIN_UNITS = ("1", "text", "formula", "shape", "bool", "SM", "")
_READABLE: dict[str, str] = UNITS["readable"]


def number(value: float) -> str:
    """Six significant digits; whole numbers below 1e9 in full.

    Examples
    --------
    >>> number(16896), number(62.91456), number(6.3e24)
    ('16,896', '62.9146', '6.3e+24')
    """
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.6g}"


def _with_unit(text: str, unit: str) -> str:
    return text if unit in _PLAIN_UNITS else f"{text} {_READABLE.get(unit, unit)}"


def value_text(value: Any, unit: str) -> str:
    """Value in its SI unit, with a prefix where it has one.

    Examples
    --------
    >>> value_text(8.585216e-6, "s"), value_text(False, "bool"), value_text((2, 8), "1")
    ('8.5852 us', 'no', '2 to 8')
    """
    if value is None:
        return "not computed"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return " to ".join(value_text(v, unit) for v in value)
    if unit in DIMENSION:
        return format_si(value, DIMENSION[unit], 5)
    return _with_unit(number(value), {"1/s": "per s", "bit/s": "bit/s"}.get(unit, unit))


def stated_text(question: QuizQuestion) -> str:
    """Write what the document prints; a dash where it gives no value."""
    stated = question.stated
    if stated is None:
        return "-"
    if isinstance(stated, list):
        joined = (" x " if question.stated_unit == "shape" else " to ").join(map(number, stated))
        return _with_unit(joined, question.stated_unit)
    if isinstance(stated, str):
        return _with_unit(stated, question.stated_unit)
    return _with_unit(number(stated), question.stated_unit)


def _binary(unit: str, factor: float) -> str:
    """Give a unit its binary prefix if the factor is one: MB of 2^20 bytes becomes MiB."""
    for prefix, binary in (("k", 2.0**10), ("M", 2.0**20), ("P", 2.0**50)):
        if unit.startswith(prefix) and abs(factor / binary - 1) < 1e-6:
            return f"{prefix.upper()}i{unit[1:]}"
    return unit


def exact_text(question: QuizQuestion, exact: Any) -> str:
    """Exact value in the unit in which the document states its own, else with an SI prefix.

    Where a document writes MB (or kB, PB, M) and means the binary prefix, the answer says MiB.
    """
    stated, si = question.stated, question.stated_si
    comparable = isinstance(stated, (int, float)) and not isinstance(stated, bool) and si
    if comparable and isinstance(exact, (int, float)) and not isinstance(exact, bool):
        return _with_unit(number(exact * stated / si), _binary(question.stated_unit, si / stated))
    if question.stated_unit == "shape" and isinstance(exact, tuple):
        return " x ".join(map(number, exact))
    return value_text(exact, question.unit)


def note_text(question: QuizQuestion) -> str:
    """Return the note; where the document is wrong, with what it prints, on one line.

    Examples
    --------
    >>> from gpuscale.textbook.quiz.evaluate import load_questions, select
    >>> note_text(select(load_questions(), "gantt")[0])[:38]
    'document 002 prints 10 slots: The char'
    """
    if question.verdict == "wrong":
        stated = stated_text(question)
        printed = f'"{stated}"' if isinstance(question.stated, str) else stated
        return f"document {question.document} prints {printed}: {question.note}"
    return question.note
