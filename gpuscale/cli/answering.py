"""A question that was typed, answered: printed and saved, with its exit code."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.answers.answer import ask, what_if
from gpuscale.answers.ask import Question, fields_of
from gpuscale.answers.progress import listen
from gpuscale.cli.failures import complain, one_line
from gpuscale.cli.help import FORMATS, SHOWN
from gpuscale.core.records import dataclass, replace
from gpuscale.errors import Exit, GpuscaleError, MissingFile, unknown_name
from gpuscale.render.document import Document, named, usual

if TYPE_CHECKING:
    from gpuscale.answers.requirements import Requirement


def answered(question: type[Question], given: dict[str, Any]) -> Exit:
    """Answer a question of what was typed, `shown_` before the names of `SHOWN`, and show it."""
    if hasattr(question, "output_len"):
        _tokens_of_old(given)
    shown = read_shown({name: given.pop(f"shown_{name}") for name in SHOWN})
    try:
        asked = question(**{k: v for k, v in given.items() if v not in (None, (), [], False)})
    except GpuscaleError as error:
        example = f"for example `{question.EXAMPLE}`"  # of an argument; an option has its help
        see = f"see `gpuscale {question.NAME} --help`" if error.message[:2] == "--" else example
        raise GpuscaleError(error.message, error.hint or see) from None
    keys = asked.known_keys() if shown.require and hasattr(asked, "known_keys") else ()
    if keys:
        from gpuscale.answers.requirements import refuse_unknown

        refuse_unknown(shown.require, keys)
    bar = Bar()
    listen(bar)
    sweeping = bool(what_if(asked))
    try:
        with bar.ticking():
            document = ask(asked, shown.require if sweeping else ())
    except GpuscaleError as error:
        raise GpuscaleError(error.message, error.hint or _next_step(asked, error)) from error
    return emit(document, shown, () if sweeping else shown.require, keys)


def _next_step(asked: Question, error: GpuscaleError) -> str:
    """Say what the option of a file that is not there takes; nothing of other errors."""
    if not isinstance(error, MissingFile):
        return ""
    path = error.message.rpartition(": ")[0]
    for name, (field, _) in fields_of(type(asked)).items():
        given = getattr(asked, name)
        files = given if isinstance(given, tuple) else (given,)
        if os.path.normpath(path) in (os.path.normpath(str(file)) for file in files):
            return f"{field.label}: {field.help}"
    return ""


_LENGTHS = r"[\d.,]+[kKmM]?|(lognormal|exp|exponential|uniform|fixed):.*|sharegpt"


def _tokens_of_old(given: dict[str, Any]) -> None:
    """Take ``--output 300`` as tokens of an answer, as it was at first; a file has an ending."""
    files = given["shown_output"] or []
    tokens = [word for word in files if re.fullmatch(_LENGTHS, word)]
    if tokens and given.get("output_len") is None:
        given["output_len"] = tokens[-1]
        given["shown_output"] = [word for word in files if word not in tokens]


def emit(
    document: Document, shown: Shown, held: Sequence[Requirement] = (), keys: Iterable[str] = ()
) -> Exit:
    """Print a document in the wanted format and write it to the files asked for.

    Warnings and failed requirements go to stderr; the exit code is 1 for an answered no.
    """
    extra: dict[str, object] = {}
    if shown.explain:
        from gpuscale.render.text import plain

        if not document.terms:
            complain("warning", "this answer has no recorded formulas")
        extra["explain"] = plain(document.terms)
    verdicts = []
    if held:
        from gpuscale.answers.requirements import check_all

        verdicts = check_all(held, document.result, document.command, keys)
        extra["requirements"] = verdicts
    seen = document  # a detail that it does not have is told before a file is written
    if shown.format == "text" or (shown.show and shown.format == "markdown"):
        from gpuscale.render.document import layer

        seen = layer(document, shown.show)
    if shown.output or document.files:
        from gpuscale.cli.failures import command_line
        from gpuscale.render.save import file_content, save

        line = command_line(document.command)
        made = {path: file_content(document, path, extra, line) for path in shown.output}
        save({**document.files, **made})
    _print(seen, shown, extra)
    if shown.format != "json":
        for warning in document.warnings:
            complain("warning", one_line(warning))
    failed = [v for v in verdicts if not v.met]
    for v in failed:
        complain("failed", one_line(f"{v.requirement}: have {v.have}, need {v.need}"))
    if document.interrupted:
        return Exit.INTERRUPT
    return Exit.NO if failed or document.answered_no else Exit.OK


def _print(document: Document, shown: Shown, extra: dict[str, object]) -> None:
    if shown.plot:
        document = _with_pictures(document)
    if shown.format == "text":
        from gpuscale.render.text import print_document

        print_document(document, sys.stdout, explain=shown.explain)
        return
    from gpuscale.render.output import write
    from gpuscale.render.save import rendered

    utf = (sys.stdout.encoding or "").lower().startswith("utf")
    write(sys.stdout, rendered(document, shown.format, extra, ascii_only=not utf))


def _with_pictures(document: Document) -> Document:
    """Add the pictures in letters at the end."""
    import shutil

    from gpuscale.render.pictures_known import pictures
    from gpuscale.render.terminal import drawn

    width = shutil.get_terminal_size((100, 24)).columns
    charts = [drawn(chart, width) for chart in pictures(document)]
    if not charts:
        complain("warning", "this answer has no picture")
    return replace(document, blocks=[*document.blocks, *charts])


WAIT_S = 0.5
STEP_S = 0.2


class Bar:
    """Writes the share done over itself, or how long it works; None takes the line away."""

    def __init__(self) -> None:
        self.shown = False
        self.words = ""
        self.start_s = time.monotonic()
        self.next_s = self.start_s + WAIT_S
        self.wanted = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, share: float | None, words: str) -> None:
        """Show how far the search is."""
        self.words = words
        if share is None:
            self._clear()
            return
        if not self.wanted or time.monotonic() < self.next_s:
            return
        filled = round(30 * share)
        bar = "#" * filled + "." * (30 - filled)
        self._write(words or f"searching  {bar}  {100 * share:3.0f} % ")

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Show, while something works, that it does, where it says nothing of itself."""
        if not self.wanted:
            yield
            return
        import threading

        over = threading.Event()
        clock = threading.Thread(target=self._tick, args=(over,), daemon=True)
        clock.start()
        try:
            yield
        finally:
            over.set()
            clock.join()
            self._clear()

    def _tick(self, over: Any) -> None:
        while not over.wait(STEP_S):
            now = time.monotonic()
            if now >= self.next_s + STEP_S:
                self._write(f"{self.words or 'working'}  {now - self.start_s:.0f} s")

    def _write(self, text: str) -> None:
        self.next_s = time.monotonic() + STEP_S
        sys.stderr.write(f"\r{text:<70}")
        sys.stderr.flush()
        self.shown = True

    def _clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r" + " " * 70 + "\r")
            sys.stderr.flush()
        self.shown = False


