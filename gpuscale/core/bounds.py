"""Bounds of what files may say, kept beside the field; whoever reads a file holds them.

They are schemas for pydantic, which core itself does not import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from gpuscale.core.quantity import MAX_ABS, parse

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


PositiveInt = Annotated[int, Within(1, 10**9)]
NonNegativeInt = Annotated[int, Within(0, 10**9)]
Count = Annotated[float, Measured("count")]
Seconds = Annotated[float, Measured("s")]
Factor = Annotated[float, Within(0, 1000)]
Overhead = Annotated[float, Within(0, 1e12)]
Share = Annotated[float, Within(0, 1)]
Fragmentation = Annotated[float, Within(1, 3)]
Spread = Annotated[float, Within(1, 10)]
Fraction = Annotated[float, Within(0, 1, above=True)]
ZeroStage = Annotated[int, Within(0, 3)]
