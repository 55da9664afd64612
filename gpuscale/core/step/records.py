"""Records of the step model: hardware and software as flat SI floats, shapes, results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from gpuscale.core.bounds import Among, Overhead, Within
from gpuscale.core.layout import CONTEXT_KINDS
from gpuscale.core.records import NamedTuple, dataclass, field, fields
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.settings import TUNED, Maturity

if TYPE_CHECKING:
    from gpuscale.core.kernel.calibration import ArchCalibration
    from gpuscale.core.memory.parameters import MemoryParameters
    from gpuscale.core.network.calibration import FabricCalibration


def exposed_s(window_s: float, comm_s: float, exposed_frac: float) -> float:
    """Communication time left after overlap: ``max(A, B) + c min(A, B) - A``.

    `window_s`: compute that may hide the communication, A [s]. `comm_s`: communication, B [s].
    `exposed_frac`: c: 0 hides all that fits, 1 hides nothing; above 1, contention slows the compute
    [1]. Returns: exposed time, never below 0 [s].

    >>> exposed_s(3.0, 2.0, 0.0), exposed_s(3.0, 2.0, 1.0), exposed_s(2.0, 3.0, 0.0)
    (0.0, 2.0, 1.0)
    """
    if comm_s <= 0.0:
        return 0.0
    if comm_s > window_s:
        return comm_s - window_s + exposed_frac * window_s
    return exposed_frac * comm_s


def pipeline_s(
    heaviest_s: float, all_stages_s: float, n_micro_batches: int, vpp: int, schedule: str
) -> tuple[float, float]:
    """(steady, bubble) time of a pipeline.

    ``m t_max + (sum of stages - t_max) / v``: the heaviest stage works all micro-batches, and the
    first one must pass all other stages (Narayanan et al. 2021, section 2.2, for equal stages).

    `heaviest_s`: forward and backward of one micro-batch on the slowest stage [s]. `all_stages_s`:
    the same summed over stages [s]. `n_micro_batches, vpp`: m and v [1]. `schedule`: member of
    `core.schedules.SCHEDULES`.

    >>> pipeline_s(2.0, 8.0, 8, 1, "1f1b")  # equal stages: bubble (p-1)/m
    (16.0, 6.0)
    """
    fill = max(0.0, all_stages_s - heaviest_s) * SCHEDULES[schedule].bubble / vpp
    return n_micro_batches * heaviest_s, fill


@dataclass(frozen=True, slots=True)
class StepForm:
    """Named factors of the step formulas; `presets/train/form.toml` has values and origins.

    The defaults are neutral, so that a record made by hand leaves the plain formulas.
    """

    hidden_pass_bytes: float = 8.0  # per token and width: norms, residuals, dropouts of a layer
    elementwise_launches: float = 0.0  # memory-bound kernels of half a layer
    elementwise_backward: float = 1.0  # their backward pass over their forward pass
    uncompiled_factor: float = 1.0  # their traffic in a compiled family that is not compiled
    flash_backward_flop: float = 2.5  # five multiplies over two: counted
    head_dim_exponent: float = 0.0  # of head_dim / 128 below 128, fused attention
    unfused_backward_traffic: float = 1.0  # over the forward pass
    unfused_launches: float = 0.0
    eager_passes: float = 0.0  # over the scores of an unfused core that nothing compiles
    ring_merge_bytes: float = 0.0  # per element of an output that a ring merges, and round
    scan_passes: float = 1.0  # of a scan's activations through memory
    scan_launches: float = 0.0
    host_norm: float = 4.0  # exponent of the soft maximum of GPU and CPU time
    host_backward: float = 1.0  # launch time of a backward pass over the forward pass
    host_moe: float = 1.0  # of a layer with experts over a dense one
    graph_layer_host_frac: float = 1.0  # launch time left with CUDA graphs of a layer
    graph_full_host_frac: float = 1.0  # and of the whole iteration
    graph_layer_expert_frac: float = 1.0  # the same of launches expert by expert
    unscaled_expert_frac: float = 1.0  # launches of one expert without block scales
    plain_ep_frac: float = 0.0  # least exposed share of a plain all-to-all
    overlapped_ep_frac: float = 1.0  # exposed all-to-all beside another micro-batch
    dualpipe_ep_frac: float = 1.0  # of the all-to-all, exposed under DualPipe
    per_op_recompute_frac: float = 0.0  # of the multiplies, torchtitan's policy
    norm_recompute_frac: float = 0.0  # of the memory-bound part
    act_recompute_frac: float = 0.0
    fused_loss_frac: float = 1.0  # passes of a fused cross entropy over the plain one
    compiled_loss_frac: float = 1.0  # the same of one that torch.compile fuses
    host_memory_bytes_per_s: float = 40e9  # share of one GPU in a CPU optimizer
    host_optimizer_bytes: float = 6.0  # per parameter over the host link
    adapter_eff_frac: float = 1.0  # rate of an adapter's thin products over large ones
    attention_half_tokens: float = 0.0  # of a sequence, at which half of a long one's gain is had
    offload_exposed_frac: float = 1.0  # of a parameter offload's transfers
    activations_exposed_frac: float = 1.0  # of the transfers of offloaded layer inputs

    def loss_frac(self, compiled: bool, fused: bool) -> float:
        """Return the passes of a cross entropy over those of the plain one. [1]."""
        if compiled:
            return self.compiled_loss_frac
        return self.fused_loss_frac if fused else 1.0

    def host_frac(self, graphs: str) -> float:
        """Return the launch time left under `none`, `layer` or `full` CUDA graphs. [1]."""
        left = {"layer": self.graph_layer_host_frac, "full": self.graph_full_host_frac}
        return left.get(graphs, 1.0)

    def expert_host_frac(self, graphs: str) -> float:
        """Return the launches expert by expert left under CUDA graphs. [1]."""
        left = {"layer": self.graph_layer_expert_frac, "full": self.graph_full_host_frac}
        return left.get(graphs, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Hardware:
    """A GPU in its cluster: data sheet figures and calibrated efficiencies, flat.

    Each is equal to itself alone, so that times are memoised by it without reading 60 values.

    Rates are peaks of the data sheet. `arch` and `fabric` are what kernels and collectives reach
    alone, as `matmul-time` and `collective` use them; each `_frac` is the share of that which is
    left in a training step. Each calibrated value carries its origin in the preset that it was
    read from. Without `arch` and `fabric`, the roofline.
    """

    name: str
    architecture: str
    bf16_flop_per_s: float
    fp8_flop_per_s: float  # 0: not offered, bf16 is used
    fp4_flop_per_s: float
    hbm_bytes: float
    hbm_bytes_per_s: float
    n_compute_units: int
    gpus_per_node: int
    scaleup_domain_gpus: int
    scaleup_bytes_per_s: float  # egress of one GPU into its domain, one direction
    scaleout_bytes_per_s: float  # egress of one GPU to the network, one direction
    host_link_bytes_per_s: float = 25e9
    fabric_class: str = "infiniband"
    l2_bytes: float = 0.0
    form: StepForm = field(default_factory=StepForm)
    in_switch_reduction: bool = False  # the scale-up switches can reduce
    # calibration: kernels
    arch: ArchCalibration | None = None
    product_bf16_frac: float = 1.0  # speed in a step over the kernel alone
    product_fp8_frac: float = 1.0
    product_fp4_frac: float = 1.0
    kernel_gap_s: float = 0.0  # before each multiply
    attention_eff: float = 1.0
    attention_backward_eff: float = 1.0  # relative to forward
    attention_ramp_tokens: float = 0.0
    hbm_eff: float = 1.0
    kernel_floor_s: float = 0.0
    misaligned_eff: float = 1.0  # a width that is no multiple of 64
    half_tile_eff: float = 1.0  # one that is none of 128: rows of 8 bits, or grouped
    head_misaligned_eff: float = 1.0  # head dim no multiple of 64, unfused attention
    head_odd_eff: float = 1.0  # head dim no multiple of 8
    unfused_gemm_eff: float = 1.0
    unfused_passes: float = 1.0  # traffic over the score matrix
    unfused_head_ramp: float = 0.0
    cross_entropy_passes: float = 1.0
    cast_passes: float = 0.0
    mxfp8_slowdown: float = 1.0
    grouped_eff: float = 1.0
    grouped_fp8_eff: float = 1.0
    permute_passes: float = 1.0
    router_s: float = 0.0
    expert_launch_s: float = 0.0  # CPU time of one local expert forward, fp8 casts included
    scan_eff: float = 1.0  # linear attention and state space cores, relative to attention
    optimizer_bytes_per_param: float = 28.0
    # calibration: fabric
    fabric: FabricCalibration | None = None
    scaleup_frac: float = 1.0  # bandwidth in a step over the collective alone
    scaleout_frac: float = 1.0
    all_to_all_frac: float = 1.0  # of experts, whose parts are unequal, over the even one
    scaleup_latency_factor: float = 1.0  # latency in a step over the collective alone
    scaleout_latency_factor: float = 1.0
    p2p_latency_s: float = 0.0
    straggler_per_log2_hosts: float = 0.0
    site_factor: float = 1.0  # measured over expected steps of a person's own site


Kernels = Annotated[str, Among(("2024", "2025", "2026a", "2026b", "untuned"))]


@dataclass(frozen=True, kw_only=True)
class FamilyStep:
    """What a framework family does in a step, as the top of its preset says it."""

    attention: Annotated[str, Among(("flash", "unfused"))] = "flash"
    gradient_bytes: Annotated[float, Within(1, 8)] = 2.0  # per parameter reduced
    bucket_params: Annotated[float, Within(0, 1e15)] = (
        0.0  # of one call of the exchange; 0: those of a layer
    )
    bucket_params_per_rank: Overhead = 0.0  # and at least so many for each of its ranks
    parameter_gather_bytes: Annotated[float, Within(0.5, 8)] = 2.0
    low_precision_gather: bool = False  # fp8 parameters gathered as one byte
    quantised_tp_gather: bool = False  # and inputs of products under sequence parallelism
    overlap_gather: bool = False  # ZeRO-1 weights come in behind the next forward pass
    zero1_all_reduce: bool = False  # ZeRO-1 all-reduces gradients, after the backward pass
    outer_shards: bool = False  # HSDP: optimizer states shared between the groups too
    stage_split: Annotated[str, Among(("even", "balanced", "greedy"))] = "even"  # `core.stages`
    scatter_gather: bool = False  # stages exchange 1/tp of an activation per rank, then gather:
    # Narayanan et al. 2021, section 4.1
    deduplicated_all_to_all: bool = False  # a token crosses to a node once
    rdma_dispatch: bool = False  # dedicated dispatch kernels, near the NIC's rate: DeepEP, HybridEP
    fused_cross_entropy: bool = False
    compiled: bool = True  # memory-bound operators fused, by a compiler or by hand
    compiled_loss: bool = False  # torch.compile makes one kernel of softmax and loss
    launches_experts: bool = True  # from the host, one by one; false where a compiler fuses them
    recompute_stops_early: bool = False  # full recompute leaves out the last projection
    # (torch.utils.checkpoint, early stop)
    moe_kernels: Kernels = "2026a"


@dataclass(frozen=True, kw_only=True)
class FittedStep:
    """The few physical parameters that a family's kernels and overlap set, fitted to runs."""

    elementwise_factor: float = 1.0  # memory-bound traffic relative to 20 B per token and width
    host_layer_s: float = 0.0  # CPU time to launch one layer forward
    step_host_s: float = 0.0
    tp_exposed_frac: float = 0.0  # c of max(A, B) + c min(A, B)
    dp_exposed_frac: float = 0.0
    pp_exposed_frac: float = 0.0
    cp_exposed_frac: float = 0.0
    ep_exposed_frac: float = 0.0
    dp_network_exposed_frac: float = 0.0  # where not fitted, as inside a node
    pipeline_launch_s: float = 0.0  # launch floor of a layer per tensor rank, pipeline over nodes
    gather_unoverlapped_frac: float = 0.0  # of the ZeRO-1 parameter all-gather
    gathers_per_layer: float = 1.0  # weight all-gathers of ZeRO-3, of which each pays latency


