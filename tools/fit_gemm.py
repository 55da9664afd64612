"""Fit presets/arch/*.toml to the measured matmul times in gpuscale/data/validation/gemm.csv.

    python tools/fit_gemm.py [--cross-validate]

Without the option the errors and intervals already in the files are kept (cross-validation takes
about a minute). A test runs `fitted` and compares it with the shipped files.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpuscale.core.kernel.calibration import (  # noqa: E402  # noqa: E402
    GENERAL,
    ArchCalibration,
    MatmulCalibration,
    ResidualTable,
    tabulate,
)
from gpuscale.evidence.fit_collectives import Vector, fit, smooth  # noqa: E402
from gpuscale.evidence.fit_site import AXES, LENGTH, NOISE, PRIORS, SPREAD  # noqa: E402
from gpuscale.evidence.records import quantile  # noqa: E402
from gpuscale.evidence.rows_named import rows_of  # noqa: E402
from gpuscale.evidence.score_parts import GemmRow, gemm_row  # noqa: E402
from gpuscale.io.calibration import arch_spec  # noqa: E402

DATA = ROOT / "gpuscale" / "data" / "validation" / "gemm.csv"
OUT = ROOT / "presets" / "arch"
N_FOLDS = 6
MIN_TABLE_ROWS = 50
"""Fewer rows than this adjust the constants within their priors, without a table."""

SAME_TABLE = {"blackwell-ultra": "blackwell", "fp16": "bf16"}
"""Architectures and formats that share the kernels and the constants of another."""

NEAREST = {  # without enough measurements of their own
    "blackwell-ultra": "blackwell",
    "rubin": "blackwell",
    "blackwell-gb202": "ada",
    "ampere-ga102": "ampere",
    "turing": "ampere",
    "volta": "ampere",
    "cdna2": "cdna3",
}
ORIGIN = "tools/fit_gemm.py on gpuscale/data/validation/gemm.csv"


ERROR_SCALE = 0.08  # log error beyond which a row counts linearly
CLIP = 0.5  # largest log residual that the table follows


def to_vector(c: MatmulCalibration) -> Vector:
    """Free parameters of a calibration, on the scales of `PRIORS`."""
    out = []
    for name, (scale, _) in PRIORS.items():
        value = float(getattr(c, name))
        if scale == "log":
            value = math.log(value)
        elif scale == "log-1":
            value = math.log(value - 1.0)
        out.append(value)
    return out


def from_vector(x: Sequence[float]) -> MatmulCalibration:
    """Inverse of `to_vector`; exponents are held to their range."""
    values: dict[str, Any] = {}
    for (name, (scale, _)), v in zip(PRIORS.items(), x, strict=True):
        if scale == "log":
            v = math.exp(v)
        elif scale == "log-1":
            v = 1.0 + math.exp(min(v, 4.0))
        elif scale == "unit":
            v = min(1.0, max(0.0, v))
        values[name] = v
    return MatmulCalibration(**values)


def log_errors(rows: Sequence[GemmRow], c: MatmulCalibration) -> Vector:
    """log(expected / measured) of each row."""
    archs: dict[tuple[str, str], ArchCalibration] = {}
    for row in rows:
        archs.setdefault((row.dtype, row.kernels), ArchCalibration("fit", {row.dtype: c}))
    return [
        math.log(row.expected_s(archs[row.dtype, row.kernels]) / row.time_s)
        for row in rows
        if row.time_s
    ]


def fit_constants(rows: Sequence[GemmRow], start: MatmulCalibration = GENERAL) -> MatmulCalibration:
    """Physical constants by robust least squares on log times, with the priors of `PRIORS`."""
    x = fit(
        lambda x: log_errors(rows, from_vector(x)),
        to_vector(start),
        to_vector(GENERAL),
        [spread for _, spread in PRIORS.values()],
        ERROR_SCALE,
    )
    return from_vector(x)


def fit_table(rows: Sequence[GemmRow], c: MatmulCalibration) -> ResidualTable:
    """Smooth what the constants leave over the log space of (m, n, k)."""
    points = [(math.log(r.m), math.log(r.n), math.log(r.k)) for r in rows]
    left = [min(CLIP, max(-CLIP, -e)) for e in log_errors(rows, replace(c, table=None))]
    mean = smooth(points, left, LENGTH, SPREAD, NOISE)
    return tabulate(AXES, lambda m, n, k: mean(math.log(m), math.log(n), math.log(k)))


def fit_rows(rows: Sequence[GemmRow], start: MatmulCalibration = GENERAL) -> MatmulCalibration:
    """Constants and table from measured rows of one format and architecture."""
    constants = rounded(fit_constants(rows, start))
    return replace(constants, table=fit_table(rows, constants))


def rounded(c: MatmulCalibration, digits: int = 4) -> MatmulCalibration:
    """Constants to a few digits, as they are written to TOML."""
    values = {
        f.name: float(f"{getattr(c, f.name):.{digits}g}") for f in fields(c) if f.name in PRIORS
    }
    return replace(c, **values)  # type: ignore[arg-type]


def groups() -> dict[tuple[str, str], list[GemmRow]]:
    """(architecture, key of the matmul table) -> measured rows."""
    found: dict[tuple[str, str], list[GemmRow]] = {}
    for index, row in enumerate(rows_of(DATA), 1):
        parsed = gemm_row(row, index)
        if not parsed.time_s:
            raise SystemExit(f"row {index}: no time")
        arch = SAME_TABLE.get(parsed.architecture, parsed.architecture)
        key = SAME_TABLE.get(parsed.dtype, parsed.dtype)
        key += f"-{parsed.kernels}" if parsed.kernels else ""
        found.setdefault((arch, key), []).append(parsed)
    return found


def fitted(rows: Sequence[GemmRow]) -> MatmulCalibration:
    """Constants of one group, with a table where there are enough rows."""
    return fit_rows(rows) if len(rows) >= MIN_TABLE_ROWS else rounded(fit_constants(rows))


def thousandths(c: MatmulCalibration) -> list[int]:
    """Table values as they are written."""
    return [round(1000.0 * v) for v in c.table.values] if c.table else []


def matmul_toml(
    key: str, rows: Sequence[GemmRow], c: MatmulCalibration, q: FitQuality | None
) -> list[str]:
    """Lines of one [matmul.KEY]."""
    sources = ", ".join(sorted({r.source for r in rows}))
    lines = [f"[matmul.{key}]"]
    lines += [f"{name} = {getattr(c, name):g}" for name in PRIORS]
    if q is not None:
        lines += [f"low_frac = {q.low_frac:.3f}", f"high_frac = {q.high_frac:.3f}"]
        lines += [f"error_median_frac = {q.median_frac:.3f}", f"error_p90_frac = {q.p90_frac:.3f}"]
    lines += [f"n_rows = {len(rows)}"]
    lines += [f'source = "{ORIGIN}: {sources}"', ""]
    if c.table is not None:
        lines.append(f"[matmul.{key}.table]")
        for name, axis in zip("mnk", AXES, strict=True):
            lines.append(f"{name} = {{ start = {axis.start}, step = {axis.step}, n = {axis.n} }}")
        values = [str(v) for v in thousandths(c)]
        width = AXES[2].n * AXES[1].n
        chunks = [" ".join(values[i : i + width]) for i in range(0, len(values), width)]
        lines += ['values = """', *chunks, '"""', ""]
    return lines


class FitQuality(NamedTuple):
    """Cross-validated errors of a fit."""

    n_rows: int
    median_frac: float
    p90_frac: float
    low_frac: float  # 10 % quantile of measured / expected
    high_frac: float


def cross_validate(
    rows: Sequence[GemmRow], start: MatmulCalibration, by_shape: bool = True
) -> Vector:
    """log(expected / measured) of each row, fitted without its fold.

    Folds hold out whole (n, k) pairs, or with `by_shape` false every sixth row.
    """
    shapes = sorted({(r.n, r.k) for r in rows}, key=lambda s: (s[0] * 7919 + s[1] * 104729) % 10007)
    fold_of = {s: i % N_FOLDS for i, s in enumerate(shapes)}
    folds = [fold_of[r.n, r.k] if by_shape else i % N_FOLDS for i, r in enumerate(rows)]
    errors = [0.0] * len(rows)
    for fold in range(N_FOLDS):
        train = [r for r, f in zip(rows, folds, strict=True) if f != fold]
        test = [i for i, f in enumerate(folds) if f == fold]
        c = fit_rows(train, start)
        for i, e in zip(test, log_errors([rows[i] for i in test], c), strict=True):
            errors[i] = e
    return errors


def quality(errors: Sequence[float]) -> FitQuality:
    """Statistics of cross-validated log errors."""
    size = [abs(math.exp(e) - 1.0) for e in errors]
    ratios = [math.exp(-e) for e in errors]
    return FitQuality(
        len(errors),
        quantile(size, 0.5),
        quantile(size, 0.9),
        min(1.0, quantile(ratios, 0.1)),
        max(1.0, quantile(ratios, 0.9)),
    )


def old_quality(arch: str, key: str, n: int) -> FitQuality | None:
    """Cross-validation that the shipped file holds."""
    spec = arch_spec(arch).matmul.get(key)
    if spec is None or spec.error_median_frac is None or spec.error_p90_frac is None:
        return None
    return FitQuality(n, spec.error_median_frac, spec.error_p90_frac, spec.low_frac, spec.high_frac)


def power_toml(arch: str) -> list[str]:
    """Lines of the board that was measured; known without a fit."""
    spec = arch_spec(arch).power
    if spec is None:
        return []
    return [
        "[power]",
        f'tdp_w = "{spec.tdp_w:g} W"',
        f"n_units = {spec.n_units}",
        f'flop_per_s = "{spec.flop_per_s / 1e12:g} TFLOP/s"',
        *(f"{k} = {getattr(spec, k):g}" for k in ("exponent", "headroom", "most_eff_frac")),
        f'source = "{spec.source}"',
        "",
    ]


def leave_gpu_out() -> None:
    """Print the errors on each GPU when the others of its architecture are fitted."""
    for (arch, key), rows in sorted(groups().items()):
        for gpu in sorted({r.gpu for r in rows}):
            test = [r for r in rows if r.gpu == gpu and not r.kernels]
            train = [r for r in rows if r.gpu != gpu]
            if min(len(test), len(train)) >= MIN_TABLE_ROWS:
                q = quality(log_errors(test, fit_rows(train)))
                print(f"without {gpu}: {arch} {key} {q.median_frac:.3f} {q.p90_frac:.3f}")


def main() -> None:
    """Fit every group and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cross-validate", action="store_true")
    again = parser.parse_args().cross_validate
    OUT.mkdir(parents=True, exist_ok=True)
    texts: dict[str, list[str]] = {}
    for (arch, key), rows in sorted(groups().items()):
        c = fitted(rows)
        q = old_quality(arch, key, len(rows))
        if again and len(rows) >= MIN_TABLE_ROWS:
            start = replace(c, table=None)
            shape = cross_validate(rows, start)
            pooled = quality(shape + cross_validate(rows, start, False) + log_errors(rows, c))
            of = quality(shape)
            q = pooled._replace(median_frac=of.median_frac, p90_frac=of.p90_frac)
        texts.setdefault(arch, []).extend(matmul_toml(key, rows, c, q))
        print(arch, key, len(rows), q)
    if again:
        leave_gpu_out()
    for arch, lines in texts.items():
        head = [f'name = "{arch}"', f'source = "{ORIGIN}"', "", *power_toml(arch)]
        (OUT / f"{arch}.toml").write_text("\n".join(head + lines))
    for arch, nearest in NEAREST.items():
        own = [f'name = "{arch}"', f'nearest = "{nearest}"']
        own += [f'source = "no measurements of its own: constants of {nearest}"', ""]
        (OUT / f"{arch}.toml").write_text("\n".join([*own, *power_toml(arch)]))
    (OUT / "general.toml").write_text(
        'name = "general"\nsource = "medians over the measured architectures: the defaults of '
        'gpuscale.core.kernel.expected.MatmulCalibration"\n'
    )


if __name__ == "__main__":
    main()
