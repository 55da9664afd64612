"""Products on a board with less, or more, power than the one whose measurements are used.

A compute unit draws power as its clock times the square of a voltage that rises with the clock, so
that the clock it sustains goes as about the cube root of the watts it has. An A100 PCIe (300 W) and
an SXM (400 W) print one peak; an H100 PCIe has half the watts, fewer units and a lower clock.
"""

from __future__ import annotations

from dataclasses import replace

from gpuscale.core.kernel.calibration import (
    ArchCalibration,
    Board,
    MatmulCalibration,
    PowerReference,
)


def clock_frac(board: Board, reference: PowerReference) -> float:
    """Sustained over data-sheet clock, against that of the reference. [1].

    ``(watts of a unit / reference's)^exponent / (rate of a unit / reference's)``

    >>> limit = dict(exponent=1 / 3, headroom=1.1, most_eff_frac=0.95)
    >>> sxm = PowerReference(400.0, 108, 312e12, **limit)
    >>> round(clock_frac(Board(300.0, 108, 312e12), sxm), 2)
    0.91
    >>> clock_frac(Board(450.0, 108, 312e12), sxm)
    1.0
    """
    watts = board.tdp_w / board.n_units / (reference.tdp_w / reference.n_units)
    clock = board.flop_per_s / board.n_units / (reference.flop_per_s / reference.n_units)
    frac = float(watts**reference.exponent / clock)
    return frac if frac <= 1.0 else max(1.0, frac / reference.headroom)


def at_power(arch: ArchCalibration, board: Board, reference: PowerReference) -> ArchCalibration:
    """Calibration of an architecture, as measured on the reference, for another board."""
    frac = clock_frac(board, reference)
    if frac == 1.0:
        return arch
    return replace(arch, matmul={k: _clocked(c, frac, reference) for k, c in arch.matmul.items()})


def _clocked(c: MatmulCalibration, frac: float, reference: PowerReference) -> MatmulCalibration:
    if frac < 1.0:
        return replace(c, clock_frac=frac)
    wanted = c.compute_eff_frac * frac
    eff = max(c.compute_eff_frac, min(wanted, reference.most_eff_frac))
    return replace(c, compute_eff_frac=eff, sustained_slope=c.sustained_slope * eff / wanted)
