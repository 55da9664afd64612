"""Pictures of kernels, chips, collectives and limits, from the answers' records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.render.chart import Axis, Chart, Lines, Mark, Series, Stack
from gpuscale.render.document import Document
from gpuscale.render.text import plain

Point = tuple[str, float, float]
"""Name, intensity [FLOP/byte], rate [FLOP/s]."""

INTENSITY = Axis("arithmetic intensity (FLOP per byte of memory traffic)", "", True)
RATE = Axis("rate of one GPU", "flop_per_s", True)


def operator_roofline(
    peak_flop_per_s: float,
    hbm_bytes_per_s: float,
    groups: Mapping[str, Sequence[Point]],
    title: str,
    note: str,
) -> Lines:
    """Operators under the roof ``min(peak, intensity * bandwidth)``.

    `peak_flop_per_s, hbm_bytes_per_s`: of the chip [FLOP/s], [byte/s]. `groups`: name of a use ->
    its operators. `title, note`: above the picture.
    """
    ridge = peak_flop_per_s / hbm_bytes_per_s
    xs = [x for points in groups.values() for _, x, _ in points]
    low, high = min([*xs, ridge / 30]) / 1.5, max([*xs, ridge * 10]) * 1.5
    corners = (low, ridge, high)
    roof = [(x, min(peak_flop_per_s, x * hbm_bytes_per_s), "") for x in corners]
    series = [Series("roofline", roof, markers=False)]
    for name, points in groups.items():
        series.append(Series(name, [(x, y, label) for label, x, y in points], line=False))
    mark = Mark("x", ridge, f"ridge {ridge:,.0f} FLOP/byte")
    return Lines("roofline", title, INTENSITY, RATE, series, [mark], note=note)


def limits_over_gpus(boards: Mapping[int, Mapping[str, float]], note: str) -> Lines | None:
    """Communication over arithmetic of each parallelism, as the same job takes more GPUs.

    `boards`: number of GPUs -> axis -> ratio. `note`: what the job is.
    """
    axes = dict.fromkeys(axis for board in boards.values() for axis in board)
    series = []
    for axis in axes:
        points = [(float(n), b[axis], "") for n, b in boards.items() if b.get(axis, 0.0) > 0.0]
        if len(points) > 1:
            series.append(Series(axis, points))
    title = "Parallelism limits: communication over arithmetic"
    x, y = Axis("GPUs", "count", True), Axis("communication time / arithmetic time", "", True)
    mark = Mark("y", 1.0, "communication-bound above")
    return Lines("limits", title, x, y, series, [mark], note=note) if series else None


def product(document: Document) -> list[Chart]:
    """One matrix product or elementwise operation under the roof of its GPU."""
    r, inputs = plain(document.result), document.inputs
    if not (r.get("flop_per_s") and r.get("bytes_per_s") and r.get("flop") and r.get("time_s")):
        return []
    x = r["intensity_flop_per_byte"]
    groups = {"ideal": [("", x, r["flop"] / r["time_s"])]}
    if r.get("expected"):
        groups["expected"] = [("", x, r["flop"] / r["expected"]["time_s"])]
    sizes = [f"{inputs[k]:,}" for k in ("m", "k", "n") if isinstance(inputs.get(k), (int, float))]
    note = f"{r['kind']} {' x '.join(sizes)}, {r.get('compute_dtype') or ''}".rstrip(", ")
    title = f"Roofline of {inputs.get('gpu')}"
    return [operator_roofline(r["flop_per_s"], r["bytes_per_s"], groups, title, note)]


def chip(document: Document) -> list[Chart]:
    """Roofs of a chip, one for each number format."""
    r = plain(document.result)
    if not isinstance(r, dict) or not r.get("hbm_bytes_per_s"):
        return []
    hbm, end = r["hbm_bytes_per_s"], "_flop_per_s"
    peaks = {k.removesuffix(end): v for k, v in r.items() if k.endswith(end) and v}
    peaks = {
        k: v for k, v in peaks.items() if "vector" not in k and f"{k}_ridge_flop_per_byte" in r
    }
    if not peaks:
        return []
    high = 10 * max(peaks.values()) / hbm
    by_rate: dict[float, list[str]] = {}
    for name, peak in peaks.items():
        by_rate.setdefault(peak, []).append(name)
    series = []
    for peak, names in sorted(by_rate.items()):
        said = ", ".join(names)
        corners = (1.0, peak / hbm, high)
        points = [(x, min(peak, x * hbm), f"ridge of {said}") for x in corners]
        series.append(Series(said, points))
    note = f"memory bandwidth {Axis('', 'bytes_per_s').text(hbm)}; dense rates"
    title = f"Rooflines of {r.get('gpu')}"
    return [Lines("roofline", title, INTENSITY, RATE, series, note=note)]


def levels(r: Mapping[str, Any], where: str) -> list[Chart]:
    """Time of one collective at each level of the network."""
    rows = [(level["name"], [level["time_s"]]) for level in r.get("levels") or ()]
    if not any(values[0] > 0.0 for _, values in rows):
        return []
    rows.append(("all, ideal", [r["time_s"]]))
    if r.get("expected"):
        rows.append(("all, expected", [r["expected"]["time_s"]]))
    note = f"{where}; the levels run at once, the slowest counts"
    return [Stack("levels", "Time by network level", Axis("time", "s"), ["time"], rows, note=note)]


def collective(document: Document) -> list[Chart]:
    """Time and bus bandwidth against size, or where the time of one size goes."""
    inputs, found = document.inputs, plain(document.result)
    rows = found.get("rows")
    if not rows:
        shown = Axis("", "bytes").text(found.get("array_bytes") or 0.0)
        place = f"{inputs.get('cluster')}, {shown}"
        return levels(found, f"{inputs.get('op')} on {place}")
    if len(rows) < 2:
        return []
    where = f"{inputs.get('op')} on {rows[0]['n_gpus']:,} GPUs of {inputs.get('cluster')}"
    size = Axis("size of the array", "bytes", log=True)
    charts: list[Chart] = []
    rate = Axis("bus bandwidth", "bytes_per_s")
    for key, field, title, axis in (
        ("time", "time_s", "Collective time against size", Axis("time", "s", log=True)),
        ("busbw", "busbw_bytes_per_s", "Bus bandwidth against size", rate),
    ):
        ideal = [(row["array_bytes"], row[field], "") for row in rows if row.get(field)]
        series = [Series("roofline (ideal)", ideal)]
        real = [
            (row["array_bytes"], row["expected"][field], "")
            for row in rows
            if row.get("expected") and row["expected"].get(field)
        ]
        series += [Series("expected", real)] if real else []
        if ideal:
            charts.append(Lines(key, title, size, axis, series, note=where))
    return charts
