"""Optimizers: the states that each keeps for a trained parameter.

Each row cites its paper (Loshchilov and Hutter, arXiv:1711.05101, and others).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Optimizer:
    """States of one optimizer; `state_bits` 0: stored as the software stores its moments."""

    name: str
    moments: float  # elements per parameter of a weight matrix
    other_moments: float  # elements per parameter of embeddings, norms, head
    source: str
    state_bits: float = 0.0  # of one moment, block constants included
    factored: bool = False  # rows and columns instead of a full moment
    projected: bool = False  # moments of a low-rank projection of the gradient
    paged: bool = False  # outside the allocator until it spills
    in_backward: bool = False  # updated layer by layer: no gradients of the whole model
    temporaries: float = 0.0  # elements per parameter that a step makes beside the states


_ADAMW = (
    "Loshchilov and Hutter, arXiv:1711.05101: two moments; torch.optim's foreach steps hold the "
    "root of the second (torch/optim/adam.py, _multi_tensor_adam)"
)
_BNB = "Dettmers et al. 2022, arXiv:2110.02861: 8-bit states, an fp32 constant per 256"
_EIGHT = 8 + 32 / 256

OPTIMIZERS: dict[str, Optimizer] = {
    o.name: o
    for o in (
        Optimizer("adamw", 2, 2, _ADAMW, temporaries=1),
        Optimizer("adamw-fp32", 2, 2, "two moments of 4 bytes", 32, temporaries=1),
        Optimizer("adamw-bf16", 2, 2, "two moments in bf16", 16, temporaries=1),
        Optimizer("adamw-8bit", 2, 2, _BNB, _EIGHT),
        Optimizer("adamw-4bit", 2, 2, "torchao low-bit optimizers: blocks of 128", 4.25),
        Optimizer("paged-adamw", 2, 2, "bitsandbytes: unified memory", 0, paged=True),
        Optimizer("paged-adamw-8bit", 2, 2, _BNB, _EIGHT, paged=True),
        Optimizer(
            "adafactor", 0, 0, "Shazeer and Stern, arXiv:1804.04235, section 4", factored=True
        ),
        Optimizer("lion", 1, 1, "Chen et al., arXiv:2302.06675: one moment"),
        Optimizer("lion-8bit", 1, 1, _BNB, _EIGHT),
        Optimizer(
            "muon", 1, 2, "Jordan et al. 2024: one moment of hidden matrices, AdamW for the rest"
        ),
        Optimizer(
            "galore", 2, 2, "Zhao et al., arXiv:2403.03507, section 4: m r + 2 n r", projected=True
        ),
        Optimizer("galore-8bit", 2, 2, "GaLore, section 4.2", _EIGHT, projected=True),
        Optimizer("sgd", 0, 0, "no momentum"),
        Optimizer("sgd-momentum", 1, 1, "one moment"),
    )
}
"""Optimizers by name; `+in-backward` behind a name updates each layer as its gradient comes."""

SYNONYMS = {
    **dict.fromkeys(
        ("adam", "adamw-torch", "adamw-torch-fused", "adamw-hf", "fused-adam"), "adamw"
    ),
    **dict.fromkeys(("adamw-bnb-8bit", "adam-8bit", "adamw8bit"), "adamw-8bit"),
    **dict.fromkeys(("paged-adamw-32bit", "pagedadamw"), "paged-adamw"),
    **dict.fromkeys(("pagedadamw8bit", "paged-adamw8bit"), "paged-adamw-8bit"),
    "lion-32bit": "lion",
    "galore-adamw": "galore",
    "galore-adamw-8bit": "galore-8bit",
}
"""Names of frameworks, as the Trainer's `optim` has them -> the names here."""

IN_BACKWARD = "+in-backward"

GALORE_RANK_FRAC = 0.25
"""Rank of GaLore over the smaller side of a matrix: its paper's 7B runs, 1,024 of 4,096."""


def optimizer(name: str) -> Optimizer:
    """Look an optimizer up by name.

    Raises ValueError if it is not known.

    Examples
    --------
    >>> optimizer("adamw-8bit+in-backward").in_backward, optimizer("paged_adamw_32bit").name
    (True, 'paged-adamw')
    """
    from dataclasses import replace

    bare = name.removesuffix(IN_BACKWARD)
    word = bare.replace("_", "-")
    known = SYNONYMS.get(word, word)
    if known not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
    found = OPTIMIZERS[known]
    return replace(found, in_backward=True) if bare != name else found


def state_bytes(opt: Optimizer, moment_bytes: float, *, matrix: bool = True) -> float:
    """Bytes of states per parameter of a matrix (or of the rest), where moments are whole. [byte].

    `moment_bytes` is how the software stores a moment that the optimizer's name leaves open.

    >>> state_bytes(OPTIMIZERS["adamw"], 4.0), state_bytes(OPTIMIZERS["muon"], 4.0)
    (8.0, 4.0)
    """
    each = opt.state_bits / 8 if opt.state_bits else moment_bytes
    return (opt.moments if matrix else opt.other_moments) * each


def matrix_state_bytes(
    opt: Optimizer, n_in: float, n_out: float, moment_bytes: float, rank: float | None = None
) -> float:
    """States of one (n_in, n_out) matrix, factored and projected optimizers included. [byte].

    Adafactor keeps a row and a column of fp32; GaLore a projector of the smaller side and two
    moments of the projected gradient.

    >>> matrix_state_bytes(OPTIMIZERS["adafactor"], 4096, 4096, 4.0)
    32768.0
    """
    if opt.factored:
        return 4.0 * (n_in + n_out)
    if opt.projected:
        small, large = min(n_in, n_out), max(n_in, n_out)
        r = min(small, rank or GALORE_RANK_FRAC * small)
        each = opt.state_bits / 8 if opt.state_bits else moment_bytes
        return 2.0 * small * r + opt.moments * each * large * r
    return state_bytes(opt, moment_bytes) * n_in * n_out
