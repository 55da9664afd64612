"""What a serving replica is made of, and what is calibrated about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Factor, Fraction, Seconds, Share, Spread, Within
from gpuscale.core.kernel.calibration import ArchCalibration
from gpuscale.core.network.calibration import FabricCalibration
from gpuscale.core.numeric import reached
from gpuscale.core.records import dataclass, field
from gpuscale.core.serving.memory import EngineMemory


@dataclass(frozen=True, slots=True)
class Drafts:
    """Speculative decoding: tokens proposed in a pass, and how likely each is kept.

    `acceptance[i]` is the probability that draft i is kept where all before it were; the last
    value holds for the drafts beyond the list.
    """

    n_tokens: int
    acceptance: tuple[float, ...]

    @property
    def accepted(self) -> float:
        """Mean drafts kept in a pass: ``sum_i prod_{j <= i} p_j`` (Leviathan 2023, eq. 1).

        >>> round(Drafts(3, (0.8,)).accepted, 3)
        1.952
        """
        kept, total = 1.0, 0.0
        for i in range(self.n_tokens):
            kept *= self.acceptance[min(i, len(self.acceptance) - 1)]
            total += kept
        return total


def drafts_of_mean(n_tokens: int, accepted: float) -> Drafts:
    """Drafts of one acceptance that keep a mean number of them in a pass.

    >>> round(drafts_of_mean(3, 1.952).acceptance[0], 3)
    0.8
    """
    found = reached(lambda share: Drafts(n_tokens, (share,)).accepted, accepted, 0.0, 1.0)
    return Drafts(n_tokens, (found,))


@dataclass(frozen=True, slots=True)
class Replica:
    """Layout, number formats and drafts of one copy of a model.

    `tp` x `dp_attention` GPUs share every layer; attention is split over `tp` of them and
    repeated `dp_attention` times, and so are dense and shared MLPs; routed experts are split over
    all (whole experts over `ep`).
    """

    tp: int = 1
    pp: int = 1
    dp_attention: int = 1
    ep: int = 1
    ffn_format: str = "bf16"  # fp8, fp8-block, nvfp4, mxfp4, int4 ...
    attention_format: str = "bf16"  # of the projections
    kv_format: str = "bf16"
    drafts: Drafts | None = None

    @property
    def group(self) -> int:
        """GPUs that share a layer."""
        return self.tp * self.dp_attention

    @property
    def n_gpus(self) -> int:
        """GPUs of the replica."""
        return self.group * self.pp


Tokens = Annotated[float, Within(0, 1e5)]
Passes = Annotated[float, Within(0, 100)]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Parameters that hold for all frameworks; the defaults are priors, see the presets."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    linear_factor: Spread = 1.1  # products in a model over the same ones alone, at least 1
    grouped_memory_eff: Fraction = 0.75  # of the memory bandwidth, reading the experts met
    grouped_vector_ratio: Factor = 18.0  # FLOP of tiles for one of vectors
    scaled_vector_share: Fraction = 0.2  # of that work where the matrix units apply the scales
    grouped_ramp_rows: Tokens = 32.0  # rows of an expert at which half of it is reached
    grouped_ramp_depth: Tokens = 256.0  # inner width of a grouped product, likewise
    routing_alike: Share = 0.1  # n tokens meet the experts of n^(1-a) independent ones
    routed_passes: Passes = 6.0  # hidden-sized rows moved for each routed one: gather, combine ...
    widened_compute_eff: Fraction = 0.8  # of the 16-bit product's rate, weights widened on the way
    widened_memory_eff: Fraction = 0.85  # of the 16-bit product's bandwidth, the same
    expert_skew: Factor = 0.2  # rows of the busiest GPU beyond random routing, many ranks
    prefill_attention_eff: Fraction = 0.55  # of the bf16 peak
    prefill_ramp_tokens: Tokens = 500.0  # keys at which half of it is reached
    decode_attention_eff: Fraction = 0.7  # of the memory bandwidth, reading the cache
    decode_flop_eff: Fraction = 0.3  # of the bf16 peak, where many heads share one latent
    small_kernel_s: Seconds = 1.5e-6  # one small kernel: norm, rotary, activation, routing step
    stream_passes: Passes = 10.0  # hidden-sized tensors read or written around the products
    all_reduce_factor: Spread = 1.0  # over the isolated collective
    crossing_s: Seconds = 2e-5  # more of a collective between machines: proxy, synchronisation
    host_blend: Spread = 3.0  # exponent with which host and GPU, side by side, add up
    exchange_overlap: Share = 0.7  # of the shorter hidden, where two batches take turns
    plain_block_eff: Fraction = 0.18  # of the fp8 peak, products of fp8 blocks without DeepGEMM
    cold_s: Seconds = 0.1  # more for each of the first prompts of a server that nobody warmed up


Relative = Annotated[float, Within(0.001, 10)]
FromOne = Annotated[float, Within(1, 1e12)]


@dataclass(frozen=True, slots=True)
class ServingSoftware:
    """What differs between frameworks."""

    name: str
    host_s: Seconds = 1e-3  # host time of one iteration, beside the GPU's
    host_per_sequence_s: Seconds = 5e-6  # more of it, for each sequence of one scheduler
    step_s: Seconds = 2e-4  # of one iteration during which the GPU waits
    linear_factor: Relative = 1.0  # products over those of the kernels record
    small_factor: Relative = 1.0  # small kernels over those of the kernels record
    adds_experts: bool = False  # scores, choice and sums of experts are kernels of their own each
    crossing_factor: Share = 1.0  # of an all-reduce between machines, more than isolated, likewise
    grouped_factor: Relative = 1.0  # time of products grouped by expert over the kernels record's
    vector_rows: Factor = 0.0  # rows up to which products run without tiles, on the vector units
    vector_rate: Factor = 0.0  # most of a product's rate over the vector units' fp32 rate; 0: any
    integer_rate: float = 0.0  # of narrow weights multiplied in 8-bit integers, over the same
    kernels_factor: float = 1.0  # attention, experts, small kernels over a settled architecture's
    ramp_factor: Relative = 1.0  # rows of an expert at half the rate, over the kernels record's
    vector_factor: Relative = 1.0  # FLOP of grouped products for one of the vector units, likewise
    prompt_layer_s: Seconds = 5e-4  # host time to launch one layer of a pass with prompt tokens
    prompt_expert_layer_s: Seconds = 5e-4  # the same, more for one with experts
    eager_layer_s: Seconds = 4e-4  # a decode layer without graphs: prior, 40 launches of 10 us
    launch_s: Seconds = 0.0  # of a decode pass without graphs, launched while the GPU works
    request_s: Seconds = 0.02  # a request's way in and out: HTTP, tokeniser, first schedule
    intake_s: Seconds = 2e-3  # of it, during which the server takes no other: one reader
    handover_s: Seconds = 0.0  # from a prefill to a decode worker, beside the cache's way
    compiled_s: Seconds = 0.0  # of a cold server: a pass of many prompts compiles its kernels
    compiled_prompts: int = 1  # that a pass may have without
    serial_host: bool = False  # the GPU waits while the host prepares a pass
    serial_drafts: bool = False  # the same where there are drafts
    whole_prompts: bool = False  # a pass reads the longest context that is promised in one
    chunks_beyond: FromOne = 32768.0  # unless that is longer: then chunks, and mixed
    mixed: bool = True  # prompt tokens and decoding sequences share a pass
    splits: bool = True  # a prompt for which a pass has not room enough is read in part
    reserve_output: bool = False  # a request waits until its longest answer has room
    joint_gpus: int = 0  # up to which attention ranks share a pass's tokens and all-reduce them
    two_batches: bool = False  # of which one computes while the other's experts are exchanged
    gather_passes: int = 0  # that a prompt waits at most until each attention rank has one
    chunk_tokens: FromOne = 8192.0  # prompt tokens of one pass
    max_sequences: FromOne = 2048.0  # decoding sequences of one attention group
    plain_blocks: bool = False  # fp8 blocks are multiplied without DeepGEMM's kernels
    counts_states: bool = False  # it refuses to start with more sequences than states have blocks
    memory: EngineMemory = EngineMemory()


@dataclass(frozen=True, eq=False, slots=True)
class ServingSite:
    """Hardware, calibration and software of a replica; compared by identity, so it can be a key."""

    name: str
    arch: ArchCalibration
    peaks: Mapping[str, float]  # number format -> dense FLOP/s
    hbm_bytes: float  # that a process can have
    hbm_bytes_per_s: float
    n_units: int | None
    l2_bytes: float | None
    fabric: FabricCalibration
    domain: int  # GPUs of a scale-up domain
    scaleup_bytes_per_s: float
    scaleout_bytes_per_s: float
    kernels: Kernels
    software: ServingSoftware
    vector_flop_per_s: float = 1e13  # fp32, outside of the matrix units
    arch_name: str = ""  # of the GPU, for parameters of its own
    memo: dict[tuple[object, ...], float] = field(default_factory=dict)  # products already timed


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens of one pass through a replica."""

    prompt_tokens: float = 0.0
    prompt_context: float = 0.0  # mean keys that one of them meets
    prompts: float = 0.0  # prompts that end in this pass
    sequences: float = 0.0  # decoding
    context: float = 0.0  # of each of them
    tokens_each: float = 1.0  # tokens of a decoding sequence: one, and the drafts to verify
    prompt_ranks: float = 1.0  # attention ranks that read prompts at the same time

    @property
    def decode_tokens(self) -> float:
        """Tokens of the decoding sequences."""
        return self.sequences * self.tokens_each

    @property
    def tokens(self) -> float:
        """All tokens of the pass."""
        return self.prompt_tokens + self.decode_tokens

    def on_rank(self, n_ranks: float) -> Batch:
        """Share of the busiest of `n_ranks` attention ranks; a prompt stays on one rank."""
        if n_ranks <= 1:
            return self
        reading = max(1.0, min(n_ranks, self.prompt_ranks))
        return Batch(
            self.prompt_tokens / reading,
            self.prompt_context,
            self.prompts / reading,
            self.sequences / n_ranks,
            self.context,
            self.tokens_each,
        )


@dataclass(frozen=True, slots=True)
class PassTime:
    """Time of one pass through all layers, by part. [s]."""

    linear_s: float = 0.0  # projections and dense MLPs
    attention_s: float = 0.0
    experts_s: float = 0.0
    communication_s: float = 0.0
    small_s: float = 0.0  # norms, rotary, residuals, launches
    head_s: float = 0.0
    host_s: float = 0.0  # of the iteration, and launches that the GPU waits for

    @property
    def total_s(self) -> float:
        """Sum of the parts."""
        return (
            self.linear_s
            + self.attention_s
            + self.experts_s
            + self.communication_s
            + self.small_s
            + self.head_s
            + self.host_s
        )
