"""Pictures of the answers: drawn from their records, nothing is computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpuscale.core.memory.facts import StageMemory
from gpuscale.core.step.records import StepResult
from gpuscale.core.words import MEMORY_PARTS, STEP_PARTS
from gpuscale.render import picture_kernels as kernels
from gpuscale.render.chart import Axis, Chart, Lines, Mark, Series, Stack, few
from gpuscale.render.document import Bars, Document
from gpuscale.render.svg import Strip, strips_of
from gpuscale.render.text import plain

FIRST = ("step", "timeline", "timeline-end", "memory", "memory-time")
"""Order of pictures; the others follow."""


def pictures(document: Document, bars: bool = True) -> list[Chart]:
    """All pictures of an answer, the most telling first; empty where there is nothing to draw.

    Without `bars`, those that would only draw the bars of an answer again are left out.
    """
    found: list[Chart] = []
    if document.command in KNOWN:
        found += KNOWN[document.command](document)
    if document.pictures is not None:
        found += document.pictures()
    if not found and bars:
        found = [_strip(strip) for strip in strips_of(document)] or [
            c for block in document.blocks if isinstance(block, Bars) for c in _bars(block)
        ]
    rank = {key: n for n, key in enumerate(FIRST)}
    return sorted(found, key=lambda chart: rank.get(chart.key, len(FIRST)))


def memory_stack(
    stages: Sequence[tuple[str, StageMemory]],
    title: str,
    limit: tuple[float, str] | None,
    note: str = "",
) -> Stack:
    """Memory of GPUs by part."""
    used = {
        key: name
        for key, name in MEMORY_PARTS.items()
        if any(getattr(s, key) > 0.0 for _, s in stages)
    }
    rows = [(name, [getattr(s, key) for key in used]) for name, s in stages]
    axis = Axis("memory of one GPU", "bytes")
    return Stack("memory", title, axis, list(used.values()), rows, limit, note=note)


def step_stack(step: StepResult, note: str = "") -> Stack:
    """Parts of the step, ideal and expected; parts below 0.5 % of the step are added up."""
    columns = {"roofline": step.roofline.parts(), "expected": step.expected.parts()}
    least = 0.005 * step.expected_s
    shown = [k for k in STEP_PARTS if max(c[k] for c in columns.values()) >= least]
    rows = []
    for name, parts in columns.items():
        rest = sum(v for k, v in parts.items() if k not in shown)
        rows.append((name, [*(parts[k] for k in shown), rest]))
    names = [STEP_PARTS[k] for k in shown]
    if any(values[-1] > 0.0 for _, values in rows):
        names.append("other")
    else:
        rows = [(name, values[:-1]) for name, values in rows]
    return Stack("step", "Where the step goes", Axis("time", "s"), names, rows, note=note)


def _strip(strip: Strip) -> Stack:
    """Draw memory against its limit, or the time of a step, of an answer without other pictures."""
    names, values = zip(*strip.parts, strict=True)
    if strip.limit is None:
        return Stack("step", strip.title, Axis("time", "s"), names, [("", values)])
    limit = (strip.limit, f"usable {strip.show(strip.limit)}")
    return Stack("memory", strip.title, Axis("memory", "bytes"), names, [("", values)], limit)


def _bars(block: Bars) -> list[Chart]:
    """Bars of a document as a picture: one part."""
    if not block.rows or not any(value > 0.0 for _, value, _ in block.rows):
        return []
    rows = [(label, [max(0.0, value)]) for label, value, _ in block.rows]
    title = block.title or "Parts"
    return [Stack("bars", title, Axis(block.limit_text or title), ["value"], rows)]


def _memory(document: Document) -> list[Chart]:
    r = document.result
    stages = getattr(r, "stages", None)
    if not stages:
        return []
    inputs = document.inputs
    limit = (r.capacity_bytes, f"usable {Axis('', 'bytes').text(r.capacity_bytes)}")
    degrees = {name: inputs[name] for name in ("tp", "cp", "ep", "pp", "dp")}
    where = f"{inputs['model']} on {inputs['n_gpus']:,} {inputs['gpu']}: " + ", ".join(
        f"{k.upper()} {v}" for k, v in degrees.items() if v > 1
    )
    where = f"{where.removesuffix(': ')}, sequence {inputs['seq_len']:,}"
    if len(stages) == 1:
        rows = [("ideal", r.ideal), ("expected", r.expected)]
        return [memory_stack(rows, "Memory of each GPU", limit, where)]
    rows = [(f"stage {s.stage + 1}", s) for s in stages]
    return [memory_stack(rows, "Memory per GPU, by pipeline stage", limit, where)]


def _plan(document: Document) -> list[Chart]:
    r = document.result
    if hasattr(r, "step") and hasattr(r, "memory"):
        return _one_plan(document)
    rows = r.get("rows") if isinstance(r, Mapping) else getattr(r, "rows", None)
    return _scan(rows, _job(document.inputs)) if rows else []


def layout_words(layout: Any) -> str:
    """Name a layout in a few characters."""
    degrees = (("TP", "tp"), ("CP", "cp"), ("EP", "ep"), ("PP", "pp"), ("DP", "dp"))
    text = " ".join(
        f"{n}{getattr(layout, k)}"
        for n, k in degrees
        if getattr(layout, k) > 1 or k in ("tp", "dp")
    )
    return f"{text} ZeRO-{layout.zero_stage}"


def _one_plan(document: Document) -> list[Chart]:
    r = document.result
    gpus = "GPU" if r.n_gpus == 1 else "GPUs"
    where = ", ".join(
        t for t in (_job(document.inputs), f"{r.n_gpus:,} {gpus}", layout_words(r.layout)) if t
    )
    limit = (r.capacity_bytes, f"usable {Axis('', 'bytes').text(r.capacity_bytes)}")
    charts: list[Chart] = [step_stack(r.step, where)]
    if document.pictures is None:
        fullest = [(f"stage {r.memory.stage + 1}", r.memory)]
        charts.append(memory_stack(fullest, "Memory of the fullest GPU", limit, where))
    charts += _layouts(r, limit[1], where)
    if r.limits:
        charts += _limits(r.limits, where)
    if r.sensitivity:
        rows = [(f"{e.figure} {e.change}", [max(0.0, e.gain_frac)]) for e in r.sensitivity]
        title, parts = "What would help: time saved per token", ["expected time saved"]
        saved = Axis("saved", "frac")
        charts.append(Stack("sensitivity", title, saved, parts, rows, note=where))
    return charts


def _layouts(r: Any, limit_text: str, note: str) -> list[Chart]:
    """Time against memory of the alternatives."""
    charts: list[Chart] = []
    x, y = Axis("memory of the fullest GPU", "bytes"), Axis("expected step", "s")

    def points(records: Iterable[Any]) -> list[tuple[float, float, str]]:
        return [(p.peak_bytes, p.step_s, layout_words(p.layout)) for p in records]

    if others := [a for a in r.alternatives if a.fits]:
        series = [
            Series("chosen", points([r]), line=False),
            Series("alternatives", points(others), line=False),
        ]
        marks = [Mark("x", r.capacity_bytes, limit_text)]
        title = "Alternatives: time against memory"
        charts.append(Lines("alternatives", title, x, y, series, marks, note=note))
    return charts


def _limits(limits: Sequence[Any], note: str) -> list[Chart]:
    """Communication over arithmetic of each parallelism; above 1 it is communication-bound."""
    rows = [
        (f"{row.axis} {row.degree}", [row.ratio])
        for row in limits
        if row.ratio and 0.0 < row.ratio < 1e6 and row.in_use
    ]
    title = "Communication over arithmetic, by parallelism"
    parts, bound = ["communication time / arithmetic time"], (1.0, "communication-bound above 1")
    return [Stack("limits", title, Axis("ratio"), parts, rows, bound, note=note)] if rows else []


def _job(inputs: Mapping[str, Any]) -> str:
    """Say what a picture is about: model and cluster, as far as the inputs tell."""
    clusters = inputs.get("cluster") or inputs.get("clusters") or ""
    where = ", ".join(map(str, clusters)) if isinstance(clusters, (list, tuple)) else str(clusters)
    model = str(inputs.get("model") or "")
    return f"{model} on {where}" if model and where else model or where


def _scan(rows: Sequence[Any], note: str) -> list[Chart]:
    """Scaling curve and Pareto front of the cases that fit."""
    fit = [r for r in rows if r.fits]
    if not fit:
        return []
    groups: dict[str, list[Any]] = {}
    several = len({(r.cluster, r.seq_len) for r in fit}) > 1
    for r in fit:
        groups.setdefault(f"{r.cluster}, {r.seq_len:,} tokens" if several else "", []).append(r)

    def series(value: Callable[[Any], float | None]) -> list[Series]:
        made = []
        for name, members in groups.items():
            points = [
                (float(r.n_gpus), y, f"{r.n_gpus:,} GPUs, {layout_words(r.layout)}")
                for r in sorted(members, key=lambda r: r.n_gpus)
                if (y := value(r)) is not None
            ]
            made.append(Series(name, points))
        return made

    x = Axis("GPUs", "count", log=True, at=few(float(r.n_gpus) for r in fit))
    charts: list[Chart] = []
    if len({r.n_gpus for r in fit}) > 1:
        speed = series(lambda r: r.tokens_per_s)
        if len(groups) == 1 and len(speed[0].points) > 1:
            first = speed[0].points[0]
            ideal = [(n, first[1] * n / first[0], "") for n, _, _ in speed[0].points]
            speed = [Series("expected", speed[0].points), Series("linear scaling", ideal)]
        y, frac = Axis("tokens/s", "count", log=True), Axis("MFU", "frac")
        used, title = series(lambda r: r.mfu), "Scaling: model FLOP utilisation"
        charts = [
            Lines("scaling", "Scaling: tokens per second", x, y, speed, note=note),
            Lines("mfu", title, x, frac, used, note=note),
        ]
    return charts + _front(fit, note) if len(fit) > 1 else charts


def _front(fit: Sequence[Any], note: str) -> list[Chart]:
    """Time of the run against its cost, or the GPUs where no price is known."""
    cost = all(r.usd is not None for r in fit)
    x = Axis("cost of the run", "usd") if cost else Axis("GPUs", "count", log=True)
    y = Axis("days of the run") if fit[0].days is not None else Axis("step", "s")

    def at(r: Any) -> tuple[float, float, str]:
        days = r.days if r.days is not None else r.step_s
        return (r.usd if cost else float(r.n_gpus), days, f"{r.cluster} {r.n_gpus:,}")

    rest = [at(r) for r in fit if not r.pareto]
    made = [Series("Pareto front", sorted(at(r) for r in fit if r.pareto))]
    made += [Series("dominated", rest, line=False)] if rest else []
    title = "Pareto front: time against " + ("cost" if cost else "GPUs")
    return [Lines("pareto", title, x, y, made, note=note)]


def _sweep(document: Document) -> list[Chart]:
    """Each number over the swept key; a second key makes the lines."""
    from gpuscale.render.picture_sweep import sweep_charts

    fixed = {k: v for k, v in document.inputs.items() if k not in ("changed", "command")}
    words = [str(k) if v is True else f"{k} {v}" for k, v in fixed.items()]
    note = f"{document.inputs['command']}: " + ", ".join([*words, *document.inputs["changed"]])
    return sweep_charts(plain(document.result), note)


KNOWN: dict[str, Callable[[Document], list[Chart]]] = {
    "memory": _memory,
    "plan": _plan,
    "sweep": _sweep,
    "collective": kernels.collective,
    "matmul-time": kernels.product,
    "roofline": kernels.chip,
}
"""Command -> its pictures."""
