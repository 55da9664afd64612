"""An answer as one self-contained page: no network, light and dark, for screens and paper."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpuscale.core.records import Term
from gpuscale.render.document import (
    Bars,
    Block,
    Column,
    Document,
    Drawn,
    Facts,
    Node,
    Summary,
    Table,
    Text,
    node_of,
    summary_of,
)
from gpuscale.render.draw import to_svg
from gpuscale.render.palette import meaning, variables
from gpuscale.render.pictures_known import pictures
from gpuscale.render.svg import attribute, is_memory, strip_html, strips_of, style, words
from gpuscale.render.text import plain
from gpuscale.version import __version__


class Section(NamedTuple):
    """A part of a page."""

    title: str  # empty: it stands without a heading
    html: str
    wide: bool = False  # takes the whole width

    @property
    def anchor(self) -> str:
        """Name in the address."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def sections(blocks: Sequence[Block]) -> Iterator[Section]:
    """Write each block; the memory is drawn at the top of the page and not again."""
    for block in blocks:
        title = "" if isinstance(block, Text) else block.title
        title = title[:1].upper() + title[1:]
        if is_memory(block):
            continue
        if isinstance(block, Text):
            yield Section("", f"<p>{words(block.text)}</p>", True)
        elif isinstance(block, Drawn):
            lines = "\n".join(map(words, block.lines))
            yield Section(title, f"<pre{_scrolls(title or 'picture')}>{lines}</pre>", True)
        elif isinstance(block, Table):
            yield Section(title, "".join(_table(block, title)), len(block.columns) > 6)
        elif isinstance(block, Summary):
            points = [(p.key, p.value, p.note) for p in block.points[1:]]
            yield Section("", _facts(points), True)
        elif isinstance(block, Facts):
            yield Section(title, _facts(block.rows))
        else:
            yield Section(title, "".join(_bars(block)))


def _scrolls(name: str) -> str:
    """Attributes of a box that may be wider than the screen: the keyboard can move it too."""
    return f' tabindex="0" role="region" aria-label="{attribute(name)}"'


def _facts(rows: Iterable[tuple[str, ...]]) -> str:
    """Write rows of a label, a value and remarks."""
    lines = []
    for label, value, *remarks in rows:
        first = f'<th scope="row">{words(label)}</th>' if label else "<td></td>"
        more = "".join(f"<td>{words(remark)}</td>" for remark in remarks)
        lines.append(
            f"<tr>{first}<td{' class=r' if remarks else ''}>{words(value)}</td>{more}</tr>"
        )
    return f'<table class="facts"><tbody>{"".join(lines)}</tbody></table>'


def _table(block: Table, title: str) -> Iterator[str]:
    """Write a table that sorts by a click on a header: by the raw value, not by its text.

    Columns to the right are named once, in the class; end tags that HTML can do without are absent.
    """
    name = title or ", ".join(c.header for c in block.columns if c.header)
    right = "".join(f" r{i}" for i, c in enumerate(block.columns, 1) if c.right)
    yield f'<div class="wide"{_scrolls(name)}><table class="sortable{right}"><thead><tr>'
    for column in block.columns:
        yield f"<th><button>{_header(column)}</button>"
    yield "<tbody>"
    for row in block.rows:
        cells = []
        for column, value in zip(block.columns, row, strict=True):
            shown = "-" if value is None else column.show(value)
            key = _sort_key(value)
            sort = f' data-v="{key}"' if key != attribute(shown) else ""
            cells.append(f"<td{sort}>{words(shown)}")
        yield f"<tr>{''.join(cells)}"
    yield "</table></div>"


def _header(column: Column) -> str:
    """Text of a header; one that shows nothing has its name for those who hear it."""
    if column.header:
        return words(column.header)
    return f'<span class="unseen">{words(column.key.replace("_", " "))}</span>'


def _sort_key(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.9g}" if isinstance(value, (int, float)) else attribute(str(plain(value)))


def _bars(block: Bars) -> Iterator[str]:
    scale = max([block.limit or 0.0, *(v for _, v, _ in block.rows)], default=0.0) or 1.0
    yield '<table class="bars"><tbody>'
    for label, value, text in block.rows:
        share = 100 * max(0.0, value) / scale
        paint = f";background:var(--m-{found})" if (found := meaning(label)) else ""
        yield (
            f'<tr><th scope="row">{words(label)}</th><td class="r">{words(text)}</td>'
            f'<td class="bar"><span style="width:{share:.2f}%{paint}"></span></td></tr>'
        )
    yield "</tbody></table>"
    if block.limit_text:
        yield f"<p>{words(block.limit_text)}</p>"


