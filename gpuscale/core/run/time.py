"""Training arithmetic: FLOP, time, throughput, utilisation, scaling, exposed communication.

Formulas of "How to Scale Your Model" (chapter on training), the multi-GPU Q&A and the lecture
notes on large-scale training.
"""

from __future__ import annotations

import math

from gpuscale.core.model.layer_shape import six_p_flop_per_token

SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0


def require_positive(**values: float) -> None:
    """Refuse values that are not above 0; their names are those of the caller."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def training_flop(n_params: float, n_tokens: float) -> float:
    """Model FLOP of training: ``6 P T``.

    Counts the matrix products with parameters alone; attention adds ``12 L h s`` per token.

    `n_params`: parameters; of a mixture of experts the active ones [1]. `n_tokens`: tokens seen
    [1]. Returns: FLOP of all steps together [FLOP].
    """
    return six_p_flop_per_token(n_params) * n_tokens


def cluster_flop_per_s(n_gpus: float, peak_flop_per_s: float, mfu_frac: float = 1.0) -> float:
    """Rate of `n_gpus` at a fraction of their peak. [FLOP/s]."""
    return n_gpus * peak_flop_per_s * mfu_frac


def job_time_s(flop: float, flop_per_s: float, utilisation_frac: float = 1.0) -> float:
    """Time of a job at a fraction of a rate. [s].

    Raises ValueError if the rate or the fraction is not positive.
    """
    require_positive(flop_per_s=flop_per_s, utilisation_frac=utilisation_frac)
    return flop / (flop_per_s * utilisation_frac)


def training_time_s(
    n_params: float,
    n_tokens: float,
    n_gpus: float,
    flop_per_s_per_gpu: float,
    mfu_frac: float = 1.0,
) -> float:
    """Time to train on `n_tokens`, or of one step when they are the tokens of one batch. [s].

    `n_params`: parameters; of a mixture of experts the active ones [1]. `n_tokens`: tokens [1].
    `n_gpus`: GPUs [1]. `flop_per_s_per_gpu`: peak of one GPU, or its achieved rate with `mfu_frac`
    1 [FLOP/s]. `mfu_frac`: model FLOP utilisation, 0 to 1 [1].

    >>> round(training_time_s(70e9, 15e12, 4096, 990e12, 0.45) / 86400, 2)  # days
    39.96
    """
    rate = cluster_flop_per_s(n_gpus, flop_per_s_per_gpu)
    return job_time_s(training_flop(n_params, n_tokens), rate, mfu_frac)


def batch_tokens(seq_len: float, n_sequences: float, n_replicas: float = 1) -> float:
    """Tokens of one step: sequence length x sequences x data-parallel replicas. [1]."""
    return seq_len * n_sequences * n_replicas


def tokens_per_s(step_tokens: float, step_s: float) -> float:
    """Throughput of a step. [token/s]."""
    require_positive(step_s=step_s)
    return step_tokens / step_s


def gpu_hours(n_gpus: float, time_s: float) -> float:
    """GPU time. [GPU-hour]."""
    return n_gpus * time_s / SECONDS_PER_HOUR


def rental_usd(n_gpus: float, time_s: float, usd_per_gpu_hour: float) -> float:
    """Price of renting GPUs. [USD]."""
    return n_gpus * time_s / SECONDS_PER_HOUR * usd_per_gpu_hour


def utilisation(achieved_flop_per_s: float, peak_flop_per_s: float) -> float:
    """Fraction of the peak that a rate is. [1]."""
    require_positive(peak_flop_per_s=peak_flop_per_s)
    return achieved_flop_per_s / peak_flop_per_s


def mfu(
    n_params: float, step_tokens: float, step_s: float, n_gpus: float, peak_flop_per_s: float
) -> float:
    """Model FLOP utilisation of a measured step: useful FLOP over peak x time.

    `n_params`: parameters; of a mixture of experts the active ones [1]. `step_tokens`: tokens of
    the whole step [1]. `step_s`: time of the whole step [s]. `n_gpus`: GPUs [1]. `peak_flop_per_s`:
    dense peak of one GPU [FLOP/s]. Returns: 0 to 1 for a possible step; above 1 the input is wrong
    (errata E7) [1].

    >>> round(mfu(13e9, 65536, 0.850, 1, 312e12), 2)  # printed as "measured" in the Q&A
    19.28
    """
    return training_time_s(n_params, step_tokens, n_gpus, peak_flop_per_s) / step_s


def share(part: float, *others: float) -> float:
    """Fraction that a part is of the sum of all parts, e.g. communication of a step. [1]."""
    whole = part + math.fsum(others)
    if whole <= 0:
        raise ValueError("the parts must add up to more than 0")
    return part / whole


def exposed_s(communication_s: float, hidden_frac: float) -> float:
    """Communication left visible when a fraction is hidden under compute. [s]."""
    if not 0 <= hidden_frac <= 1:
        raise ValueError(f"hidden_frac must be between 0 and 1, got {hidden_frac}")
    return communication_s * (1 - hidden_frac)


def padded_mean(mean_tokens: float, max_tokens: float, n_sequences: int) -> float:
    """Mean length that `n_sequences` of varied length are padded to, the longest of them. [token].

    Lengths are taken as exponential about their mean and cut at the maximum: the longest of n has
    the mean times the n-th harmonic number (order statistics; Renyi 1953).

    >>> padded_mean(200.0, 2048.0, 1), round(padded_mean(200.0, 2048.0, 4))
    (200.0, 417)
    """
    if mean_tokens == max_tokens:
        return float(max_tokens)
    longest = mean_tokens * math.fsum(1.0 / k for k in range(1, n_sequences + 1))
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
