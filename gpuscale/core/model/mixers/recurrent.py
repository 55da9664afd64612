"""Mixers with a state in place of keys, split by TP over its heads; and layers without any."""

from __future__ import annotations

from typing import ClassVar, Literal

from gpuscale.core.bounds import PositiveInt
from gpuscale.core.model.mixers.kind import (
    CacheShape,
    Kept,
    Linear,
    Mixer,
    Plain,
    Product,
    Scan,
    Work,
)
from gpuscale.core.records import dataclass


class Recurrent(Mixer, abstract=True):
    """A mixer whose memory of the past does not grow."""

    def met_keys(self, context: float) -> float:
        """None: the state stands for all of them."""
        return 0.0

    def read_tokens(self, context: float) -> float:
        """None."""
        return 0.0

    def flop_per_key(self, decoding: bool) -> float:
        """None."""
        return 0.0

    def cache_shards(self, tp: int) -> int:
        """All: a state splits over its heads."""
        return tp


@dataclass(frozen=True, kw_only=True)
class LightningAttention(Recurrent):
    """Linear attention with decay: QKV, a gate, a norm (MiniMax-01, arXiv:2501.08313, 2.2)."""

    measured: ClassVar[bool] = False
    kind: Literal["lightning"] = "lightning"
    n_heads: PositiveInt
    head_dim: PositiveInt

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """q, k, v, gate, output; a norm."""
        width = self.n_heads * self.head_dim
        return 5 * width * hidden_size, width

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """q, k, v, gate, o."""
        width = self.n_heads * self.head_dim
        inputs = (Linear(name, hidden_size, width, "x") for name in ("q", "k", "v", "g"))
        return (*inputs, Linear("o", width, hidden_size, "attention out"))

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """Write and read of a state of d x d per head."""
        return 4.0 * self.n_heads * self.head_dim**2

    def cache(self) -> CacheShape:
        """State of all heads."""
        return CacheShape(state_elements=self.n_heads * self.head_dim**2)

    def kept(self) -> Kept:
        """q, k, v, gate, output, its norm."""
        return Kept(split=6.0 * self.n_heads * self.head_dim)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """All projections as one product; the core by its FLOP."""
        width = self.weights(hidden_size)[0] / hidden_size / tp
        return Work((Product("projections", width, hidden_size),), Plain(), width, 0.0)

    def heads(self) -> tuple[int, int]:
        """Heads, each with its state."""
        return self.n_heads, 0

    def words(self) -> str:
        """Heads and state."""
        return f"lightning, {self.n_heads} heads, state {self.head_dim} x {self.head_dim}"


DELTA_CHUNK_TOKENS = 64
"""Tokens of one chunk of the kernels (flash-linear-attention, `chunk_gated_delta_rule`)."""


