"""The screen of `gpuscale explore`: dimensions at the left, the answer, its bars and layouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import DataTable, Footer, Input, OptionList, Static

from gpuscale.cli.explore_job import TASKS, ExploredJob, PinnableRow, rows
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import LABEL_WIDTH, Document, lines_of, summary_of
from gpuscale.render.palette import in_terminal, meaning
from gpuscale.render.save import save
from gpuscale.render.svg import Strip, strips_of
from gpuscale.render.text import TONES

STYLE = """
#left { width: 30; border-right: solid $panel; }
#about { height: 5; color: $text-muted; padding: 0 1; }
#answers { height: auto; max-height: 60%; }
#answers > Static { width: 1fr; padding: 0 1; height: auto; }
#beside { border-left: solid $panel; display: none; }
#bars { padding: 1 1 0 1; height: auto; }
#layouts { height: 1fr; min-height: 5; }
#ask { display: none; dock: bottom; }
"""


class Explorer(App[None]):  # type: ignore[misc]
    """One job; each key changes it, and its answer is drawn at once."""

    CSS = STYLE
    TITLE = "gpuscale explore"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = [
        Binding("left", "step(-1)", "less", priority=True),
        Binding("right", "step(1)", "more", priority=True),
        Binding("t", "task", "task"),
        Binding("e", "edit", "type"),
        Binding("tab", "focus_next", "layouts", priority=True),
        Binding("p", "pin", "pin"),
        Binding("r", "release", "free"),
        Binding("c", "compare", "compare"),
        Binding("w", "write", "write"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, job: ExploredJob) -> None:
        """Begin with a job."""
        super().__init__()
        self.job = job
        self.found: list[PinnableRow] = []
        self.document: Document | None = None
        self.kept: tuple[ExploredJob, Document] | None = None
        self.editing = ""

    def compose(self) -> Iterator[Any]:
        """Lay the screen out."""
        with Horizontal():
            with Vertical(id="left"):
                yield OptionList(id="dimensions")
                yield Static(id="about")
            with VerticalScroll():
                with Horizontal(id="answers"):
                    yield Static(id="answer")
                    yield Static(id="beside")
                yield Static(id="bars")
                yield DataTable(id="layouts", cursor_type="row")
        yield Input(id="ask")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Answer the first job."""
        self.query_one("#dimensions").focus()
        self.change(self.job)

    def change(self, job: ExploredJob) -> None:
        """Take another job: its dimensions at once, its answer as soon as it is there."""
        self.job = job
        listed = self.query_one("#dimensions", OptionList)
        at = listed.highlighted or 0
        listed.clear_options()
        listed.add_options([self.dimension(name) for name in job.dimensions])
        listed.highlighted = min(at, len(job.dimensions) - 1)
        self.query_one("#left").border_title = job.task
        self.run_worker(lambda: self.answer(job), thread=True, exclusive=True)

    def dimension(self, name: str) -> Text:
        """One line: what it is called, its value."""
        value = self.job.given.get(name, "")
        label = Text(f"{name.replace('_', ' '):<13}")
        return label.append(value or "auto", "bold" if value else "dim")

    def answer(self, job: ExploredJob) -> None:
        """Answer in a thread, so that the keys stay quick; what was overtaken is dropped."""
        try:
            document: Document | GpuscaleError = job.answer()
        except GpuscaleError as error:
            document = error
        self.call_from_thread(self.show, job, document)

    def show(self, job: ExploredJob, document: Document | GpuscaleError) -> None:
        """Draw an answer, or say what is wrong with the question."""
        if job is not self.job:
            return
        if isinstance(document, GpuscaleError):
            hint = getattr(document, "hint", "") or ""
            said = Text(f"{document}\n", TONES["bad"]).append(hint, "dim")
            self.query_one("#answer", Static).update(said)
            return
        self.document = document
        self.redraw()
        self.found = rows(job, document)
        table = self.query_one("#layouts", DataTable)
        table.clear(columns=True)
        table.add_columns(*TASKS[job.task]["headers"])
        for row in self.found:
            table.add_row(*row.cells)

    def redraw(self) -> None:
        """Draw summary, comparison and bars for the width that there is."""
        if self.document is None:
            return
        beside = self.query_one("#beside", Static)
        beside.display = self.kept is not None
        width = max(40, self.size.width - 34)
        if self.kept is not None:
            beside.update(Text("kept: ", "dim") + summary_text(self.kept[1], width // 2 - 4))
            width //= 2
        self.query_one("#answer", Static).update(summary_text(self.document, width - 4))
        drawn = [bar(strip, max(30, self.size.width - 40)) for strip in strips_of(self.document)]
        self.query_one("#bars", Static).update(Text("\n").join(drawn))

    def on_resize(self) -> None:
        """Draw for another width."""
        self.redraw()

    def on_option_list_option_highlighted(self, event: Any) -> None:
        """Say what the dimension under the cursor means."""
        about = self.job.about(self.job.dimensions[event.option_index])
        self.query_one("#about", Static).update(about)

    @property
    def at(self) -> str:
        """Dimension under the cursor."""
        return self.job.dimensions[self.query_one("#dimensions", OptionList).highlighted or 0]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Leave the keys to the line of text while one is typed."""
        return not self.editing or action in ("quit",)

    def action_step(self, by: int) -> None:
        """Change the dimension under the cursor."""
        self.change(self.job.stepped(self.at, by))

    def action_task(self) -> None:
        """Go to the next task with the same model and machine."""
        names = list(TASKS)
        self.change(self.job.as_task(names[(names.index(self.job.task) + 1) % len(names)]))

    def action_pin(self) -> None:
        """Pin the layout under the cursor of the table."""
        at = self.query_one("#layouts", DataTable).cursor_row
        if at < len(self.found):
            self.change(self.job.with_(**self.found[at].pins))

    def on_data_table_row_selected(self) -> None:
        """Pin with the enter key too."""
        self.action_pin()

    def action_release(self) -> None:
        """Leave the layout to the planner again."""
        self.change(self.job.released())

    def action_compare(self) -> None:
        """Keep this answer beside, or drop the one kept."""
        kept = None if self.kept is not None or self.document is None else self.document
        self.kept = (self.job, kept) if kept is not None else None
        self.redraw()

    def action_edit(self) -> None:
        """Type the value of the dimension under the cursor."""
        self.prompt(self.at, self.job.given.get(self.at, ""))

    def action_write(self) -> None:
        """Write the launch file, or the command line."""
        self.prompt("write", "run.sh" if self.document and self.document.launch else "command.txt")

    def prompt(self, what: str, value: str) -> None:
        """Show the line of text."""
        self.editing = what
        box = self.query_one("#ask", Input)
        box.display, box.value, box.border_title = True, value, f"{what} (enter, or esc)"
        box.focus()

    def on_key(self, event: Any) -> None:
        """Leave the line of text."""
        if event.key == "escape" and self.editing:
            self.closed()

    def closed(self) -> str:
        """Hide the line of text; what it was for."""
        what, self.editing = self.editing, ""
        self.query_one("#ask", Input).display = False
        self.query_one("#dimensions").focus()
        return what

    def on_input_submitted(self, event: Any) -> None:
        """Take what was typed."""
        what, value = self.closed(), event.value.strip()
        if what != "write":
            self.change(self.job.with_(**{what: value}))
        elif value:
            self.written(Path(value))

    def written(self, path: Path) -> None:
        """Write a file, as its ending says: .sh and .sbatch the launch file, else the command."""
        wrapper = {".sh": "torchrun", ".sbatch": "slurm"}.get(path.suffix)
        launch = self.document.launch if self.document is not None else None
        try:
            save({path: launch(wrapper) if wrapper and launch else f"{self.job.line}\n"})
        except GpuscaleError as error:
            self.notify(str(error), severity="error")
            return
        self.notify(f"wrote {path}")


def summary_text(document: Document, width: int) -> Text:
    """Summary of an answer in its colours."""
    made, indent = Text(), ""
    for label, value, note, tone in lines_of(summary_of(document), width):
        made.append(f"{label:<{len(indent)}}", "dim").append(value, f"bold {TONES[tone]}")
        made.append(f"{note}\n", TONES[tone])
        indent = indent or ("" if value else " " * LABEL_WIDTH)  # below the verdict
    return made


def bar(strip: Strip, width: int) -> Text:
    """Draw a whole as its parts, each as long as its share, with a key below."""
    whole = max(strip.total, strip.limit or 0.0) or 1.0
    limit = f" of {strip.show(strip.limit)}" if strip.limit else ""
    made = Text(f"{strip.title}: ").append(f"{strip.show(strip.total)}{limit}\n", "bold")
    key, used, done = Text(), 0, 0.0
    for name, value in strip.parts:
        done += value
        cells = round(width * done / whole) - used
        used += cells
        colour = in_terminal(meaning(name) or "other")
        made.append("█" * cells, colour)
        key.append("■ ", colour).append(f"{name} {strip.show(value)}  ")
    made.append("·" * (width - used), "dim")
    return made.append("\n").append_text(key)
