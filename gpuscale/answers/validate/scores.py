"""Validation: score the model on measured runs, its own copy or a file of yours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.answers.progress import under_way
from gpuscale.answers.validate.served import predict_inference_rows
from gpuscale.answers.validate.tuned import predict_finetune_rows, scored_quantities, verdicts
from gpuscale.core.records import dataclass, field
from gpuscale.errors import GpuscaleError
from gpuscale.evidence import score_runs
from gpuscale.evidence.records import (
    ROW_COLUMNS,
    ErrorSummary,
    ScoredRow,
    row_cells,
    summarise,
    summarise_by,
    unpredicted,
    worst,
)
from gpuscale.evidence.rows_named import Rows
from gpuscale.evidence.score_parts import predict_collective_rows, predict_gemm_rows
from gpuscale.foreign import csv_cell
from gpuscale.render.document import Block, Column, Document, Facts, Point, Table, Text
from gpuscale.render.save import check_target

if TYPE_CHECKING:
    from gpuscale.answers.validate import Validate

FILES = ("runs", "layouts", "gemm", "collectives", "inference", "finetune")


@dataclass(frozen=True, slots=True)
class ScoreSection:
    """Scores of one kind of measurement."""

    name: str
    total: ErrorSummary
    by_class: dict[str, list[ErrorSummary]]
    memory: ErrorSummary | None = None
    choices: list[score_runs.RankingScore] = field(
        default_factory=list
    )  # layouts: clean groups, "all" last
    choices_all_rows: list[score_runs.RankingScore] = field(default_factory=list)
    unpredicted: dict[str, list[str]] = field(default_factory=dict)
    worst: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scores:
    """All sections of one page."""

    sections: list[ScoreSection]


def scores_document(asked: Validate) -> Document:
    """Score what is asked."""
    given = {name: getattr(asked, name) for name in FILES}
    chosen = {name: file for name, file in given.items() if file is not None}
    if asked.rows is not None and not chosen:
        raise GpuscaleError("--rows needs a file to score", "add for example --runs FILE.csv")
    scored = _score(chosen, asked.calibration)
    files: dict[Path, str] = {}
    if asked.rows is not None:
        found = [row for rows in scored.values() for row in rows]
        files[check_target(asked.rows, "--rows", None)] = _rows_csv(found)
    sections = [section(name, found) for name, found in scored.items()]
    return Document.layered(
        "validate",
        {"files": chosen or "own copy"},
        Scores(sections),
        _summary(sections),
        _details(sections),
        csv_table=_summary_table(sections),
        files=files,
    )


def predicted(name: str, rows: Rows, calibration: str | None = None) -> list[ScoredRow]:
    """Predict what one of `FILES`, or rows of it, measured."""
    predict: dict[str, Callable[..., list[ScoredRow]]] = {
        "runs": score_runs.predict_run_rows,
        "layouts": score_runs.predict_layout_rows,
        "gemm": predict_gemm_rows,
        "collectives": predict_collective_rows,
        "inference": predict_inference_rows,
    }
    return predict[name](rows, calibration) if name in predict else predict_finetune_rows(rows)


def own_files() -> dict[str, Path]:
    """Files of the package's own copy, one for each of `FILES`."""
    folder = score_runs.own_copy("training_runs").parent
    kinds = {f.name.partition(".")[0].removeprefix("training_"): f for f in folder.glob("*.csv*")}
    return {name: kinds[name] for name in FILES}


def _score(chosen: dict[str, str], calibration: str | None) -> dict[str, list[ScoredRow]]:
    files: dict[str, Any] = chosen or own_files()
    found = {}
    for i, (name, file) in enumerate(files.items()):
        under_way(f"scoring {name}", i, len(files))
        found[name] = predicted(name, file, calibration)
    return found


def _rows_csv(found: Sequence[ScoredRow]) -> str:
    import csv
    import io

    extra = list(dict.fromkeys(key for row in found for key in row.extra))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [*ROW_COLUMNS, *extra]
    writer.writerow(map(csv_cell, columns))
    for cells in map(row_cells, found):
        writer.writerow([csv_cell(cells.get(name, "")) for name in columns])
    return text.getvalue()


