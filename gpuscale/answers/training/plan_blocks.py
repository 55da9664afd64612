"""Tables of a plan: the answer, the step, the limits, the alternatives, what would help."""

from __future__ import annotations

from typing import Any

from gpuscale.answers.lifetime import outlook_rows, save_row
from gpuscale.answers.money import bill_rows
from gpuscale.answers.summary import part_bars
from gpuscale.answers.training.plan_text import (
    days,
    degrees,
    details,
    maturity_words,
    memory_interval_text,
    memory_text,
    number,
    others_of,
    passed_text,
    percent,
    run_of,
    seconds,
    short,
)
from gpuscale.core.limits.board import LimitRow
from gpuscale.core.plan.records import Estimate, PlanResult
from gpuscale.core.plan.scan import AXES
from gpuscale.core.records import replace
from gpuscale.core.settings import MATURITY_WORDS
from gpuscale.core.stages import split_text
from gpuscale.core.step.records import StepResult
from gpuscale.core.words import MEMORY_PARTS, STEP_PARTS, gb
from gpuscale.io.step import interval_widths
from gpuscale.render.document import Bars, Column, Facts, Table

LAYOUT, STEP = Column("layout", "layout", right=False), Column("step_s", "step", seconds)
MFU, MEMORY = Column("mfu", "MFU", percent), Column("peak_bytes", "memory", gb)
SLOWER = Column("slower_frac", "slower", lambda v: f"{100 * v:+.1f} %")


def maturity_rows(r: PlanResult) -> list[tuple[str, str, str]]:
    """Say the step of the layout for the maturities beside that of the job."""
    found = []
    for m in others_of(r):
        note = f"{seconds(m.step_low_s)} to {seconds(m.step_high_s)}{run_of(m)}"
        note += f"; {', '.join(m.settings)}" if m.settings else ""
        found.append((f"step, {MATURITY_WORDS[m.maturity]}", seconds(m.step_s), note))
    return found


def of_peak(r: PlanResult, frac: float) -> str:
    """Utilisation with its peak, where the products are not in 16 bits."""
    peak = "" if r.layout.precision in ("bf16", "fp16") else " of the 16-bit peak"
    return percent(frac) + peak


def answer_facts(r: PlanResult, e: Estimate, site_measured: bool = False) -> Facts:
    """Section 1: the answer."""
    o = r.passed_over
    low_high = f"80 % interval {seconds(r.step_low_s)} to {seconds(r.step_high_s)}"
    if not site_measured:
        gain = 100.0 * (1.0 - interval_widths().get("site", 1.0))
        low_high += f"; one measured step narrows it by {gain:.0f} %: gpuscale calibrate"
    rows = [
        ("layout", degrees(r.layout), details(r.layout)),
        *(
            [("stages", split_text(r.stage_layers), "layers")]
            if len(set(r.stage_layers)) > 1
            else []
        ),
        *([("passed over", degrees(o.layout), passed_text(o, r.layout))] if o else []),
        ("step, expected", seconds(r.step_s), f"{maturity_words(r)}, {low_high}"),
        *maturity_rows(r),
        ("step, roofline", seconds(r.roofline_s), "peak rates, no latency, perfect overlap"),
        ("MFU", percent(r.mfu), f"HFU {of_peak(r, r.hfu)}"),
        ("model FLOP", f"{r.model_flop_per_s_per_gpu / 1e12:,.1f} TFLOP/s", "per GPU"),
        (
            "throughput",
            f"{number(r.tokens_per_s)} tokens/s",
            f"{r.tokens_per_s_per_gpu:,.0f} per GPU",
        ),
        ("memory per GPU", gb(r.peak_bytes), memory_text(e, r.hbm_bytes)),
        ("", "", memory_interval_text(r)),
    ]
    rows += run_rows(r)
    return Facts(rows)


def run_rows(r: PlanResult) -> list[tuple[str, str, str]]:
    """Say what the run takes: the ideal, with failures, the checkpoints, the bill."""
    if r.run is None or r.outlook is None or r.bill is None:
        return []
    steps = f"for {number(r.run.tokens)} tokens, {number(r.run.n_steps)} steps"
    ideal = ("time, no failures", days(r.run.time_s), steps)
    if not r.fits:
        return [ideal]
    rows = [ideal, *outlook_rows(r.outlook, r.n_gpus)]
    if r.checkpoint is not None:
        rows.append(save_row(r.checkpoint, r.outlook, r.n_gpus))
    return [*rows, ("GPU-hours", number(r.run.gpu_hours), "failures counted"), *bill_rows(r.bill)]


