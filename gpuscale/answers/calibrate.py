"""Calibration: constants of one's own machines, from one's own measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers.ask import Asked, Calibrated, flag, text
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.evidence.fit.records import FitLine
from gpuscale.render.save import check_target

if TYPE_CHECKING:
    from gpuscale.evidence.fit.measure import Measured
    from gpuscale.evidence.score.records import ScoredRow
    from gpuscale.render.document import Block, Document

TEMPLATES = {
    "gemm": "m,n,k,dtype,gpu,time_us,kernel,includes,source\n"
    "4096,8192,8192,bfloat16,H100-SXM-80GB,720.0,torch,gemm_only,own",
    "collectives": "op,gpu,n_gpus,gpus_per_node,fabric,size_bytes,time_us,algorithm,note,source\n"
    "all_reduce,H100-SXM-80GB,16,8,IB NDR 400G/GPU,1073741824,4500,NCCL auto,,own",
    "runs": "source,framework,model,layers,hidden,heads,kv_heads,ffn,gated_mlp,vocab,gpu,n_gpus,"
    "gpus_per_node,fabric,seq_len,global_batch,micro_batch,tp,pp,vpp,cp,ep,dp,dp_sharding,"
    "sequence_parallel,recompute,precision,step_time_s\n"
    "own,Megatron-Core,Llama-3 8B,32,4096,32,8,14336,yes,128256,H100-SXM-80GB,64,8,"
    "IB NDR 400G/GPU,8192,128,1,2,1,1,1,,32,ZeRO-1,yes,none,bf16,2.1",
}
"""Header and one example row of each file that can be given."""


@dataclass
class Calibrate(Calibrated):
    """Fit constants to your own measurements, for --calibration of every command.

    Matrix products and collectives correct the shipped tables; training steps give one scalar
    per site, never a constant per model.
    """

    NAME: ClassVar[str] = "calibrate"
    RESULTS: ClassVar[tuple[str, ...]] = (
        "gpuscale.answers.calibrate:Fits",
        "gpuscale.answers.calibrate:Template",
    )
    EXAMPLE: ClassVar[str] = "gpuscale calibrate --template gemm"
    file: Asked[str | None] = text("CSV of measured training steps: one scalar.", metavar="[FILE]")
    _: KW_ONLY
    gemm: Asked[str | None] = text("CSV of measured matrix products.", metavar="FILE")
    collectives: Asked[str | None] = text("CSV of measured collectives.", metavar="FILE")
    measure: Asked[bool] = flag("Time this machine's GPUs (needs gpuscale[gpu]).")
    fabric: Asked[str] = text("With --measure over nodes: the network, as 'IB NDR 400G/GPU'.", "")
    save: Asked[str | None] = text("Write the constants, for --calibration FILE.", metavar="FILE")
    template: Asked[str | None] = text("Print a CSV to fill in: gemm, ...", metavar="KIND")

    def answer(self) -> Document:
        """Fit, measure, or print a template."""
        return _answer(self)


@dataclass(frozen=True, slots=True)
class Fits:
    """What was fitted, and the file that holds it."""

    fits: tuple[FitLine, ...]
    overlay_toml: str
    saved: str | None


@dataclass(frozen=True, slots=True)
class Template:
    """Columns of a file of measurements."""

    columns: tuple[str, ...]


def _answer(asked: Calibrate) -> Document:
    if asked.template is not None:
        if (
            asked.save
            or asked.file
            or asked.gemm
            or asked.collectives
            or asked.measure
            or asked.fabric
        ):
            raise GpuscaleError("--template prints a CSV; it fits nothing", "ask for it alone")
        return _template(asked.template)
    if not (asked.file or asked.gemm or asked.collectives or asked.measure):
        raise GpuscaleError(
            "nothing to calibrate from",
            "give a CSV of training steps, --gemm, --collectives or --measure; "
            "`--template gemm` prints a CSV to fill in",
        )
    if asked.fabric and not asked.measure:
        raise GpuscaleError("--fabric needs --measure", "a file names its own fabric")
    overlay, lines, notes = _fit(asked, asked.file, asked.gemm, asked.collectives)
    if asked.measure:
        _measure(asked, asked.fabric, overlay, lines, notes)
    return _document(asked, overlay, lines, notes)


def _template(kind: str) -> Document:
    from gpuscale.render.document import Document, Text

    if kind not in TEMPLATES:
        raise unknown_name("template", kind, TEMPLATES, f"known: {', '.join(TEMPLATES)}")
    text = TEMPLATES[kind]
    columns = text.split("\n")[0].split(",")
    return Document("calibrate", {"template": kind}, Template(tuple(columns)), [Text(text)])


def _fit(
    asked: Calibrate, file: str | None, gemm: str | None, collectives: str | None
) -> tuple[dict[str, Any], list[FitLine], list[str]]:
    from gpuscale.evidence.fit.site import collectives_overlay, gemm_overlay, site_overlay
    from gpuscale.io.calibration import merged

    overlay: dict[str, Any] = {}
    lines: list[FitLine] = []
    notes: list[str] = []
    if gemm:
        from gpuscale.evidence.score.gemm import parse_row as parse_gemm

        rows = _parsed(gemm, parse_gemm, notes)
        found, fitted = gemm_overlay(rows, asked.calibration, f"own measurements: {gemm}")
        overlay, lines = merged(overlay, found), lines + fitted
    if collectives:
        from gpuscale.evidence.score.collectives import parse_row as parse_collective

        rows = _parsed(collectives, parse_collective, notes)
        source = f"own measurements: {collectives}"
        found, fitted = collectives_overlay(rows, asked.calibration, source)
        overlay, lines = merged(overlay, found), lines + fitted
    if file:
        scored = _steps(file, notes)
        found, fitted = site_overlay(scored, f"own measurements: {file}")
        overlay, lines = merged(overlay, found), lines + fitted
    return overlay, lines, notes


def _parsed(path: str, parse: Callable[..., Any], notes: list[str]) -> list[Any]:
    """Rows of a file that can be used; the others are counted with their reasons."""
    from gpuscale.io.tables import read_rows

    good: list[Any] = []
    bad: dict[str, int] = {}
    for index, row in enumerate(read_rows(path), 1):
        parsed = parse(row, index)
        if not isinstance(parsed, str) and parsed.time_s:
            good.append(parsed)
        else:
            reason = parsed if isinstance(parsed, str) else "no measured time"
            bad[reason] = bad.get(reason, 0) + 1
    if not good:
        reason = max(bad, key=lambda r: bad[r])
        raise GpuscaleError(
            f"{path}: no row can be used: {reason}",
            "`gpuscale calibrate --template gemm` shows how",
        )
    notes += [f"{path}: {n} row{'s' * (n > 1)} left out: {reason}" for reason, n in bad.items()]
    return good


def _steps(path: str, notes: list[str]) -> list[ScoredRow]:
    from gpuscale.evidence.score.records import unpredicted
    from gpuscale.evidence.score.runs import predict_run_rows

    rows = predict_run_rows(path)
    good = [r for r in rows if r.ratio]
    left_out = unpredicted(rows)
    if not good:
        reason = next(iter(left_out), "no rows")
        raise GpuscaleError(
            f"{path}: no row can be used: {reason}",
            "`gpuscale calibrate --template runs` shows how",
        )
    notes += [f"{path}: {len(i)} rows left out: {reason}" for reason, i in left_out.items()]
    return good


def _measure(
    asked: Calibrate, fabric: str, overlay: dict[str, Any], lines: list[FitLine], notes: list[str]
) -> None:
    import sys

    from gpuscale.evidence.fit.measure import measure
    from gpuscale.evidence.fit.torch_backend import torch_backend

    backend = torch_backend()

    def report(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    measured = measure(backend, fabric, report)
    report("")
    backend.close()
    add_measured(asked, measured, overlay, lines, notes)


def add_measured(
    asked: Calibrate,
    measured: Measured,
    overlay: dict[str, Any],
    lines: list[FitLine],
    notes: list[str],
) -> None:
    """Fit what `--measure` found, into `overlay`."""
    from gpuscale.evidence.fit.site import collectives_overlay, gemm_overlay
    from gpuscale.evidence.score import collectives as collective_rows
    from gpuscale.evidence.score import gemm as gemm_rows
    from gpuscale.io.calibration import merged

    source = "gpuscale calibrate --measure"
    products = [gemm_rows.parse_row(r, i) for i, r in enumerate(measured.gemm, 1)]
    ops = [collective_rows.parse_row(r, i) for i, r in enumerate(measured.collectives, 1)]
    reasons = {r for r in (*products, *ops) if isinstance(r, str)}
    if all(isinstance(r, str) for r in products):
        raise GpuscaleError(f"measured, but no constants fit: {', '.join(sorted(reasons))}")
    notes += [f"left out: {reason}" for reason in sorted(reasons)]
    found, fitted = gemm_overlay(
        [r for r in products if not isinstance(r, str)], asked.calibration, source
    )
    more, also = collectives_overlay(
        [r for r in ops if not isinstance(r, str)], asked.calibration, source
    )
    rates = {
        "gpu": measured.gemm[0]["gpu"],
        "copy_bytes_per_s": measured.copy_bytes_per_s,
        "attention_flop_per_s": measured.attention_flop_per_s,
    }
    overlay.update(merged(merged(merged(overlay, found), more), {"measured": rates}))
    lines += fitted + also
    notes.append(
        f"copies {measured.copy_bytes_per_s / 1e9:.0f} GB/s, "
        f"causal attention forward {measured.attention_flop_per_s / 1e12:.0f} TFLOP/s"
    )


def _document(
    asked: Calibrate, overlay: dict[str, Any], lines: list[FitLine], notes: list[str]
) -> Document:
    from gpuscale.core.quantity import format_si
    from gpuscale.evidence.fit.overlay import to_toml
    from gpuscale.io.calibration import load_calibration, merged
    from gpuscale.render.document import Column, Document, Table, Text

    overlay = merged(load_calibration(asked.calibration), overlay)
    text = to_toml({"made_by": "gpuscale calibrate", **overlay})

    def percent(v: float) -> str:
        return format_si(v, "frac")

    table = Table(
        [
            Column("name", "constants", right=False),
            Column("n_rows", "rows"),
            Column("error_before_frac", "median error before", percent),
            Column("error_after_frac", "after", percent),
        ],
        [[x.name, x.n_rows, x.error_before_frac, x.error_after_frac] for x in lines],
    )
    blocks: list[Block] = [table]
    blocks += [Text(note) for note in notes]
    files: dict[Path, str] = {}
    if asked.save:
        files[check_target(asked.save, "--save", None)] = text
        blocks.append(Text(f"written to {asked.save}; use it with --calibration {asked.save}"))
    else:
        blocks.append(Text("not saved: --save FILE writes the constants for --calibration FILE"))
    result = Fits(tuple(lines), text, asked.save)
    inputs = {
        "steps": asked.file,
        "gemm": asked.gemm,
        "collectives": asked.collectives,
        "measure": asked.measure,
    }
    return Document("calibrate", inputs, result, blocks, files=files)
