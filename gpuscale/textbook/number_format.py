"""Floating-point layouts, SI prefixes, rounding."""

from __future__ import annotations

import math

from gpuscale.core.quantity import parse

FORMATS: dict[str, tuple[int, int, int]] = {
    "e4m3": (4, 3, 7),
    "e5m2": (5, 2, 15),
    "e3m4": (3, 4, 3),
    "fp16": (5, 10, 15),
    "bf16": (8, 7, 127),
    "e2m1": (2, 1, 1),
}
"""Exponent bits, mantissa bits, bias (OCP 8-bit floating point 1.0; OCP Microscaling 1.0)."""

WITHOUT_INFINITY = ("e4m3", "e3m4", "e2m1")
"""Formats whose top exponent holds numbers too."""


def decode_float(bits: str, layout: str) -> float:
    """Value of a bit pattern: ``(-1)^S 2^(E-bias) (1 + M/2^m)``, subnormal when E is 0.

    `bits`: sign, exponent, mantissa, e.g. ``"0 1011 011"``; blanks do not count. `layout`: a key of
    `FORMATS`. Returns: the value; not a number and infinity are refused, as no document prints one
    [1]. Raises ValueError if the layout is not known, the bits do not fit it, or they encode no
    number.

    Examples
    --------
    >>> decode_float("0 1011 011", "e4m3"), decode_float("0 101 1011", "e3m4")
    (22.0, 6.75)
    >>> decode_float("0 1111 110", "e4m3")
    448.0
    """
    if layout not in FORMATS:
        raise ValueError(f"layout must be one of {', '.join(FORMATS)}, got {layout!r}")
    n_exponent, n_mantissa, bias = FORMATS[layout]
    digits = bits.replace(" ", "")
    if len(digits) != 1 + n_exponent + n_mantissa or set(digits) - {"0", "1"}:
        raise ValueError(f"{bits!r} is not {1 + n_exponent + n_mantissa} bits of {layout}")
    sign = -1.0 if digits[0] == "1" else 1.0
    exponent = int(digits[1 : 1 + n_exponent], 2)
    mantissa = int(digits[1 + n_exponent :], 2)
    top = exponent == 2**n_exponent - 1
    if top and layout not in WITHOUT_INFINITY:
        raise ValueError(f"{bits!r} of {layout} is infinity or not a number")
    if top and layout == "e4m3" and mantissa == 2**n_mantissa - 1:
        raise ValueError(f"{bits!r} of {layout} is not a number")
    if exponent == 0:
        return sign * math.ldexp(mantissa / 2**n_mantissa, 1 - bias)
    return sign * math.ldexp(1 + mantissa / 2**n_mantissa, exponent - bias)


def si_exponent(prefix: str) -> int:
    """Power of ten of an SI prefix, as quantities are read: k 3, M 6, G 9, T 12, P 15.

    Examples
    --------
    >>> [si_exponent(p) for p in "kMGTP"]
    [3, 6, 9, 12, 15]
    """
    return round(math.log10(parse(f"1 {prefix}B", "bytes")))


def round_significant(value: float, digits: int) -> float:
    """Value rounded to a number of significant digits, as documents print it.

    Examples
    --------
    >>> round_significant(989.4e12, 3)
    989000000000000.0
    """
    return float(f"{value:.{digits - 1}e}")
