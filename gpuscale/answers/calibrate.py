"""Calibration: constants of one's own machines, from one's own measurements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from gpuscale.answers.ask import Asked, Calibrated, text
from gpuscale.core.quantity import format_si
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.evidence.records import FitLine, ScoredRow, unpredicted
from gpuscale.meant import packaged
from gpuscale.render.document import Block, Column, Document, Table, Text
from gpuscale.render.save import check_target

TEMPLATES: dict[str, str] = packaged("templates.toml")
"""Header and one example row of each file that can be given."""


@dataclass
class Calibrate(Calibrated):
    """Fit constants to your own measurements, for --calibration of every command.

    Matrix products and collectives correct the shipped tables; training steps give one scalar
    per site, never a constant per model.
    """

    NAME: ClassVar[str] = "calibrate"
    RESULTS: ClassVar[str] = "calibrate:Fits calibrate:Template"
    EXAMPLE: ClassVar[str] = "gpuscale calibrate --template gemm"
    file: Asked[str | None] = text("CSV of measured training steps: one scalar.", metavar="[FILE]")
    _: KW_ONLY
    gemm: Asked[str | None] = text("CSV of measured matrix products.", metavar="FILE")
    collectives: Asked[str | None] = text("CSV of measured collectives.", metavar="FILE")
    save: Asked[str | None] = text("Write the constants, for --calibration FILE.", metavar="FILE")
    template: Asked[str | None] = text("Print a CSV to fill in: gemm, ...", metavar="KIND")

    def answer(self) -> Document:
        """Fit, or print a template."""
        return _answer(self)


@dataclass(frozen=True, slots=True)
class Fits:
    """What was fitted, and the file that holds it."""

    fits: tuple[FitLine, ...]
    overlay_toml: str
    saved: str | None


@dataclass(frozen=True, slots=True)
class Template:
    """Columns of a file of measurements."""

    columns: tuple[str, ...]


def _answer(asked: Calibrate) -> Document:
    if asked.template is not None:
        if asked.save or asked.file or asked.gemm or asked.collectives:
            raise GpuscaleError("--template prints a CSV; it fits nothing", "ask for it alone")
        return _template(asked.template)
    if not (asked.file or asked.gemm or asked.collectives):
        raise GpuscaleError(
            "nothing to calibrate from",
            "give a CSV of training steps, --gemm or --collectives; "
            "`--template gemm` prints a CSV to fill in",
        )
    return _document(asked, *_fit(asked))


def _template(kind: str) -> Document:
    if kind not in TEMPLATES:
        raise unknown_name("template", kind, TEMPLATES, f"known: {', '.join(TEMPLATES)}")
    text = TEMPLATES[kind]
    columns = text.split("\n")[0].split(",")
    return Document("calibrate", {"template": kind}, Template(tuple(columns)), [Text(text)])


def _fit(asked: Calibrate) -> tuple[dict[str, object], list[FitLine], list[str]]:
    from gpuscale.evidence import score_parts
    from gpuscale.evidence.fit_site import collectives_overlay, gemm_overlay, site_overlay
    from gpuscale.io.calibration import merged

    overlay: dict[str, object] = {}
    lines: list[FitLine] = []
    notes: list[str] = []
    tables = (
        (asked.gemm, score_parts.gemm_row, gemm_overlay),
        (asked.collectives, score_parts.collective_row, collectives_overlay),
    )
    for path, parse, fitted_of in tables:
        if path:
            rows = _parsed(path, parse, notes)
            found, fitted = fitted_of(rows, asked.calibration, f"own measurements: {path}")
            overlay, lines = merged(overlay, found), lines + fitted
    if asked.file:
        found, fitted = site_overlay(_steps(asked.file, notes), f"own measurements: {asked.file}")
        overlay, lines = merged(overlay, found), lines + fitted
    return overlay, lines, notes


def _parsed(path: str, parse: Callable[..., Any], notes: list[str]) -> list[Any]:
    """Rows of a file that can be used; the others are counted with their reasons."""
    from gpuscale.io.text import read_rows

    good: list[Any] = []
    bad: dict[str, int] = {}
    for index, row in enumerate(read_rows(path), 1):
        try:
            parsed, reason = parse(row, index), "no measured time"
        except GpuscaleError as error:
            parsed, reason = None, error.message
        if parsed is not None and parsed.time_s:
            good.append(parsed)
        else:
            bad[reason] = bad.get(reason, 0) + 1
    if not good:
        reason = max(bad, key=lambda r: bad[r])
        raise GpuscaleError(
            f"{path}: no row can be used: {reason}",
            "`gpuscale calibrate --template gemm` shows how",
        )
    notes += [f"{path}: {n} row{'s' * (n > 1)} left out: {reason}" for reason, n in bad.items()]
    return good


def _steps(path: str, notes: list[str]) -> list[ScoredRow]:
    from gpuscale.evidence.score_runs import predict_run_rows

    rows = predict_run_rows(path)
    good = [r for r in rows if r.ratio]
    left_out = unpredicted(rows)
    if not good:
        reason = next(iter(left_out), "no rows")
        raise GpuscaleError(
            f"{path}: no row can be used: {reason}",
            "`gpuscale calibrate --template runs` shows how",
        )
    notes += [f"{path}: {len(i)} rows left out: {reason}" for reason, i in left_out.items()]
    return good


def _document(
    asked: Calibrate, overlay: dict[str, object], lines: list[FitLine], notes: list[str]
) -> Document:
    from gpuscale.io.calibration import load_calibration, merged
    from gpuscale.io.toml_out import table_to_toml

    overlay = merged(load_calibration(asked.calibration), overlay)
    text = table_to_toml({"made_by": "gpuscale calibrate", **overlay})

    def percent(v: float) -> str:
        return format_si(v, "frac")

    table = Table(
        [
            Column("name", "constants", right=False),
            Column("n_rows", "rows"),
            Column("error_before_frac", "median error before", percent),
            Column("error_after_frac", "after", percent),
        ],
        [[x.name, x.n_rows, x.error_before_frac, x.error_after_frac] for x in lines],
    )
    blocks: list[Block] = [table]
    blocks += [Text(note) for note in notes]
    files: dict[Path, str] = {}
    if asked.save:
        files[check_target(asked.save, "--save", None)] = text
        blocks.append(Text(f"written to {asked.save}; use it with --calibration {asked.save}"))
    else:
        blocks.append(Text("not saved: --save FILE writes the constants for --calibration FILE"))
    result = Fits(tuple(lines), text, asked.save)
    inputs = {"steps": asked.file, "gemm": asked.gemm, "collectives": asked.collectives}
    return Document("calibrate", inputs, result, blocks, files=files)
