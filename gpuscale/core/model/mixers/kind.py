"""What every kind of mixer says of itself: columns of a table that must be full."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from gpuscale.core.bounds import NonNegativeInt, PositiveInt
from gpuscale.core.records import NamedTuple, dataclass


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Elements that one layer keeps of one sequence."""

    elements_per_token: float = 0.0  # grows with the context
    window_elements_per_token: float = 0.0  # grows until the window is full
    window_tokens: float = 0.0
    state_elements: float = 0.0  # constant, kept in fp32
    conv_elements: float = 0.0  # constant, kept at the element size of the cache


@dataclass(frozen=True, slots=True)
class Kept:
    """Elements per token that the backward pass of a mixer needs, beside the norm before it."""

    latent: float = 0.0  # not split by TP (MLA latents before and after their norms)
    split: float = 0.0  # split by TP: q, k, v, output
    up_projected: float = 0.0  # those of `split` that come from the latents
    score_heads: float = 0.0  # heads with a score matrix of all keys, if attention is not fused
    normed: float = 0.0  # of q and k, where each has a norm of its own


class Linear(NamedTuple):
    """A linear map by name, `copies` times (experts), met `per_token` times by a token."""

    name: str  # as in `q_proj` without the ending
    n_in: float
    n_out: float
    reads: str  # what it reads; maps that read the same keep their input once
    part: str = "attention"  # attention | mlp
    copies: float = 1.0
    per_token: float = 1.0

    @property
    def params(self) -> float:
        """Weights of all copies. [1]."""
        return self.n_in * self.n_out * self.copies


class Product(NamedTuple):
    """A matrix product of every token with a weight matrix of k x n, on one rank of TP."""

    name: str
    n: float
    k: float
    from_latent: bool = False  # recomputed by selective recomputation of MLA's up-projections
    absorbed: bool = False  # decoding works on the latent instead (DeepSeek-V2, section 2.1.2)


class Softmax(NamedTuple):
    """Core of a softmax attention on one rank of TP, in training."""

    heads: float
    qk: int  # width of queries and keys of a head
    v: int
    window_tokens: int | None = None
    top_k_tokens: int | None = None  # keys that an indexer leaves
    index_flop_per_key: float = 0.0
    whole: bool = True  # can be computed unfused, as a full square


class Scan(NamedTuple):
    """Core of a recurrence computed in chunks, on one rank of TP."""

    flop_per_token: float
    bytes_per_token: float


class Plain(NamedTuple):
    """A core without a formula of its own: its FLOP at the rate of a scan."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one token on one rank of TP, forward."""

    products: tuple[Product, ...]
    core: Softmax | Scan | Plain | None
    streamed: float  # elements through memory-bound passes (rotary, norms, gates)
    exchanged: float  # elements of keys and values, what context parallelism passes on


class Mixer(ABC):
    """One kind of mixer: its keys in a file are the fields of the class, its physics the methods.

    A class that leaves a method out cannot be defined; see "How to add" in the architecture page.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid",
        "allow_inf_nan": False,
        "revalidate_instances": "always",
    }
    kind: str
    measured: ClassVar[bool]  # fitted on measured runs: intervals of others are wider

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        """Refuse a kind with a column left out; `abstract` is for what kinds share."""
        columns = {n: getattr(cls, n, None) for n in (*Mixer.__abstractmethods__, "measured")}
        left_out = sorted(
            n for n, f in columns.items() if f is None or getattr(f, "__isabstractmethod__", False)
        )
        if left_out and not abstract:
            raise TypeError(f"mixer kind {cls.__name__} leaves out {', '.join(left_out)}")

    @abstractmethod
    def weights(self, hidden_size: int) -> tuple[float, float]:
        """(matrix weights, vector weights); each matrix weight costs 2 FLOP per token."""

    @abstractmethod
    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """Linear maps by name: what adapters are put on and quantisation packs (no indexer)."""

    @abstractmethod
    def flop(self, seq_len: int, causal: bool = True) -> float:
        """FLOP per token of what is no projection: scores, values, indexer, recurrence."""

    @abstractmethod
    def cache(self) -> CacheShape:
        """Elements kept of a sequence for its next tokens."""

    @abstractmethod
    def kept(self) -> Kept:
        """Activations kept for the backward pass."""

    @abstractmethod
    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """Products and core of a training step or prompt on one rank of TP."""

    @abstractmethod
    def met_keys(self, context: float) -> float:
        """Keys that a token meets in a context, by window and sparse selection."""

    @abstractmethod
    def read_tokens(self, context: float) -> float:
        """Tokens of `cache().elements_per_token` that decoding one token reads."""

    @abstractmethod
    def flop_per_key(self, decoding: bool) -> float:
        """FLOP of one token with one key, all heads; 0 for a recurrence."""

    @abstractmethod
    def cache_shards(self, tp: int) -> int:
        """GPUs of a TP group over which a sequence's cache splits; a latent is repeated."""

    @abstractmethod
    def heads(self) -> tuple[int, int]:
        """(query heads, KV heads) that TP must divide or repeat; 0: none."""

    @abstractmethod
    def words(self) -> str:
        """Shape in words."""


@dataclass(frozen=True, kw_only=True)
class Indexed(Mixer, abstract=True):
    """What kinds share whose queries may keep some keys alone, chosen by an indexer."""

    kind: str
    n_heads: PositiveInt
    sparse_top_k_tokens: PositiveInt | None = None  # keys or entries kept; None: all
    index_n_heads: NonNegativeInt = 0  # of the indexer
    index_head_dim: NonNegativeInt = 0
    index_pool_tokens: PositiveInt = 1  # tokens that share one key of the indexer (GLM-5-Next)

    @property
    def index_flop(self) -> float:
        """FLOP of a query on one token's share of the indexer's keys. [FLOP]."""
        return 2.0 * self.index_n_heads * self.index_head_dim / self.index_pool_tokens


def low_rank_query(hidden_size: int, rank: int | None, width: int) -> tuple[Linear, ...]:
    """Query map, or its two factors with a rank between them."""
    if not rank:
        return (Linear("q", hidden_size, width, "x"),)
    return Linear("q_a", hidden_size, rank, "x"), Linear("q_b", rank, width, "q latent")


def mean_context_tokens(seq_len: int, window_tokens: int | None, causal: bool) -> float:
    """Keys that one query meets, mean over the sequence.

    >>> mean_context_tokens(4, None, True)  # 1, 2, 3, 4
    2.5
    >>> mean_context_tokens(4, 2, True)  # 1, 2, 2, 2
    1.75
    """
    window = min(window_tokens or seq_len, seq_len)
    if not causal:
        return float(window)
    return (window * (window + 1) / 2 + (seq_len - window) * window) / seq_len
