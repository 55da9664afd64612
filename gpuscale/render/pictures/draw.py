"""A chart as a picture: what draws each kind."""

from __future__ import annotations

from gpuscale.render.pictures.chart import Chart, Lines, Stack, Tiers
from gpuscale.render.pictures.gantt import draw_gantt
from gpuscale.render.pictures.lines import draw_lines
from gpuscale.render.pictures.stack import draw_stack, draw_tiers
from gpuscale.render.svg import WIDTH, attribute, rect, style, words


def to_svg(chart: Chart, standalone: bool = True) -> str:
    """Draw a chart.

    `chart`: what to draw. `standalone`: a file of its own, with its rules; else a part of a page
    that has them.
    """
    if isinstance(chart, Lines):
        height, parts = draw_lines(chart)
    elif isinstance(chart, Stack):
        height, parts = draw_stack(chart)
    elif isinstance(chart, Tiers):
        height, parts = draw_tiers(chart)
    else:
        height, parts = draw_gantt(chart)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="gs" viewBox="0 0 {WIDTH:g} {height:g}" '
        f'width="{WIDTH:g}" height="{height:g}" role="img" aria-label="{attribute(chart.title)}">'
    )
    rules = f"<style>{style()}</style>" if standalone else ""
    body = "\n".join(parts)
    background = rect(0, 0, WIDTH, height, "gs-bg")
    return f"{head}{rules}<title>{words(chart.title)}</title>{background}\n{body}\n</svg>"
