"""Field types that read text with units, and the base model that refuses unknown keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from gpuscale.core.quantity import MAX_ABS, parse


class Spec(BaseModel):
    """Base of every spec: frozen; a typo in a key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def _si(dim: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("a number with a unit is wanted, not true/false")
        return parse(value, dim) if isinstance(value, str) else value

    return BeforeValidator(read)


def one_of(known: Collection[str]) -> AfterValidator:
    """Refuse a name that a table does not have."""

    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"{value[:60]!r} is not one of {', '.join(known)}")
        return value

    return AfterValidator(check)


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("a name has no line end and no control code")
    return value


Name = Annotated[str, AfterValidator(_one_line)]

_MEASURE = Field(gt=0, ge=1, le=MAX_ABS)
"""Sizes and rates: below one per second no formula keeps its digits, and no machine exists."""

Bytes = Annotated[float, _si("bytes"), _MEASURE]
BytesPerS = Annotated[float, _si("bytes_per_s"), _MEASURE]
FlopPerS = Annotated[float, _si("flop_per_s"), _MEASURE]
Hertz = Annotated[float, _si("hz"), _MEASURE]
Watts = Annotated[float, _si("w"), Field(gt=0, le=MAX_ABS)]
Seconds = Annotated[float, _si("s"), Field(ge=0, le=MAX_ABS)]
UsdPerHour = Annotated[float, _si("usd_per_hour"), Field(ge=0, le=MAX_ABS)]
Tokens = Annotated[float, _si("tokens"), Field(gt=0, le=MAX_ABS)]
Count = Annotated[float, _si("count"), Field(ge=0, le=MAX_ABS)]
Fraction = Annotated[float, _si("frac"), Field(gt=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
NonNegativeInt = Annotated[int, Field(ge=0, le=10**9)]
