"""Money, and when a dearer machine pays back."""

from __future__ import annotations

from gpuscale.core.run.time import SECONDS_PER_HOUR


def rental_usd(n_gpus: float, time_s: float, usd_per_gpu_hour: float) -> float:
    """Price of renting GPUs. [USD]."""
    return n_gpus * time_s / SECONDS_PER_HOUR * usd_per_gpu_hour
