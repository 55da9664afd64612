"""The layer pattern language: `3 x mla+dense, 10 x (5 x sliding+moe, full+moe)`."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_LAYERS = 10_000
MAX_PERIOD = 64

_TOKEN = re.compile(r"\s*(?:(\d+)\s*x\s*|([A-Za-z0-9_.-]+\+[A-Za-z0-9_.-]+)|([(),]))")


def expand(pattern: str) -> tuple[tuple[str, str], ...]:
    """List the (mixer, ffn) names of every layer, in order.

    Raises ValueError if the pattern does not parse or has more than `MAX_LAYERS` layers.

    >>> expand("2 x (2 x local+dense, global+dense)")[2:4]
    (('global', 'dense'), ('local', 'dense'))
    """
    outer: list[tuple[list[tuple[str, str]], int]] = []  # layers before each open `(`, its repeat
    layers, repeat, wanted = list[tuple[str, str]](), 1, True
    for token in _tokens(pattern):
        if wanted and isinstance(token, int) and token:
            repeat = min(repeat * token, MAX_LAYERS + 1)
        elif wanted and token == "(":
            outer.append((layers, repeat))
            layers, repeat = [], 1
        elif token == "," and not wanted:
            wanted = True
        elif isinstance(token, tuple) and wanted:
            layers, repeat, wanted = _repeated(layers, [token], repeat), 1, False
        elif token == ")" and outer and not wanted:
            before, times = outer.pop()
            layers = _repeated(before, layers, times)
        else:
            raise ValueError(f"layer pattern {pattern[:60]!r}: unexpected {token!r}")
    if wanted or outer:
        end = "a layer `mixer+ffn`" if wanted else "a `)`"
        raise ValueError(f"layer pattern ends where {end} is expected")
    return tuple(layers)


def _repeated(
    before: list[tuple[str, str]], layers: list[tuple[str, str]], times: int
) -> list[tuple[str, str]]:
    if len(before) + times * len(layers) > MAX_LAYERS:
        raise ValueError(f"layer pattern has more than {MAX_LAYERS} layers")
    before += layers * times
    return before


def compress(layers: Sequence[tuple[str, str]]) -> str:
    """Shortest-looking pattern of a list of layers; `expand` gives the list back.

    >>> compress([("a", "m"), ("a", "d"), ("b", "d"), ("a", "d"), ("b", "d"), ("b", "d")])
    'a+m, 2 x (a+d, b+d), b+d'
    """
    parts: list[str] = []
    at = 0
    while at < len(layers):
        period, repeats = _best_period(layers, at)
        block = layers[at : at + period]
        text = ", ".join(f"{mixer}+{ffn}" for mixer, ffn in block)
        if repeats > 1 and period > 1:
            text = compress(block)
            text = f"({text})"
        parts.append(f"{repeats} x {text}" if repeats > 1 else text)
        at += period * repeats
    return ", ".join(parts)


def _best_period(layers: Sequence[tuple[str, str]], at: int) -> tuple[int, int]:
    """Period and repeats, from `at`, that cover most layers; the shorter period on a tie."""
    best, best_cover = (1, 1), 1
    for period in range(1, min(MAX_PERIOD, (len(layers) - at) // 2) + 1):
        end = at + period
        while end < len(layers) and layers[end] == layers[end - period]:
            end += 1
        repeats = (end - at) // period
        if repeats > 1 and repeats * period > best_cover:
            best, best_cover = (period, repeats), repeats * period
    return best


def _tokens(pattern: str) -> list[str | int | tuple[str, str]]:
    tokens: list[str | int | tuple[str, str]] = []
    at = 0
    pattern = pattern.strip()
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None or match.end() == at:
            raise ValueError(
                f"layer pattern: cannot read {pattern[at : at + 30]!r}; write for example "
                "`3 x full+dense, 10 x (5 x local+moe, full+moe)`"
            )
        if match[1]:
            tokens.append(int(match[1][:9]))
        elif match[2]:
            mixer, ffn = match[2].split("+", 1)
            tokens.append((mixer, ffn))
        else:
            tokens.append(match[3])
        at = match.end()
    return tokens
