"""Field types that read text with units, and the base model that refuses unknown keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from gpuscale.core.bounds import Measured


class Spec(BaseModel):
    """Base of every spec: frozen; a typo in a key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("a name has no line end and no control code")
    return value


Name = Annotated[str, AfterValidator(_one_line)]

LEAST = 1.0
"""Of sizes and rates: below one per second no formula keeps its digits, and no machine exists."""

Bytes = Annotated[float, Measured("bytes", LEAST)]
BytesPerS = Annotated[float, Measured("bytes_per_s", LEAST)]
FlopPerS = Annotated[float, Measured("flop_per_s", LEAST)]
Hertz = Annotated[float, Measured("hz", LEAST)]
Watts = Annotated[float, Measured("w", above=True)]
UsdPerHour = Annotated[float, Measured("usd_per_hour")]
Tokens = Annotated[float, Measured("tokens", above=True)]
Fraction = Annotated[float, Measured("frac", 0.0, 1.0, above=True)]
