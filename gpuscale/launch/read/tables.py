"""YAML of launch files: several documents in one file, tags of other programs left as they are."""

from __future__ import annotations

import re
from typing import Any

from gpuscale.errors import GpuscaleError

MOST_VALUES = 100_000
MOST_DOCUMENTS = 64


def yaml_tables(name: str, text: str) -> list[dict[str, Any]]:
    """Read the mappings of a YAML file.

    Raises GpuscaleError if it is not YAML, or holds no mapping.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Safe, and with tags that it does not know read as what they stand before."""

    Loader.add_multi_constructor("!", _plain)
    try:
        found = []
        known = re.sub(r"\$\{[A-Z][A-Z0-9_]*:([^-+=?}][^}]*)\}", r"\1", text)  # ${NAME:default}
        for i, one in enumerate(yaml.load_all(known, Loader)):
            if i == MOST_DOCUMENTS:
                break
            found.append(one)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise GpuscaleError(f"{name}: not YAML: {' '.join(str(error).split())[:120]}") from None
    if any(_size(one, {}) > MOST_VALUES for one in found):
        raise GpuscaleError(f"{name}: its aliases make more than {MOST_VALUES:,} values")
    tables = [one for one in found if isinstance(one, dict)]
    if not tables:
        raise GpuscaleError(f"{name}: a YAML mapping is expected")
    return tables


def _size(value: Any, known: dict[int, int]) -> int:
    """Count the values of a nested one, those behind an alias as often as they stand."""
    if not isinstance(value, (list, dict)):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_VALUES  # of itself within itself
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = min(MOST_VALUES + 1, 1 + sum(_size(one, known) for one in inner))
    return known[id(value)]


def _plain(loader: Any, _tag: str, node: Any) -> Any:
    """Value of a tagged node without its tag."""
    kind = type(node).__name__
    if kind == "MappingNode":
        return loader.construct_mapping(node, deep=True)
    if kind == "SequenceNode":
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)
