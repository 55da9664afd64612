"""Texts of others in what is written: one line, no control codes, nothing that a reader runs."""

from __future__ import annotations

import re
from typing import Any

FORMULA = ("=", "+", "-", "@")
"""What a spreadsheet takes for the start of a formula."""
DIRECTION = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""Marks that turn the direction of text around, and could make it read as something else."""
_CONTROL = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), 0x2028, 0x2029, *DIRECTION], "?"
)
_NUMBER = r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?"
_ACTIVE = r"<(?=[A-Za-z/!?])|(?<=\])(?=[(\[:])|(?<=!)(?=\[)"
"""Where Markdown would begin a tag, a link or a picture."""


def clean(text: str) -> str:
    """Replace control characters (terminal escapes in a name from a file) by question marks."""
    return text.replace("\t", " ").translate(_CONTROL)


def line(text: str) -> str:
    r"""Text as a part of one line: no line end of any kind, no control code.

    >>> line("a\nrm -rf /\r\u2028b\x1b[31m")
    'a rm -rf / b?[31m'
    """
    return clean(" ".join(text.split()))


def comment(text: str) -> str:
    """Text as a comment of a script or a configuration."""
    return f"# {line(text)}"


def csv_cell(value: Any) -> Any:
    """Value as a cell: a text that a spreadsheet would compute begins with an apostrophe.

    >>> csv_cell("=1+2"), csv_cell("a"), csv_cell(-1.5), csv_cell("-1.5")
    ("'=1+2", 'a', -1.5, '-1.5')
    """
    if not isinstance(value, str) or re.fullmatch(_NUMBER, value):
        return value
    text = clean(value)
    return f"'{text}" if text.lstrip()[:1] in FORMULA and text.strip() else text


def markdown(text: str) -> str:
    r"""Text between Markdown: no tag, link or picture begins in it.

    >>> markdown("<b>  ![x](https://a) `plan MODEL`  2 < 3")
    '\\<b>  !\\[x]\\(https://a) `plan MODEL`  2 < 3'
    """
    return re.sub(_ACTIVE, lambda found: "\\" + found[0], clean(text))


def markdown_cell(text: str) -> str:
    """Text as a cell of a Markdown table."""
    return markdown(text).replace("|", "\\|").replace("\n", " ")


def fenced(lines: list[str]) -> str:
    """Lines between fences that none of them closes."""
    text = "\n".join(map(clean, lines))
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def here_document(name: str, text: str) -> list[str]:
    """Shell lines that write a file, whatever stands in its text."""
    lines = [part.rstrip("\r") for part in text.rstrip("\n").split("\n")]
    end = "END"
    while end in (one.strip() for one in lines):
        end += "_"
    return [f"cat > {name} <<'{end}'", *lines, end]
