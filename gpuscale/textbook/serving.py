"""Serving: formulas that only the documents ask for."""

from __future__ import annotations

from collections.abc import Sequence

from gpuscale.core.formats import element_bytes


def attention_crossover(hidden_size: float, causal: bool = False) -> float:
    """Sequence length from which attention costs more FLOP than the linear layers: ``6 h``.

    From ``4 s h = 24 h^2`` per token and layer (MHA, ffn 4h); a causal kernel doubles it. [1]

    Examples
    --------
    >>> attention_crossover(8192), attention_crossover(8192, causal=True)
    (49152, 98304)
    """
    return (12 if causal else 6) * hidden_size


def static_batching_efficiency(output_lengths: Sequence[float]) -> float:
    """Find the useful share of a static batch, which runs until its longest sequence ends. [1].

    Examples
    --------
    >>> static_batching_efficiency([100, 200, 400, 800])
    0.46875
    """
    if not output_lengths or min(output_lengths) <= 0:
        raise ValueError("output lengths must be positive, and at least one")
    return sum(output_lengths) / len(output_lengths) / max(output_lengths)


def byte_ratio(from_dtype: str, to_dtype: str) -> float:
    """Divide bytes per element before by those after a change of number format. [1].

    Examples
    --------
    >>> byte_ratio("fp16", "int4")
    4.0
    """
    return element_bytes(from_dtype) / element_bytes(to_dtype)


def quantised_speed_up(
    from_dtype: str, to_dtype: str, from_flop_per_s: float, to_flop_per_s: float
) -> float:
    """Largest speed-up by quantisation that holds for prefill and for decode. [1].

    Decode gains at most the ratio of bytes, prefill that of the rates; the lower of the two.

    Examples
    --------
    >>> quantised_speed_up("fp16", "int8", 312e12, 624e12)
    2.0
    """
    if from_flop_per_s <= 0:
        raise ValueError(f"from_flop_per_s must be positive, got {from_flop_per_s}")
    return min(byte_ratio(from_dtype, to_dtype), to_flop_per_s / from_flop_per_s)


def cards_at_equal_price(
    job_flop: float,
    one_flop_per_s: float,
    two_flop_per_s: float,
    communication_s: float,
    fits_one: bool = True,
) -> int:
    """One card, or two of half the price each: the number with the shorter time.

    ``T1 = job / C1``, ``T2 = job / (2 C2) + communication``

    Parameters
    ----------
    job_flop : float
        Work. [FLOP]
    one_flop_per_s, two_flop_per_s : float
        Rate of the single card, and of each of the two. [FLOP/s]
    communication_s : float
        What the two exchange, exposed. [s]
    fits_one : bool
        Whether the job fits the memory of the single card.

    Returns
    -------
    int
        1 or 2; 1 if the times are equal. [1]

    Examples
    --------
    >>> cards_at_equal_price(1e15, 2e14, 1e14, 0.01)
    1
    """
    if not fits_one:
        return 2
    one_s = job_flop / one_flop_per_s
    return 1 if one_s <= job_flop / (2 * two_flop_per_s) + communication_s else 2
