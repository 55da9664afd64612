"""What a fit of matrix products lets free, and how it smooths what is left."""

from gpuscale.core.kernel.residual_table import LogAxis

PRIORS: dict[str, tuple[str, float]] = {  # field -> (scale, standard deviation around `GENERAL`)
    "floor_s": ("log", 0.4),
    "latency_s": ("log", 0.5),
    "latency_exponent": ("linear", 0.3),
    "compute_eff_frac": ("log", 0.25),
    "ramp_k": ("log", 1.0),
    "memory_eff_frac": ("log", 0.15),
    "blend": ("log-1", 0.5),
    "wave_exponent": ("unit", 0.3),
    "tile_area": ("log", 1.0),
    "l2_gain": ("log", 1.0),
    "sustained_slope": ("linear", 0.15),
    "quant_floor_s": ("log", 0.4),
    "quant_eff_frac": ("log", 0.4),
}
"""Weakly informative priors: what a few measurements cannot tell stays near the general value."""

LENGTH, SPREAD, NOISE = 2.5, 0.12, 0.03  # of the smoothing, in natural logarithms
AXES = (
    LogAxis(0, 2, 9),
    LogAxis(7, 2, 6),
    LogAxis(8, 2, 5),
)  # m 1..65536, n 128..131072, k 256..65536