FITTED = tuple(f.name for f in fields(FittedStep))
ALWAYS_FITTED = FITTED[: FITTED.index("dp_network_exposed_frac")]
"""Those that every family has; the others are neutral where it has none."""


@dataclass(frozen=True, slots=True)
class Software(FamilyStep, FittedStep):
    """A framework family on one architecture, with what a run sets itself."""

    name: str
    host_tp_factor: float = 0.0  # more of `host_layer_s` with 8 tensor-parallel ranks
    flash_factor: float = 1.0  # attention efficiency relative to the architecture's best kernel
    dispatch_frac: float = 1.0  # bytes of a token on its way out, relative to 16 bits
    cuda_graphs: str = "none"  # "none" | "layer" | "full"
    overlap_ep: bool = False
    dualpipe: bool = False  # its two directions hide the all-to-all
    selective_per_op: bool = False  # `selective` means per operator
    recompute_modules: tuple[str, ...] = ("core_attn",)
    grouped_factor: float = 1.0  # MoE kernel generation: grouped matmul rate
    dispatch_factor: float = 1.0  # MoE kernel generation: permute and router time
    offload_layers: int = 0  # of a stage, whose activations wait on the host
    moment_bytes: float = 8.0  # of the optimizer, per parameter
    kept: MemoryParameters | None = None  # what a layer keeps, for the copies of offloaded ones
    expert_imbalance: float = 1.0  # tokens of the busiest rank of experts over the mean
    maturity: Maturity = TUNED  # how far somebody tuned the job