def folded(document: Document) -> Iterator[str]:
    """Write what is folded at the end: how the numbers come about, and the inputs."""
    yield from _explanation(document.terms)
    yield _inputs(document.inputs)


def _explanation(terms: Iterable[Term]) -> Iterator[str]:
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
    rows = _facts((str(key), _shown(value)) for key, value in inputs.items())
    return f'<details id="inputs"><summary>Inputs</summary>{rows}</details>'


def _shown(value: Any) -> str:
    value = plain(value)
    if isinstance(value, dict):
        return ", ".join(f"{k} = {_shown(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return "-" if value is None else str(value)


ASSETS = Path(__file__).parent / "assets"


def stylesheet() -> str:
    """Return the rules of a report and of the page in the browser: colours, layout, pictures."""
    return variables() + (ASSETS / "report.css").read_text(encoding="utf-8") + style()


def to_html(document: Document, command: str) -> str:
    """Write the page: answer, pictures, tables, then explanation and inputs folded.

    `document`: the answer. `command`: command line that remakes the page.

    All text goes through one escape; the only script is our own, and the page's policy lets no
    other run.
    """
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    found = _sections(document)
    main = [f'<p class="warn">Warning: {words(w)}</p>' for w in document.warnings]
    said = {
        "DIGEST": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "VERSION": attribute(__version__),
        "TITLE": words(_lead(document)[0].split("\n")[0] or f"gpuscale {document.command}"),
        "STYLE": stylesheet(),
        "QUESTION": words(document.command),
        "HEAD": _head(document),
        "CONTENTS": _contents(found, document),
        "MAIN": "\n".join([*main, *written(found), *folded(document)]),
        "COMMAND": words(command),
        "SCRIPT": script,
    }
    page = (ASSETS / "report.html").read_text(encoding="utf-8")
    return re.sub(r"\$([A-Z]+)", lambda m: said[m[1]], page)


def _head(document: Document) -> str:
    """Write the answer itself: a sentence, the verdict, memory against the card, the time."""
    sentence, _, more = _lead(document)[0].partition("\n")
    return "".join(
        [
            f'<p class="answer">{words(sentence)}</p>',
            f'<p class="how">{words(more)}</p>' if more else "",
            _verdict(document),
            *(part for strip in strips_of(document) for part in strip_html(strip)),
        ]
    )


def _lead(document: Document) -> tuple[str, list[Block]]:
    """Take the answer off the blocks: the first text."""
    blocks = list(document.blocks)
    if blocks and isinstance(blocks[0], Text):
        return blocks[0].text, blocks[1:]
    return "", blocks


def _verdict(document: Document) -> str:
    if document.answered_no:
        return '<p class="verdict no">The answer is no</p>'
    points = getattr(document.result, "points", None)
    wrong = sum(getattr(p, "answer", "") == "no" for p in points or ())
    if wrong:
        said = f"The answer is no at {wrong} of {len(points or ())} points"
        return f'<p class="verdict no">{said}</p>'
    fits = getattr(document.result, "fits", None)
    return '<p class="verdict ok">Fits</p>' if fits is True else ""


def _sections(document: Document) -> list[Section]:
    """Figures first, then pictures, then the tables."""
    blocks = _lead(document)[1]
    top = [block for block in blocks[:1] if isinstance(block, (Facts, Text))]
    found = list(sections([summary_of(document)] if document.details else []))
    found += sections(top)
    if drawn := pictures(document, bars=False):
        figures = "".join(f"<figure>{to_svg(c, standalone=False)}</figure>" for c in drawn)
        found.append(Section("Pictures", f'<div class="pictures">{figures}</div>', True))
    return found + list(sections(blocks[len(top) :]))


def written(found: list[Section]) -> list[str]:
    """Write sections; narrow ones stand side by side where there is room."""
    written, seen = [], set[str]()
    for one in found:
        kind = ' class="whole"' if one.wide else ""
        name = f' id="{one.anchor}"' if one.title and one.anchor not in seen else ""
        seen.add(one.anchor)
        head = f"<h2>{words(one.title)}</h2>" if one.title else ""
        written.append(f"<section{kind}{name}>{head}{one.html}</section>")
    return written


def _contents(found: list[Section], document: Document) -> str:
    """List the sections with a heading, and what is folded."""
    named = {one.anchor: one.title for one in reversed(found) if one.title}
    named = dict(reversed(named.items()))
    named |= {"explanation": "How it comes about"} if document.terms else {}
    named["inputs"] = "Inputs"
    links = "".join(f'<li><a href="#{at}">{words(said)}</a></li>' for at, said in named.items())
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
