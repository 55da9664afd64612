"""Prompt tokens found in a prefix cache: by the blocks that requests share, or by their session.

Least recently used blocks go first: Kwon et al. 2023 (arXiv:2309.06180), section 4.4; Zheng et al.
2024 (SGLang, arXiv:2312.07104), section 3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence


def block_hits(
    blocks: Sequence[Sequence[Hashable]], inputs: Sequence[int], each: int, room_tokens: float
) -> list[int]:
    """Tokens of each prompt whose cache is still there, by its blocks in order.

    `blocks`: names of the blocks of each prompt, from its start; equal names have equal prefixes.
    `inputs`: tokens of the prompts. [1] `each`: tokens of a block. [1] `room_tokens`: room of the
    cache. [1] Returns one token of a prompt is always computed. [1]

    >>> block_hits([[1, 2], [1, 3], [1, 2]], [8, 8, 8], 4, 100.0)
    [0, 4, 7]
    >>> block_hits([[1, 2], [3, 4], [1, 2]], [8, 8, 8], 4, 8.0)
    [0, 0, 0]
    """
    held: OrderedDict[Hashable, None] = OrderedDict()
    most, found = max(1.0, room_tokens / each), []
    for mine, tokens in zip(blocks, inputs, strict=True):
        hit, whole = 0, True
        for name in mine:
            if name in held:
                hit += each if whole else 0
                held.move_to_end(name)
            else:
                whole, held[name] = False, None
        while len(held) > most:
            held.popitem(last=False)
        found.append(min(hit, tokens - 1))
    return found


def session_hits(
    sessions: Sequence[Hashable], inputs: Sequence[int], outputs: Sequence[int], room_tokens: float
) -> list[int]:
    """Tokens of each prompt that its session has been through, if they are still there.

    A prompt repeats what came before in its session; None is a session of its own.

    >>> session_hits(["a", "b", "a"], [10, 10, 25], [5, 5, 5], 100.0)
    [0, 0, 15]
    >>> session_hits(["a", "b", "a"], [10, 10, 25], [5, 5, 5], 20.0)
    [0, 0, 0]
    """
    held: OrderedDict[Hashable, int] = OrderedDict()
    total, found = 0, []
    for name, tokens, made in zip(sessions, inputs, outputs, strict=True):
        before = held.pop(name, 0) if name is not None else 0
        total -= before
        found.append(min(before, tokens - 1))
        if name is None:
            continue
        held[name] = tokens + made
        total += tokens + made
        while total > room_tokens and held:
            total -= held.popitem(last=False)[1]
    return found
