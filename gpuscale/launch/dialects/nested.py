"""A framework's file, and tables that are nested: what says a field, by its path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.software import load_framework
from gpuscale.io.text import Table
from gpuscale.launch.dialects.megatron_model import model_of
from gpuscale.launch.dialects.rows import number_of, truth
from gpuscale.launch.found import UNSET, Found, launch_table
from gpuscale.specs.software import FrameworkFile


@lru_cache(maxsize=64)
def dialect(name: str) -> FrameworkFile:
    """File of a framework, with the rows of the one that it is like below its own."""
    own = load_framework(name)
    if own is None:
        raise ValueError(f"no file of the framework {name}")
    if not own.rows_like:
        return own
    base = dialect(own.rows_like)
    fields = {row.field for row in own.row} | set(own.unsaid)
    rows = (*own.row, *(row for row in base.row if row.field not in fields))
    told = fields | {name for hook in own.hook for name in hook.fields}
    hooks = (*own.hook, *(hook for hook in base.hook if set(hook.fields) - told))
    return own.model_copy(update={"row": rows, "hook": hooks})


ELSEWHERE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)\}$")
"""A value that is another key's (OmegaConf)."""


class Nested:
    """Values of a nested table by dotted paths, noted on a `Found` where they are of a field."""

    def __init__(self, found: Found, table: Mapping[str, Any]) -> None:
        self.found, self.table = found, table
        self.heard: set[str] = set()

    def get(self, *paths: str) -> Any:
        """Value of the first path that has one; None where none has."""
        for path in paths:
            value = self._at(path)
            self.heard.add(path)
            for _ in range(8):  # a value may name a key that names a key
                if not isinstance(value, str) or not (named := ELSEWHERE.match(value.strip())):
                    break
                self.heard.add(named[1])
                value = self._at(named[1])
            if value is not None:
                return value
        return None

    def _at(self, path: str) -> Any:
        if path in self.table:
            return self.table[path]
        value: Any = self.table
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def text(self, *paths: str) -> str:
        """Value as text; empty where no path has one."""
        value = self.get(*paths)
        return "" if value is None or isinstance(value, (dict, list)) else str(value).strip()

    def known(self, *paths: str) -> str:
        """Value as text; empty too where it holds an unset variable."""
        text = self.text(*paths)
        return "" if UNSET in text else text

    def has(self, path: str) -> bool:
        """Whether a path has a value."""
        return self.get(path) is not None

    def number(self, *paths: str) -> int | None:
        """Value as a whole number above 0, `4_096` and `1e3` too; None for anything else."""
        return number_of(self.get(*paths))

    def true(self, *paths: str, default: bool = False) -> bool:
        """Whether a value is true, or a table that does not turn itself off."""
        value = self.get(*paths)
        return default if value is None or UNSET in str(value) else truth(value)

    def dims(self, kind: str) -> dict[str, int | None]:
        """Dimensions of a model, for `put_shape`, by the paths of a kind of file."""
        paths: Mapping[str, str] = launch_table("words")["shapes"][kind]
        return {key: self.number(*paths.get(key, "").split()) for key in FLAGS}

    def put(self, numbers: Mapping[str, str]) -> None:
        """Put numbers on the record: field -> its paths, apart by spaces."""
        for name, paths in numbers.items():
            for path in paths.split():
                if UNSET in (said := self.text(path)):
                    self.found.unread[name] = said.replace(UNSET, "")
                    break
                if (number := self.number(path)) is not None:
                    setattr(self.found, name, number)
                    self.found.places[name] = f"{path}: {number}"
                    break


def nest(pairs: Mapping[str, Any]) -> Table:
    """Make a nested table of dotted keys.

    >>> nest({"a.b": 1, "a.c.d": 2})
    {'a': {'b': 1, 'c': {'d': 2}}}
    """
    table: Table = {}
    for key, value in pairs.items():
        at = table
        *folders, last = key.split(".")
        for folder in folders:
            inner = at.setdefault(folder, {})
            at = inner if isinstance(inner, dict) else {}
        at[last] = value
    return table


def put_shape(found: Found, name: str, dims: Mapping[str, int | None], **style: bool) -> None:
    """Build the model of a file that holds its shape, as Megatron's flags would.

    `dims`: layers, hidden, heads and, where they are said, kv, ffn, vocab, head_dim, experts,
    top_k, expert_ffn. `style`: gated, tied, rms, bias, learned (positions), qkv_bias.
    """
    table: Table = {flag: dims[key] for key, flag in FLAGS.items() if dims.get(key)}
    on = {
        "group-query-attention": "num-query-groups" in table,
        "swiglu": style.get("gated"),
        "untie-embeddings-and-output-weights": not style.get("tied"),
        "disable-bias-linear": not style.get("bias"),
        "add-qkv-bias": style.get("qkv_bias"),
    }
    table |= {flag: True for flag, said in on.items() if said}
    table["make-vocab-size-divisible-by"] = 1 if "vocab-size" in table else None
    table["normalization"] = "RMSNorm" if style.get("rms", True) else "LayerNorm"
    table["position-embedding-type"] = "learned" if style.get("learned") else "rope"
    found.model = model_of(Nested(found, table), name)
    found.model_name = name


FLAGS: dict[str, str] = launch_table("words")["flags"]
"""Dimension of `put_shape` -> Megatron's flag."""


def vocabulary(tokenizer: str) -> int | None:
    """Size of the vocabulary of the model whose tokenizer is named; None where it is not known."""
    from gpuscale.io.models import load_model

    if not tokenizer or tokenizer.endswith((".json", ".model")):
        return None
    try:
        return load_model(tokenizer).spec.vocab_size
    except GpuscaleError:
        return None