CLASSES = {
    "runs": ("dense_or_moe", "gpu", "precision", "family", "source"),
    "layouts": ("clean",),
    "gemm": ("architecture", "dtype"),
    "collectives": ("op", "span"),
    "inference": ("quantity", "dense_or_moe", "gpu", "precision", "framework", "source"),
    "finetune": ("quantity", "method", "family", "gpu", "memory_kind", "quality", "source"),
}
"""Classes that each section is summarised by."""

COUNTED = "good, fully specified, newest"


def section(name: str, found: list[ScoredRow]) -> ScoreSection:
    """Sum up the scored rows of one of `FILES`."""
    counted = [row for row in found if _counts(row)] if name == "runs" else found
    if name == "finetune":
        counted = _good(found)
    if not counted:
        counted = found
    by = {key: summarise_by(counted, key) for key in CLASSES[name]}
    if name == "runs":
        by = {"selection": _selections(found), **by}
    if name == "finetune":
        by = {"selection": _finetune_selections(found), **by}
    bad = [
        {
            "id": row.id,
            "measured": row.measured,
            "predicted": row.predicted,
            "ratio": row.ratio,
            "class": row.classes.get("family") or row.classes.get("source", ""),
            "gpu": row.gpu,
        }
        for row in worst(counted, 6)
    ]
    layouts = name == "layouts"
    return ScoreSection(
        name=name,
        total=summarise(counted, "all"),
        by_class=by,
        memory=_memory(found),
        choices=score_runs.layout_choices(found) if layouts else [],
        choices_all_rows=score_runs.layout_choices(found, False) if layouts else [],
        unpredicted=unpredicted(found),
        worst=bad,
    )


def _counts(row: ScoredRow) -> bool:
    c = row.classes
    return c.get("full_spec") == "yes" and c.get("quality") == "good" and c.get("newest") == "yes"


def _good(found: list[ScoredRow]) -> list[ScoredRow]:
    """Rows of a fine-tuning file that count: those marked good, or all where nothing is marked."""
    kinds = ("peak_memory_bytes", "step_time_s")
    timed = [r for r in found if r.quantity in kinds]
    return [r for r in timed if r.classes.get("quality") == "good"] or timed


def _finetune_selections(found: list[ScoredRow]) -> list[ErrorSummary]:
    qualities = dict.fromkeys(r.classes.get("quality", "") for r in found)
    by = [s for q in qualities for s in scored_quantities(found, q).values()]
    return [*by, verdicts(found)]


def _selections(found: list[ScoredRow]) -> list[ErrorSummary]:
    good = [row for row in found if _counts(row)]
    grid = [row for row in good if row.classes.get("family") == "nanotron"]
    rest = [row for row in good if row.classes.get("family") != "nanotron"]
    clean = [row for row in grid if row.classes.get("clean") == "yes"]
    kinds = {k: [r for r in rest if r.classes.get("dense_or_moe") == k] for k in ("dense", "moe")}
    every = [
        r
        for r in found
        if r.classes.get("full_spec") == "yes"
        and r.classes.get("quality") == "good"
        and r.classes.get("dense_or_moe") == "moe"
    ]
    return [
        summarise(rest + clean, COUNTED + ", grid without stalls"),
        summarise(kinds["dense"], "dense without the nanotron grid"),
        summarise(kinds["moe"], "MoE"),
        summarise(every, "MoE with superseded rows"),
        summarise(grid, "nanotron grid, all"),
        summarise(clean, "nanotron grid without stalls"),
        summarise(found, "every row"),
    ]


def _memory(found: list[ScoredRow]) -> ErrorSummary | None:
    rows = [
        ScoredRow(
            id=r.id,
            gpu=r.gpu,
            quantity="memory_bytes",
            measured=r.extra.get("measured_memory_bytes"),
            predicted=r.extra.get("predicted_memory_bytes"),
        )
        for r in found
        if r.extra.get("measured_memory_bytes")
    ]
    return summarise(rows, "peak memory") if rows else None


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


