"""Model states: bytes per parameter by recipe, and how ZeRO, FSDP and HSDP shard them.

Rajbhandari et al. 2019 (ZeRO, arXiv:1910.02054), section 3; Zhao et al. 2023 (FSDP,
arXiv:2304.11277), section 3.
"""

from __future__ import annotations

import math

from gpuscale.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes per parameter of one way to train."""

    name: str
    weights_bytes: float
    gradients_bytes: float
    master_bytes: float
    optimizer_bytes: float
    source: str

    @property
    def bytes_per_param(self) -> float:
        """All states of one parameter, unsharded. [byte]."""
        return self.weights_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes

    @property
    def k_bytes(self) -> float:
        """The ZeRO paper's K: master weights and optimizer states. [byte]."""
        return self.master_bytes + self.optimizer_bytes


_ZERO = "ZeRO (Rajbhandari et al. 2019), section 3.1"
_QA = "multi-GPU Q&A, ZeRO section"
_MEGATRON = "Megatron-LM distributed optimizer, bf16 parameters"
_BOOK = "How to Scale Your Model, GPU chapter, Quiz 5 Q2"
_8BIT = "Dettmers et al. 2022, 8-bit optimizers: one byte per Adam moment"
_V3 = "DeepSeek-V3 Technical Report, section 3.3.2"

_ROWS = (
    Recipe("mixed-adam", 2, 2, 4, 8, f"{_ZERO}: K = 12"),
    Recipe("mixed-adam-nomaster", 2, 2, 0, 8, f"{_QA}: no fp32 master weights, K = 8"),
    Recipe("mixed-adam-fp32-grads", 2, 4, 4, 8, f"{_MEGATRON}: fp32 gradients"),
    Recipe("book-min", 2, 0, 0, 8, f"{_BOOK}: weights and Adam alone"),
    Recipe("fp32-adam", 4, 4, 0, 8, "FSDP and deployment notes: everything in fp32"),
    Recipe("bf16-adam", 2, 2, 0, 4, "pure bf16 training, Adam moments in bf16"),
    Recipe("adam-8bit", 2, 2, 0, 2, f"{_8BIT}; pure bf16 weights"),
    Recipe("mixed-adam-8bit", 2, 2, 4, 2, f"{_8BIT}; fp32 master weights"),
    Recipe("deepseek-v3", 2, 4, 4, 4, f"{_V3}: bf16 moments"),
    Recipe("sgd", 2, 2, 0, 0, "plain SGD without momentum, pure bf16 weights"),
    Recipe("mixed-sgd", 2, 2, 4, 0, "plain SGD without momentum, fp32 master weights"),
)

RECIPES: dict[str, Recipe] = {r.name: r for r in _ROWS}
"""Named recipes; the default of the documents' formulas is `mixed-adam`."""


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Model states of one GPU by part. [byte]."""

    weights_bytes: float
    gradients_bytes: float
    master_bytes: float
    optimizer_bytes: float

    @property
    def total_bytes(self) -> float:
        """Sum of the parts. [byte]."""
        return self.weights_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes


def check_zero(zero_stage: int, n_shards: int) -> None:
    """Refuse a ZeRO stage other than 0 to 3, or fewer than one shard."""
    if zero_stage not in (0, 1, 2, 3):
        raise ValueError(f"zero_stage must be 0, 1, 2 or 3, got {zero_stage}")
    if n_shards < 1:
        raise ValueError(f"n_shards must be at least 1, got {n_shards}")


def sharded_states(
    n_params: float, recipe: Recipe, zero_stage: int = 0, n_shards: int = 1
) -> StateBytes:
    """Model states of one GPU under ZeRO [1]_ or FSDP.

    Stage 0 shards nothing, 1 master weights and optimizer, 2 gradients too, 3 weights too
    (FSDP). HSDP is stage 3 with `n_shards` the size of one shard group.

    `n_params`: parameters that this GPU's data-parallel group shares, after TP, PP and EP [1].
    `recipe`: bytes per parameter of each part. `zero_stage`: 0, 1, 2 or 3 [1]. `n_shards`: GPUs
    that share the states [1]. Returns: bytes on one GPU [byte]. Raises ValueError if `zero_stage`
    or `n_shards` is out of range.

    .. [1] S. Rajbhandari et al., ZeRO, SC20, arXiv:1910.02054, figure 1.

    >>> for stage in range(4):
    ...     print(sharded_states(7.5e9, RECIPES["mixed-adam"], stage, 64).total_bytes / 1e9)
    120.0
    31.40625
    16.640625
    1.875
    """
    check_zero(zero_stage, n_shards)
    optimizer_shards = n_shards if zero_stage >= 1 else 1
    gradient_shards = n_shards if zero_stage >= 2 else 1
    weight_shards = n_shards if zero_stage >= 3 else 1
    return StateBytes(
        weights_bytes=n_params * recipe.weights_bytes / weight_shards,
        gradients_bytes=n_params * recipe.gradients_bytes / gradient_shards,
        master_bytes=n_params * recipe.master_bytes / optimizer_shards,
        optimizer_bytes=n_params * recipe.optimizer_bytes / optimizer_shards,
    )


def gpus_to_hold(total_bytes: float, usable_bytes_per_gpu: float) -> int:
    """Smallest number of GPUs whose memory adds up to `total_bytes`, at least one. [1].

    >>> gpus_to_hold(700e9, 80e9), gpus_to_hold(1342e9, 80e9), gpus_to_hold(1342e9, 80 * 2**30)
    (9, 17, 16)
    """
    if usable_bytes_per_gpu <= 0:
        raise ValueError(f"usable_bytes_per_gpu must be positive, got {usable_bytes_per_gpu}")
    return max(1, math.ceil(total_bytes / usable_bytes_per_gpu))


def nodes_to_hold(n_gpus: int, gpus_per_node: int) -> int:
    """Whole nodes that hold `n_gpus`. [1]."""
    if gpus_per_node < 1:
        raise ValueError(f"gpus_per_node must be at least 1, got {gpus_per_node}")
    return math.ceil(n_gpus / gpus_per_node)
