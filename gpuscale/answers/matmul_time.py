"""`gpuscale matmul-time`: one matrix product or elementwise operation on one GPU."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Swept, amount, text, whole
from gpuscale.core.kernel.ideal import KernelTime
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.core.kernel.calibration import ArchCalibration
    from gpuscale.core.records import Term
    from gpuscale.io.inputs import Loaded
    from gpuscale.render.document import Document
    from gpuscale.specs.gpu import GpuSpec


@dataclass
class MatmulTime(Swept):
    """Time of one matrix product or elementwise operation on one GPU.

    The roofline is a lower bound: each operand moved once, compute and memory overlapped.
    """

    NAME: ClassVar[str] = "matmul-time"
    RESULTS: ClassVar[tuple[str, ...]] = ("gpuscale.answers.matmul_time:KernelAnswer",)
    EXAMPLE: ClassVar[str] = "gpuscale matmul-time b200 64 4096 8192 --dtype bf16"
    HEADLINES: ClassVar[tuple[str, ...]] = ("time_s", "expected.time_s", "bound")
    gpu: Asked[str] = text("GPU preset, TOML file or -.", ...)
    m: Asked[int] = whole("Rows M of [M,K] x [K,N]; with --op the elements.", ..., label="M")
    k: Asked[int | None] = whole("Inner dimension K.", label="K")
    n: Asked[int | None] = whole("Columns N.", label="N")
    _: KW_ONLY
    dtype: Asked[str | None] = text(
        "Number format of all operands. [default: bf16, or the GPU's best 16]"
    )
    dtypes: Asked[str | None] = text("Formats of the operands and the result.", metavar="X,W,OUT")
    batch: Asked[int] = whole("Independent products.", 1, most=1e9)
    groups: Asked[int] = whole(
        "Weights that the M rows are divided among (grouped product).", 1, most=1e9
    )
    op: Asked[str | None] = text(
        "Elementwise instead: add, mul, scale, relu, axpy, fma, copy, sum, dot."
    )
    efficiency: Asked[float | None] = amount(
        "Also show the time at this share of the roofline, as 0.78.", "frac", most=1.0
    )
    catalogue: Asked[str] = options.catalogue()

    def answer(self) -> Document:
        """Time the product, or the elementwise operation."""
        from gpuscale.io.inputs import load_inputs

        loaded = load_inputs(self, gpu=self.gpu, catalogue=self.catalogue)
        sizes = [size for size in (self.m, self.k, self.n) if size is not None]
        if self.op is not None:
            _refuse(dtypes=self.dtypes is not None, batch=self.batch > 1, groups=self.groups > 1)
            return _elementwise(self, loaded, self.op, sizes)
        if len(sizes) < 3:
            raise GpuscaleError(
                "M, K and N are wanted for a matrix product",
                "for example `gpuscale matmul-time b200 64 4096 8192`; one size goes with --op add",
            )
        if max(sizes) > 1e10:
            raise GpuscaleError(f"M, K and N must be at most 1e10, got {max(sizes):g}")
        return _matmul(self, loaded, sizes)


def _refuse(**given: bool) -> None:
    for name, wrong in given.items():
        if wrong:
            raise GpuscaleError(f"--{name} has no meaning with --op")


def _formats(spec: GpuSpec, dtype: str | None, dtypes: str | None) -> tuple[str, str, str]:
    """(x, w, out) formats; by default bf16, or what the GPU has."""
    if dtype and dtypes:
        raise GpuscaleError("give --dtype or --dtypes, not both")
    if dtypes:
        parts = tuple(p.strip().lower() for p in dtypes.split(","))
        if len(parts) != 3:
            raise GpuscaleError("--dtypes: give three formats, such as bf16,fp8,bf16")
        x, w, out = parts
    elif dtype:
        x = w = dtype.strip().lower()
        out = x if x in ("bf16", "fp16", "fp32", "tf32") else "bf16"
    else:
        x = w = out = next(
            (d for d in ("bf16", "fp16", "fp32", "int8") if spec.flop_per_s(d)), "bf16"
        )
    for name in (x, w, out):
        check_dtype(name)
    return x, w, out


def check_dtype(name: str) -> None:
    """Refuse a number format that is not known."""
    from gpuscale.core.formats import FORMATS
    from gpuscale.errors import unknown_name

    if name not in FORMATS:
        raise unknown_name("dtype", name, FORMATS, f"known: {', '.join(FORMATS)}")


def matrix_rate(spec: GpuSpec, dtype: str) -> float:
    """Dense peak of a GPU in a format, or an error that lists what it has."""
    rate = spec.flop_per_s(dtype)
    if rate is None:
        from gpuscale.core.formats import FORMATS
        from gpuscale.core.quantity import format_si

        own = [name for name, f in FORMATS.items() if f.rate == name]
        has = [f"{d} {format_si(r, 'flop_per_s')}" for d in own if (r := spec.flop_per_s(d))]
        raise GpuscaleError(
            f"{spec.name} has no {dtype} matrix rate",
            f"it has {', '.join(has)}" if has else "its preset gives no rate at all",
        )
    return rate


def _matmul(asked: MatmulTime, loaded: Loaded, sizes: list[int]) -> Document:
    from gpuscale.core.formats import compute_dtype, element_bytes
    from gpuscale.core.kernel.ideal import SOURCE
    from gpuscale.core.kernel.ideal import matmul_time as compute
    from gpuscale.core.records import Term

    spec = loaded.gpu
    m, k, n = sizes
    x, w, out = _formats(spec, asked.dtype, asked.dtypes)
    batch, groups = asked.batch, asked.groups
    if groups > m:
        raise GpuscaleError(f"--groups {groups} is more than the {m} rows to divide")
    rate_dtype = compute_dtype(x, w)
    rate = matrix_rate(spec, rate_dtype)
    found = compute(m, k, n, x, w, out, rate, spec.hbm_bytes_per_s, batch, groups)
    formula_inputs = {
        "m": float(m),
        "k": float(k),
        "n": float(n),
        "batch": float(batch),
        "groups": float(groups),
        "x_bytes": element_bytes(x),
        "w_bytes": element_bytes(w),
        "out_bytes": element_bytes(out),
        "flop_per_s": rate,
        "bytes_per_s": spec.hbm_bytes_per_s,
    }
    term = Term(
        "time_s",
        found.time_s,
        "s",
        "max(2 * m * k * n * batch / flop_per_s, batch * (x_bytes * m * k + groups * w_bytes * k"
        " * n + out_bytes * m * n) / bytes_per_s)",
        formula_inputs,
        SOURCE,
    )
    intensity = Term(
        "intensity_flop_per_byte",
        found.intensity_flop_per_byte,
        "",
        "flop / bytes",
        {"flop": float(found.flop), "bytes": found.bytes},
        SOURCE,
    )
    shown = x if x == w == out else f"{x} x {w} -> {out}"
    product = f"[{m:,}, {k:,}] x [{k:,}, {n:,}]"
    more = (f", {batch:,} products" if batch > 1 else "") + (
        f", rows over {groups:,} weights" if groups > 1 else ""
    )
    inputs = {
        "gpu": spec.name,
        "catalogue": asked.catalogue,
        "m": m,
        "k": k,
        "n": n,
        "x_dtype": x,
        "w_dtype": w,
        "out_dtype": out,
        "batch": batch,
        "groups": groups,
    }
    return _document(
        asked, loaded, found, inputs, f"{spec.name}  {product}  {shown}{more}", (term, intensity)
    )


def _elementwise(asked: MatmulTime, loaded: Loaded, op: str, sizes: list[int]) -> Document:
    from math import prod

    from gpuscale.core.formats import element_bytes
    from gpuscale.core.kernel.ideal import SOURCE, elementwise_time
    from gpuscale.core.kernel.roofline import ELEMENTWISE
    from gpuscale.core.records import Term
    from gpuscale.errors import unknown_name

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
    term = Term(
        "time_s",
        found.time_s,
        "s",
        "max(flop_per_element * n * inverse_rate, arrays * element_bytes * n / bytes_per_s)",
        {
            "flop_per_element": float(arrays.flop),
            "n": float(n),
            "inverse_rate": 1 / found.flop_per_s if found.flop_per_s else 0.0,
            "arrays": float(arrays.reads + arrays.writes),
            "element_bytes": element_bytes(dtype),
            "bytes_per_s": spec.hbm_bytes_per_s,
        },
        SOURCE,
    )
    inputs = {
        "gpu": spec.name,
        "catalogue": asked.catalogue,
        "op": op,
        "elements": n,
        "dtype": dtype,
    }
    title = f"{spec.name}  {op} ({arrays.meaning})  {n:,} elements  {dtype}"
    return _document(asked, loaded, found, inputs, title, (term,))


@dataclass(frozen=True, slots=True)
class Expected:
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

    expected: Expected
    time_at_efficiency_s: float | None


def _expected(
    spec: GpuSpec, found: KernelTime, inputs: dict[str, Any], calibration: str | None
) -> Expected:
    """Return the expected time of a product or of an elementwise kernel."""
    from gpuscale.core.kernel.calibration import matmul_interval_s
    from gpuscale.core.kernel.expected import expected_elementwise_time_s
    from gpuscale.io.calibration import load_arch

    arch = load_arch(spec, calibration)
    source, dtype = f"calibration `{arch.name}`, {arch.source}", "bf16"
    unseen = _unseen(inputs) if found.kind == "matmul" else "an elementwise kernel"
    if unseen:
        source += f"; {unseen} was not measured: constants of single products"
    if found.kind == "matmul":
        dtype = found.compute_dtype
        time_s = _expected_product_s(spec, found, inputs, arch)
    else:
        time_s = expected_elementwise_time_s(
            found.bytes, found.compute_s, arch, spec.hbm_bytes_per_s
        )
    time_s = max(time_s, found.time_s)
    low, high = matmul_interval_s(time_s, dtype, arch, unseen=bool(unseen))
    launch_s = arch.for_dtype(dtype).floor_s
    return Expected(time_s, max(low, found.time_s), high, launch_s, unseen == "", source)


def _unseen(inputs: dict[str, Any]) -> str:
    """Which form of product the measurements do not hold, or nothing."""
    forms = {
        "a batched product": inputs["batch"] > 1,
        "a grouped product": inputs["groups"] > 1,
        "a product of mixed formats": inputs["x_dtype"] != inputs["w_dtype"],
    }
    return next((form for form, given in forms.items() if given), "")


def _expected_product_s(
    spec: GpuSpec, found: KernelTime, inputs: dict[str, Any], arch: ArchCalibration
) -> float:
    """Time of a product by the calibration; the narrower operand is widened on the way.

    A grouped product is one launch of equal products, the rows shared out evenly.
    """
    from gpuscale.core.formats import element_bytes
    from gpuscale.core.kernel.expected import expected_matmul_time_s

    groups, x, w = inputs["groups"], inputs["x_dtype"], inputs["w_dtype"]
    rows, columns, narrow = inputs["m"] / groups, inputs["n"], w
    if x != found.compute_dtype:  # the transposed product: the same work, operands swapped
        rows, columns, narrow = columns, rows, x
    return expected_matmul_time_s(
        rows,
        columns,
        inputs["k"],
        found.compute_dtype,
        arch,
        found.flop_per_s or 0.0,
        spec.hbm_bytes_per_s,
        n_units=spec.n_compute_units,
        l2_bytes=spec.l2_bytes,
        out_bytes=element_bytes(inputs["out_dtype"]),
        weight_bytes=None if x == w else element_bytes(narrow),
        products=groups * inputs["batch"],
    )


def _rows(found: KernelTime, expected: Expected, share: float | None) -> list[list[str | None]]:
    """Lines of the answer: label, roofline, expected, remark."""
    from gpuscale.core.quantity import format_si

    def time(v: float) -> str:
        return format_si(v, "s")

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


def _document(
    asked: MatmulTime,
    loaded: Loaded,
    found: KernelTime,
    inputs: dict[str, Any],
    title: str,
    terms: tuple[Term, ...],
) -> Document:
    from dataclasses import asdict

    from gpuscale.core.quantity import format_si
    from gpuscale.core.records import Term
    from gpuscale.render.document import Column, Document, Table, Text

    inputs = {**inputs, "changed": list(loaded.changes)}
    share = asked.efficiency
    expected = _expected(loaded.gpu, found, inputs, asked.calibration)
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

    def time(v: float) -> str:
        return format_si(v, "s")

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
    terms += (Term("expected_time_s", expected.time_s, "s", source=expected.source),)
    return Document(
        command="matmul-time",
        inputs=inputs,
        result=result,
        blocks=[Text(title), Table(headers, shown), Text(note)],
        warnings=loaded.warnings,
        terms=terms,
        csv_table=Table(columns, [[flat[c.key] for c in columns]]),
    )


def _critical(found: KernelTime) -> list[str | None]:
    rule = f"by the weights alone {found.critical_m_rule:.4g}"
    if found.smallest_compute_bound_m is None:
        return ["compute-bound", "never", None, f"K or N too small for any M; {rule}"]
    return ["compute-bound", f"M >= {found.smallest_compute_bound_m:,}", None, f"exact; {rule}"]


def _origin(loaded: Loaded, catalogue: str) -> str:
    from gpuscale.io.inputs import changed_text

    name = loaded.gpu.name
    kind = "the documents' rounded figures" if catalogue == "documents" else "the data sheet"
    said = f"figures of {name}: {kind} (`gpuscale presets show {name}` has the sources)"
    changed = changed_text(loaded)
    return f"{said}\n{changed}" if changed else said