@dataclass(frozen=True, kw_only=True)
class GatedDelta(Recurrent):
    """Gated delta rule: Yang et al. 2024 (arXiv:2412.06464), as in Qwen3-Next and Qwen3.5.

    With a `gate_rank`, Kimi Delta Attention (arXiv:2510.26692, section 3): a decay for each channel
    of the keys, it and the output gate through a product of that rank.
    """

    measured: ClassVar[bool] = False
    kind: Literal["gated-delta"] = "gated-delta"
    n_k_heads: PositiveInt
    n_v_heads: PositiveInt
    k_head_dim: PositiveInt
    v_head_dim: PositiveInt
    conv_kernel: PositiveInt = 4
    gate_rank: PositiveInt | None = None

    @property
    def key(self) -> int:
        """Width of the keys."""
        return self.n_k_heads * self.k_head_dim

    @property
    def value(self) -> int:
        """Width of the values."""
        return self.n_v_heads * self.v_head_dim

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """q, k, v, gate, beta and decay, output; convolution, decay and norm vectors."""
        k, v = self.key, self.value
        vectors = (2 * k + v) * self.conv_kernel + 2 * self.n_v_heads + self.v_head_dim
        if self.gate_rank:
            vectors += k - self.n_v_heads  # a step for each channel, not for each head
        return sum(one.params for one in self.maps(hidden_size)), vectors

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """in_proj (q, k, v, gate, beta, decay) and out_proj; low-rank gates one by one."""
        h, k, v, heads = hidden_size, self.key, self.value, self.n_v_heads
        out = Linear("out_proj", v, h, "attention out")
        if not (rank := self.gate_rank):
            return Linear("in_proj", h, 2 * k + 2 * v + 2 * heads, "x"), out
        return (
            Linear("in_proj", h, 2 * k + v + heads + 2 * rank, "x"),
            Linear("f_b", rank, k, "decay latent"),
            Linear("g_b", rank, v, "gate latent"),
            out,
        )

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """Read, correct and write a state of k x v per head: 6 FLOP per element."""
        return 6.0 * self.value * self.k_head_dim

    def cache(self) -> CacheShape:
        """State, and last inputs of the convolution."""
        return CacheShape(
            state_elements=self.value * self.k_head_dim,
            conv_elements=(self.conv_kernel - 1) * (2 * self.key + self.value),
        )

    def kept(self) -> Kept:
        """Projections before and after the convolution, gate, output, norm, chunk matrices."""
        chunk = DELTA_CHUNK_TOKENS * self.n_v_heads  # one row of the chunk matrices
        return Kept(split=2.0 * (2 * self.key + self.value) + 3.0 * self.value + chunk)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """Projections, products inside a chunk, updates of the state (section 3.3)."""
        key, value = self.key / tp, self.value / tp
        width = 2 * key + 2 * value
        core = Scan(2.0 * DELTA_CHUNK_TOKENS * width + 6.0 * value * self.k_head_dim, 2.0 * width)
        rank = self.gate_rank or 0
        gates = (Product("decay and gate", key + value, rank),) if rank else ()
        products = (
            Product("QKV and gate", width - value + 2 * rank if rank else width, hidden_size),
            *gates,
            Product("delta out", hidden_size, value),
        )
        return Work(products, core, width, 0.0)

    def heads(self) -> tuple[int, int]:
        """Value heads, and key heads."""
        return self.n_v_heads, self.n_k_heads

    def words(self) -> str:
        """Heads and state."""
        return f"gated delta, {self.n_v_heads} heads, state {self.k_head_dim} x {self.v_head_dim}"


CHUNK_TOKENS = 256
"""Tokens of one chunk of the kernels (state-spaces/mamba, `chunk_size` of the released configs)."""


@dataclass(frozen=True, kw_only=True)
class Mamba2(Recurrent):
    """State space mixer: Dao and Gu 2024 (arXiv:2405.21060), as in Nemotron-H."""

    measured: ClassVar[bool] = False
    kind: Literal["mamba2"] = "mamba2"
    n_heads: PositiveInt
    head_dim: PositiveInt
    state_size: PositiveInt
    n_groups: PositiveInt
    conv_kernel: PositiveInt = 4
    conv_bias: bool = True
    proj_bias: bool = False

    @property
    def inner(self) -> int:
        """Width of the heads."""
        return self.n_heads * self.head_dim

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """Gate, x, B, C and time step, output; convolution, decay, skip and norm vectors."""
        conv = self.inner + 2 * self.n_groups * self.state_size
        projected = self.inner + conv + self.n_heads
        vectors = conv * (self.conv_kernel + int(self.conv_bias)) + 3 * self.n_heads + self.inner
        bias = projected + hidden_size if self.proj_bias else 0
        return hidden_size * projected + self.inner * hidden_size, vectors + bias

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """in_proj (gate, x, B, C, time step) and out_proj."""
        projected = 2 * self.inner + 2 * self.n_groups * self.state_size + self.n_heads
        return (
            Linear("in_proj", hidden_size, projected, "x"),
            Linear("out_proj", self.inner, hidden_size, "attention out"),
        )

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """Write and read of the state: 4 FLOP per element."""
        return 4.0 * self.inner * self.state_size

    def cache(self) -> CacheShape:
        """State, and last inputs of the convolution."""
        width = self.inner + 2 * self.n_groups * self.state_size
        return CacheShape(
            state_elements=self.inner * self.state_size,
            conv_elements=(self.conv_kernel - 1) * width,
        )

    def kept(self) -> Kept:
        """Input projection, output and its norm; the scan is recomputed by its kernel."""
        projected = 2 * self.inner + 2 * self.n_groups * self.state_size + self.n_heads
        return Kept(split=projected + 2.0 * self.inner)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """State space duality in chunks (section 6)."""
        inner, state = self.inner / tp, max(1.0, self.n_groups / tp) * self.state_size
        core = Scan(
            CHUNK_TOKENS * (state + inner) + 4.0 * inner * self.state_size,
            2.0 * (3 * inner + 2 * state),
        )
        width = 2 * inner + 2 * state
        products = (
            Product("Mamba in", width + self.n_heads / tp, hidden_size),
            Product("Mamba out", hidden_size, inner),
        )
        return Work(products, core, width, 0.0)

    def heads(self) -> tuple[int, int]:
        """Heads, and groups that share B and C."""
        return self.n_heads, self.n_groups

    def words(self) -> str:
        """Heads and state."""
        return f"Mamba-2, {self.n_heads} heads, state {self.head_dim} x {self.state_size}"