@dataclass(frozen=True, slots=True)
class Shown:
    """How an answer is shown: the options that every command takes."""

    format: str = "text"
    explain: bool = False  # print the terms of the answer too
    require: tuple[Requirement, ...] = ()
    output: tuple[Path, ...] = ()  # files to write; the ending says the format
    plot: bool = False  # draw the pictures in the terminal too
    show: tuple[str, ...] = ()  # details; none: the summary, and in files everything


def read_shown(given: Mapping[str, Any]) -> Shown:
    """Read how to show the answer; a wrong option is told before anything is computed."""
    require, output = given["require"], given["output"]
    if require:
        from gpuscale.answers.requirements import read_requirement

        require = map(read_requirement, require)
    if output:
        from gpuscale.render.save import check_target

        output = map(check_target, output)
    return Shown(
        _format(given["json_"], given["format_"]),
        given["explain"],
        tuple(require or ()),
        tuple(output or ()),
        given["plot"],
        named(given["show"]) if given["show"] else usual(),
    )


def _format(as_json: bool, asked: str | None) -> str:
    """Format by the flags, then by GPUSCALE_FORMAT, else text."""
    where, name = "`--format`", asked.lower() if asked else None
    if name is None and not as_json:
        where = "GPUSCALE_FORMAT"
        name = os.environ.get("GPUSCALE_FORMAT", "").lower() or "text"
    if name is not None and name not in FORMATS:
        raise unknown_name(f"format in {where}:", name, FORMATS, f"known: {', '.join(FORMATS)}")
    if as_json and name not in (None, "json"):
        raise GpuscaleError(f"`--json` and `--format {name}` differ", "give one of them")
    return name or "json"
