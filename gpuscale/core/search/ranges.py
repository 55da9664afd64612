"""Values of one dimension of the space as text: `8`, `1,3`, `4..16`, `none,full`."""

from __future__ import annotations

from collections.abc import Sequence

MAX_VALUES = 4096


def select_ints(text: str, candidates: Sequence[int]) -> tuple[int, ...]:
    """Read integers pinned or ranged by a person.

    A list (``1,3``) or a single value is taken as it stands; a range (``4..16``) keeps the
    candidates inside it, both ends included. Parts can be mixed: ``1,4..16``.

    Raises ValueError if a part is no positive integer or range, or nothing is left.

    >>> select_ints("4..16", (1, 2, 4, 8, 16, 32))
    (4, 8, 16)
    >>> select_ints("1,3", (1, 2))
    (1, 3)
    """
    chosen: list[int] = []
    for part in (p.strip() for p in text.split(",")):
        low, dots, high = part.partition("..")
        if dots:
            first, last = _integer(low, part), _integer(high, part)
            if first > last:
                raise ValueError(f"range {part!r} is empty: write the smaller number first")
            chosen += [c for c in candidates if first <= c <= last]
        else:
            chosen.append(_integer(part, part))
    if not chosen:
        shown = ", ".join(map(str, candidates[:12]))
        raise ValueError(f"{text!r} leaves nothing; possible values here are {shown}")
    return tuple(sorted(set(chosen)))[:MAX_VALUES]


def _integer(text: str, part: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{part[:30]!r} is no whole number; write 8, or 1,3, or 4..16")
    return int(text)


def select_names(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Read names out of `known`, comma-separated; ``all`` means every one.

    Raises ValueError if a name is not known; the message lists those that are.

    >>> select_names("none,full", ("none", "selective", "full"))
    ('none', 'full')
    """
    if text.strip() == "all":
        return tuple(known)
    names = tuple(dict.fromkeys(p.strip() for p in text.split(",")))
    for name in names:
        if name not in known:
            raise ValueError(f"{name[:30]!r} is not one of {', '.join(known)}")
    return names
