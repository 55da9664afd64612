"""Tables of pass times for the simulator: a few dozen passes stand for all.

A decode pass is linear in its context, ``T(n, S) = A(n) + B(n) S``; a prompt adds what the same
pass takes longer with its tokens, and attention by the keys that they meet. Every entry is computed
when it is first asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.serving.forward import pass_time
from gpuscale.core.serving.records import Batch

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import ModelSpec

SEQUENCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Sequences of a pass in the table; from the last on it doubles."""

TOKENS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Prompt tokens of a pass in the table."""

ALONGSIDE = (1, 16, 128, 1024, 8192, 65536)
"""Sequences that decode along with prompt tokens; a pass without any is a row of its own."""

KEYS = (128.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
"""Mean keys of a prompt token in the table."""

PassOf = Callable[[Batch], float]


@dataclass(frozen=True, slots=True)
class ContextRange:
    """Contexts between which the decode pass is taken as linear: those of the load. [1]."""

    low: float = 128.0
    high: float = 8192.0


class StepTable:
    """Times of passes by interpolation between those that `pass_of` computes."""

    __slots__ = ("_attention", "_decode", "_nodes", "contexts", "pass_of", "per_pass")

    def __init__(self, pass_of: PassOf, contexts: ContextRange, *, decoded_tokens: int = 1) -> None:
        """Keep what is tabulated.

        Parameters
        ----------
        pass_of : callable
            Time of a pass by its `Batch`. [s]
        contexts : ContextRange
            Contexts of the load.
        decoded_tokens : int
            Tokens that a decode pass computes for each sequence: 1, and the drafts it verifies.
        """
        self.pass_of, self.contexts, self.per_pass = pass_of, contexts, decoded_tokens
        self._decode: dict[int, tuple[float, float]] = {0: (0.0, 0.0)}
        self._nodes: dict[tuple[int, int], float] = {}
        self._attention: dict[float, float] = {}

    def decode(self, n: int) -> tuple[float, float]:
        """Time of a decode pass of `n` sequences without context, and of a token of it. [s]."""
        found = self._decode.get(n)
        if found is None:
            found = self._decode[n] = self._between(n)
        return found

    def _between(self, n: int) -> tuple[float, float]:
        """Interpolate between two tabulated numbers of sequences."""
        if n in SEQUENCES:
            return self._line(n)
        top = SEQUENCES[-1]
        if n < top:
            at = bisect_right(SEQUENCES, n)
            low, high = SEQUENCES[at - 1], SEQUENCES[at]
        else:
            low = top
            while 2 * low <= n:
                low *= 2
            high = 2 * low
            if n == low:
                return self._line(n)
        share = (n - low) / (high - low)
        (a, b), (c, d) = self.decode(low), self.decode(high)
        # the part of the context is that of the sequences, so it is n B that is interpolated
        slope = (low * b + share * (high * d - low * b)) / n
        return a + share * (c - a), slope

    def _line(self, n: int) -> tuple[float, float]:
        low, high = self.contexts.low, self.contexts.high
        first = self.decode_pass_s(n, low)
        each = (self.decode_pass_s(n, high) - first) / (high - low) if high > low else 0.0
        return first - each * low, each / n

    def decode_pass_s(self, n: float, context: float) -> float:
        """Time of one decode pass, computed. [s]."""
        d = self.per_pass
        return self.pass_of(Batch(sequences=n * d, context=context / d))

    def prompt(self, tokens: int, keys: float, n: int, ends: int) -> float:
        """Time that prompt tokens add to a pass of `n` sequences; the whole pass if n is 0. [s]."""
        return self._products_s(tokens, n) + tokens * self._attention_s(keys)

    def _products_s(self, tokens: int, n: int) -> float:
        """Time added by the tokens at few keys, interpolated in both numbers."""
        if n == 0:
            return self._row_s(tokens, 0)
        if n <= ALONGSIDE[0]:
            return self._row_s(tokens, ALONGSIDE[0])
        at = min(bisect_right(ALONGSIDE, n), len(ALONGSIDE) - 1)
        low, high = ALONGSIDE[at - 1], ALONGSIDE[at]
        share = (n - low) / (high - low)
        first = self._row_s(tokens, low)
        return first + share * (self._row_s(tokens, high) - first)

    def _row_s(self, tokens: int, n: int) -> float:
        at = min(bisect_right(TOKENS, tokens), len(TOKENS) - 1)
        low, high = TOKENS[at - 1], TOKENS[at]
        share = (tokens - low) / (high - low)
        first = self._node_s(low, n)
        return first + share * (self._node_s(high, n) - first)

    def _node_s(self, tokens: int, n: int) -> float:
        found = self._nodes.get((tokens, n))
        if found is None:
            context = 0.5 * (self.contexts.low + self.contexts.high)
            d = self.per_pass
            along = Batch(sequences=n * d, context=context / d) if n else Batch()
            batch = Batch(tokens, KEYS[0], 1.0, along.sequences, along.context)
            alone = self.decode_pass_s(n, context) if n else 0.0
            found = self._nodes[tokens, n] = max(0.0, self.pass_of(batch) - alone)
        return found

    def _attention_s(self, keys: float) -> float:
        """Time of attention of one prompt token beyond that over the first of `KEYS`. [s]."""
        if keys <= KEYS[0]:
            return 0.0
        at = min(bisect_right(KEYS, keys), len(KEYS) - 1)
        low, high = KEYS[at - 1], KEYS[at]
        share = (keys - low) / (high - low)
        first = self._keys_s(low)
        return first + share * (self._keys_s(high) - first)

    def _keys_s(self, keys: float) -> float:
        found = self._attention.get(keys)
        if found is None:
            tokens = 4096
            with_keys = self.pass_of(Batch(tokens, keys, 1.0))
            found = self._attention[keys] = (with_keys - self._node_s(tokens, 0)) / tokens
        return found


def replica_table(
    model: ModelSpec,
    replica: Replica,
    site: ServingSite,
    contexts: ContextRange,
    *,
    decoded_tokens: int = 1,
) -> StepTable:
    """Table of a replica's passes.

    Parameters
    ----------
    model : ModelSpec
        The model.
    replica : Replica
        Layout and formats. With pipeline stages a pass goes through all of them with its share of
        the sequences.
    site : ServingSite
        Hardware and calibration.
    contexts : ContextRange
        Contexts of the load.
    decoded_tokens : int
        Tokens that a decode pass computes for each sequence. [1]
    """
    pp = replica.pp

    def pass_of(batch: Batch) -> float:
        share = Batch(
            batch.prompt_tokens,
            batch.prompt_context,
            batch.prompts,
            max(1.0, batch.sequences / pp) if batch.sequences else 0.0,
            batch.context,
        )
        return pass_time(model, replica, site, share).total_s

    return StepTable(pass_of, contexts, decoded_tokens=decoded_tokens)
