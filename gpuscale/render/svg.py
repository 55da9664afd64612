"""Pictures as SVG: light and dark by the viewer's setting, every number in a tooltip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpuscale.foreign import clean
from gpuscale.render.palette import EDGE, IDLE, INK, MARK, PAPER, RULE, SERIES, SOFT, css, fill

WIDTH = 760.0
SIZE = 13.0
"""Height of the text; widths below are in the same unit."""

HALO = "paint-order:stroke;stroke-width:3px;stroke-linejoin:round;"
"""Text over lines: an edge in the colour of the page."""

DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 5", "4 2")


def style() -> str:
    """Rules of all pictures; a page needs them once."""
    light, dark = css()
    for name, rule, colour in (
        (".gs-bg", "fill", PAPER),
        (".gs-t", "fill", INK),
        (".gs-s", "fill", SOFT),
        (".gs-g", "stroke", RULE),
        (".gs-a", "stroke", EDGE),
        (".gs-edge", "stroke", PAPER),
        (".gs-idle", "fill", IDLE),
        (".gs-mark", "stroke", MARK),
        (".gs-markt", "fill", MARK),
        (".gs-on0", "fill", PAPER),
        (".gs-on1", "fill", INK),
        (".gs-halo", HALO + "stroke", PAPER),
    ):
        light[name] = f"{rule}:{colour.light}"
        dark[name] = f"{rule.removeprefix(HALO)}:{colour.dark}"
    dark[".gs-on1"] = f"fill:{PAPER.dark}"
    text = f"text{{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;font-size:{SIZE:g}px}}"
    rules = "".join(f"{k}{{{v}}}" for k, v in light.items())
    # not when printing: paper is white
    darker = "".join(f"{k}{{{v}}}" for k, v in dark.items())
    return f".gs {text}{rules}@media screen and (prefers-color-scheme:dark){{{darker}}}"


def words(text: str) -> str:
    """Text between tags."""
    return escape(clean(text), quote=False)


def attribute(text: str) -> str:
    """Text inside quotes."""
    return escape(clean(text), quote=True)


def width_of(text: str, size: float = SIZE) -> float:
    """Width of a text, estimated from above for common sans-serif fonts."""
    return 0.61 * size * len(text)


def rect(
    x: float, y: float, width: float, height: float, kind: str, tip: str = "", edge: bool = False
) -> str:
    """Draw a box, with a tooltip."""
    more = ' stroke-width="1"' if edge else ""
    kind = f"{kind} gs-edge" if edge else kind
    head = (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
        f'class="{kind}"{more}'
    )
    return f"{head}><title>{words(tip)}</title></rect>" if tip else head + "/>"


def line(x1: float, y1: float, x2: float, y2: float, kind: str, dash: str = "") -> str:
    """Draw a thin line."""
    more = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" class="{kind}" '
        f'stroke-width="1"{more}/>'
    )


def text(
    x: float,
    y: float,
    content: str,
    kind: str = "gs-t",
    anchor: str = "start",
    bold: bool = False,
    size: float = SIZE,
    turn: bool = False,
) -> str:
    """Write text; `y` is its base line."""
    rules = [f"font-size:{size:g}px"] if size != SIZE else []
    rules += ["font-weight:bold"] if bold else []
    look = f' style="{";".join(rules)}"' if rules else ""
    turned = f' transform="rotate(-90 {x:.2f} {y:.2f})"' if turn else ""
    return (
        f'<text x="{x:.2f}" y="{y:.2f}" class="{kind}" text-anchor="{anchor}"{look}{turned}>'
        f"{words(content)}</text>"
    )


def marker(x: float, y: float, n: int, tip: str = "") -> str:
    """Draw a point of series `n`; the shape differs too, not the colour alone."""
    shape = n % 4
    kind = f"gs-c{n % len(SERIES)} gs-edge"
    if shape == 0:
        head = f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4.5" class="{kind}"'
    elif shape == 1:
        head = f'<rect x="{x - 4:.2f}" y="{y - 4:.2f}" width="8" height="8" class="{kind}"'
    else:
        turn = 1 if shape == 2 else -1
        corners = ((x, y - 5 * turn), (x + 5, y + 4 * turn), (x - 5, y + 4 * turn))
        path = " ".join(f"{a:.2f},{b:.2f}" for a, b in corners)
        head = f'<polygon points="{path}" class="{kind}"'
    return f"{head}><title>{words(tip)}</title></" + head[1:].split(" ", 1)[0] + ">"


def legend(
    names: Sequence[str],
    x: float,
    y: float,
    right: float,
    shape: str = "box",
    points: Sequence[int] = (),
    bare: Sequence[int] = (),
) -> tuple[float, list[str]]:
    """Write the key of colours in as many rows as needed; returns the y after it too.

    Of lines, those numbered in `points` are points alone, those in `bare` lines without points.
    """
    drawn: list[str] = []
    at = x
    for n, name in enumerate(names):
        wide = 22 + width_of(name) + 14
        if at > x and at + wide > right:
            at, y = x, y + 20
        if shape == "box":
            drawn.append(rect(at, y - 10, 12, 12, fill(name, n)))
        else:
            stroke = (
                f'<line x1="{at - 2:.2f}" y1="{y - 4:.2f}" x2="{at + 16:.2f}" y2="{y - 4:.2f}" '
                f'class="gs-l{n % len(SERIES)}" stroke-width="2.2" '
                f'stroke-dasharray="{DASHES[n % len(DASHES)]}"/>'
            )
            drawn += [] if n in points else [stroke]
            drawn += [] if n in bare else [marker(at + 7, y - 4, n)]
        drawn.append(text(at + 22, y, name))
        at += wide
    return y + 16, drawn


def heading(title: str, note: str) -> tuple[float, list[str]]:
    """Write the title and, below, what the picture was made for."""
    y = 26.0
    drawn = [text(16, y, title, bold=True, size=16)]
    for part in wrapped(note, WIDTH - 32, 12):
        y += 18
        drawn.append(text(16, y, part, "gs-s", size=12))
    return y + 12, drawn


def wrapped(content: str, width: float, size: float) -> Iterator[str]:
    """Lines of a text that fit a width."""
    current = ""
    for word in content.split():
        tried = f"{current} {word}".strip()
        if current and width_of(tried, size) > width:
            yield current
            tried = word
        current = tried
    if current:
        yield current
