"""The one overlap form: how much of a communication remains visible beside a compute window."""

from __future__ import annotations


def exposed_s(window_s: float, comm_s: float, exposed_frac: float) -> float:
    """Communication time left after overlap: ``max(A, B) + c min(A, B) - A``.

    `window_s`: compute that may hide the communication, A [s]. `comm_s`: communication, B [s].
    `exposed_frac`: c: 0 hides all that fits, 1 hides nothing; above 1, contention slows the compute
    [1]. Returns: exposed time, never below 0 [s].

    Examples
    --------
    >>> exposed_s(3.0, 2.0, 0.0), exposed_s(3.0, 2.0, 1.0), exposed_s(2.0, 3.0, 0.0)
    (0.0, 2.0, 1.0)
    """
    if comm_s <= 0.0:
        return 0.0
    if comm_s > window_s:
        return comm_s - window_s + exposed_frac * window_s
    return exposed_frac * comm_s
