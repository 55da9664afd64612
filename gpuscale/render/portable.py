"""Documents that can be pickled: functions of an answer become what they return."""

from __future__ import annotations

import copyreg
from dataclasses import fields, replace
from typing import Any

from gpuscale.render.document import Block, Column, Document, Table


class Kept:
    """A value that stood behind a call."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        """Return it."""
        return self.value


class Texts:
    """Texts of the values of one column."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def __call__(self, value: Any) -> str:
        """Text of one of them."""
        return self.texts.get(repr(value), str(value))


def portable(document: Document) -> Document:
    """Answer whose tables and pictures are worked out, so that it can be sent to a process."""
    made = {
        name: None if (call := getattr(document, name)) is None else Kept(call())
        for name in ("pictures", "timeline", "job")
    }
    table = document.csv_table
    return replace(
        document,
        blocks=[_block(b) for b in document.blocks],
        csv_table=None if table is None else _table(table),
        pictures=made["pictures"],
        timeline=made["timeline"],
        job=made["job"],
        details={name: [_block(b) for b in part] for name, part in document.details.items()},
        launch=None,  # a launch file is asked for by name, not sent
    )


def _block(block: Block) -> Block:
    return _table(block) if isinstance(block, Table) else block


def _table(table: Table) -> Table:
    columns = [
        Column(c.key, c.header, _texts(c, [row[i] for row in table.rows]), c.right)
        for i, c in enumerate(table.columns)
    ]
    return Table(columns, [list(row) for row in table.rows], table.title)


def _texts(column: Column, values: list[Any]) -> Any:
    if column.show is str:
        return str
    return Texts({repr(v): column.show(v) for v in values if v is not None})


def _reduced(document: Document) -> tuple[Any, ...]:
    """Pickle it with its tables and pictures worked out: functions cannot be sent."""
    made = portable(document)
    return Document, tuple(getattr(made, f.name) for f in fields(made))


copyreg.pickle(Document, _reduced)
