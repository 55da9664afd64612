"""The answer about a kernel: roofline beside expected, and the terms of both."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

from gpuscale.answers.summary import changed_text
from gpuscale.answers.values import check_dtype, formats_of, matrix_rate
from gpuscale.core.formats import compute_dtype, element_bytes
from gpuscale.core.kernel.calibration import matmul_interval_s
from gpuscale.core.kernel.expected import expected_elementwise_time_s, product_time_s
from gpuscale.core.kernel.roofline import (
    ELEMENTWISE,
    SOURCE,
    KernelTime,
    MixedProduct,
    elementwise_time,
)
from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term, asdict, dataclass, term_of
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.calibration import arch_spec, load_arch
from gpuscale.render.document import Column, Document, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.parts.asked import MatmulTime
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.hardware import GpuSpec


def matmul_document(asked: MatmulTime, loaded: Loaded, sizes: list[int]) -> Document:
    """Time a matrix product."""
    spec = loaded.gpu
    m, k, n = sizes
    x, w, out = formats_of(spec, asked.dtype, asked.dtypes)
    batch, groups = asked.batch, asked.groups
    if groups > m:
        raise GpuscaleError(f"--groups {groups} is more than the {m} rows to divide")
    rate_dtype = compute_dtype(x, w)
    rate = matrix_rate(spec, rate_dtype)
    made = MixedProduct(m, k, n, x, w, out, batch=batch, groups=groups)
    found = made.roofline(rate, spec.hbm_bytes_per_s)
    shown = x if x == w == out else f"{x} x {w} -> {out}"
    product = f"[{m:,}, {k:,}] x [{k:,}, {n:,}]"
    more = (f", {batch:,} products" if batch > 1 else "") + (
        f", rows over {groups:,} weights" if groups > 1 else ""
    )
    return kernel_document(
        asked,
        loaded,
        found=found,
        inputs=asdict(made),
        title=f"{spec.name}  {product}  {shown}{more}",
        terms=_terms(found, made, rate, spec.hbm_bytes_per_s),
        product=made,
    )


def _terms(
    found: KernelTime, p: MixedProduct, flop_per_s: float, bytes_per_s: float
) -> tuple[Term, ...]:
    """Time and intensity as arithmetic over the sizes."""
    return (
        term_of(
            "time_s",
            "s",
            "max(2 * m * k * n * batch / flop_per_s, batch * (x_bytes * m * k + groups * w_bytes"
            " * k * n + out_bytes * m * n) / bytes_per_s)",
            SOURCE,
            p,
            time_s=found.time_s,
            x_bytes=element_bytes(p.x_dtype),
            w_bytes=element_bytes(p.w_dtype),
            out_bytes=element_bytes(p.out_dtype),
            flop_per_s=flop_per_s,
            bytes_per_s=bytes_per_s,
        ),
        term_of("intensity_flop_per_byte", "", "flop / bytes", SOURCE, found),
    )


def elementwise_document(asked: MatmulTime, loaded: Loaded, op: str, sizes: list[int]) -> Document:
    """Time an elementwise operation."""
    spec = loaded.gpu
    op, dtype = op.strip().lower(), (asked.dtype or "fp32").strip().lower()
    if op not in ELEMENTWISE:
        raise unknown_name("operation", op, ELEMENTWISE, f"known: {', '.join(ELEMENTWISE)}")
    check_dtype(dtype)
    n = prod(sizes)
    if n > 1e15:
        raise GpuscaleError(f"{n:.3g} elements are more than any memory holds", "at most 1e15")
    found = elementwise_time(op, n, dtype, spec.fp32_flop_per_s, spec.hbm_bytes_per_s)
    arrays = ELEMENTWISE[op]
    moved, compute = "arrays * element_bytes * elements / bytes_per_s", ""
    work: dict[str, float] = {}
    if found.flop_per_s and arrays.flop:
        compute = "flop_per_element * elements / flop_per_s"
        work = {"flop_per_element": float(arrays.flop), "flop_per_s": found.flop_per_s}
    term = Term(
        "time_s",
        found.time_s,
        "s",
        f"max({compute}, {moved})" if work else moved,
        work
        | {
            "elements": float(n),
            "arrays": float(arrays.reads + arrays.writes),
            "element_bytes": element_bytes(dtype),
            "bytes_per_s": spec.hbm_bytes_per_s,
        },
        SOURCE,
    )
    inputs = {"op": op, "elements": n, "dtype": dtype}
    title = f"{spec.name}  {op} ({arrays.meaning})  {n:,} elements  {dtype}"
    return kernel_document(asked, loaded, found, inputs, title, (term,))


@dataclass(frozen=True, slots=True)
class ProductTime:
    """Calibrated time of a product, and its interval."""

    time_s: float
    low_s: float
    high_s: float
    launch_s: float  # start of one kernel, inside the time
    measured: bool  # whether kernels of this kind are among the measurements
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAnswer(KernelTime):
    """Roofline of a kernel, and what is expected of it."""

    expected: ProductTime
    time_at_efficiency_s: float | None


def expected_of(
    spec: GpuSpec, found: KernelTime, product: MixedProduct | None, calibration: str | None
) -> tuple[ProductTime, Term]:
    """Time expected of a product, or of an elementwise kernel where there is none; explained."""
    from gpuscale.core.kernel.terms import elementwise_term, product_term

    arch = load_arch(spec, calibration)
    source, hbm = f"calibration `{arch.name}`, {arch.source}", spec.hbm_bytes_per_s
    unseen = product.unseen if product else "an elementwise kernel"
    if unseen:
        source += f"; {unseen} was not measured: constants of single products"
    dtype = found.compute_dtype if product else "bf16"
    if product is not None:
        peak, units = found.flop_per_s or 0.0, spec.n_compute_units
        rows, one = product.single(dtype, peak, hbm, units, spec.l2_bytes)
        time_s = product_time_s(rows, one, dtype, arch)
        kernel = product_term(rows, one, dtype, arch, source)
    else:
        time_s = expected_elementwise_time_s(found.bytes, found.compute_s, arch, hbm)
        kernel = elementwise_term(found.bytes, found.compute_s, arch, hbm, source)
    time_s = max(time_s, found.time_s)  # never below the roofline
    low, high = matmul_interval_s(time_s, dtype, arch, unseen=bool(unseen))
    ends_s, launch_s = (max(low, found.time_s), high), arch.for_dtype(dtype).floor_s
    inputs, formula = {"time_s": found.time_s, "kernel_s": kernel.value}, "max(time_s, kernel_s)"
    return (
        ProductTime(time_s, *ends_s, launch_s, unseen == "", source),
        Term("expected_time_s", time_s, "s", formula, inputs, source, children=(kernel,)),
    )


time = partial(format_si, dim="s")


def _rows(found: KernelTime, expected: ProductTime, share: float | None) -> list[list[str | None]]:
    """Lines of the answer: label, roofline, expected, remark."""
    known = found.flop_per_s is not None
    units = "dense matrix units" if found.kind == "matmul" else "vector units"
    peak = f"{format_si(found.flop_per_s or 0.0, 'flop_per_s')}, {found.compute_dtype} {units}"
    work = format_si(found.flop, "flop")
    # a copy has no FLOP: its rate is that of its bytes
    amount, dim = (found.flop, "flop_per_s") if found.flop else (found.bytes, "bytes_per_s")

    def work_s(seconds: float) -> float:
        return amount / seconds

    rows: list[list[str | None]] = [
        ["time", time(found.time_s), time(expected.time_s), f"{found.bound}-bound"],
        [
            "80 % interval",
            None,
            f"{time(expected.low_s)} to {time(expected.high_s)}",
            "from validation" if expected.measured else "wide: this kind was not measured",
        ],
        ["launch", None, time(expected.launch_s), "start of one kernel, included"],
        [
            "rate",
            format_si(work_s(found.time_s), dim),
            format_si(work_s(expected.time_s), dim),
            f"{100 * found.time_s / expected.time_s:.3g} % of the roofline",
        ],
    ]
    if share is not None:
        rows.append(["at efficiency", time(found.time_s / share), None, f"roofline / {share:g}"])
    rows += [
        [
            "compute",
            time(found.compute_s) if known else None,
            None,
            f"{work} at " + (peak if known else "a vector rate not known"),
        ],
        [
            "memory",
            time(found.memory_s),
            None,
            f"{format_si(found.bytes, 'bytes')} at {format_si(found.bytes_per_s, 'bytes_per_s')}",
        ],
        [
            "intensity",
            f"{found.intensity_flop_per_byte:.4g}",
            None,
            f"FLOP/byte; ridge {found.ridge_flop_per_byte:.4g}" if known else "FLOP/byte",
        ],
    ]
    if found.kind == "matmul":
        rows.append(_critical(found))
    return rows


def kernel_document(
    asked: MatmulTime,
    loaded: Loaded,
    found: KernelTime,
    inputs: dict[str, object],
    title: str,
    terms: tuple[Term, ...],
    product: MixedProduct | None = None,
) -> Document:
    """Lay the answer out."""
    share = asked.efficiency
    expected, term = expected_of(loaded.gpu, found, product, asked.calibration)
    result = KernelAnswer(
        **asdict(found),
        expected=expected,
        time_at_efficiency_s=None if share is None else found.time_s / share,
    )
    shown = _rows(found, expected, share)
    headers = [
        Column("what", "", right=False),
        Column("roofline", "roofline"),
        Column("expected", "expected"),
        Column("remark", "", right=False),
    ]
    columns = [
        Column("time_s", "roofline", time),
        Column("expected_s", "expected", time),
        Column("compute_s", "compute", time),
        Column("memory_s", "memory", time),
        Column("bound", "bound", right=False),
        Column("flop", "FLOP"),
        Column("bytes", "bytes"),
        Column("intensity_flop_per_byte", "FLOP/byte"),
    ]
    flat = {**asdict(result), "expected_s": expected.time_s}
    note = f"{_origin(loaded, asked.catalogue)}\nexpected: {expected.source}"
    if result.bound == "compute" and (said := arch_spec(loaded.gpu.architecture).notes):
        note += f"\n{said}"
    return Document(
        command="matmul-time",
        inputs=loaded.inputs(catalogue=asked.catalogue, **inputs),
        result=result,
        blocks=[Text(title), Table(headers, shown), Text(note)],
        warnings=loaded.warnings,
        terms=(*terms, term),
        csv_table=Table(columns, [[flat[c.key] for c in columns]]),
    )


def _critical(found: KernelTime) -> list[str | None]:
    rule = f"by the weights alone {found.critical_m_rule:.4g}"
    if found.smallest_compute_bound_m is None:
        return ["compute-bound", "never", None, f"K or N too small for any M; {rule}"]
    return ["compute-bound", f"M >= {found.smallest_compute_bound_m:,}", None, f"exact; {rule}"]


def _origin(loaded: Loaded, catalogue: str) -> str:
    name = loaded.gpu.name
    kind = "the documents' rounded figures" if catalogue == "documents" else "the data sheet"
    said = f"figures of {name}: {kind} (`gpuscale presets show {name}` has the sources)"
    changed = changed_text(loaded)
    return f"{said}\n{changed}" if changed else said
