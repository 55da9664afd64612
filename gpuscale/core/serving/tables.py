"""Tables of pass times for the simulator: a few dozen passes stand for all.

A decode pass is linear in its context, ``T(n, S) = A(n) + B(n) S``; a prompt adds what the same
pass takes longer with its tokens, and attention by the keys that they meet. Every entry is computed
when it is first asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuscale.core.records import dataclass, replace
from gpuscale.core.serving.extras import Extras, extras_s, kept_s
from gpuscale.core.serving.forward import decode_step, pass_time
from gpuscale.core.serving.records import Batch, Replica, ServingSite

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

SEQUENCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Sequences of a pass in the table; from the last on it doubles."""

TOKENS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Prompt tokens of a pass in the table."""

ALONGSIDE = (1, 16, 128, 1024, 8192, 65536)
"""Sequences that decode along with prompt tokens; a pass without any is a row of its own."""

KEYS = (128.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
"""Mean keys of a prompt token in the table."""

SAMPLE_TOKENS = 4096
"""Prompt tokens with which the time of attention over more keys is computed."""

PassOf = Callable[[Batch], float]
DecodeOf = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class ContextRange:
    """Contexts between which the decode pass is taken as linear: those of the load. [1]."""

    low: float = 128.0
    high: float = 8192.0


class StepTable:
    """Times of passes by interpolation between those that are computed.

    `pass_of`: time of a pass by its `Batch`. [s] `decode_of`: time of a decode pass by its
    sequences and their context, drafts included. [s] `contexts`: contexts of the load. `ranks`:
    attention ranks: a prompt is read by one of them. `drafted_tokens`: tokens that a decoding
    sequence computes in a pass: 1, and the drafts it verifies.
    """

    def __init__(
        self,
        pass_of: PassOf,
        decode_of: DecodeOf,
        contexts: ContextRange,
        *,
        ranks: int = 1,
        drafted_tokens: int = 1,
    ) -> None:
        self.pass_of, self.decode_of, self.contexts = pass_of, decode_of, contexts
        self.ranks, self.each = ranks, drafted_tokens
        self._decode: dict[int, tuple[float, float]] = {0: (0.0, 0.0)}
        self._nodes: dict[tuple[int, int, int], float] = {}
        self._lines: dict[tuple[int, int, int], tuple[float, float]] = {}
        self._attention: dict[float, float] = {}

    def decode(self, n: int) -> tuple[float, float]:
        """Time of a decode pass of `n` sequences without context, and of a token of it. [s]."""
        found = self._decode.get(n)
        if found is None:
            found = self._decode[n] = self._between(n)
        return found

    def _between(self, n: int) -> tuple[float, float]:
        """Interpolate between two tabulated numbers of sequences."""
        low, high = neighbours(n)
        if low == n:
            return self._line(n)
        share = (n - low) / (high - low)
        (a, b), (c, d) = self.decode(low), self.decode(high)
        # the part of the context is that of the sequences, so it is n B that is interpolated
        slope = (low * b + share * (high * d - low * b)) / n
        return a + share * (c - a), slope

    def _line(self, n: int) -> tuple[float, float]:
        low, high = self.contexts.low, self.contexts.high
        first = self.decode_of(n, low)
        each = (self.decode_of(n, high) - first) / (high - low) if high > low else 0.0
        return first - each * low, each / n

    def prompt(self, tokens: int, keys: float, n: int, prompts: int) -> float:
        """Time that prompt tokens add to a pass of `n` sequences; the whole pass if n is 0. [s]."""
        reading = min(self.ranks, prompts)
        return self._added_s(tokens, n, reading) + tokens / reading * self._attention_s(keys)

    def _added_s(self, tokens: int, n: int, reading: int) -> float:
        """Time added by the tokens at few keys, ``a + b / ranks`` with the ranks that read."""
        one = self._along_s(tokens, n, 1)
        if reading == 1:
            return one
        spread = self._along_s(tokens, n, self.ranks)
        return one + (spread - one) * (1.0 - 1.0 / reading) / (1.0 - 1.0 / self.ranks)

    def _along_s(self, tokens: int, n: int, reading: int) -> float:
        """Interpolate in the tokens: for each number of sequences a line between two nodes."""
        at = min(bisect_right(TOKENS, tokens), len(TOKENS) - 1)
        line = self._lines.get((at, n, reading))
        if line is None:
            low, high = TOKENS[at - 1], TOKENS[at]
            first = self._row_s(low, n, reading)
            slope = (self._row_s(high, n, reading) - first) / (high - low)
            line = self._lines[at, n, reading] = first - slope * low, slope
        return line[0] + line[1] * tokens

    def _row_s(self, tokens: int, n: int, reading: int) -> float:
        if n <= ALONGSIDE[0]:
            return self._node_s(tokens, n, reading)
        at = min(bisect_right(ALONGSIDE, n), len(ALONGSIDE) - 1)
        low, high = ALONGSIDE[at - 1], ALONGSIDE[at]
        share = (n - low) / (high - low)
        first = self._node_s(tokens, low, reading)
        return first + share * (self._node_s(tokens, high, reading) - first)

    def _node_s(self, tokens: int, n: int, reading: int) -> float:
        found = self._nodes.get((tokens, n, reading))
        if found is None:
            context = 0.5 * (self.contexts.low + self.contexts.high)
            along = Batch(sequences=n, context=context, tokens_each=self.each)
            batch = replace(
                along,
                prompt_tokens=tokens,
                prompt_context=KEYS[0],
                prompts=reading,
                prompt_ranks=reading,
            )
            alone = self.pass_of(along) if n else 0.0
            found = max(0.0, self.pass_of(batch) - alone)
            self._nodes[tokens, n, reading] = found
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
            batch = Batch(prompt_tokens=SAMPLE_TOKENS, prompt_context=keys, prompts=1.0)
            beyond = self.pass_of(batch) - self._node_s(SAMPLE_TOKENS, 0, 1)
            found = self._attention[keys] = max(0.0, beyond) / SAMPLE_TOKENS
        return found


def neighbours(n: int) -> tuple[int, int]:
    """Tabulated numbers of sequences around `n`; both are `n` where it is one of them.

    >>> neighbours(5), neighbours(8), neighbours(1500), neighbours(4096)
    ((4, 6), (8, 8), (1024, 2048), (4096, 4096))
    """
    top = SEQUENCES[-1]
    if n < top:
        at = bisect_right(SEQUENCES, n)
        low, high = SEQUENCES[at - 1], SEQUENCES[at]
    else:
        low = top << ((n // top).bit_length() - 1)
        high = 2 * low
    return (n, n) if low == n else (low, high)


def replica_table(
    model: ModelSpec,
    replica: Replica,
    site: ServingSite,
    contexts: ContextRange,
    extras: Extras | None = None,
) -> StepTable:
    """Table of a replica's passes.

    `replica`: layout, formats, drafts. With pipeline stages a pass goes through
    all of them with its share of the sequences. `site`: hardware and calibration. `contexts`:
    contexts of the load. `extras`: adapters, weights on the host.
    """
    pp, slow = replica.pp, extras.slowdown if extras is not None else 1.0
    drafted = 1 + (replica.drafts.n_tokens if replica.drafts else 0)

    def more_s(batch: Batch) -> float:
        return extras_s(model, replica, site, extras, batch) if extras is not None else 0.0

    def share(n: float) -> float:
        return max(1.0, n / pp) if n else 0.0

    def pass_of(batch: Batch) -> float:
        one = replace(batch, sequences=share(batch.sequences)) if pp > 1 else batch
        return slow * (kept_s(pass_time(model, replica, site, one), extras) + more_s(one))

    def decode_of(n: float, context: float) -> float:
        more = more_s(Batch(sequences=share(n), context=context, tokens_each=drafted))
        step = decode_step(model, replica, site, share(n), context)
        return slow * (kept_s(step.parts, extras) + step.draft_s + more)

    return StepTable(
        pass_of, decode_of, contexts, ranks=replica.dp_attention, drafted_tokens=drafted
    )
