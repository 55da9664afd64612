"""Documents that can be pickled: functions of an answer become what they return."""

from __future__ import annotations

import copyreg
from functools import partial
from typing import Any

from gpuscale.core.records import fields, replace
from gpuscale.render.document import Document, Table


def _kept(value: Any) -> Any:
    """Give the value that stood behind a call."""
    return value


def _text(texts: dict[str, str], value: Any) -> str:
    """Text of one of the values of a column."""
    return texts.get(repr(value), str(value))


def portable(document: Document) -> Document:
    """Answer whose tables and pictures are worked out, so that it can be sent to a process."""
    calls = {name: getattr(document, name) for name in ("pictures", "timeline", "job")}
    made: dict[str, Any] = {name: partial(_kept, call()) for name, call in calls.items() if call}
    return replace(
        document,
        blocks=[_sent(b) for b in document.blocks],
        csv_table=_sent(document.csv_table),
        details={name: [_sent(b) for b in part] for name, part in document.details.items()},
        launch=None,  # a launch file is asked for by name, not sent
        **made,
    )


def _sent(table: Any) -> Any:
    """Block whose cells are written already: a column's own function cannot be sent."""
    if not isinstance(table, Table):
        return table
    columns = []
    for i, c in enumerate(table.columns):
        texts = {repr(r[i]): c.show(r[i]) for r in table.rows if r[i] is not None}
        columns.append(c if c.show is str else replace(c, show=partial(_text, texts)))
    return Table(columns, [list(row) for row in table.rows], table.title)


def _reduced(document: Document) -> tuple[Any, ...]:
    """Pickle it with its tables and pictures worked out: functions cannot be sent."""
    made = portable(document)
    return Document, tuple(getattr(made, f.name) for f in fields(made))


copyreg.pickle(Document, _reduced)
