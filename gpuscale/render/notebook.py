"""Documents as a piece of HTML for notebooks: plain tags, no script, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gpuscale.foreign import clean
from gpuscale.render.document import Block, Document, Drawn, Text, grid, summary_of
from gpuscale.render.draw import to_svg
from gpuscale.render.pictures_known import pictures


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
    if isinstance(block, Drawn):
        lines = "\n".join(escape(clean(line)) for line in block.lines)
        return f"{title}<pre>{lines}</pre>"
    made = grid(block)
    before = f"<p><b>{_safe(made.before)}</b></p>" if made.before else ""
    after = f"<p>{_safe(made.after)}</p>" if made.after else ""
    return before + title + _table(made.rows, made.right, made.headers) + after


def to_html(document: Document) -> str:
    """Write the summary, the first picture, every block folded, then the warnings.

    An answer without a summary is every block.

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
