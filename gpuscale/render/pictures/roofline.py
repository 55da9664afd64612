"""Rooflines and limits: operators on a chip, parallelism limits over the number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuscale.render.pictures.chart import Axis, Lines, Mark, Series

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
