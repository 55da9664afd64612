"""Fit presets/fabric/*.toml to the collectives in gpuscale/data/validation/collectives.csv.

    python tools/fit_collectives.py [--cross-validate]

Without the option the intervals already in the files are kept. A test runs `fit_all` and compares
it with the shipped files.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpuscale.core.kernel.calibration import PlaneTable  # noqa: E402
from gpuscale.core.network.calibration import (  # noqa: E402
    GENERAL_FABRIC,
    GENERAL_NETWORK_OP,
    GENERAL_OP,
    KIND,
    FabricCalibration,
    LinkCalibration,
    OpCalibration,
)
from gpuscale.evidence.fit_collectives import (  # noqa: E402
    LENGTH,
    NOISE,
    PRIORS,
    RANK_AXIS,
    RANK_SCALE,
    SIZE_AXIS,
    SPREAD,
    CollectiveFit,
    Fitted,
    fit_ops,
    log_errors,
    smooth,  # noqa: E402
)
from gpuscale.evidence.records import quantile  # noqa: E402
from gpuscale.evidence.rows_named import rows_of  # noqa: E402
from gpuscale.evidence.score_parts import CollectiveRow, collective_row  # noqa: E402
from gpuscale.io.calibration import load_link  # noqa: E402

DATA = ROOT / "gpuscale" / "data" / "validation" / "collectives.csv"
OUT = ROOT / "presets" / "fabric"
CLIP = 0.5  # largest log residual that a table follows
ORIGIN = "tools/fit_collectives.py on gpuscale/data/validation/collectives.csv"

NEAREST = {  # without measurements of their own: whose constants serve, and why
    "nvlink2": ("nvlink3", "switched or meshed NVLink, older generation"),
    "nvlink6": ("nvlink5", "next generation"),
    "omni-path": ("infiniband", "low-latency cluster network"),
    "slingshot": ("roce", "Ethernet-based HPC network"),
    "infiniband-800g": ("infiniband", "next generation"),
    "amd-if": ("general", "Infinity Fabric"),
    "ici": ("general", "TPU torus"),
    "neuronlink": ("general", "Trainium"),
}

Key = tuple[bool, str, str]  # inside a domain, link, kind


def measured() -> list[CollectiveRow]:
    """All rows with a time."""
    rows = []
    for index, row in enumerate(rows_of(DATA), 1):
        parsed = collective_row(row, index)
        if parsed.time_s:
            rows.append(parsed)
    return rows


def key_of(row: CollectiveRow) -> Key:
    """Which constants a row tells about."""
    inside = row.n_in_domain >= row.n_ranks
    kind = "custom" if row.algorithm == "custom" else KIND.get(row.op, row.op)
    return inside, row.inner if inside else row.outer, kind


def order(key: Key) -> tuple[bool, str, bool, str]:
    """Inside before the network, the custom kernels after the library that they fall back to."""
    inside, link, kind = key
    return (not inside, link, kind == "custom", kind)


def job_of(key: Key) -> CollectiveFit:
    """Kinds that are fitted together: the all-reduce with its in-switch form where there is one."""
    inside, link, kind = key
    switch = inside and kind == "all-reduce" and link in ("nvlink4", "nvlink5", "nvlink6")
    return CollectiveFit(link, ("all-reduce", "nvls") if switch else (kind,), inside)


def grouped(rows: Sequence[CollectiveRow]) -> dict[Key, list[CollectiveRow]]:
    """Rows by the constants that they tell about, in fitting order."""
    found: dict[Key, list[CollectiveRow]] = {}
    for row in rows:
        found.setdefault(key_of(row), []).append(row)
    return {key: found[key] for key in sorted(found, key=order)}


def fit_table(
    rows: Sequence[CollectiveRow],
    links: dict[str, LinkCalibration],
    job: CollectiveFit,
    ops: Fitted,
) -> PlaneTable:
    """Smooth what the constants leave over the log space of size and ranks."""
    rows = [r for r in rows if r.time_s]
    points = [(math.log(r.size_bytes), RANK_SCALE * math.log(r.n_ranks)) for r in rows]
    left = [min(CLIP, max(-CLIP, -e)) for e in log_errors(rows, links, job, ops)]
    mean = smooth(points, left, LENGTH, SPREAD, NOISE)
    values = tuple(
        mean(math.log(size), RANK_SCALE * math.log(n))
        for size in SIZE_AXIS.points()
        for n in RANK_AXIS.points()
    )
    return PlaneTable(SIZE_AXIS, RANK_AXIS, values)


def fit_all(rows: Sequence[CollectiveRow]) -> dict[str, LinkCalibration]:
    """Constants of every link, the domains before the networks around them."""
    links: dict[str, LinkCalibration] = {}
    for key, group in grouped(rows).items():
        job = job_of(key)
        old = links.get(job.link) or replace(load_link(job.link), ops={})
        ops = fit_ops(group, links, job)
        if not job.one_port:
            first = job.kinds[0]
            ops[first] = replace(ops[first], table=fit_table(group, links, job, ops))
        links[job.link] = replace(old, ops={**old.ops, **ops})
    return links


def intervals(
    rows: Sequence[CollectiveRow], links: dict[str, LinkCalibration]
) -> dict[Key, tuple[float, float, list[float]]]:
    """80 % interval of measured / expected and the errors, each source held out in turn.

    Of a single source each number of ranks is, and a single curve is split into every third size.
    The interval pools held-out and fitted rows: a person's case lies between the two.
    """
    out: dict[Key, tuple[float, float, list[float]]] = {}
    for key, group in grouped(rows).items():
        job = job_of(key)
        by_source = len({r.source for r in group}) > 1
        curve_of = [(r.source, 0 if by_source else r.n_ranks) for r in group]
        curves = sorted(set(curve_of))
        single = len(curves) < 2
        fold = [i % 3 if single else curves.index(c) for i, c in enumerate(curve_of)]
        errors: list[float] = []
        for f in sorted(set(fold)):
            train = [r for r, g in zip(group, fold, strict=True) if g != f]
            test = [r for r, g in zip(group, fold, strict=True) if g == f]
            ops = fit_ops(train, links, job) if train else {}
            errors += log_errors(test, links, job, ops)
        seen = log_errors(group, links, job, {k: links[job.link].ops[k] for k in job.kinds})
        ratios = [math.exp(-e) for e in errors + seen]
        low, high = quantile(ratios, 0.1), quantile(ratios, 0.9)
        few = len(group) < 10  # too few to know their spread
        out[key] = (min(0.7 if few else 1.0, low), max(1.4 if few else 1.0, high), errors)
    return out


def leave_source_out(rows: Sequence[CollectiveRow]) -> None:
    """Print the errors on each source when the others are fitted."""
    everything: list[float] = []
    for source in sorted({r.source for r in rows}):
        links = fit_all([r for r in rows if r.source != source])
        errors = []
        for row in rows:
            if row.source == source and row.time_s:
                inner = links.get(row.inner, GENERAL_FABRIC.inner)
                outer = links.get(row.outer, GENERAL_FABRIC.outer)
                expected_s = row.expected_s(FabricCalibration(inner, outer))
                errors.append(abs(expected_s / row.time_s - 1.0))
        everything += errors
        print(f"without {source}: {len(errors)} rows, median {quantile(errors, 0.5):.3f}")
    print(f"all: median {quantile(everything, 0.5):.3f} p90 {quantile(everything, 0.9):.3f}")


def op_toml(kind: str, c: OpCalibration, n: int, sources: str) -> list[str]:
    """Lines of one [ops.KIND]."""
    lines = [f"[ops.{kind}]"]
    lines += [f"{name} = {getattr(c, name):g}" for name in PRIORS]
    lines += [f"low_frac = {c.low_frac:.3f}", f"high_frac = {c.high_frac:.3f}"]
    lines += [f"n_rows = {n}", f'source = "{ORIGIN}: {sources}"', ""]
    if c.table is not None:
        lines.append(f"[ops.{kind}.table]")
        for name, axis in (("size_bytes", SIZE_AXIS), ("n_ranks", RANK_AXIS)):
            lines.append(f"{name} = {{ start = {axis.start}, step = {axis.step}, n = {axis.n} }}")
        values = [str(round(1000.0 * v)) for v in c.table.values]
        lines += [f'values = "{" ".join(values)}"', ""]
    return lines


def facts_toml(link: str) -> list[str]:
    """Lines of what is known of a link without a fit."""
    spec, lines = load_link(link), []
    if spec.shared_bytes_per_s:
        lines.append(f'shared_bytes_per_s = "{spec.shared_bytes_per_s / 1e9:g} GB/s"')
    if spec.custom_ranks != LinkCalibration("").custom_ranks:
        lines.append(f"custom_ranks = {spec.custom_ranks}")
    if spec.nic_eff_frac != 1.0:
        lines.append(f"nic_eff_frac = {spec.nic_eff_frac:g}")
    if spec.mesh_ranks:
        lines.append(f"mesh_ranks = {spec.mesh_ranks}")
    if any(spec.tree_channel_bytes_per_s):
        two, more = (f'"{v / 1e9:g} GB/s"' for v in spec.tree_channel_bytes_per_s)
        lines.append(f"tree_channel_bytes_per_s = [{two}, {more}]")
    if spec.notes:
        lines.append(f'notes = "{spec.notes}"')
    return lines


def main() -> None:
    """Fit every link and write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cross-validate", action="store_true")
    parser.add_argument("--leave-source-out", action="store_true")
    given = parser.parse_args()
    again = given.cross_validate
    rows = measured()
    if given.leave_source_out:
        leave_source_out(rows)
    links = fit_all(rows)
    found = intervals(rows, links) if again else {}
    OUT.mkdir(parents=True, exist_ok=True)
    texts: dict[str, list[str]] = {}
    held_out: list[float] = []
    for key, group in grouped(rows).items():
        job = job_of(key)
        sources = ", ".join(sorted({r.source for r in group}))
        for kind in job.kinds:
            c = links[job.link].ops[kind]
            old = load_link(job.link).ops.get(job.kinds[0])
            low, high = (old.low_frac, old.high_frac) if old else (0.7, 1.4)
            if key in found:
                low, high = found[key][:2]
            c = replace(c, low_frac=low, high_frac=high)
            texts.setdefault(job.link, []).extend(op_toml(kind, c, len(group), sources))
        if key in found:
            errors = found[key][2]
            held_out += errors
            size = [abs(math.exp(e) - 1.0) for e in errors]
            print(key, len(group), f"{quantile(size, 0.5):.3f} {quantile(size, 0.9):.3f}")
    if held_out:
        size = [abs(math.exp(e) - 1.0) for e in held_out]
        print(f"curves held out: median {quantile(size, 0.5):.3f} p90 {quantile(size, 0.9):.3f}")
    for link, lines in texts.items():
        head = [f'name = "{link}"', f'source = "{ORIGIN}"', *facts_toml(link), ""]
        (OUT / f"{link}.toml").write_text("\n".join(head + lines))
    for link, (nearest, why) in NEAREST.items():
        own = [f'name = "{link}"', f'nearest = "{nearest}"']
        own += [f'source = "no measurements of its own: constants of {nearest} ({why})"']
        (OUT / f"{link}.toml").write_text("\n".join([*own, *facts_toml(link), ""]))
    general = (("general", GENERAL_OP), ("general-network", GENERAL_NETWORK_OP))
    for link, c in general:
        lines = [f'name = "{link}"', 'source = "medians over the measured links, rounded"', ""]
        (OUT / f"{link}.toml").write_text("\n".join(lines + op_toml("ring", c, 0, "medians")))


if __name__ == "__main__":
    main()
