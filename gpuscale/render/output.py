"""Text on a stream: what its encoding cannot say is written in ASCII; control codes never pass."""

from __future__ import annotations

import os
import re
from typing import TextIO

from gpuscale.foreign import DIRECTION

_ASCII = str.maketrans("█·─━│├└×µ–—−’“”", '#.--|++xu---\'""') | str.maketrans(
    {"→": "->", "≤": "<=", "≥": ">=", "≈": "~", "…": "...", "±": "+-", "²": "^2"}
    | {"√": "sqrt", "α": "alpha", "β": "beta"}
)

ESCAPED = {code: f"\\u{code:04x}" for code in [*range(127, 160), *DIRECTION]}
"""The same codes as JSON writes them; those below 32 it escapes itself."""

_NOT_A_NUMBER = r"(?i)(?<![^\s(])[+-]?(nan|inf|infinity)(?![^\s),;%]| fabric| cache)"


def coloured(stream: TextIO) -> bool:
    """Whether a stream takes colours: a terminal, unless NO_COLOR, CLICOLOR=0 or TERM=dumb.

    CLICOLOR_FORCE and FORCE_COLOR want them in a pipe too (https://no-color.org,
    https://bixense.com/clicolors).
    """
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(k, "0") not in ("", "0") for k in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    plain = os.environ.get("TERM") == "dumb" or os.environ.get("CLICOLOR") == "0"
    return stream.isatty() and not plain


def strict() -> bool:
    """Whether a number that is not finite is raised as a bug (the tests set this)."""
    return os.environ.get("GPUSCALE_STRICT", "") == "1"


def write(stream: TextIO, text: str) -> None:
    """Write a whole answer at once and flush it.

    Raises ArithmeticError: in strict mode, if the text shows NaN or infinity.
    """
    if strict() and (found := re.search(_NOT_A_NUMBER, text)):
        start = max(0, found.start() - 60)
        raise ArithmeticError(f"not a finite number in the output: {text[start : found.end()]!r}")
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(text if text.endswith("\n") else text + "\n")
    stream.flush()
