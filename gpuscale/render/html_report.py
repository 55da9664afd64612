"""An answer as one self-contained page: no network, light and dark, for screens and paper."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.render.data import plain
from gpuscale.render.document import Bars, Document, Drawn, Facts, Table, Text
from gpuscale.render.pictures.draw import to_svg
from gpuscale.render.pictures.known import pictures
from gpuscale.render.svg import attribute, style, words
from gpuscale.version import __version__

if TYPE_CHECKING:
    from gpuscale.core.records import Term
    from gpuscale.render.document import Block
    from gpuscale.render.explain import Node

ASSETS = Path(__file__).parent / "assets"


def to_html(document: Document, command: str) -> str:
    """Write the page: answer, pictures, tables, then explanation and inputs folded.

    Parameters
    ----------
    document : Document
        The answer.
    command : str
        Command line that remakes the page.

    Notes
    -----
    All text goes through one escape; the only script is our own, and the page's policy lets no
    other run.
    """
    css = (ASSETS / "report.css").read_text(encoding="utf-8")
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    title = _lead(document)[0].split("\n")[0] or f"gpuscale {document.command}"
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{attribute(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="generator" content="gpuscale {attribute(__version__)}">',
        '<link rel="icon" href="data:,">',
        f"<title>{words(title)}</title>",
        f"<style>{css}{style()}</style>",
        "</head>",
        "<body>",
        "<header>",
        f"<h1>gpuscale {words(document.command)}</h1>",
        head_html(document),
        "</header>",
        "<main>",
        body_html(document),
        "</main>",
        "<footer>",
        f"<p>Made by gpuscale {words(__version__)}; this command makes it again:</p>",
        f"<pre>{words(command)}</pre>",
        "</footer>",
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def head_html(document: Document) -> str:
    """Write the answer itself: its first lines and the verdict."""
    return f'<p class="answer">{words(_lead(document)[0])}</p>' + _verdict(document)


def body_html(document: Document) -> str:
    """Write what stands below the answer: figures, pictures, tables, explanation, inputs."""
    blocks = _lead(document)[1]
    top = [block for block in blocks[:1] if isinstance(block, (Facts, Text))]
    parts = [
        *(f'<p class="warn">Warning: {words(w)}</p>' for w in document.warnings),
        *(html for block in top for html in _block(block)),
        *_figures(document),
        *(html for block in blocks[len(top) :] for html in _block(block)),
        *_explanation(document.terms),
        _inputs(document.inputs),
    ]
    return "\n".join(part for part in parts if part)


def _lead(document: Document) -> tuple[str, list[Block]]:
    """Take the answer off the blocks: the first text."""
    blocks = list(document.blocks)
    if blocks and isinstance(blocks[0], Text):
        return blocks[0].text, blocks[1:]
    return "", blocks


def _verdict(document: Document) -> str:
    if document.answered_no:
        return '<p class="verdict no">The answer is no</p>'
    fits = getattr(document.result, "fits", None)
    return '<p class="verdict ok">Fits</p>' if fits is True else ""


def _figures(document: Document) -> Iterator[str]:
    drawn = pictures(document)
    if drawn:
        yield "<h2>Pictures</h2>"
    for chart in drawn:
        yield f"<figure>{to_svg(chart, standalone=False)}</figure>"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        yield f"<p>{words(block.text)}</p>"
        return
    if block.title:
        yield f"<h2>{words(block.title[:1].upper() + block.title[1:])}</h2>"
    if isinstance(block, Drawn):
        yield "<pre>" + "\n".join(map(words, block.lines)) + "</pre>"
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Facts):
        yield '<div class="wide"><table><tbody>'
        for label, value, remark in block.rows:
            yield (
                f'<tr><th scope="row">{words(label)}</th><td class="r">{words(value)}</td>'
                f"<td>{words(remark)}</td></tr>"
            )
        yield "</tbody></table></div>"
    else:
        yield from _bars(block)


def _table(block: Table) -> Iterator[str]:
    """Write a table that sorts by a click on a header: by the raw value, not by its text."""
    yield '<div class="wide"><table class="sortable"><thead><tr>'
    for column in block.columns:
        side = ' class="r"' if column.right else ""
        yield (
            f'<th scope="col" aria-sort="none"{side}>'
            f'<button type="button">{words(column.header) or "&nbsp;"}</button></th>'
        )
    yield "</tr></thead><tbody>"
    for row in block.rows:
        cells = []
        for column, value in zip(block.columns, row, strict=True):
            shown = "-" if value is None else column.show(value)
            side = ' class="r"' if column.right else ""
            cells.append(f'<td{side} data-v="{_sort_key(value)}">{words(shown)}</td>')
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _sort_key(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, (int, float)) else attribute(str(plain(value)))


def _bars(block: Bars) -> Iterator[str]:
    scale = max([block.limit or 0.0, *(v for _, v, _ in block.rows)], default=0.0) or 1.0
    yield '<div class="wide"><table><tbody>'
    for label, value, text in block.rows:
        share = 100 * max(0.0, value) / scale
        yield (
            f'<tr><th scope="row">{words(label)}</th><td class="r">{words(text)}</td>'
            f'<td class="bars"><span class="bar" style="width:{share:.2f}%"></span></td></tr>'
        )
    yield "</tbody></table></div>"
    if block.limit_text:
        yield f"<p>{words(block.limit_text)}</p>"


def _explanation(terms: Iterable[Term]) -> Iterator[str]:
    from gpuscale.render.explain import node_of

    nodes = list(map(node_of, terms))
    if nodes:
        yield '<details id="explanation"><summary>How it comes about</summary><ul>'
        for node in nodes:
            yield from _node(node)
        yield "</ul></details>"


def _node(node: Node) -> Iterator[str]:
    yield f"<li><strong>{words(node.head)}</strong>"
    for text in (node.formula, node.numbers):
        if text:
            yield f"<code>= {words(text)}</code>"
    if node.source:
        yield f'<span class="source">{words(node.source)}</span>'
    if node.children:
        yield "<ul>"
        for child in node.children:
            yield from _node(child)
        yield "</ul>"
    yield "</li>"


def _inputs(inputs: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{words(str(key))}</th><td>{words(_shown(value))}</td></tr>'
        for key, value in inputs.items()
    )
    return (
        '<details id="inputs"><summary>Inputs</summary><div class="wide"><table><tbody>'
        f"{rows}</tbody></table></div></details>"
    )


def _shown(value: Any) -> str:
    value = plain(value)
    if isinstance(value, dict):
        return ", ".join(f"{k} = {_shown(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return "-" if value is None else str(value)