def step_table(step: StepResult) -> Table:
    """Section 2: where the step goes; parts that are 0 in both columns are left out."""
    expected, ideal = step.expected.parts(), step.roofline.parts()
    rows: list[list[Any]] = [
        [STEP_PARTS[name], ideal[name], expected[name], expected[name] / step.expected_s]
        for name in expected
        if expected[name] or ideal[name]
    ]
    rows.append(["step", step.roofline.total_s, step.expected_s, 1.0])
    columns = [
        Column("part", "part", right=False),
        Column("roofline_s", "roofline", seconds),
        Column("expected_s", "expected", seconds),
        Column("share_frac", "share", percent),
    ]
    hidden = [STEP_PARTS[name] for name in expected if expected[name] < 0.99 * ideal[name]]
    more = f"; the slower expected compute hides more of {', '.join(hidden)}" if hidden else ""
    title = (
        f"Where the step goes (communication: what the compute of its column does not hide{more})"
    )
    return Table(columns, rows, title)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def limits_table(rows: tuple[LimitRow, ...], step: StepResult) -> Table:
    """Section 3: have, need, verdict of each parallelism, and what of it the step shows."""
    columns = [
        Column("axis", "axis", right=False),
        Column("degree", "degree", lambda v: f"{v:,}"),
        Column("have", "have", _number),
        Column("relation", ""),
        Column("need", "limit", _number),
        Column("quantity", "of", right=False),
        Column("verdict", "verdict", right=False),
        Column("note", "note", right=False),
    ]
    shown = [replace(r, note=_exposed(r, step)) if r.exceeded else r for r in rows]
    return Table.of(columns, shown, "Limits by the documents' rooflines")


def _exposed(row: LimitRow, step: StepResult) -> str:
    """Note of an exceeded limit, with what of its exchange the step shows."""
    part = next(part for part, axes in AXES.items() if row.axis in axes)
    share = percent(getattr(step.expected, part) / step.expected_s)
    return "; ".join(filter(None, (row.note, f"exposed {share} of the step")))


def alternatives_table(r: PlanResult) -> Table:
    """Section 4: the best of each family, the next best, what does not fit."""
    columns = [
        Column("kind", "", right=False),
        Column("family", "family", right=False),
        *(LAYOUT, STEP, MFU, MEMORY, SLOWER),
        Column("why", "why", right=False),
    ]
    rows = [
        [a.kind, a.family, short(a.layout), a.step_s, a.mfu, a.peak_bytes, a.slower_frac, a.why]
        for a in r.alternatives
    ]
    return Table(columns, rows, f"Alternatives ({SHORT})")


SHORT = "Z1: ZeRO stage 1; mb1: micro-batch 1; PP4x2: 2 chunks a stage; full2: 2 layers recomputed"
"""What the short forms of layouts in tables mean."""


def layouts_table(r: PlanResult) -> Table:
    """Show the answer and its alternatives, one row each: what CSV prints."""
    table = alternatives_table(r)
    kind = "best" if r.fits else "closest"
    own = [kind, r.family, short(r.layout), r.step_s, r.mfu, r.peak_bytes, 0.0, ""]
    return Table(table.columns, [own, *table.rows])


def sensitivity_table(r: PlanResult) -> Table:
    """Section 5: what would help most."""
    columns = [
        Column("figure", "figure", right=False),
        Column("change", "change"),
        Column("expected_s", "step", seconds),
        Column("gain_frac", "faster", lambda v: f"{100 * v:.1f} %"),
    ]
    return Table.of(columns, r.sensitivity, "What would help most (time per token of this layout)")


def remedies_table(r: PlanResult) -> Table:
    """Show what makes it fit."""
    change = Column("change", "change", right=False)
    rows = [
        [m.change, None if m.layout is None else short(m.layout), m.step_s, m.peak_bytes]
        for m in r.remedies
    ]
    columns = [change, LAYOUT, STEP, MEMORY]
    return Table(columns, rows, "What makes it fit, smallest change first")


def memory_bars(e: Estimate) -> Bars:
    """Memory of the fullest GPU by part."""
    parts = [(word, getattr(e.memory, name)) for name, word in MEMORY_PARTS.items()]
    return part_bars([p for p in parts if p[1]], e.capacity_bytes, title="Memory")
