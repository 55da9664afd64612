"""The judgement as a document: one line, the causes, the test, the past, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuscale.answers.diagnose.figures import Figure
from gpuscale.answers.diagnose.judged import Answered
from gpuscale.answers.diagnose.past import calibration_of
from gpuscale.answers.diagnose.records import Diagnosis, NamedCause, Predicted, SeriesRead
from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term, replace
from gpuscale.core.words import gb
from gpuscale.io.run import load_table
from gpuscale.render.document import Bars, Block, Column, Document, Facts, Point, Table, Text

MOST = 4
DIMS = {"s": "s", "byte": "bytes", "FLOP/s": "flop_per_s", "tokens/s": "count", "": ""}


def pictures(d: Diagnosis) -> list[Any]:
    """Return a picture for each of the leading series, the ranks of the last run together."""
    from gpuscale.render.chart import Axis, Lines, Mark, Series

    found: list[Any] = []
    for name in load_table("_known")["drawn"].split():
        drawn: list[SeriesRead] = [
            s for log in d.logs for s in log.series if s.name == name and s.n >= 3
        ]
        if not drawn or len(found) >= MOST:
            continue
        lines = []
        for s in drawn[:8]:
            label = f"run {s.run + 1}" + (f" rank {s.rank}" if s.rank is not None else "")
            points = [(x, y, "") for x, y in zip(s.steps, s.values, strict=True)]
            lines.append(Series(label, points, markers=len(points) < 80))
        title = name.replace("_", " ")
        marks = [Mark("y", drawn[-1].median, "steady")]
        marks += [Mark("x", e.step, e.kind) for e in d.events if e.step][:4]
        y = Axis(title, DIMS.get(drawn[0].unit, ""))
        found.append(Lines(name, f"{title} of the run", Axis("step"), y, lines, marks=marks))
    return found


SHOWN_FACTS = 14
SURE = 0.35
"""Below this no cause is said to be it: the list and the question are the answer."""
OFF = 1.05
"""Times off what was expected, from which it is said."""
LEAST_COST, LEAST_LIKELY = 0.02, 0.1
"""Share of the time, and probability, from which a layout's cost is said."""
UNSAID = "no sign of it was told; it is often the cause"
NAMES = (
    ("mfu", "MFU"),
    ("tflops_per_gpu", "TFLOP/s/GPU"),
    ("_per_s", "/s"),
    ("_per_gpu", "/GPU"),
    ("_", " "),
)
"""How a quantity's name is written."""
HEAD = tuple("step_time tokens_per_s tflops mfu memory busbw ttft tpot oom kv".split())
"""Beginnings of the names of facts that are shown first."""


def document_of(a: Answered) -> Document:
    """Make the document."""
    d = replace(a.diagnosis, headline=_headline(a))
    case = a.case
    files, said = _saved(a)
    past = Facts([(e.kind, e.text, "") for e in d.events], title="Against its own past")
    details: dict[str, list[Block]] = {
        "figures": [Text(d.headline), Facts(_figures(a, said))],
        "causes": _cause_blocks(d),
        "test": _test(d),
        "memory": _memory(d),
        "past": [past] if d.events else [],
        "log": _read(d),
    }
    inputs = {
        "run": list(a.asked.run),
        "kind": case.kind,
        "model": case.model_name or None,
        "gpu": case.gpu.name if case.gpu else case.gpu_name or None,
        "gpus": case.gpus,
        "cluster": case.cluster.name if case.cluster else None,
        "software": case.software or None,
        "settings": case.settings,
    }
    return Document.layered(
        "diagnose",
        inputs,
        d,
        _summary(a, d, said),
        details,
        warnings=_warnings(a),
        terms=_terms(d),
        csv_table=_causes(d.causes) if d.causes else None,
        pictures=lambda: pictures(d),
        files=files,
    )


TONES = {"normal": "good", "fault": "bad", "measurement": "near", "unknown": "near"}