@dataclass(frozen=True, kw_only=True)
class ShortConv(Recurrent):
    """Two gates around a depthwise convolution (LFM2, arXiv:2511.23404; `Lfm2ShortConv`)."""

    measured: ClassVar[bool] = False
    kind: Literal["short-conv"] = "short-conv"
    width: PositiveInt
    conv_kernel: PositiveInt = 3
    bias: bool = False

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """Both gates and the input, output; the convolution."""
        bias = 4 * self.width + hidden_size if self.bias else 0
        return 4 * self.width * hidden_size, self.conv_kernel * self.width + bias

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """in_proj (two gates and the input) and out_proj."""
        return (
            Linear("in_proj", hidden_size, 3 * self.width, "x"),
            Linear("out_proj", self.width, hidden_size, "attention out"),
        )

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """One multiply-add per tap, and the two gates."""
        return (2.0 * self.conv_kernel + 2.0) * self.width

    def cache(self) -> CacheShape:
        """Last inputs of the convolution."""
        return CacheShape(conv_elements=(self.conv_kernel - 1) * self.width)

    def kept(self) -> Kept:
        """Both gates and the input, the gated input, the convolution's and the gated output."""
        return Kept(split=6.0 * self.width)

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """Products of input and output; the convolution is bound by memory: four reads, a write."""
        width = self.width / tp
        products = (
            Product("conv in", 3 * width, hidden_size),
            Product("conv out", hidden_size, width),
        )
        return Work(products, Scan(self.flop(0) / tp, 2.0 * 5.0 * width), 3 * width, 0.0)

    def heads(self) -> tuple[int, int]:
        """None: channels split."""
        return 0, 0

    def words(self) -> str:
        """Width and taps."""
        return f"short convolution, {self.width:,} wide, {self.conv_kernel} taps"


@dataclass(frozen=True, kw_only=True)
class NoMixer(Recurrent):
    """A layer that is an FFN alone, as in Nemotron-H (arXiv:2504.03624)."""

    measured: ClassVar[bool] = True
    kind: Literal["none"] = "none"

    def weights(self, hidden_size: int) -> tuple[float, float]:
        """None."""
        return 0, 0

    def maps(self, hidden_size: int) -> tuple[Linear, ...]:
        """None."""
        return ()

    def flop(self, seq_len: int, causal: bool = True) -> float:
        """None."""
        return 0.0

    def cache(self) -> CacheShape:
        """None."""
        return CacheShape()

    def kept(self) -> Kept:
        """None."""
        return Kept()

    def work(self, hidden_size: int, tp: int = 1) -> Work:
        """None."""
        return Work((), None, 0.0, 0.0)

    def heads(self) -> tuple[int, int]:
        """None."""
        return 0, 0

    def words(self) -> str:
        """No mixer."""
        return "no mixer"
