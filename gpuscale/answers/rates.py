"""Number formats of a product, and the rates that a GPU has in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.core.formats import FORMATS
from gpuscale.core.quantity import format_si
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.specs.gpu import GpuSpec


def formats_of(spec: GpuSpec, dtype: str | None, dtypes: str | None) -> tuple[str, str, str]:
    """Read (x, w, out) formats; by default bf16, or what the GPU has."""
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
    if name not in FORMATS:
        raise unknown_name("dtype", name, FORMATS, f"known: {', '.join(FORMATS)}")


def matrix_rate(spec: GpuSpec, dtype: str) -> float:
    """Dense peak of a GPU in a format, or an error that lists what it has."""
    rate = spec.flop_per_s(dtype)
    if rate is None:
        own = [name for name, f in FORMATS.items() if f.rate == name]
        has = [f"{d} {format_si(r, 'flop_per_s')}" for d in own if (r := spec.flop_per_s(d))]
        raise GpuscaleError(
            f"{spec.name} has no {dtype} matrix rate",
            f"it has {', '.join(has)}" if has else "its preset gives no rate at all",
        )
    return rate
