"""An answer as one self-contained page: no network, light and dark, for screens and paper."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from gpuscale.render.document import Block, Document, Facts, Text
from gpuscale.render.html_blocks import Section, folded, sections
from gpuscale.render.layers import summary_of
from gpuscale.render.palette import variables
from gpuscale.render.pictures.draw import to_svg
from gpuscale.render.pictures.known import pictures
from gpuscale.render.strip import strip_html, strips_of
from gpuscale.render.svg import attribute, style, words
from gpuscale.version import __version__

ASSETS = Path(__file__).parent / "assets"


def stylesheet() -> str:
    """Return the rules of a report and of the page in the browser: colours, layout, pictures."""
    return variables() + (ASSETS / "report.css").read_text(encoding="utf-8") + style()


def to_html(document: Document, command: str) -> str:
    """Write the page: answer, pictures, tables, then explanation and inputs folded.

    `document`: the answer. `command`: command line that remakes the page.

    Notes
    -----
    All text goes through one escape; the only script is our own, and the page's policy lets no
    other run.
    """
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    title = _lead(document)[0].split("\n")[0] or f"gpuscale {document.command}"
    found = _sections(document)
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
        f"<style>{stylesheet()}</style>",
        "</head>",
        '<body class="report">',
        "<header>",
        f"<h1>gpuscale {words(document.command)}</h1>",
        _head(document),
        "</header>",
        _contents(found, document),
        "<main>",
        *(f'<p class="warn">Warning: {words(w)}</p>' for w in document.warnings),
        *written(found),
        *folded(document),
        "</main>",
        '<footer aria-label="Where this is from">',
        f"<p>Made by gpuscale {words(__version__)}; this command makes it again:</p>",
        f"<pre>{words(command)}</pre>",
        "</footer>",
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


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