def _summary(a: Answered, d: Diagnosis, said: str) -> list[Point]:
    """Say it in a dozen lines."""
    points = [Point("verdict", d.headline, tone=TONES[d.verdict])]
    for label, value, note in _figures(a, said)[:-1]:
        points.append(Point(label, value, note))
    for k, c in enumerate(d.causes):
        why = "; ".join(c.speaks_for[:3]) or UNSAID
        size = f"explains {_times(c.explains_factor)}; " if c.gain_frac else ""
        points.append(
            Point("or" if k else "cause", f"{c.title} ({c.probability:.0%})", f"{size}{why}")
        )
    first = next((c for c in d.causes if c.verdict != "normal"), None)
    if first is not None and d.verdict != "normal":
        saves = f"saves {_percent(first.gain_frac)} if that is it"
        points.append(Point("remedy", first.remedy, saves if first.gain_frac else ""))
    if (m := d.out_of_memory) is not None:
        points += [Point("held by", m.planned)] if m.planned else []
        points += [Point("to fit", change, "") for change in m.changes[:1]]
    points += [Point(e.kind, e.text) for e in d.events[:4]]
    if d.next_test is not None:
        t = d.next_test
        titles = {c.cause: c.title.partition(":")[0] for c in d.causes[1:]}
        titles |= {c.cause: "if it is the cause" for c in d.causes[:1]}
        seen = [(titles.get(o.cause, "else"), f"{o.shows}{_alone(d, o.cause)}") for o in t.outcomes]
        shows = "; ".join(f"{title}: {what}" for title, what in seen[:2])
        points.append(Point("test next", t.test, shows))
    if d.asks:
        points.append(Point("not said", d.asks))
    return points


def _alone(d: Diagnosis, cause: str) -> str:
    """Say the figure that the planner gives the same job with one cause alone."""
    p, c = d.predicted, next((c for c in d.causes if c.cause == cause), None)
    if p is None or c is None or c.predicted is None:
        return ""
    value, name = _figure(c.predicted, p.unit, p.quantity), _named(p.quantity)
    return f" ({value})" if value.endswith(name) else f" ({name} {value})"


def _cause_blocks(d: Diagnosis) -> list[Block]:
    if not d.causes:
        return []
    blocks: list[Block] = [_causes(d.causes)]
    blocks += [Text(_about(k, c)) for k, c in enumerate(d.causes, 1)]
    if d.together:
        blocks.append(Text(f"Together: {' and '.join(d.together)} explain it better than either."))
    return blocks


def _test(d: Diagnosis) -> list[Block]:
    blocks: list[Block] = []
    if d.next_test is not None:
        shown = (("cause", "if it is"), ("shows", "it shows"))
        columns = [Column(key, label, right=False) for key, label in shown]
        title = f"The test to run next ({d.next_test.cost}): {d.next_test.test}"
        seen = [replace(o, shows=o.shows + _alone(d, o.cause)) for o in d.next_test.outcomes]
        blocks.append(Table.of(columns, seen, title))
    if d.asks:
        blocks.append(Text(f"What decides is not said: {d.asks}."))
    return blocks


def _headline(a: Answered) -> str:
    """Say first what a person needs: is something wrong, what, and how sure that is."""
    d, case = a.diagnosis, a.case
    what = [case.model.name if case.model else case.model_name]
    if case.gpus and (case.gpu or case.gpu_name):
        what.append(f"on {case.gpus} {case.gpu.name if case.gpu else case.gpu_name}")
    subject = ", ".join(w for w in (" ".join(filter(None, what)), case.software) if w) or (
        d.logs[0].name if d.logs else "this run"
    )
    main = case.main
    said = f": {_named(main.name)} {_shown(main)}" if main and main.value else ""
    start = f"{subject}{said}. "
    if d.predicted is not None:
        start += f"As told, {_span(d.predicted)} is expected. "
    if (m := d.out_of_memory) and m.asked_bytes and m.short_bytes:
        start += f"{gb(m.asked_bytes)} was asked for, {gb(m.short_bytes)} more than was free. "
    if d.ratio and d.ratio > OFF:
        start += f"{d.ratio:.3g} times off what was expected. "
    return f"{start}{_verdict(d)}"