class Shape(NamedTuple):
    """Everything of a layout that the time of one layer depends on; the key to memoise by."""

    tp: int
    cp: int
    ep: int
    etp: int
    micro_batch_size: int
    seq_len: int
    precision: str
    recompute: str
    sequence_parallel: bool
    cp_kind: str
    overlap_tp: bool
    tp_stride: int = 1  # rank distances, see `ranks.strides`
    cp_stride: int = 1
    ep_stride: int = 1
    pp_crosses: bool = False  # the pipeline spans nodes

    @property
    def rounds(self) -> int:
        """Kernels in which a query meets its keys. [1]."""
        return self.cp if CONTEXT_KINDS[self.cp_kind].by_block else 1


class LayerTime(NamedTuple):
    """Seconds of one layer (or head) for one micro-batch; the parts add to fwd_s + bwd_s.

    `bwd_s` contains `recompute_s`. Attributes after the first two are the parts.
    """

    fwd_s: float = 0.0
    bwd_s: float = 0.0
    matmul_s: float = 0.0
    attention_s: float = 0.0
    elementwise_s: float = 0.0
    moe_s: float = 0.0
    tp_comm_s: float = 0.0
    cp_comm_s: float = 0.0
    ep_comm_s: float = 0.0
    recompute_s: float = 0.0
    host_s: float = 0.0
    offload_s: float = 0.0