ERRORS = {
    "mape_frac": "MAPE",
    "median_frac": "median",
    "p90_frac": "p90",
    "bias_frac": "bias",
    "coverage_frac": "in 80 %",
}
"""Field of a summary -> its heading."""


def _summary_table(sections: list[ScoreSection]) -> Table:
    names = ("name", "n_scored", "n_rows", *ERRORS)
    lines = []
    for section in sections:
        groups = [("total", [section.total]), *section.by_class.items()]
        if section.memory:
            groups.insert(1, ("memory", [section.memory]))
        for key, found in groups:
            lines += [(section.name, key, *(getattr(s, n) for n in names)) for s in found]
    heads = {"section": "section", "class": "by", "name": "class"}
    columns = [Column(key, head, right=False) for key, head in heads.items()]
    columns += [Column("n_scored", "scored"), Column("n_rows", "rows")]
    columns += [Column(key, head, _percent) for key, head in ERRORS.items()]
    return Table(columns, lines)


def _headline(sections: list[ScoreSection]) -> str:
    """Say in a sentence how far off the predictions are."""
    rows = sum(s.total.n_rows for s in sections)
    scored = sum(s.total.n_scored for s in sections)
    typical = ", ".join(
        f"{_percent(s.total.median_frac)} for {s.name}"
        for s in sections
        if s.total.median_frac is not None
    )
    told = f"{scored:,} of {rows:,} measured rows are predicted"
    return f"{told}, half of them within {typical}." if typical else f"{told}."


def _summary(sections: list[ScoreSection]) -> list[Point]:
    """Sum up each section: its typical and its large errors, what its interval is worth."""
    found = [Point("verdict", _headline(sections))]
    for section in sections:
        t = section.total
        note = f"median of {t.n_scored:,} of {t.n_rows:,} rows; p90 {_percent(t.p90_frac)}, "
        note += f"bias {_percent(t.bias_frac)}"
        if t.coverage_frac is not None:
            note += f"; the 80 % interval holds {_percent(t.coverage_frac)}"
        found.append(Point(section.name, _percent(t.median_frac), note))
    return found


def _details(sections: list[ScoreSection]) -> dict[str, list[Block]]:
    """Errors by class, choices of layouts, what is not scored and why, the worst rows."""
    table = _summary_table(sections)
    keep = [row for row in table.rows if row[3] or row[1] == "total"]
    left: list[Block] = []
    for section in sections:
        rows = [
            (reason[:60], str(len(ids)), ", ".join(ids[:3]))
            for reason, ids in section.unpredicted.items()
        ]
        if rows:
            total = sum(len(ids) for ids in section.unpredicted.values())
            left.append(Facts(rows[:8], f"{section.name}: {total} rows not scored"))
    heads = {"section": "worst", "id": "row", "gpu": "gpu", "class": "class"}
    ratio = Column("ratio", "predicted/measured", lambda v: f"{v:.2f}")
    bad = [{"section": s.name, **w} for s in sections for w in s.worst[:4]]
    return {
        "classes": [Text(_headline(sections)), Table(table.columns, keep)],
        "choices": [_choice_table(section) for section in sections if section.choices],
        "unscored": left,
        "worst": [Table.of({**heads, "ratio": ratio}, bad)],
    }


def _choice_table(section: ScoreSection) -> Table:
    kinds = (("clean", section.choices), ("all rows", section.choices_all_rows[-1:]))
    shares = {
        "first_pick_frac": "first / best",
        "best_of_three_frac": "three / best",
        "spearman": "rank corr.",
        "worst_first_pick_frac": "worst first",
    }
    columns = [
        Column("rows", "layout choice", right=False),
        Column("name", "group", right=False),
        Column("n_rows", "layouts"),
        *(Column(key, head, lambda v: f"{v:.3f}") for key, head in shares.items()),
    ]
    names = [c.key for c in columns[1:]]
    lines = [(kind, *(getattr(c, n) for n in names)) for kind, found in kinds for c in found]
    return Table(columns, lines)
