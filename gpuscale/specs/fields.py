"""Field types that read text with units, and the base of specs, which refuses unknown keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from gpuscale.core.bounds import STRICT, Measured
from gpuscale.core.records import NamedTuple, asdict, dataclass, field, replace

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        """Say nothing at run time."""
        return lambda cls: cls


S = TypeVar("S", bound="Spec")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Spec:
    """Base of every spec: frozen; a typo in a key is an error.

    It is made of values that hold; `model_validate` takes what a person wrote. The methods have
    pydantic's names, which is imported for files of others alone.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {**STRICT, "revalidate_instances": "always"}

    def __init_subclass__(cls) -> None:
        """Make every spec a dataclass."""
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def model_validate(cls: type[S], table: Any) -> S:
        """Make one of a table; raises pydantic's ValidationError where it does not hold."""
        made: S = adapter(cls).validate_python(table)  # type: ignore[arg-type]
        return made

    def model_copy(self: S, *, update: Mapping[str, Any]) -> S:
        """Return a copy with other values of some fields, which hold."""
        return replace(self, **update)  # type: ignore[type-var]

    def model_dump(self) -> dict[str, Any]:
        """Return its fields as a table, those of what it holds too."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what checks tables of a record against its fields and their bounds."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


class OneLine(NamedTuple):
    """A text without line ends and control codes."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""

        def check(value: str) -> str:
            if not value.isprintable():
                raise ValueError("a name has no line end and no control code")
            return value

        wrapped = {"type": "no-info", "function": check}
        return {"type": "function-after", "function": wrapped, "schema": handler(source)}


Name = Annotated[str, OneLine()]

LEAST = 1.0
"""Of sizes and rates: below one per second no formula keeps its digits, and no machine exists."""

Bytes = Annotated[float, Measured("bytes", LEAST)]
BytesPerS = Annotated[float, Measured("bytes_per_s", LEAST)]
FlopPerS = Annotated[float, Measured("flop_per_s", LEAST)]
Hertz = Annotated[float, Measured("hz", LEAST)]
UsdPerHour = Annotated[float, Measured("usd_per_hour")]
Tokens = Annotated[float, Measured("tokens", above=True)]
