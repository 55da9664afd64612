"""Functions that the arithmetic of a `Term` may call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "max": max,
    "min": min,
    "ceil": math.ceil,
    "floor": math.floor,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "sum": sum,
    "tanh": math.tanh,
}
