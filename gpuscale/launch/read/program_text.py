"""Python read statically: values of assignments and arguments of calls; nothing is executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

MOST_NODES = 200_000
MOST_VALUES = 100_000
MOST = 1e15


class Program:
    """Assignments and calls of a Python file, as far as they are constants."""

    def __init__(self, tree: ast.AST, names: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.names: dict[str, Any] = dict(names)
        self.made: dict[str, tuple[str, dict[str, Any]]] = {}  # name -> the call that made it
        self.attributes: dict[str, dict[str, Any]] = {}  # name -> path -> value set on it
        self.options: dict[str, Any] = {}  # defaults of the command line's options
        self.calls: list[tuple[str, list[Any], dict[str, Any]]] = []
        self.imports: set[str] = set()
        self.sizes: dict[int, tuple[int, Any]] = {}  # values of a nested one, kept with it
        for i, node in enumerate(_in_order(tree)):
            if i > MOST_NODES:
                break
            self._look_at(node)

    def _look_at(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            self.imports |= {str(module)} if module else {a.name for a in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    self.names[target.id] = self.value(node.value)
                    if isinstance(node.value, ast.Call):
                        keys = {k.arg: self.value(k.value) for k in node.value.keywords if k.arg}
                        self.made[target.id] = dotted(node.value.func), keys
                elif isinstance(target, ast.Attribute):
                    self._set(dotted(target), self.value(node.value))
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            words = [self.value(one) for one in node.args]
            keys = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
            if name.endswith("add_argument") and words and isinstance(words[0], str):
                self.options[words[0].lstrip("-").replace("-", "_")] = keys.get("default")
            self.calls.append((name, words, keys))

    def _set(self, name: str, value: Any) -> None:
        root, _, path = name.partition(".")
        if path and value is not None:
            self.attributes.setdefault(root, {})[path] = value

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Value of an expression; None where it is no constant."""
        if depth > 50:
            return None
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return self._bounded([self.value(one, depth + 1) for one in node.elts])
        if isinstance(node, ast.Dict):
            keys = [self.value(k, depth + 1) if k else None for k in node.keys]
            pairs = zip(keys, node.values, strict=True)
            said = {k: self.value(v, depth + 1) for k, v in pairs if isinstance(k, str)}
            return self._bounded(said)
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            option = self.options.get(node.attr)
            return option if option is not None else name if name.startswith("torch.") else None
        if isinstance(node, ast.Subscript):
            table, key = self.value(node.value, depth + 1), self.value(node.slice, depth + 1)
            return table.get(key) if isinstance(table, dict) and isinstance(key, str) else None
        if isinstance(node, ast.Call):
            return self._of_call(node, depth)
        return self._number(node, depth)

    def _of_call(self, node: ast.Call, depth: int) -> Any:
        """Value of `dict(...)`, of a cast, and of a variable of the environment: its default."""
        name = dotted(node.func)
        if name == "dict":
            said = {k.arg: self.value(k.value, depth + 1) for k in node.keywords if k.arg}
            return self._bounded(said)
        if name in ("int", "float", "str") and len(node.args) == 1:
            inner = self.value(node.args[0], depth + 1)
            try:
                return {"int": int, "float": float, "str": str}[name](inner)
            except (TypeError, ValueError, OverflowError):
                return None
        if name in ("os.environ.get", "os.getenv") and len(node.args) == 2:
            return self.value(node.args[1], depth + 1)
        return None

    def _bounded(self, value: Any) -> Any:
        """Give a list or a table; None for one that names others without measure."""
        inner = value.values() if isinstance(value, dict) else value
        size = 1 + sum(self.sizes.get(id(one), (1, None))[0] for one in inner)
        self.sizes[id(value)] = (size, value)
        return value if size <= MOST_VALUES else None

    def _number(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, depth + 1)
            return -inner if isinstance(inner, (int, float)) else None
        if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
            return None
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if not all(isinstance(v, (int, float)) and abs(v) < MOST for v in (left, right)):
            return None
        if isinstance(node.op, ast.Pow) and abs(right) > 40:
            return None
        try:
            return _OPERATORS[type(node.op)](left, right)
        except (ZeroDivisionError, OverflowError):
            return None


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes in the order of the text, so that names are known where they are used."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(list(ast.iter_child_nodes(node)))


def dotted(node: ast.expr) -> str:
    """Name of a call as written: `FastModel.from_pretrained`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id if isinstance(node, ast.Name) else ""])).strip(".")
