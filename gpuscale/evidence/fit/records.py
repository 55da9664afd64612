"""What a fit says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FitLine:
    """What one fit did; field names are the JSON keys."""

    name: str  # "arch.hopper.matmul.bf16"
    n_rows: int
    error_before_frac: float  # median |expected / measured - 1| with the constants as shipped
    error_after_frac: float