class StageTimes(NamedTuple):
    """What the time of a step depends on, of all stages of a layout and one micro-batch."""

    fwd_s: float  # of the heaviest stage
    bwd_s: float
    n_layers: int
    all_stages_s: float  # forward and backward through all of them
    dense_params: float  # of the stage with the most weights, on one rank
    expert_params: float

    @property
    def seconds(self) -> float:
        """Forward and backward of one micro-batch on the heaviest stage. [s]."""
        return self.fwd_s + self.bwd_s


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Parts of one step on the critical path; they add up to `total_s`."""

    total_s: float
    matmul_s: float = 0.0
    attention_s: float = 0.0
    elementwise_s: float = 0.0
    moe_s: float = 0.0
    tp_comm_s: float = 0.0
    cp_comm_s: float = 0.0
    ep_comm_s: float = 0.0
    recompute_s: float = 0.0
    host_s: float = 0.0
    offload_s: float = 0.0
    bubble_s: float = 0.0
    pp_comm_s: float = 0.0
    dp_comm_s: float = 0.0
    optimizer_s: float = 0.0
    straggler_s: float = 0.0
    untuned_s: float = 0.0  # what jobs of this maturity lose beyond all other terms

    @property
    def late_s(self) -> float:
        """What is lost to no part alone: the slowest host, and what nobody tuned. [s]."""
        return self.straggler_s + self.untuned_s

    def parts(self) -> dict[str, float]:
        """Name -> seconds of every part; the values add up to `total_s`."""
        return {name: getattr(self, name) for name in PARTS}


PARTS = tuple(f.name for f in fields(Breakdown))[1:]
"""Names of the parts of a step, in the order of the breakdown."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """Time of one training step, ideal and expected, with its parts."""

    roofline_s: float
    expected_s: float
    roofline: Breakdown
    expected: Breakdown
    model_flop: float  # of the whole step, all GPUs, without recompute
    hardware_flop: float  # with recompute
    mfu: float
    hfu: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    n_gpus: int
    n_micro_batches: int
    bubble_frac: float
    heaviest_stage: int
    low_s: float = 0.0  # 80 % interval; 0 where no interval was asked for
    high_s: float = 0.0
    notes: tuple[str, ...] = field(default_factory=tuple)
