"""Least time of a collective on two levels, by the algorithm in use: bytes over data-sheet rates.

The two-level case of `core.network.hierarchy` in closed form, for the training step's roofline
and as the floor under every expected time; a test holds both against each other.
"""

from __future__ import annotations

EXCHANGES = ("all-to-all", "moe-dispatch", "moe-combine")


def bound_s(
    op: str,
    size_bytes: float,
    n_ranks: float,
    n_in_domain: float,
    scaleup_bytes_per_s: float,
    scaleout_bytes_per_s: float,
    *,
    in_switch: bool = False,
) -> float:
    """Roofline of a collective: the slower of the scale-up domain and the network. [s].

    `op`: a name of `core.network.expected.OPS`. `size_bytes`: size as `expected_collective_time_s`
    counts it [byte]. `n_ranks, n_in_domain`: ranks of the group, and those that share a scale-up
    domain [1]. `scaleup_bytes_per_s, scaleout_bytes_per_s`: egress of one GPU inside and out of its
    domain, one direction [byte/s]. `in_switch`: the switches of the domain reduce, so that a buffer
    crosses a link once instead of 2 (n-1)/n times ("How to Scale Your Model", GPU chapter, "In
    network reductions").

    >>> round(1e3 * bound_s("all-reduce", 1e9, 8, 8, 450e9, 50e9), 3)  # ms
    3.889
    >>> round(1e3 * bound_s("all-reduce", 1e9, 8, 8, 450e9, 50e9, in_switch=True), 3)
    2.222
    """
    n, n_in = float(n_ranks), float(n_in_domain)
    n_out = n / n_in
    size, up, out = size_bytes, scaleup_bytes_per_s, scaleout_bytes_per_s
    if op in EXCHANGES:
        inner, outer = (n_in - 1.0) / n, (n - n_in) / n
    elif op in ("broadcast", "send-recv"):
        inner, outer = 1.0 if n_out == 1.0 or op == "broadcast" else 0.0, 1.0 / n_in
    else:
        passes = 2.0 if op == "all-reduce" else 1.0
        inner, outer = passes * (n_in - 1.0) / n_in, passes * (n_out - 1.0) / n_out / n_in
        if op == "all-reduce" and in_switch:
            inner = min(inner, 1.0)
    inner_s = inner * size / up if n_in > 1.0 and up > 0.0 else 0.0
    return max(inner_s, outer * size / out if n_out > 1.0 else 0.0)
