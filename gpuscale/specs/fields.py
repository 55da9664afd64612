"""Field types that read text with units, and the base model that refuses unknown keys."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpuscale.core.quantity import MAX_ABS, parse


class Spec(BaseModel):
    """Base of every spec: frozen; a typo in a key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _si(dim: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("a number with a unit is wanted, not true/false")
        return parse(value, dim) if isinstance(value, str) else value

    return BeforeValidator(read)


Bytes = Annotated[float, _si("bytes"), Field(gt=0, le=MAX_ABS)]
BytesPerS = Annotated[float, _si("bytes_per_s"), Field(gt=0, le=MAX_ABS)]
FlopPerS = Annotated[float, _si("flop_per_s"), Field(gt=0, le=MAX_ABS)]
Hertz = Annotated[float, _si("hz"), Field(gt=0, le=MAX_ABS)]
Watts = Annotated[float, _si("w"), Field(gt=0, le=MAX_ABS)]
Seconds = Annotated[float, _si("s"), Field(ge=0, le=MAX_ABS)]
UsdPerHour = Annotated[float, _si("usd_per_hour"), Field(ge=0, le=MAX_ABS)]
Tokens = Annotated[float, _si("tokens"), Field(gt=0, le=MAX_ABS)]
Count = Annotated[float, _si("count"), Field(ge=0, le=MAX_ABS)]
Fraction = Annotated[float, _si("frac"), Field(gt=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
NonNegativeInt = Annotated[int, Field(ge=0, le=10**9)]
