"""Lengths of sequences: what padding and packing make of a mean and a maximum."""

from __future__ import annotations


def padded_mean(mean_tokens: float, max_tokens: float, n_sequences: int) -> float:
    """Mean length that `n_sequences` of varied length are padded to, the longest of them. [token].

    Lengths are taken as exponential about their mean and cut at the maximum: the longest of n has
    the mean times the n-th harmonic number (order statistics; Renyi 1953).

    >>> padded_mean(200.0, 2048.0, 1), round(padded_mean(200.0, 2048.0, 4))
    (200.0, 417)
    """
    if mean_tokens == max_tokens:
        return float(max_tokens)
    longest = mean_tokens * sum(1.0 / k for k in range(1, n_sequences + 1))
    return float(min(longest, max_tokens))


def token_mean(mean_tokens: float, max_tokens: float) -> float:
    """Mean length of the example that a token is in: twice the mean of exponential lengths. [1].

    Attention of packed examples costs as if all had this length: the mean of squares over the mean.
    `mean_tokens, max_tokens`: of the examples [tokens]. Inspection paradox: Feller, An Introduction
    to Probability Theory and Its Applications, vol. 2, I.4.

    >>> token_mean(500, 4096), token_mean(3000, 4096)
    (1000, 4096)
    """
    return min(2 * mean_tokens, max_tokens)
