"""What is asked of the parts of a job: one product, a collective, a network, a model."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import ask, options
from gpuscale.answers.ask import Asked, Swept, amount, flag, text, whole
from gpuscale.core.fabric import TOPOLOGIES
from gpuscale.core.network.collective import ALGORITHMS, OPS
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.render.document import Document


@dataclass
class MatmulTime(Swept):
    """Time of one matrix product or elementwise operation on one GPU.

    The roofline is a lower bound: each operand moved once, compute and memory overlapped.
    """

    NAME: ClassVar[str] = "matmul-time"
    RESULTS: ClassVar[str] = "parts.matmul_time_answer:KernelAnswer"
    EXAMPLE: ClassVar[str] = "gpuscale matmul-time b200 64 4096 8192 --dtype bf16"
    HEADLINES: ClassVar[str] = "time_s expected.time_s bound"
    gpu: Asked[str] = text("GPU preset, TOML file or -.", ...)
    m: Asked[int] = whole("Rows M of [M,K] x [K,N]; with --op the elements.", ..., label="M")
    k: Asked[int | None] = whole("Inner dimension K.", label="K")
    n: Asked[int | None] = whole("Columns N.", label="N")
    _: KW_ONLY
    dtype: Asked[str | None] = text(
        "Number format of all operands. [default: bf16, or the GPU's best 16]"
    )
    dtypes: Asked[str | None] = text("Formats of the operands and the result.", metavar="X,W,OUT")
    batch: Asked[int] = whole("Independent products.", 1, most=1e9)
    groups: Asked[int] = whole(
        "Weights that the M rows are divided among (grouped product).", 1, most=1e9
    )
    op: Asked[str | None] = text(
        "Elementwise instead: add, mul, scale, relu, axpy, fma, copy, sum, dot."
    )
    efficiency: Asked[float | None] = amount(
        "Also show the time at this share of the roofline, as 0.78.", "frac", most=1.0
    )
    catalogue: Asked[str] = options.catalogue()

    def answer(self) -> Document:
        """Time the product, or the elementwise operation."""
        from gpuscale.answers.parts.matmul_time_answer import elementwise_document, matmul_document
        from gpuscale.io.inputs import load_inputs

        loaded = load_inputs(self, gpu=self.gpu, catalogue=self.catalogue)
        sizes = [size for size in (self.m, self.k, self.n) if size is not None]
        if self.op is not None:
            for name, usual in (("dtypes", None), ("batch", 1), ("groups", 1)):
                if getattr(self, name) != usual:
                    raise GpuscaleError(f"--{name} has no meaning with --op")
            return elementwise_document(self, loaded, self.op, sizes)
        if len(sizes) < 3:
            raise GpuscaleError(
                "M, K and N are wanted for a matrix product",
                "for example `gpuscale matmul-time b200 64 4096 8192`; one size goes with --op add",
            )
        if max(sizes) > 1e10:
            raise GpuscaleError(f"M, K and N must be at most 1e10, got {max(sizes):g}")
        return matmul_document(self, loaded, sizes)


ALIASES = {"ag": "allgather", "rs": "reducescatter", "ar": "allreduce", "a2a": "alltoall"}


ROUTINGS = ("bound", "with-replacement", "without-replacement")


def _op(value: str, label: str) -> str:
    """Read an operation, as nccl-tests or people write it."""
    name = value.strip().lower().replace("_", "-")
    short = ALIASES.get(name, name).replace("-", "").replace("p2p", "sendrecv")
    if (op := next((op for op in OPS if op.replace("-", "") == short), None)) is None:
        raise unknown_name("collective", name, OPS, f"known: {', '.join(OPS)}")
    return op


def complete_op(incomplete: str) -> list[str]:
    """Names of collective operations."""
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


MOST_GPUS = 10_000_000
TOPOLOGY_WORDS = {
    "rail-optimized": "rail-optimised",
    "rail": "rail-optimised",
    "fattree": "fat-tree",
    "clos": "fat-tree",
    "leaf-spine": "fat-tree",
    "spine-leaf": "fat-tree",
}


@dataclass
class Network(Swept):
    """Design of a network: bandwidth of every level, switches, cables, power, price, failures.

    Of a preset, a cluster file, or a wish: `--gpus 8192 --oversubscription 7 --switch QM9700`.
    `network check FILE` holds a cable list (CSV) against ports, evenness, rails, planes.
    Bandwidths are one direction, except the bisection per level, which adds both.
    """

    NAME: ClassVar[str] = "network"
    EXAMPLE: ClassVar[str] = "gpuscale network h100-superpod --gpus 1024"
    RESULTS: ClassVar[str] = "parts.network_blocks:NetworkAnswer parts.network_blocks:CableCheck"
    HEADLINES: ClassVar[str] = (
        "collective_bytes_per_s slowest_level n_switches n_leaf_switches n_spine_switches "
        "n_core_switches n_cables"
    )
    cluster: Asked[str | None] = text(
        f"{options.CLUSTER} Or `check` and a file. [default: {options.DEFAULT_CLUSTER}]",
        complete="cluster",
        flags=("--gpu",),
    )
    file: Asked[str | None] = text("Cable list to check, as CSV.")
    _: KW_ONLY
    gpus: Asked[int | None] = whole("GPUs in use; default: all, or 1024.", most=MOST_GPUS)
    hosts: Asked[int | None] = whole(
        "Hosts of one port each instead of GPUs in nodes, as of any network.", most=MOST_GPUS
    )
    switch: Asked[str | None] = text("Switch preset, e.g. QM9700, or a TOML file.")
    radix: Asked[int | None] = whole(
        "Ports of a switch, instead of its own.", least=2, most=10_000, flags=("--ports",)
    )
    topology: Asked[str | None] = text(
        f"{', '.join(TOPOLOGIES)}.", known=TOPOLOGIES, same=TOPOLOGY_WORDS
    )
    oversubscription: Asked[str | None] = text(
        "Bandwidth down over up, of the leaf, or of each tier from the leaf up: 7, or 1,7."
    )
    tiers: Asked[int | None] = whole("Tiers of switches, instead of as few as reach.", most=5)
    planes: Asked[int | None] = whole(
        "Separate networks over which the ports of a NIC are spread.", most=64
    )
    dual_tor: Asked[bool] = flag("Two ports of a NIC end on the two leafs of a pair.")
    nics: Asked[int | None] = whole("NICs of a node (rails).", most=256)
    ports_per_nic: Asked[int | None] = whole("Ports of a NIC, one link each.", most=64)
    gpus_per_node: Asked[int | None] = whole("GPUs of a node.", most=4096)
    link: Asked[float | None] = amount("Speed of one port of a NIC, e.g. 400Gb/s.", "bytes_per_s")
    uplink: Asked[float | None] = amount("Speed of a link between switches.", "bytes_per_s")
    rack: Asked[int | None] = whole(
        "GPUs of a rack: leafs on top of racks, one each.", most=100_000
    )
    zones: Asked[int | None] = whole("Separate copies of the network.", most=1000)
    zone_switches: Asked[int | None] = whole("Switches that join the zones.", least=0, most=1e6)
    manager_ports: Asked[int | None] = whole(
        "Host ports that the fabric manager takes.", least=0, most=1e4
    )
    shape: Asked[str | None] = text("Torus: 16x16x16; dragonfly: p,a,h,g; dragonfly+: groups.")
    switch_price: Asked[str | None] = text("Price of a switch, e.g. '36000 USD'.")
    link_price: Asked[str | None] = text("Price of an optical link with both modules, in USD.")
    switch_power: Asked[float | None] = amount("Power of a switch's chassis, e.g. '900 W'.", "w")
    cables: Asked[bool] = flag("List the cables, end by end; with --format csv alone.")
    catalogue: Asked[str] = options.catalogue()

    def answer(self) -> Document:
        """Design the network, or check a cable list."""
        if self.cluster == "check":
            from gpuscale.answers.parts.network_check import check_document

            return check_document(self)
        if self.file is not None:
            raise GpuscaleError(
                f"`{self.file[:60]}`: one cluster is designed at a time",
                "a cable list is checked by `gpuscale network check FILE`",
            )
        from gpuscale.answers.parts.network_answer import network_document

        return network_document(self)


@dataclass
class Model(Swept):
    """Layers, parameters, FLOP per token and KV cache of a model.

    Active counts are of one token; multi-token prediction is kept apart.
    """

    NAME: ClassVar[str] = "model"
    RESULTS: ClassVar[str] = "parts.model_answer:ModelAnswer parts.model_answer:ModelToml"
    EXAMPLE: ClassVar[str] = "gpuscale model deepseek-v3 --seq-len 4096"
    HEADLINES: ClassVar[str] = "params active_params training_flop_per_token kv_bytes_per_token"
    model: Asked[str] = options.model(...)
    _: KW_ONLY
    seq_len: Asked[int | None] = options.seq_len()
    kv_bytes: Asked[float] = amount(
        "Bytes per element of the KV cache: 2 bf16, 1 fp8.", "bytes", 2.0, most=16
    )
    toml: Asked[bool] = flag("Print the model as TOML, to edit and pass back in.")

    def answer(self) -> Document:
        """Count it."""
        from gpuscale.answers.parts.model_answer import model_document

        return model_document(self)