def _verdict(d: Diagnosis) -> str:
    """Say the verdict in a sentence; a cause is named as the cause only where it is likely."""
    of = [c for c in d.causes if c.verdict == d.verdict]
    if d.verdict == "unknown" or not of:
        return "Nothing that is known of it tells whether it is normal."
    lead, *rest = of
    others = "; else another of those below" if rest else ""
    told = any(c.speaks_for for c in of)
    if d.verdict == "normal":
        plain = next((c for c in of if c.gain_frac == 0.0), lead)
        because = plain.speaks_for[0] if plain.speaks_for else "no sign of a fault was told"
        costs = [  # of the layout: its signs, and the share of the step
            f"{c.title} ({', '.join(c.speaks_for[:3])}) costs {c.explains_factor:.2g}x"
            for c in of
            if c.probability > LEAST_LIKELY and c.gain_frac >= LEAST_COST
        ]
        layout = f" The layout is the cause: {'; '.join(costs)}." if costs else ""
        such = "this layout" if costs else "such a run"
        return f"Normal for {such} ({because}): {_reach(d)}{layout}"
    if lead.probability >= SURE:
        start = "Something to mend" if d.verdict == "fault" else "The figure itself is in doubt"
        return f"{start}: {lead.title} ({lead.probability:.0%}){others}."
    if d.verdict == "measurement":
        return f"Perhaps the figure itself is in doubt: {lead.title}."
    if told:
        return "Probably something to mend; what was said does not tell which of the causes below."
    if d.predicted is not None and d.predicted.ratio > 1:
        return "It is worse than that; nothing said tells which of the causes below."
    return "What was said tells nothing; most such complaints are a fault, first of those below."


def _reach(d: Diagnosis) -> str:
    if (p := d.predicted) is None:
        return "what would move it is a larger batch, another layout or other hardware."
    laid_out = f" as it is laid out{', no more' if p.ratio >= 1 else ''}"
    end = f"; {p.better}" if p.better else laid_out
    return f"one like it reaches {_figure(p.value, p.unit, p.quantity)}{end}."


def _span(p: Predicted) -> str:
    low, high = (_figure(v, p.unit, p.quantity) for v in (p.low, p.high))
    return f"{low} to {high}"


def _figure(value: float | None, unit: str, name: str) -> str:
    if value is None:
        return "-"
    if name in ("mfu", "hfu", "gpu_util"):
        return f"{100 * value:.3g} %"
    if unit == "s":
        return format_si(value, "s")
    if unit == "byte":
        return gb(value)
    if unit == "byte/s":
        return f"{value / 1e9:.4g} GB/s"
    if unit == "FLOP/s":
        return f"{value / 1e12:.4g} TFLOP/s"
    return f"{value:,.0f} {unit}".strip() if value >= 1000 else f"{value:.4g} {unit}".strip()


def _named(name: str) -> str:
    for old, new in NAMES:
        name = name.replace(old, new)
    return name


def _shown(f: Figure) -> str:
    """Write a figure without the unit that its name says."""
    shown = _figure(f.value, f.unit, f.name) if f.value is not None else f.text
    of_name = "/s" in _named(f.name) and f.unit != "byte/s" and f.value is not None
    return shown.rsplit(" ", 1)[0] if of_name else shown


def _figures(a: Answered, said: str = "") -> list[tuple[str, str, str]]:
    rows = []
    for f in a.case.figures:
        wanted = f"expected {f.expected_text}" if f.expected_text else ""
        rows.append((_named(f.name), _shown(f), wanted))
    d = a.diagnosis
    if d.predicted is not None:
        p = d.predicted
        rows.append((f"{_named(p.quantity)}, model", _span(p), f"80 % interval; {p.by}"))
    if old := a.features.get("old_software"):
        rows.append(("version", str(old), "a newer one first: that is no fault of the machines"))
    if said:
        rows.append(("saved", str(a.asked.save), said))
    shares = ", ".join(f"{v} {p:.0%}" for v, p in d.verdicts.items() if p >= 0.005)
    rows.append(("verdict", d.verdict, shares))
    return rows


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _times(value: float) -> str:
    return f"{value:.2g}x"


def _causes(causes: Sequence[NamedCause]) -> Table:
    columns = [
        Column("cause", "cause", right=False),
        Column("probability", "likely", _percent),
        Column("explains_factor", "explains", _times),
        Column("gain_frac", "mended, saves", _percent),
        Column("remedy", "remedy", right=False),
    ]
    return Table.of(columns, causes, "Causes, the likeliest first")


