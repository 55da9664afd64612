"""The commands as functions: `gpuscale.memory("llama3-70b", tp=8, pp=8)` and its sisters.

Written by tools/make_api.py from the commands, which they call: the same checks, the same numbers.
A number may be given as a number in SI units or as a text with a unit. What the command line
refuses is raised as `gpuscale.GpuscaleError`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from gpuscale.answer import Answer, Settings, Sweeps, Value, answer
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.gpu import GpuSpec
    from gpuscale.specs.model import ModelSpec

__all__ = [
    "Answer",
    "GpuscaleError",
    "collective",
    "explain",
    "load_cluster",
    "load_gpu",
    "load_model",
    "matmul_time",
    "memory",
    "model",
    "network",
    "plan",
    "roofline",
    "timeline",
    "validate",
]


def load_gpu(name: str, catalogue: str = "vendor") -> GpuSpec:
    """Figures of a GPU: preset name or TOML file.

    Examples
    --------
    >>> load_gpu("h100").hbm_bytes_per_s
    3350000000000.0
    """
    from gpuscale.io.hardware import load_gpu as load

    return load(name, catalogue)


def load_cluster(name: str, catalogue: str = "vendor") -> ClusterSpec:
    """Figures of a cluster: preset name, GPU name (its usual node) or TOML file.

    Examples
    --------
    >>> load_cluster("dgx-h100").node_egress_bytes_per_s
    400000000000.0
    """
    from gpuscale.io.hardware import load_cluster as load

    return load(name, catalogue)


def load_model(name: str) -> ModelSpec:
    """Shape of a model: preset name, TOML file or Hugging Face ``config.json``.

    What had to be assumed is told by `warnings.warn`.

    Examples
    --------
    >>> load_model("llama3-70b").hidden_size
    8192
    """
    from gpuscale.io.models import load_model as load

    found = load(name)
    for text in found.warnings:
        warnings.warn(text, stacklevel=2)
    return found.spec


def plan(
    model: str | None = None,
    *,
    gpus: Value | None = None,
    cluster: str | None = None,
    catalogue: str | None = None,
    seq_len: Value | None = None,
    batch_tokens: Value | None = None,
    global_batch: Value | None = None,
    tokens: Value | None = None,
    precision: str | None = None,
    software: str | None = None,
    objective: str | None = None,
    price: Value | None = None,
    job: str | None = None,
    show_job: bool = False,
    tp: Value | None = None,
    pp: Value | None = None,
    vpp: Value | None = None,
    dp: Value | None = None,
    cp: Value | None = None,
    cp_kind: str | None = None,
    ep: Value | None = None,
    etp: Value | None = None,
    zero: Value | None = None,
    shard_group: Value | None = None,
    micro_batch: Value | None = None,
    sequence_parallel: str | None = None,
    recompute: str | None = None,
    recompute_layers: Value | None = None,
    schedule: str | None = None,
    overlap_tp: str | None = None,
    overlap_dp: str | None = None,
    overlap_pp: str | None = None,
    offload: str | None = None,
    order: Value | None = None,
    alternatives: int = 3,
    sensitivity: bool = False,
    pareto: bool = False,
    deadline: Value | None = None,
    budget: Value | None = None,
    mfu_at_least: Value | None = None,
    max_step_time: Value | None = None,
    scaling: Value | None = None,
    serve: bool = False,
    weights: str | None = None,
    kv: str | None = None,
    context: Value | None = None,
    concurrency: Value | None = None,
    set: Settings = (),
    sweep: Sweeps = (),
    sweep_show: str | None = None,
    calibration: str | None = None,
) -> Answer:
    """Best layout of a training job on a cluster, its time, memory and cost.

    Every dimension that is not pinned is searched; the layout printed is the best of all.

    Parameters
    ----------
    model : str, optional
        Model preset, TOML file, Hugging Face config or -.
    gpus : Value, optional
        GPUs; a range 512..16384 or a list is a scan.
    cluster : str, optional
        Cluster, or several, comma-separated. [default: dgx-h100]
    catalogue : str, optional
        Hardware figures: vendor, or documents (as they round).
    seq_len : Value, optional
        Tokens of a sequence. [default: 8192]
    batch_tokens : Value, optional
        Tokens of a step, rounded to sequences that divide well. [default: the model's, or 4M]
    global_batch : Value, optional
        Sequences of a step, exactly.
    tokens : Value, optional
        Tokens of the whole run, e.g. 15T. [default: the model's]
    precision : str, optional
        bf16, fp16, fp8, mxfp8, nvfp4, a list, or all. [default: bf16]
    software : str, optional
        Framework family preset. [default: megatron-core]
    objective : str, optional
        step-time, tokens-per-dollar, memory-headroom or fewest-gpus.
    price : Value, optional
        Of a GPU, e.g. '2.5 USD/h', or a=2USD/h,b=3USD/h by cluster.
    job : str, optional
        Read the job from a file.
    show_job : bool, optional
        Print the job as plan.toml, to edit and reuse.
    tp : Value, optional
        Tensor parallelism: one value, a list or a range: 8, 1,3, 4..16.
    pp : Value, optional
        Pipeline stages.
    vpp : Value, optional
        Interleaved chunks of a stage.
    dp : Value, optional
        Whole replicas: leaves out ZeRO-3 unless `zero` says so.
    cp : Value, optional
        Context parallelism.
    cp_kind : str, optional
        ring, all-gather, ulysses.
    ep : Value, optional
        Expert parallelism.
    etp : Value, optional
        Tensor parallelism of the experts.
    zero : Value, optional
        ZeRO stage 0 to 3; 3 is FSDP.
    shard_group : Value, optional
        GPUs of a shard group: HSDP.
    micro_batch : Value, optional
        Sequences of a micro-batch.
    sequence_parallel : str, optional
        on, off or both.
    recompute : str, optional
        none, selective, full.
    recompute_layers : Value, optional
        Layers of a stage that full recompute is for.
    schedule : str, optional
        1f1b, interleaved, zb-h1, dualpipe.
    overlap_tp : str, optional
        on, off or both.
    overlap_dp : str, optional
        on, off or both.
    overlap_pp : str, optional
        on, off or both.
    offload : str, optional
        none, optimizer.
    order : Value, optional
        Innermost first: tp-cp-dp-pp, tp-cp-pp-dp, or both.
    alternatives : int, optional
        Next best process grids to show.
    sensitivity : bool, optional
        Search again for every changed figure.
    pareto : bool, optional
        Fastest layout under each of some memory caps.
    deadline : Value, optional
        Find the smallest size that trains in time, e.g. 30d.
    budget : Value, optional
        The same within a budget, e.g. 5MUSD.
    mfu_at_least : Value, optional
        The same with an MFU, 0.4.
    max_step_time : Value, optional
        The same with a step time, e.g. 5s.
    scaling : Value, optional
        Scaling over `gpus`: strong (same batch) or weak.
    serve : bool, optional
        Serving instead of training.
    weights : str, optional
        Format of served weights: bf16, fp8, int4.
    kv : str, optional
        Format of the KV cache: bf16, fp8.
    context : Value, optional
        Tokens in the cache of a sequence.
    concurrency : Value, optional
        Sequences served at once.
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    sweep : Sweeps, optional
        One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table.
    sweep_show : str, optional
        Keys of the result that the sweep tabulates.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("plan", locals())


def memory(
    model: str | None = None,
    *,
    params: Value | None = None,
    cluster: str | None = None,
    gpu: str | None = None,
    catalogue: str = "vendor",
    gpus: Value | None = None,
    tp: Value = "1",
    pp: Value = "1",
    vpp: Value = "1",
    cp: Value = "1",
    ep: Value = "1",
    etp: Value = "1",
    dp: Value | None = None,
    zero: Value | None = None,
    shard_group: Value | None = None,
    micro_batch: Value = "1",
    global_batch: Value | None = None,
    seq: Value = "4096",
    recompute: str | None = None,
    schedule: str = "1f1b",
    recipe: str | None = None,
    precision: str = "bf16",
    offload: str | None = None,
    software: str = "megatron-core",
    imbalance: Value = "1",
    stages: bool = False,
    min_gpus: bool = False,
    serve: bool = False,
    weights: str | None = None,
    kv: str | None = None,
    context: Value | None = None,
    concurrency: Value | None = None,
    dp_attention: bool = False,
    set: Settings = (),
    sweep: Sweeps = (),
    sweep_show: str | None = None,
    calibration: str | None = None,
) -> Answer:
    """Memory per GPU of training or serving a model, by part, and whether it fits.

    Two columns: ideal is the formulas alone; expected adds the framework's overheads.

    Parameters
    ----------
    model : str, optional
        Model preset, TOML file, Hugging Face config or -.
    params : Value, optional
        Number of parameters instead of a model, as 70e9 or 70B.
    cluster : str, optional
        Cluster preset, TOML file or -. [default: dgx-h100]
    gpu : str, optional
        GPU instead of a cluster: its usual node is taken.
    catalogue : str, optional
        Hardware figures: vendor, or documents (as they round).
    gpus : Value, optional
        GPUs used; the data-parallel degree follows.
    tp : Value, optional
        Tensor-parallel degree.
    pp : Value, optional
        Pipeline stages.
    vpp : Value, optional
        Interleaved chunks per stage.
    cp : Value, optional
        Context-parallel degree.
    ep : Value, optional
        Expert-parallel degree.
    etp : Value, optional
        Tensor-parallel degree of the experts.
    dp : Value, optional
        Data-parallel degree.
    zero : Value, optional
        ZeRO stage 0 to 3; 3 is FSDP. [default: the software's habit]
    shard_group : Value, optional
        GPUs of one shard group, fewer than dp*cp: HSDP.
    micro_batch : Value, optional
        Sequences per micro-batch.
    global_batch : Value, optional
        Sequences per step. [default: dp * pp micro-batches]
    seq : Value, optional
        Tokens per sequence.
    recompute : str, optional
        none, selective, full or per-op. [default: the software's]
    schedule : str, optional
        Pipeline schedule: 1f1b, interleaved, zb-h1, dualpipe, gpipe.
    recipe : str, optional
        Bytes per parameter: mixed-adam, book-min, fp32-adam, ... [default: the software's]
    precision : str, optional
        bf16, fp16, fp8, mxfp8 or nvfp4.
    offload : str, optional
        Moved to the host: optimizer, activations, or both.
    software : str, optional
        Framework family preset.
    imbalance : Value, optional
        MoE: tokens of the busiest expert rank over the mean.
    stages : bool, optional
        Show every pipeline stage.
    min_gpus : bool, optional
        Look for the smallest number of GPUs.
    serve : bool, optional
        Serving instead of training.
    weights : str, optional
        Format of served weights: bf16, fp8, int4, ...
    kv : str, optional
        Format of the KV cache: bf16, fp8.
    context : Value, optional
        Tokens in the cache of a sequence.
    concurrency : Value, optional
        Sequences served at once.
    dp_attention : bool, optional
        Serving: the cache splits over all GPUs.
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    sweep : Sweeps, optional
        One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table.
    sweep_show : str, optional
        Keys of the result that the sweep tabulates.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("memory", locals())


def roofline(
    target: str,
    subject: str | None = None,
    *,
    cluster: str | None = None,
    gpus: Value | None = None,
    batch_tokens: Value | None = None,
    seq_len: Value | None = None,
    tp: Value | None = None,
    pp: Value | None = None,
    cp: Value | None = None,
    ep: Value | None = None,
    micro_batches: Value | None = None,
    zero: int = 1,
    hidden: Value | None = None,
    ffn: Value | None = None,
    matrices: int = 2,
    experts: Value | None = None,
    top_k: Value | None = None,
    layers: Value | None = None,
    heads: Value | None = None,
    kv_heads: Value | None = None,
    nodes: Value | None = None,
    spans: Value | None = None,
    max_nodes: Value | None = None,
    dispatch_bytes: float = 2.0,
    scope: str | None = None,
    compare: str | None = None,
    clock: Value | None = None,
    dtype: str | None = None,
    catalogue: str = "vendor",
    set: Settings = (),
    sweep: Sweeps = (),
    sweep_show: str | None = None,
    calibration: str | None = None,
) -> Answer:
    """Chip figures and the limits of each parallelism for a model.

    Communication is compared with arithmetic that it could hide behind.

    Parameters
    ----------
    target : str
        A model; or one of chip, dp, fsdp, moe-dp, tp, ep, pp, cp.
    subject : str, optional
        GPU of chip; cluster (or GPU) of one limit.
    cluster : str, optional
        Cluster preset, GPU name or TOML. [default: dgx-h100]
    gpus : Value, optional
        GPUs of the job.
    batch_tokens : Value, optional
        Tokens of the batch, as 4M; of one group for tp, ep, pp.
    seq_len : Value, optional
        Tokens of a sequence.
    tp : Value, optional
        Tensor parallel degree.
    pp : Value, optional
        Pipeline stages.
    cp : Value, optional
        Context parallel degree.
    ep : Value, optional
        Expert parallel degree.
    micro_batches : Value, optional
        Micro-batches of a step.
    zero : int, optional
        ZeRO stage of the board.
    hidden : Value, optional
        Model width D, for one limit.
    ffn : Value, optional
        FFN (or expert) width F.
    matrices : int, optional
        Weight matrices of the MLP: 2, gated 3.
    experts : Value, optional
        Experts E.
    top_k : Value, optional
        Experts per token k.
    layers : Value, optional
        Layers, for pp.
    heads : Value, optional
        Heads, for tp and cp.
    kv_heads : Value, optional
        KV heads, for cp.
    nodes : Value, optional
        Nodes that data parallelism spans, for its exact form.
    spans : Value, optional
        Nodes that one replica spans, for dp.
    max_nodes : Value, optional
        Nodes a token is routed to at most, for ep.
    dispatch_bytes : float, optional
        Bytes per element sent to experts (fp8: 1).
    scope : str, optional
        Only node or cluster, for dp, fsdp, moe-dp and tp.
    compare : str, optional
        Second GPU beside the chip.
    clock : Value, optional
        Clock of the chip, as '1.98 GHz'.
    dtype : str, optional
        Number format of the matrix units. [default: bf16, or fp16 without it]
    catalogue : str, optional
        Hardware figures: vendor, or documents (as they round).
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    sweep : Sweeps, optional
        One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table.
    sweep_show : str, optional
        Keys of the result that the sweep tabulates.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("roofline", locals())


def matmul_time(
    gpu: str,
    m: Value,
    k: Value | None = None,
    n: Value | None = None,
    *,
    dtype: str | None = None,
    dtypes: str | None = None,
    batch: Value = "1",
    groups: Value = "1",
    op: str | None = None,
    efficiency: Value | None = None,
    catalogue: str = "vendor",
    set: Settings = (),
    sweep: Sweeps = (),
    sweep_show: str | None = None,
    calibration: str | None = None,
) -> Answer:
    """Time of one matrix product or elementwise operation on one GPU.

    The roofline is a lower bound: each operand moved once, compute and memory overlapped.

    Parameters
    ----------
    gpu : str
        GPU preset, TOML file or -.
    m : Value
        Rows M of [M,K] x [K,N]; with `op` the elements.
    k : Value, optional
        Inner dimension K.
    n : Value, optional
        Columns N.
    dtype : str, optional
        Number format of all operands. [default: bf16, or the GPU's best 16]
    dtypes : str, optional
        Formats of the operands and the result.
    batch : Value, optional
        Independent products.
    groups : Value, optional
        Weights that the M rows are divided among (grouped product).
    op : str, optional
        Elementwise instead: add, mul, scale, relu, axpy, fma, copy, sum, dot.
    efficiency : Value, optional
        Also show the time at this share of the roofline, as 0.78.
    catalogue : str, optional
        Hardware figures: vendor, or documents (as they round).
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    sweep : Sweeps, optional
        One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table.
    sweep_show : str, optional
        Keys of the result that the sweep tabulates.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("matmul-time", locals())


def collective(
    op: str,
    cluster: str,
    *,
    bytes: Value | None = None,
    shape: str | None = None,
    dtype: str = "bf16",
    gpus: Value | None = None,
    algorithm: str | None = None,
    inner: Value = "1",
    top_k: Value | None = None,
    routing: str = "bound",
    experts: Value | None = None,
    once_per_node: bool = False,
    per_gpu: bool = False,
    hop_latency: Value = "0",
    switch_bytes: bool = False,
    catalogue: str = "vendor",
    set: Settings = (),
    sweep: Sweeps = (),
    sweep_show: str | None = None,
    calibration: str | None = None,
) -> Answer:
    """Time and bandwidth of one collective operation on a cluster.

    The ideal: each level's links full, levels pipelined, the slowest one sets the time.

    Parameters
    ----------
    op : str
        all-gather, reduce-scatter, all-reduce, all-to-all, broadcast, send-recv.
    cluster : str
        Cluster preset, GPU name (its usual node), TOML file or -.
    bytes : Value, optional
        Size of the array: all-gather: gathered; reduce-scatter, all-reduce: one GPU's buffer;
        all-to-all: the array over all GPUs.
    shape : str, optional
        Shape of the array instead of `bytes`, as 4096x65536.
    dtype : str, optional
        Number format of `shape`.
    gpus : Value, optional
        GPUs spanned, an inner axis included. [default: one NVLink domain]
    algorithm : str, optional
        ring, tree or sharp (in the switches) for all-reduce. [default: ring; expected: as the
        library chooses]
    inner : Value, optional
        Ways the array is sharded on another axis that lies innermost.
    top_k : Value, optional
        Sparse all-to-all: destinations per token.
    routing : str, optional
        Sparse all-to-all: bound (k/n at most), with-replacement, or without-replacement of
        `experts`.
    experts : Value, optional
        Experts, for `routing` without-replacement.
    once_per_node : bool, optional
        All-to-all sends a token to a node only once.
    per_gpu : bool, optional
        All-to-all: `bytes` is one GPU's send buffer.
    hop_latency : Value, optional
        Latency of one hop, as '1 us'; the ideal has none.
    switch_bytes : bool, optional
        Also count the bytes through the switches.
    catalogue : str, optional
        Hardware figures: vendor, or documents (as they round).
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    sweep : Sweeps, optional
        One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table. Or a range of sizes,
        ``1KiB:1GiB``.
    sweep_show : str, optional
        Keys of the result that the sweep tabulates.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("collective", locals())


def network(
    cluster: str,
    *,
    gpus: int | None = None,
    radix: int | None = None,
    catalogue: str = "vendor",
    set: Settings = (),
    sweep: Sweeps = (),
    sweep_show: str | None = None,
    calibration: str | None = None,
) -> Answer:
    """Bandwidth of every network level, bisection, and the switches for a number of GPUs.

    One direction, except the bisection, which adds both.

    Parameters
    ----------
    cluster : str
        Cluster preset, GPU name (its usual node), TOML file, or -.
    gpus : int, optional
        GPUs in use; default: all, or 1024.
    radix : int, optional
        Ports of a switch, instead of its own.
    catalogue : str, optional
        `vendor` (data sheets) or `documents` (their rounded figures).
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    sweep : Sweeps, optional
        One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table.
    sweep_show : str, optional
        Keys of the result that the sweep tabulates.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("network", locals())


def model(
    model: str,
    *,
    seq_len: Value = "4096",
    kv_bytes: Value = "2",
    toml: bool = False,
    set: Settings = (),
    sweep: Sweeps = (),
    sweep_show: str | None = None,
    calibration: str | None = None,
) -> Answer:
    """Layers, parameters, FLOP per token and KV cache of a model.

    Active counts are of one token; multi-token prediction is kept apart.

    Parameters
    ----------
    model : str
        Preset, TOML file, Hugging Face config.json or folder, or -.
    seq_len : Value, optional
        Tokens of a sequence, for FLOP per token and KV cache.
    kv_bytes : Value, optional
        Bytes per element of the KV cache: 2 bf16, 1 fp8.
    toml : bool, optional
        Print the model as TOML, to edit and pass back in.
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    sweep : Sweeps, optional
        One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table.
    sweep_show : str, optional
        Keys of the result that the sweep tabulates.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("model", locals())


def timeline(
    model: str,
    *,
    cluster: str | None = None,
    gpu: str | None = None,
    gpus: Value | None = None,
    tp: Value = "1",
    pp: Value = "1",
    vpp: Value = "1",
    cp: Value = "1",
    ep: Value = "1",
    etp: Value = "1",
    dp: Value | None = None,
    zero: Value | None = None,
    shard_group: Value | None = None,
    micro_batch: Value = "1",
    global_batch: Value | None = None,
    seq: Value = "4096",
    recompute: str | None = None,
    schedule: str = "1f1b",
    precision: str = "bf16",
    offload: str | None = None,
    software: str = "megatron-core",
    set: Settings = (),
    sweep: Sweeps = (),
    sweep_show: str | None = None,
    calibration: str | None = None,
) -> Answer:
    """One training step in time: passes, bubbles and exchanges of every pipeline stage.

    The expected step of `gpuscale plan`, for a layout that you give; `-o step.trace.json` writes
    it for ui.perfetto.dev.

    Parameters
    ----------
    model : str
        Model preset, TOML file, Hugging Face config or -.
    cluster : str, optional
        Cluster preset, TOML file or -. [default: dgx-h100]
    gpu : str, optional
        GPU instead of a cluster: its usual node is taken.
    gpus : Value, optional
        GPUs used; the data-parallel degree follows.
    tp : Value, optional
        Tensor-parallel degree.
    pp : Value, optional
        Pipeline stages.
    vpp : Value, optional
        Interleaved chunks per stage.
    cp : Value, optional
        Context-parallel degree.
    ep : Value, optional
        Expert-parallel degree.
    etp : Value, optional
        Tensor-parallel degree of the experts.
    dp : Value, optional
        Data-parallel degree.
    zero : Value, optional
        ZeRO stage 0 to 3; 3 is FSDP. [default: the software's habit]
    shard_group : Value, optional
        GPUs of one shard group, fewer than dp*cp: HSDP.
    micro_batch : Value, optional
        Sequences per micro-batch.
    global_batch : Value, optional
        Sequences per step. [default: 2 * dp * pp micro-batches]
    seq : Value, optional
        Tokens per sequence.
    recompute : str, optional
        none, selective, full or per-op. [default: the software's]
    schedule : str, optional
        Pipeline schedule: 1f1b, interleaved, zb-h1, dualpipe, gpipe.
    precision : str, optional
        bf16, fp16, fp8, mxfp8 or nvfp4.
    offload : str, optional
        Moved to the host: optimizer, activations, or both.
    software : str, optional
        Framework family preset.
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    sweep : Sweeps, optional
        One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table.
    sweep_show : str, optional
        Keys of the result that the sweep tabulates.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("timeline", locals())


def explain(
    term: str | None = None,
) -> Answer:
    """Explain a term of the field: formula, example, limits of validity, references.

    Parameters
    ----------
    term : str, optional
        A word of the field; none lists all.
    """
    return answer("explain", locals())


def validate(
    *,
    runs: Value | None = None,
    layouts: Value | None = None,
    gemm: Value | None = None,
    collectives: Value | None = None,
    inference: Value | None = None,
    rows: Value | None = None,
    set: Settings = (),
    calibration: str | None = None,
) -> Answer:
    """Score the predictions on measured runs: MAPE, median, p90 and bias, by class.

    Without a file, the package's own copy of published measurements is scored; with files, each
    of them, in the columns of the published sets.

    Parameters
    ----------
    runs : Value, optional
        Training runs to score (CSV).
    layouts : Value, optional
        Layout grids: the choice is scored too.
    gemm : Value, optional
        Measured matmuls.
    collectives : Value, optional
        Measured collectives.
    inference : Value, optional
        Served models: TTFT, TPOT, throughput.
    rows : Value, optional
        Write one line per input row: measured, predicted.
    set : Settings, optional
        What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.
    calibration : str, optional
        File of `gpuscale calibrate`, for expected figures.
    """
    return answer("validate", locals())
