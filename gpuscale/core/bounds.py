"""Bounds of what files may say, kept beside the field; whoever reads a file holds them.

They are schemas for pydantic, which core itself does not import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gpuscale.core.quantity import MAX_ABS, parse
from gpuscale.core.records import NamedTuple

STRICT: dict[str, str | bool] = {"extra": "forbid", "allow_inf_nan": False}
"""``__pydantic_config__`` of a record that a file fills: a typo in a key is an error."""


def before(read: Callable[[Any], Any], schema: Any) -> dict[str, Any]:
    """Return pydantic's schema of what is read before it is held to another one."""
    wrapped = {"type": "no-info", "function": read}
    return {"type": "function-before", "function": wrapped, "schema": schema}


class Within(NamedTuple):
    """Range of a number, both ends within; or a number above 0."""

    least: float
    most: float
    above: bool = False  # beyond `least`

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""
        return {**handler(source), "gt" if self.above else "ge": self.least, "le": self.most}


class Among(NamedTuple):
    """The words that a text may be."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""
        return {"type": "literal", "expected": list(self.words)}


class Keys(NamedTuple):
    """The keys that a table may have, and those that it must."""

    known: tuple[str, ...]
    wanted: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""
        each = {"type": "typed-dict-field", "schema": handler(source)["values_schema"]}
        found = {name: {**each, "required": name in self.wanted} for name in self.known}
        return {"type": "typed-dict", "fields": found, "extra_behavior": "forbid"}


class Filled(NamedTuple):
    """A list with something in it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""
        return {**handler(source), "min_length": 1}


class Several(NamedTuple):
    """A tuple of which one alone may stand without its brackets."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""
        return before(self.read, handler(source))

    def read(self, value: Any) -> Any:
        """Put one alone into a tuple."""
        return (value,) if isinstance(value, (str, int, float)) else value


class Measured(NamedTuple):
    """An amount that may be text with a unit: `12 M`, `3 us`."""

    dim: str
    least: float = 0.0
    most: float = MAX_ABS
    above: bool = False  # beyond `least`

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""
        steps = [{"type": "float", "gt": 0}] if self.least > 0 else []  # the plainer thing to say
        bounds = Within(self.least, self.most, self.above)
        steps.append(bounds.__get_pydantic_core_schema__(source, handler))
        return before(self.read, {"type": "chain", "steps": steps})

    def read(self, value: Any) -> Any:
        """Read text with a unit."""
        if isinstance(value, bool) and self.dim != "count":
            raise ValueError("a number with a unit is wanted, not true/false")
        return parse(value, self.dim) if isinstance(value, str) else value


class Priced(NamedTuple):
    """Money always has its unit: a bare number may be meant per GPU, per node or per month."""

    dim: str
    most: float

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""
        return before(self.read, Within(0, self.most).__get_pydantic_core_schema__(source, handler))

    def read(self, value: Any) -> Any:
        """Read a price with its unit."""
        bare = not isinstance(value, str) or not value.strip(" +-.0123456789_eE")
        if bare:
            example = {"usd": "310000 USD", "usd_per_kwh": "0.08 USD/kWh"}[self.dim]
            raise ValueError(f"a price needs its unit, such as '{example}'")
        return parse(value, self.dim)


PositiveInt = Annotated[int, Within(1, 10**9)]
NonNegativeInt = Annotated[int, Within(0, 10**9)]
Count = Annotated[float, Measured("count")]
Seconds = Annotated[float, Measured("s")]
Factor = Annotated[float, Within(0, 1000)]
Overhead = Annotated[float, Within(0, 1e12)]
Share = Annotated[float, Measured("frac", 0.0, 1.0)]
Fragmentation = Annotated[float, Within(1, 3)]
Spread = Annotated[float, Within(1, 10)]
Fraction = Annotated[float, Measured("frac", 0.0, 1.0, above=True)]
ZeroStage = Annotated[int, Within(0, 3)]
Watts = Annotated[float, Measured("w", above=True)]
Pue = Annotated[float, Within(1, 10)]
Usd = Annotated[float, Priced("usd", MAX_ABS)]
UsdPerKwh = Annotated[float, Priced("usd_per_kwh", 1000.0)]