def _about(k: int, c: NamedCause) -> str:
    """Say what speaks for a cause and what against, and how to tell."""
    for_ = "; ".join(c.speaks_for) or UNSAID
    against = f" Against: {'; '.join(c.speaks_against)}." if c.speaks_against else ""
    size = f" Usually {c.low_factor:g} to {c.high_factor:g} times." if c.verdict == "fault" else ""
    return f"{k}. {c.cause}: {c.title}. For: {for_}.{against}{size} Test: {c.test}."


def _memory(d: Diagnosis) -> list[Block]:
    m = d.out_of_memory
    if m is None:
        return []
    blocks: list[Block] = []
    if m.parts:
        rows = [(p.part, p.value_bytes, gb(p.value_bytes)) for p in m.parts]
        blocks.append(Bars(rows, title="What the card held"))
    sizes = (("asked for", m.asked_bytes, ""), ("short by", m.short_bytes, "at that request"))
    facts = [(name, gb(size), note) for name, size, note in sizes if size is not None]
    facts += [("the planner says", m.planned, "")] if m.planned else []
    blocks.append(Facts(facts, title="Out of memory"))
    blocks += [Text(f"To fit, {k}: {change}.") for k, change in enumerate(m.changes, 1)]
    return blocks


def _read(d: Diagnosis) -> list[Block]:
    blocks: list[Block] = []
    for log in d.logs:
        thin = log.repeated_lines_read_1_in
        note = f", of repeated lines one in {thin} read" if thin > 1 else ""
        runs = f", {log.n_runs} runs" if log.n_runs > 1 else ""
        programs = ", ".join(log.programs) or "no program known"
        title = f"{log.name or 'log'}: {log.n_lines:,} lines{runs}, {programs}{note}"
        facts = sorted(log.facts, key=lambda f: (not f.name.startswith(HEAD), f.line))
        rows = []
        for f in facts[:SHOWN_FACTS]:
            run = f", run {f.run + 1}" if log.n_runs > 1 else ""
            rank = f", rank {f.rank}" if f.rank is not None else ""
            rows.append((f.name.replace("_", " "), f.printed, f"line {f.line}{run}{rank}"))
        left = len(facts) - len(rows)
        if left > 0:
            rows.append(("...", f"{left} more facts", "--json has all"))
        blocks.append(Facts(rows, title=title))
    return blocks


def _terms(d: Diagnosis) -> list[Term]:
    """Sizes and probabilities with what they are of."""
    found = []
    for c in d.causes:
        why = "; ".join((*c.speaks_for, *c.speaks_against)) or UNSAID
        key = f"causes.{c.cause}"
        found.append(Term(f"{key}.probability", c.probability, "frac", source=why))
        if c.verdict == "fault":
            how = ("1 - 1 / explains", {"explains": c.explains_factor}, c.source)
            found.append(Term(f"{key}.gain_frac", c.gain_frac, "frac", *how))
    return found


def _warnings(a: Answered) -> list[str]:
    found, case, d = [], a.case, a.diagnosis
    if not case.figures:
        found.append("no figure is known to judge: say one, such as `--measured mfu=20%`")
    model = ("model", case.model_name, case.model or case.params)
    for word, name, spec in (model, ("GPU", case.gpu_name, case.gpu)):
        if name and spec is None and d.predicted is None:
            found.append(f"the {word} `{name[:60]}` is not known: nothing is computed for it")
    if case.logs and not any(log.programs for log in case.logs):
        found.append("no line of the log is of a program that is known")
    found += [
        f"--settings {text[:40]!r} has no KEY=VALUE: it is read for signs of causes alone"
        for text in a.asked.settings
        if "=" not in text and "--" not in text
    ]
    return found


def _saved(a: Answered) -> tuple[dict[Any, str | bytes], str]:
    """File of --save, and what is said of it."""
    if a.asked.save is None:
        return {}, ""
    from gpuscale.render.save import check_target

    text, said = calibration_of(a)
    return {check_target(a.asked.save, "--save", (".toml",)): text}, said
