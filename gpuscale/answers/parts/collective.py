"""`gpuscale collective`: one collective on a cluster, or a sweep over its size."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import ask, options
from gpuscale.core.dataclasses import KW_ONLY, dataclass
from gpuscale.core.network.algorithms import ALGORITHMS
from gpuscale.errors import unknown_name
from gpuscale.render.document import Document

ALIASES = {"ag": "allgather", "rs": "reducescatter", "ar": "allreduce", "a2a": "alltoall"}


ROUTINGS = ("bound", "with-replacement", "without-replacement")


def _op(value: str, label: str) -> str:
    """Read an operation, as nccl-tests or people write it."""
    from gpuscale.core.network.collective import OPS

    name = value.strip().lower().replace("_", "-")
    short = ALIASES.get(name, name).replace("-", "").replace("p2p", "sendrecv")
    if (op := next((op for op in OPS if op.replace("-", "") == short), None)) is None:
        raise unknown_name("collective", name, OPS, f"known: {', '.join(OPS)}")
    return op


def complete_op(incomplete: str) -> list[str]:
    """Names of collective operations."""
    from gpuscale.core.network.collective import OPS

    return [op for op in OPS if op.startswith(incomplete.strip().lower())]


@dataclass
class Collective(options.Wired, ask.Swept):
    """Time and bandwidth of one collective operation on a cluster.

    The ideal: each level's links full, levels pipelined, the slowest one sets the time.
    """

    NAME: ClassVar[str] = "collective"
    RESULTS: ClassVar[str] = (
        "parts.collective_answer:CollectiveAnswer parts.collective_answer:SizesAnswer"
    )
    EXAMPLE: ClassVar[str] = "gpuscale collective all-gather h100 --shape 4096x65536"
    HEADLINES: ClassVar[str] = (
        "time_s ring_s expected.time_s busbw_bytes_per_s expected.busbw_bytes_per_s binding_level"
    )
    OWN_SWEEP: ClassVar[bool] = True
    op: ask.Asked[str] = ask.Asked(
        "all-gather, reduce-scatter, all-reduce, all-to-all, broadcast, send-recv.",
        ...,
        _op,
        complete=complete_op,
    )
    cluster: ask.Asked[str] = ask.text(options.CLUSTER, ..., flags=("--gpu",))
    bytes: ask.Asked[float | None] = ask.amount(
        "Size of the array: all-gather: gathered; reduce-scatter, all-reduce: one GPU's buffer; "
        "all-to-all: the array over all GPUs.",
        "bytes",
        most=1e18,
    )
    _: KW_ONLY
    shape: ask.Asked[str | None] = ask.text("Shape of the array instead of --bytes, as 4096x65536.")
    dtype: ask.Asked[str] = ask.text("Number format of --shape.", "bf16")
    gpus: ask.Asked[int | None] = ask.whole(
        "GPUs spanned, an inner axis included. [default: one NVLink domain]", most=1e8
    )
    oversubscription: ask.Asked[float | None] = ask.amount(
        "Bandwidth down over up, of the switches above the nodes: 4.", "count", most=1000.0
    )
    algorithm: ask.Asked[str | None] = ask.text(
        "ring, tree, sharp (in the switches) or halving-doubling, for all-reduce. [default: as the "
        "library chooses]",
        known=ALGORITHMS,
    )
    inner: ask.Asked[int] = ask.whole(
        "Ways the array is sharded on another axis that lies innermost.", 1, most=1e8
    )
    top_k: ask.Asked[int | None] = ask.whole("Sparse all-to-all: destinations per token.", most=1e6)
    routing: ask.Asked[str] = ask.text(
        "Sparse all-to-all: bound (k/n at most), with-replacement, or without-replacement of "
        "--experts.",
        "bound",
        known=ROUTINGS,
    )
    experts: ask.Asked[int | None] = ask.whole(
        "Experts, for --routing without-replacement.", most=1e6
    )
    once_per_node: ask.Asked[bool] = ask.flag("All-to-all sends a token to a node only once.")
    per_gpu: ask.Asked[bool] = ask.flag("All-to-all: --bytes is one GPU's send buffer.")
    hop_latency: ask.Asked[float] = ask.amount(
        "Latency of one hop, as '1 us'; the ideal has none.", "s", 0.0, most=10.0, zero=True
    )
    sweep: ask.Converted[tuple[str, ...], ask.Sweeps] = ask.Converted(
        "Table over sizes, as 1KiB:10GiB; or over a key of --set or an option, as "
        "KEY=LOW..HIGH[:N] or KEY=A,B,C (once or twice).",
        (),
        ask.read_sweeps,
        kind="many",
        metavar="MIN:MAX[:FACTOR]",
    )
    switch_bytes: ask.Asked[bool] = ask.flag("Also count the bytes through the switches.")
    catalogue: ask.Asked[str] = options.catalogue()

    def answer(self) -> Document:
        """Time it, at one size or at several."""
        from gpuscale.answers.parts.collective_case import collective_document

        return collective_document(self)
