"""Kinds of context parallelism, one row each: what they need, what they exchange, their names.

Each rank holds ``seq_len / cp`` tokens of every sequence, in two chunks so that a causal mask gives
all the same work. Weights, activations and memory do not depend on the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuscale.core.dataclasses import NamedTuple, dataclass


class Exchange(NamedTuple):
    """One collective of the forward pass of a layer; the backward pass takes two of each."""

    op: str  # "gather": all-gather of `n_bytes` together; "all-to-all": `n_bytes` sent by a rank
    ranks: int
    apart: int  # distance of its ranks, in ranks of the context-parallel group
    n_bytes: float


class ContextShape(NamedTuple):
    """What a kind needs to know of a layer and its layout."""

    cp: int
    tp: int
    cp_ranks_in_domain: int  # of one group, that the scale-up domain joins
    tokens: float  # of one rank
    hidden_size: int
    kv_bytes: float  # K and V of one token, of one tensor rank


@dataclass(frozen=True, slots=True)
class ContextKind:
    """One kind; a row with a column left out cannot be made."""

    name: str
    needs: Callable[[int, int, Sequence[int], Sequence[int]], str]
    """(cp, tp, heads, KV heads of the mixers that have fewer): what is missing, or ""."""
    exchanges: Callable[[ContextShape], tuple[Exchange, ...]]
    by_block: bool  # keys come rank by rank, each behind a kernel; else the core waits for all
    source: str


def _nothing(cp: int, tp: int, heads: Sequence[int], kv_heads: Sequence[int]) -> str:
    return ""


def _heads(cp: int, tp: int, heads: Sequence[int], kv_heads: Sequence[int]) -> str:
    for n in heads:
        if (n // tp) % cp:
            return f"Ulysses cp={cp} does not divide {n}/{tp} heads"
    for n in kv_heads:
        if max(1, n // tp) % cp:
            return f"Ulysses cp={cp} does not divide {n}/{tp} KV heads"
    return ""


def _gathered(x: ContextShape) -> tuple[Exchange, ...]:
    """K and V of all ranks pass every rank."""
    return (Exchange("gather", x.cp, 1, x.tokens * x.cp * x.kv_bytes),)


def _resharded(x: ContextShape) -> tuple[Exchange, ...]:
    """Reshard queries and outputs, two bytes an element, and K and V, by heads and back."""
    n_bytes = x.tokens / x.tp * (2.0 * x.hidden_size * 2.0) + x.tokens * x.kv_bytes
    return (Exchange("all-to-all", x.cp, 1, n_bytes),)


CONTEXT_KINDS = {
    k.name: k
    for k in (
        ContextKind(
            name="ring",
            needs=_nothing,
            exchanges=_gathered,
            by_block=True,
            source="Liu et al. 2023, Ring Attention, arXiv:2310.01889",
        ),
        ContextKind(
            name="all-gather",
            needs=_nothing,
            exchanges=_gathered,
            by_block=False,
            source="The Llama 3 Herd of Models, arXiv:2407.21783, section 3.3.2",
        ),
        ContextKind(
            name="ulysses",
            needs=_heads,
            exchanges=_resharded,
            by_block=False,
            source="Jacobs et al. 2023, DeepSpeed Ulysses, arXiv:2309.14509",
        ),
    )
}
"""Kinds by name; the first is the default, allowed wherever another is."""

DEFAULT_CONTEXT = next(iter(CONTEXT_KINDS))
