"""Typeset formulas: a block ```` ```formula ```` of a page becomes MathML, which browsers draw.

A line is ``name = expression``, of names, numbers, ``+ - * / ^``, calls and brackets; a blank
between two names multiplies. ``t_max`` is t with an index, a longer word stays a word. Where no
site is built, the block is read as it stands.
"""

from __future__ import annotations

import re
from html import escape

TOKEN = re.compile(r"\s*([A-Za-z]\w*|[\d.]+|\^|[-+*/=(),<>])")
BLOCK = re.compile(r"^```formula\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SIGNS = {"*": "&#x22C5;", "-": "&#x2212;", "<": "&lt;", ">": "&gt;"}


class Formula:
    """A line that is read from left to right."""

    def __init__(self, text: str) -> None:
        self.words = TOKEN.findall(text)
        self.at = 0
        if "".join(self.words) != re.sub(r"\s", "", text):
            raise ValueError(f"not a formula: {text}")

    @property
    def next(self) -> str:
        """Word that comes; empty at the end."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self) -> str:
        """Go on."""
        self.at += 1
        return self.words[self.at - 1]

    def row(self) -> str:
        """Read sums and what equals them."""
        parts = [self.product()]
        while self.next in ("+", "-", "=", ",", "<", ">"):
            parts += [sign(self.take()), self.product()]
        return "".join(parts)

    def product(self) -> str:
        """Factors; a division has its numerator above."""
        parts = [self.power()]
        while self.next and self.next not in "+-=,<>)":
            if self.next == "/":
                self.take()
                below = bare(self.power())
                parts[-1] = f"<mfrac>{row(bare(parts[-1]))}{row(below)}</mfrac>"
            elif self.next == "*":
                parts += [sign(self.take()), self.power()]
            else:
                parts += [sign("*"), self.power()]
        return "".join(parts)

    def power(self) -> str:
        """Read a base and its exponent."""
        found = self.atom()
        if self.next == "^":
            self.take()
            return f"<msup>{row(found)}{row(self.atom())}</msup>"
        return found

    def atom(self) -> str:
        """Name, number, call or bracket."""
        word = self.take()
        if word == "-":
            return sign(word) + self.power()
        if word == "(":
            inner = self.row()
            self.take()
            return f"<mrow><mo>(</mo>{inner}<mo>)</mo></mrow>"
        if word[0].isdigit():
            return f"<mn>{word}</mn>"
        if self.next == "(" and re.fullmatch(r"(max|min|sqrt|log2|sum)(_\w+)?", word):
            inside = self.atom()
            return f"<msqrt>{bare(inside)}</msqrt>" if word == "sqrt" else name(word) + inside
        return name(word)


def sign(word: str) -> str:
    return f"<mo>{SIGNS.get(word, word)}</mo>"


def row(inside: str) -> str:
    return f"<mrow>{inside}</mrow>"


def bare(inside: str) -> str:
    """Without the brackets that a bar or a root makes needless."""
    found = re.fullmatch(r"<mrow><mo>\(</mo>((?:(?!<mo>[()]</mo>).)*)<mo>\)</mo></mrow>", inside)
    return found[1] if found else inside


def name(word: str) -> str:
    """Name with its index, or a word."""
    base, _, index = word.partition("_")
    if word == "log2":
        return "<msub><mi>log</mi><mn>2</mn></msub>"
    if index and (1 in (len(base), len(index)) or base in ("max", "min", "sum")):
        return f"<msub><mi>{base}</mi><mtext>{escape(index.replace('_', ' '))}</mtext></msub>"
    said = escape(word.replace("_per_", "/").replace("_", " "))
    return f"<mi>{said}</mi>" if len(word) == 1 else f"<mtext>{said}</mtext>"


def mathml(text: str) -> str:
    """Formulas, one a line, as MathML below each other."""
    rows = "".join(
        f'<mtr><mtd style="text-align:left">{Formula(line).row()}</mtd></mtr>'
        for line in text.strip().splitlines()
    )
    said = escape(" ".join(text.split()), quote=True)
    return (
        f'<div class="formula"><math display="block" aria-label="{said}">'
        f'<mtable displaystyle="true">{rows}</mtable></math></div>'
    )


def typeset(markdown: str) -> str:
    """Page with its formulas typeset."""
    return BLOCK.sub(lambda found: f"\n{mathml(found[1])}\n", markdown)
