"""Pictures of the series of a log, and of the causes."""

from __future__ import annotations

from typing import Any

from gpuscale.answers.diagnose.records import Diagnosis, SeriesRead
from gpuscale.io.causes import load_table

MOST = 4
DIMS = {"s": "s", "byte": "bytes", "FLOP/s": "flop_per_s", "tokens/s": "count", "": ""}


def pictures(d: Diagnosis) -> list[Any]:
    """Return a picture for each of the leading series, the ranks of the last run together."""
    from gpuscale.render.pictures.chart import Axis, Lines, Mark, Series

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
