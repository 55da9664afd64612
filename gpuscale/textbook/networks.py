"""Networks and collectives: formulas that only the documents ask for."""

from __future__ import annotations

from gpuscale.core.network.all_to_all import reached_frac
from gpuscale.core.network.collective import check_ranks, latency_steps, traffic_factor

NVLINK_LINKS: dict[int, tuple[float, int]] = {
    1: (20e9, 4),  # P100
    2: (25e9, 6),  # V100
    3: (25e9, 12),  # A100
    4: (25e9, 18),  # H100
    5: (50e9, 18),  # B200, GB200
}
"""NVLink generation -> bandwidth of one link one way [byte/s], links per GPU."""


def all_to_all_time_s(
    array_bytes: float,
    n_ranks: int,
    link_bytes_per_s: float,
    top_k: int | None = None,
    kind: str = "top-k",
    n_experts: int | None = None,
    hop_s: float = 0.0,
) -> float:
    """Ideal all-to-all among ranks with equal links and full connection. [s].

    ``hop + reached * array (n-1) / (n^2 link)``

    Examples
    --------
    >>> round(all_to_all_time_s(1e9, 8, 450e9) * 1e6, 3)  # us
    243.056
    >>> round(all_to_all_time_s(1e9, 8, 450e9, top_k=4) * 1e6, 3)
    121.528
    """
    check_ranks(n_ranks, link_bytes_per_s, array_bytes)
    if n_ranks == 1:
        return 0.0
    reached = reached_frac(n_ranks, top_k, kind, n_experts)
    return hop_s + reached * array_bytes * (n_ranks - 1) / (n_ranks**2 * link_bytes_per_s)


def torus_all_to_all_s(array_bytes: float, axis_bytes_per_s: float) -> float:
    """All-to-all on one ring of a TPU torus, of any size: B / (4 W), W both ways of an axis. [s].

    Examples
    --------
    >>> from gpuscale.core.network.all_to_all import torus_bisection_time_s
    >>> torus_all_to_all_s(1e9, 100e9) == torus_bisection_time_s(1e9, (16,), 50e9)
    True
    """
    check_ranks(1, axis_bytes_per_s, array_bytes)
    return array_bytes / (4 * axis_bytes_per_s)


def nodes_all_to_all_time_s(
    array_bytes: float, n_nodes: int, node_egress_bytes_per_s: float, reached: float = 1.0
) -> float:
    """All-to-all over nodes, by the traffic out of one node. [s].

    ``reached * array (M-1) / (M^2 W_node)``

    Examples
    --------
    >>> round(nodes_all_to_all_time_s(1e9, 2, 400e9) * 1e6, 3)  # us
    625.0
    """
    check_ranks(n_nodes, node_egress_bytes_per_s, array_bytes)
    return reached * array_bytes * (n_nodes - 1) / (n_nodes**2 * node_egress_bytes_per_s)


def collective_time_s(
    op: str,
    array_bytes: float,
    n_ranks: int,
    link_bytes_per_s: float,
    hop_s: float = 0.0,
    algorithm: str = "ring",
) -> float:
    """Ideal time of a collective among ranks with equal links.

    ``steps * hop + factor * array / link``, with `latency_steps` and `traffic_factor`.

    Parameters
    ----------
    op : str
        all-gather, reduce-scatter, all-reduce, broadcast or send-recv.
    array_bytes : float
        Bytes of the full array, as the module's docstring says for each operation. [byte]
    n_ranks : int
        Ranks; 1 takes no time. [1]
    link_bytes_per_s : float
        Bandwidth out of one rank, one direction. [byte/s]
    hop_s : float
        Latency of one hop. [s]
    algorithm : str
        ring, tree or sharp (all-reduce only; the others have one form).

    Examples
    --------
    >>> round(collective_time_s("all-gather", 4096 * 65536 * 2, 8, 450e9) * 1e3, 4)  # ms
    1.0439
    >>> round(collective_time_s("all-reduce", 1e9, 8, 450e9, algorithm="sharp") * 1e3, 3)
    2.222
    """
    check_ranks(n_ranks, link_bytes_per_s, array_bytes)
    latency = latency_steps(op, n_ranks, algorithm) * hop_s
    return latency + traffic_factor(op, n_ranks, algorithm) * array_bytes / link_bytes_per_s


def ring_sent_bytes(array_bytes: float, n_ranks: int) -> float:
    """Bytes that each rank sends in a ring all-reduce: 2 (n-1)/n of the buffer.

    Examples
    --------
    >>> ring_sent_bytes(26e9, 8) / 1e9
    45.5
    """
    return traffic_factor("all-reduce", n_ranks) * array_bytes


def in_switch_gain(n_ranks: int) -> float:
    """Ring over in-switch all-reduce time: 2 (n-1)/n (1.75 for 8 ranks, 2 for many)."""
    return traffic_factor("all-reduce", n_ranks) / traffic_factor("all-reduce", n_ranks, "sharp")


def links_bytes_per_s(link_bytes_per_s: float, n_links: int) -> float:
    """Bandwidth of several links together. [byte/s].

    Examples
    --------
    >>> links_bytes_per_s(*NVLINK_LINKS[4])
    450000000000.0
    """
    return link_bytes_per_s * n_links


def bits_to_bytes_per_s(bits_per_s: float) -> float:
    """Network text is in bits: 400 Gb/s is 50 GB/s. [byte/s]."""
    return bits_per_s / 8


def coded_bits_per_s(bits_per_s: float, data_bits: int = 64, coded_bits: int = 66) -> float:
    """Reduce a rate by a line code; NDR's 400 Gb/s are already after coding."""
    return bits_per_s * data_bits / coded_bits
