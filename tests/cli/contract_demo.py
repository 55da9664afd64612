"""A program with one command that shows every block and every way to fail."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers.ask import Asked, Question, amount, flag, text, whole
from gpuscale.answers.table import COMMANDS, ELSEWHERE
from gpuscale.cli import app as application
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Bars, Column, Document, Facts, Table, Text

COMMANDS["demo"] = "Show every block."
ELSEWHERE["demo"] = __name__


def _table(wide: bool) -> Table:
    columns = [
        Column("time_s", "time", lambda v: f"{v:.3f} s"),
        Column("label", "long name of the thing", right=False),
        Column("c", "µ → ×"),
    ]
    more = 10 if wide else 0
    columns += [Column(f"c{i}", f"column {i}") for i in range(more)]
    rows = [[1.5 * i, "long label " * i, None] + [12345678901] * more for i in range(5)]
    return Table(columns, rows, title="A table")


@dataclass
class Demo(Question):
    """Show every block."""

    NAME: ClassVar[str] = "demo"
    EXAMPLE: ClassVar[str] = "gpuscale demo 5 --json"
    m: Asked[int] = whole("A number.", ..., label="M")
    _: KW_ONLY
    k: Asked[float] = amount("Another.", "count", 3.0)
    name: Asked[str] = text("What to do.", "x")
    wide: Asked[bool] = flag("More columns.")

    def answer(self) -> Document:
        """Show it."""
        return demo(self.m, self.name, self.wide)


def demo(m: int, name: str, wide: bool) -> Document:
    if name == "boom":
        raise ValueError("boom")
    if name == "bad":
        raise GpuscaleError("a name\nover two lines", "another name")
    if name == "ctrl-c":
        raise KeyboardInterrupt
    blocks = [
        Text("hello " * 30),
        _table(wide),
        Facts([("time", "1.5 ms", "because " * 14), ("memory", "8 GB", "\x1b[31mred")]),
        Bars([("weights", 3e9, "3 GB"), ("cache", 8e9, "8 GB")], 1e10, "of 10 GB", "Bars"),
    ]
    value = float("nan") if name == "nan" else 2.0
    return Document(
        "demo",
        {"m": m, "name": name},
        {"time_s": value, "m": m},
        blocks,
        warnings=["careful"],
        answered_no=name == "no",
    )


if __name__ == "__main__":
    application.main()
