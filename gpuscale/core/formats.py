"""Number formats: bytes per element, scales included."""

from __future__ import annotations

ELEMENT_BYTES: dict[str, float] = {
    "fp64": 8.0,
    "fp32": 4.0,
    "tf32": 4.0,  # stored as fp32
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "mxfp8": 1.0 + 1 / 32,  # one 8-bit scale per 32 elements (OCP MX v1.0)
    "int8": 1.0,
    "fp4": 0.5,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,  # one fp8 scale per 16 elements
    "int4": 0.5,
}
"""Bytes of one element in memory."""

RATE_ORDER = (
    "fp64",
    "fp32",
    "tf32",
    "bf16",
    "fp16",
    "int8",
    "fp8",
    "mxfp8",
    "int4",
    "fp4",
    "mxfp4",
    "nvfp4",
)
"""Formats from the slowest matrix unit to the fastest; a mixed product runs at the first."""


def element_bytes(dtype: str) -> float:
    """Bytes of one element of a number format, block scales included.

    Raises
    ------
    ValueError
        If the format is not known.

    Examples
    --------
    >>> element_bytes("bf16"), element_bytes("nvfp4")
    (2.0, 0.5625)
    """
    try:
        return ELEMENT_BYTES[dtype]
    except KeyError:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(ELEMENT_BYTES)}") from None


def compute_dtype(x: str, w: str) -> str:
    """Format in which a product of mixed operands runs: the wider one is kept.

    Weights stored in 8 or 4 bits are widened on the way to the matrix unit.

    Examples
    --------
    >>> compute_dtype("bf16", "fp8"), compute_dtype("fp8", "fp8")
    ('bf16', 'fp8')
    """
    return min(x, w, key=RATE_ORDER.index)
