"""Documents as a piece of HTML for notebooks: plain tags, no script, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gpuscale.foreign import clean
from gpuscale.render.document import Bars, Block, Document, Drawn, Facts, Summary, Table, Text
from gpuscale.render.layers import summary_of
from gpuscale.render.pictures.draw import to_svg
from gpuscale.render.pictures.known import pictures
from gpuscale.render.plain import cells


def _safe(text: str) -> str:
    return escape(clean(text)).replace("\n", "<br>")


def _table(rows: Iterable[Sequence[str]], right: Sequence[bool], head: Sequence[str] = ()) -> str:
    def line(row: Sequence[str], tag: str) -> str:
        parts = (
            f'<{tag} style="padding:0 0.6em;text-align:{"right" if flush else "left"}">'
            f"{_safe(cell)}</{tag}>"
            for cell, flush in zip(row, right, strict=True)
        )
        return f"<tr>{''.join(parts)}</tr>"

    top = f"<thead>{line(head, 'th')}</thead>" if head else ""
    return f"<table>{top}<tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return f"<p>{_safe(block.text)}</p>"
    title = f"<h4>{_safe(block.title)}</h4>" if block.title else ""
    if isinstance(block, Table):
        right = [c.right for c in block.columns]
        return title + _table(cells(block), right, [c.header for c in block.columns])
    if isinstance(block, Summary):
        head, *points = block.points
        said = [(p.key, f"{p.value}  {p.note}".strip()) for p in points]
        return f"<p><b>{_safe(head.value)}</b></p>" + _table(said, [False, False])
    if isinstance(block, Facts):
        return title + _table(block.rows, [False, True, False])
    if isinstance(block, Bars):
        scale = max([block.limit or 0.0, *(v for _, v, _ in block.rows)], default=0.0) or 1.0
        rows = (
            f'<tr><td style="padding:0 0.6em">{_safe(label)}</td>'
            f'<td style="padding:0 0.6em;text-align:right">{_safe(text)}</td>'
            f'<td><div style="background:#4c78a8;height:0.8em;'
            f'width:{200 * max(0.0, value) / scale:.0f}px"></div></td></tr>'
            for label, value, text in block.rows
        )
        limit = f"<p>{_safe(block.limit_text)}</p>" if block.limit_text else ""
        return f"{title}<table><tbody>{''.join(rows)}</tbody></table>{limit}"
    if isinstance(block, Drawn):
        lines = "\n".join(escape(clean(line)) for line in block.lines)
        return f"{title}<pre>{lines}</pre>"
    return ""


def to_html(document: Document) -> str:
    """Write the summary, the first picture, every block folded, then the warnings.

    An answer without a summary is every block.

    Examples
    --------
    >>> to_html(Document("x", {}, {}, [Text("<b>")]))
    '<div class="gpuscale"><p>&lt;b&gt;</p></div>'
    """
    parts = [_block(block) for block in document.blocks]
    if document.details:
        drawn = [f"<div>{to_svg(chart)}</div>" for chart in pictures(document)[:1]]
        whole = f"<details><summary>all of it</summary>{''.join(parts)}</details>"
        parts = [_block(summary_of(document)), *drawn, whole]
    parts += [f"<p><em>warning: {_safe(w)}</em></p>" for w in document.warnings]
    return f'<div class="gpuscale">{"".join(parts)}</div>'
