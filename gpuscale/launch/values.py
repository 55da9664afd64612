"""Values of Python's expressions read statically: what is constant, nothing is executed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gpuscale.io.text import Table
from gpuscale.launch.found import UNSET

MOST_VALUES = 100_000
MOST = 1e15
MOST_TEXT = 10_000
NOTHING: Mapping[str, Any] = MappingProxyType({})
CAPABILITY = [9, 0]
"""Of a GPU that is sold today (CUDA C++ Programming Guide): it has bf16."""


GIVEN = r"model|name|path|load$|checkpoint|ckpt"
"""In the names of options without a default that a job is always given."""


def known(value: Any) -> bool:
    """Whether a value is known: neither None nor a text with the mark of what is not."""
    return value is not None and not (isinstance(value, str) and UNSET in value)


class Evaluator:
    """Values of expressions by the names, attributes and options that are known.

    `names`: values that are known before. `given`: options and variables that the program is
    started with, by name: they go before the defaults of arguments, of dataclasses and of
    functions.
    """

    def __init__(self, names: Mapping[str, Any] = NOTHING, given: Mapping[str, Any] = NOTHING):
        self.names: Table = dict(names)
        self.attributes: dict[str, Table] = {}  # name -> path -> value set on it
        self.options: Table = {}  # defaults of options, fields and arguments
        self.environment: dict[str, str] = {}
        self.given = {key: _typed(value) for key, value in given.items()}
        self.nothing: set[str] = set()  # names that are None, as the program says
        self.unset: set[str] = set()  # options whose default is None
        self.sizes: dict[int, tuple[int, Any]] = {}  # values of a nested one, kept with it

    def returned(self, node: ast.Call) -> Any:
        """Value that a call of a function or a class of the program's own gives."""
        return None

    def loaded(self, node: ast.Call) -> Any:
        """Table of the file that a call reads."""
        return None

    def said(self, node: ast.expr) -> Any:
        """Value of an argument; the mark of what is not known and its text where it is no constant.

        A list or a table is its value or None.
        """
        value = self.value(node)
        if isinstance(node, ast.Name) and node.id in self.nothing:
            return value
        if value is None and not isinstance(node, (ast.Constant, ast.List, ast.Dict, ast.Tuple)):
            return UNSET + ast.unparse(node)[:60]
        return value

    def _named(self, name: str) -> Any:
        """Value of a name: what the program is told goes first, then what it sets itself."""
        if name in self.given:
            return self.given[name]
        value = self.names.get(name)
        return value if value is not None else self.options.get(name)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Value of an expression; None where it is no constant."""
        if depth > 50:
            return None
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple():
                return self._bounded([self.value(one, depth + 1) for one in node.elts])
            case ast.Dict():
                return self._table(node, depth)
            case ast.Name():
                return self._named(node.id)
            case ast.Attribute():
                return self._of_attribute(node, depth)
            case ast.Subscript():
                return self._of_subscript(node, depth)
            case ast.Call():
                return self._of_call(node, depth)
            case ast.JoinedStr():
                return self._joined([self.said(one) for one in node.values], "")
            case ast.FormattedValue() | ast.NamedExpr():
                return self.value(node.value, depth + 1)
            case ast.DictComp():  # some of another's keys
                of = node.generators[0].iter
                items = isinstance(of, ast.Call) and dotted(of.func).endswith("items")
                return self.value(of, depth + 1) if items else None
            case ast.IfExp():
                test = self.truth(node.test, depth + 1)
                return None if test is None else self.value(node.body if test else node.orelse)
            case ast.BoolOp():
                return self._decided(node, depth)
            case ast.UnaryOp(op=ast.Not()):
                inner = self.truth(node.operand, depth + 1)
                return None if inner is None else not inner
            case ast.UnaryOp(op=ast.USub()):
                inner = self.value(node.operand, depth + 1)
                return -inner if isinstance(inner, (int, float)) else None
            case ast.Compare(ops=[sign], comparators=[right]):
                sides = self.value(node.left, depth + 1), self.value(right, depth + 1)
                return _done(sign, *sides) if all(map(known, sides)) else None
            case ast.BinOp():
                return self._number(node, depth)
        return None

    def _table(self, node: ast.Dict, depth: int) -> Any:
        """Value of a table, with those that `**` puts into it."""
        said: dict[Any, Any] = {}
        for key, one in zip(node.keys, node.values, strict=True):
            value, name = self.value(one, depth + 1), self.value(key, depth + 1) if key else None
            if key is None and isinstance(value, dict):
                said |= value
            elif isinstance(name, (str, int)):
                said[name] = value
        return self._bounded(said)

    def _joined(self, parts: list[Any], between: str) -> str | None:
        """Text of parts: a marked one where one is not known, none where the last is not."""
        if not parts or None in parts or (UNSET in str(parts[-1]) and len(parts) == 1):
            return str(parts[0]) if between and parts and parts[0] else None
        if between:  # of a path its end says most
            parts = [UNSET if UNSET in str(p) else str(p).rstrip("/") for p in parts[:-1]] + [
                parts[-1]
            ]
        text = between.join(map(str, parts))
        return None if len(text) > MOST_TEXT else text

    def _of_subscript(self, node: ast.Subscript, depth: int) -> Any:
        table, key = self.value(node.value, depth + 1), self.value(node.slice, depth + 1)
        if isinstance(table, dict) and isinstance(key, (str, int)) and key in table:
            return table[key]
        if isinstance(key, str) and key in self.given:
            return self.given[key]
        if isinstance(table, list) and isinstance(key, int):
            return table[key] if -len(table) <= key < len(table) else None
        if dotted(node.value) == "os.environ" and isinstance(key, str):
            return self.environment.get(key)
        return None

    def _of_attribute(self, node: ast.Attribute, depth: int) -> Any:
        """Value of `args.NAME`, of a table's key, of a constant of torch."""
        if node.attr in self.given:
            return self.given[node.attr]
        name = dotted(node)
        root, _, path = name.partition(".")
        table = self.value(node.value, depth + 1)
        if isinstance(table, dict) and table.get(node.attr) is not None:
            return table[node.attr]
        if (set_on := self.attributes.get(root, {}).get(path)) is not None:
            return set_on
        if name == "sys.argv":
            return ["program"]  # started without words
        if isinstance(table, dict) and node.attr in table:
            return None
        option = self.options.get(node.attr)
        return option if option is not None else name if name.startswith("torch.") else None

    def _of_call(self, node: ast.Call, depth: int) -> Any:
        """Value of `dict(...)`, of a cast, of a field, of a variable of the environment."""
        name = dotted(node.func)
        last = name.rsplit(".", 1)[-1]
        given = {k.arg: k.value for k in node.keywords if k.arg}
        words = [one for one in node.args if not isinstance(one, ast.Starred)]
        if name in ("dict", "SimpleNamespace", "argparse.Namespace", "Namespace"):
            said = {key: self.value(one, depth + 1) for key, one in given.items()}
            first = self.value(words[0], depth + 1) if words else None
            return self._bounded({**(first if isinstance(first, dict) else {}), **said})
        if last in ("field", "Field", "Option") and ("default" in given or words):
            return self.value(given.get("default", words[0] if words else node), depth + 1)
        if last == "field" and isinstance(made := given.get("default_factory"), ast.Lambda):
            return self.value(made.body, depth + 1)
        if last in ("is_bf16_supported", "is_bfloat16_supported"):
            return True
        if last in ("is_available", "is_flash_attn_2_available"):
            return name.startswith(("torch.cuda", "is_"))
        if last == "get_device_capability":
            return list(CAPABILITY)
        if last in ("vars", "asdict", "to_container") and words:
            value = self.value(words[0], depth + 1)
            return value if isinstance(value, dict) else dict(self.options)
        if last in COPIES or (last == "open" and name != "open"):
            of = [*words, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
            return self.value(of[0 if last == "deepcopy" else -1], depth + 1) if of else None
        if name.endswith("path.join") or last in PATHS:
            parts = [self.said(one) for one in words or list(given.values())[:1]]
            return self._joined(parts if last == "join" else parts[:1], "/")
        if name in CASTS and len(words) == 1:
            inner = self.value(words[0], depth + 1)
            try:
                return CASTS[name](inner) if known(inner) else inner
            except (TypeError, ValueError, OverflowError):
                return None
        if last in ("lower", "strip", "upper") and isinstance(node.func, ast.Attribute):
            text = self.value(node.func.value, depth + 1)
            return getattr(text, last)() if isinstance(text, str) and UNSET not in text else None
        if last in ("get", "getenv", "getattr", "pop") and words:
            return self._got(node, name, words, depth)
        if last in LOADS:
            return self.loaded(node)
        return self.returned(node)

    def _got(self, node: ast.Call, name: str, words: list[ast.expr], depth: int) -> Any:
        """Value of a key or attribute that may not be there."""
        of = node.func.value if isinstance(node.func, ast.Attribute) else words[0]
        if name == "getattr":
            words = words[1:]
        key = self.value(words[0], depth + 1) if words else None
        outside = name in ("os.environ.get", "os.getenv")
        table: Any = self.environment if outside else self.value(of, depth + 1)
        if isinstance(table, dict) and isinstance(key, (str, int)) and key in table:
            return table[key]
        if isinstance(key, str) and key in self.given:
            return self.given[key]
        if name == "getattr" and isinstance(key, str) and self.options.get(key) is not None:
            return self.options[key]
        told = outside or isinstance(table, dict) or name == "getattr"
        return self.value(words[1], depth + 1) if told and len(words) == 2 else None

    def _bounded(self, value: Any) -> Any:
        """Give a list or a table; None for one that names others without measure."""
        inner = value.values() if isinstance(value, dict) else value
        size = 1 + sum(self.sizes.get(id(one), (1, None))[0] for one in inner)
        self.sizes[id(value)] = (size, value)
        return value if size <= MOST_VALUES else None

    def argument(self, words: list[Any], keys: Mapping[str, Any]) -> None:
        """Take an option that is added to a command line."""
        switch = keys.get("action") in ("store_true", "store_false")
        default = keys.get("default")
        if switch and default is None:
            default = keys["action"] == "store_false"
        optional = any(str(word).startswith("-") for word in words) and "required" not in keys
        for word in [*words, keys.get("dest")]:
            if isinstance(word, str):
                option = word.lstrip("-").replace("-", "_")
                self.options[option] = default
                self.unset |= {option} if default is None and optional else set()

    def truth(self, node: ast.expr, depth: int = 0) -> bool | None:
        """Whether a test holds; None where that is not known."""
        if isinstance(node, ast.BoolOp):
            each = [self.truth(one, depth + 1) for one in node.values]
            decides = isinstance(node.op, ast.Or)
            return decides if decides in each else None if None in each else not decides
        value = self.value(node, depth)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            none = is_none(node.comparators[0]) and len(node.ops) == 1
            unset = self._is_unset(node.left, depth)
            return isinstance(node.ops[0], ast.Is) if none and unset else None
        if known(value):
            return bool(value)
        return False if self._is_unset(node, depth) else None

    def _is_unset(self, node: ast.expr, depth: int) -> bool:
        """Whether it is an option that nothing sets, whose default is None."""
        value = self.value(node, depth)
        if isinstance(value, str) and value.startswith(UNSET):  # what a function is told
            last = value.rpartition(".")[2]
            return last in self.unset and not re.search(GIVEN, last)
        if value is not None or not isinstance(node, ast.Attribute):
            return False
        of = isinstance(node.value, ast.Name) and not known(self.value(node.value, depth + 1))
        return of and node.attr in self.unset and not re.search(GIVEN, node.attr)

    def _decided(self, node: ast.BoolOp, depth: int) -> Any:
        """Value that decides an `or` or an `and`."""
        values = [self.value(one, depth + 1) for one in node.values]
        wanted = isinstance(node.op, ast.Or)
        for value in values:
            if known(value) and bool(value) == wanted:
                return value
        return values[-1] if all(map(known, values)) else None

    def _number(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        match node.op:
            case ast.Add() if isinstance(left, str) and isinstance(right, str):
                return self._joined([left, right], "")
            case ast.Div() if isinstance(right, str):  # of paths
                return self._joined([left or UNSET, right], "/")
            case ast.BitOr() if isinstance(left, dict) and isinstance(right, dict):
                return self._bounded(left | right)
        numbers = all(isinstance(v, (int, float)) and abs(v) < MOST for v in (left, right))
        small = numbers and (abs(right) <= 40 or not isinstance(node.op, (ast.Pow, ast.LShift)))
        return _done(node.op, left, right) if small else None


def _done(sign: ast.operator | ast.cmpop, left: Any, right: Any) -> Any:
    """Value of two that are known; None where they have none."""
    try:
        return _SIGNS[type(sign)](left, right)
    except (KeyError, ArithmeticError, TypeError, ValueError):
        return None


PATHS = ("Path", "open", "abspath", "expanduser", "snapshot_download")
COPIES = ("copy", "deepcopy", "resolve", "absolute", "read_text", "as_posix", "items")
"""Methods whose value is here that of what they are of."""
LOADS = ("safe_load", "load", "loads", "full_load", "parse_toml")
_CALLS: tuple[Callable[..., Any], ...] = (int, float, str, bool, len, round)
CASTS = {call.__name__: call for call in _CALLS}
_SIGNS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.In: lambda one, among: one in among,
    ast.NotIn: lambda one, among: one not in among,
}


def _typed(value: Any) -> Any:
    """Value of a word of a command line: a number, true or false, or the word."""
    text = str(value)
    if text.lstrip("-").isdigit() and len(text) < 16:
        return int(text)
    return text.lower() == "true" if text.lower() in ("true", "false") else value


def dotted(node: ast.expr) -> str:
    """Name of a call as written: `FastModel.from_pretrained`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id if isinstance(node, ast.Name) else ""])).strip(".")


def is_none(node: ast.expr) -> bool:
    """Whether an expression is None, or a field that is None by default."""
    if isinstance(node, ast.Call):
        return any(k.arg == "default" and is_none(k.value) for k in node.keywords)
    return isinstance(node, ast.Constant) and node.value is None


def extend(known: Any, more: Any) -> None:
    """Put more at the end of a list."""
    if isinstance(known, list) and isinstance(more, list) and len(known) < MOST_WORDS:
        known.extend(more[:MOST_WORDS])


MOST_WORDS = 1000
"""Words of a list that grows."""


def with_defaults(args: ast.arguments) -> list[tuple[str, ast.expr]]:
    """Arguments of a function that have a default, and it."""
    named = [*args.posonlyargs, *args.args]
    pairs = [*zip(named[len(named) - len(args.defaults) :], args.defaults, strict=True)]
    pairs += [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d]
    return [(argument.arg, default) for argument, default in pairs]


def is_option(word: Any) -> bool:
    """Whether what a call adds an option by is a text that is known."""
    return isinstance(word, str) and UNSET not in word
