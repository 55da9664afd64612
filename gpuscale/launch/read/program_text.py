"""A Python file read statically in the order in which it would run: nothing is executed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpuscale.io.text import Table
from gpuscale.launch.found import UNSET
from gpuscale.launch.read.program import LIBRARIES
from gpuscale.launch.read.together import table_of
from gpuscale.launch.values import (
    NOTHING,
    Evaluator,
    dotted,
    extend,
    is_none,
    is_option,
    known,
    with_defaults,
)

__all__ = ["Program", "dotted", "unwarned"]

MOST_NODES = 200_000
MOST_RUNS = 4
"""Times that the body of one function is read, for as many calls."""
MOST_DEPTH = 12
MOST_MODULES = 12
TABLES = (".yaml", ".yml", ".json", ".toml")
ANY_YAML = "*.yaml"
"""What is looked for where the program is told the path: the only YAML that a person gives."""
Look = Callable[[str], "tuple[str, str] | None"]


def nowhere(_path: str) -> None:
    """Find no file: a program by itself."""


@contextmanager
def unwarned() -> Iterator[None]:
    """Parse a person's Python without the parser's own warnings of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Program(Evaluator):
    """Assignments and calls of a Python file, as far as they are constants.

    `names`, `given`: as of `Evaluator`. `look`: finds the files that it imports and loads. A
    function is read where the program calls it, with what it is called with; one that nothing calls
    comes last. Of an `if` whose test is known one branch is read, else both.
    """

    def __init__(
        self,
        tree: ast.AST,
        names: Mapping[str, Any] = NOTHING,
        given: Mapping[str, Any] = NOTHING,
        look: Look = nowhere,
        main: bool = True,
        modules: dict[str, Program | None] | None = None,
    ) -> None:
        super().__init__({"__name__": "__main__" if main else "module", **names}, given)
        self.look = look
        self.made: dict[str, tuple[str, Table]] = {}  # name -> the call that made it
        self.calls: list[tuple[str, list[Any], Table]] = []
        self.under: list[str] = []  # tests that are not known, of the branches that are read
        self.only_if: dict[int, str] = {}  # place of a call -> the tests that it is under
        self.imports: set[str] = set()
        self.beside: list[str] = []  # files that it loads and that are not here
        self.functions: dict[str, Function] = {}
        self.methods: dict[str, Function] = {}
        self.classes: dict[str, Table] = {}  # name -> its fields
        self.plain: set[str] = set()  # classes of its own, of no other kind
        self.own: set[str] = set()  # names of modules that stand near
        self.runs: dict[int, int] = {}  # function -> times that it was read
        self.unreached: set[str] = set()  # functions called in branches that are not taken
        self.running: list[int] = []  # functions that are being read
        self.values: dict[int, Any] = {}  # call -> what it returned
        self.results: list[Any] = []  # of the functions that are being read
        self.modules: dict[str, Program | None] = {} if modules is None else modules
        self.n_nodes = 0
        body = tree.body if isinstance(tree, (ast.Module, ast.FunctionDef)) else [tree]
        if isinstance(tree, ast.FunctionDef):
            self._defaults(tree.args)
        self._walk(body)
        libraries = {id(f) for m in self.modules.values() if m for f in m.functions.values()}
        for function in [*self.functions.values(), *self.methods.values()] if main else ():
            elsewhere = function.name in self.unreached or id(function) in libraries
            if not self.runs.get(id(function)) and not elsewhere:
                self._run(function, {})

    def _walk(self, nodes: Iterable[ast.AST], fields: Table | None = None) -> None:
        """Look at nodes in the order of the text; `fields`: of the class whose body they are."""
        stack: list[ast.AST] = list(nodes)[::-1]
        while stack and self.n_nodes < MOST_NODES:
            node = stack.pop()
            self.n_nodes += 1
            if isinstance(node, ast.If):
                taken = self.truth(node.test)
                inner: list[ast.AST] = [node.test]
                if taken is None:
                    self._both(node, fields)
                else:
                    inner += node.body if taken else node.orelse
                    left = map(ast.walk, node.orelse if taken else node.body)
                    calls = (n.func for one in left for n in one if isinstance(n, ast.Call))
                    self.unreached |= set(map(dotted, calls))
            elif isinstance(node, ast.IfExp) and (taken := self.truth(node.test)) is not None:
                inner = [node.body if taken else node.orelse]
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._defaults(node.args)
                (self.functions if fields is None else self.methods)[node.name] = node
                inner = list(node.decorator_list)
            elif isinstance(node, ast.ClassDef):
                self._class(node)
                inner = []
            else:
                self._look_at(node, fields)
                inner = list(ast.iter_child_nodes(node))
            stack += inner[::-1]

    def _both(self, node: ast.If, fields: Table | None) -> None:
        """Read both branches of a test that is not known."""
        test = ast.unparse(node.test)[:60]
        for shown, body in ((test, node.body), (f"not ({test})", node.orelse)):
            self.under.append(shown)
            self._walk(body, fields)
            self.under.pop()

    def _class(self, node: ast.ClassDef) -> None:
        """Take the fields of a class, with those of the classes that it is made of."""
        fields: Table = {}
        for base in node.bases:
            fields |= self.classes.get(dotted(base).rsplit(".", 1)[-1], {})
        self._walk(node.body, fields)
        self.plain |= set() if node.bases else {node.name}
        self.classes[node.name] = fields
        self.names[node.name] = fields

    def _look_at(self, node: ast.AST, fields: Table | None) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self._assign(target, node.value, fields)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if fields is not None:
                fields.setdefault(node.target.id, None)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if isinstance(item.optional_vars, ast.Name):
                    self._assign(item.optional_vars, item.context_expr, None)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            values = self.value(node.iter)
            if isinstance(values, (list, dict)) and values:
                self.names[node.target.id] = next(iter(values))
        elif isinstance(node, ast.Return) and node.value is not None and self.results:
            value = self.said(node.value)
            if self.results[-1] is None or not known(self.results[-1]):
                self.results[-1] = value
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            extend(self.value(node.target), self.value(node.value))
        elif isinstance(node, ast.Call):
            self._call(node)

    def _assign(self, target: ast.expr, node: ast.expr, fields: Table | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(node, (ast.Tuple, ast.List)):
                for one, inner in zip(target.elts, node.elts, strict=False):
                    self._assign(one, inner, fields)
                return
            values = self.value(node)
            for i, one in enumerate(target.elts):
                if isinstance(one, ast.Name) and isinstance(values, list) and i < len(values):
                    self.names[one.id] = values[i]
        elif isinstance(target, ast.Name):
            value = self.value(node)
            if fields is not None:
                self.options[target.id] = fields[target.id] = value
                (self.unset.add if is_none(node) else self.unset.discard)(target.id)
            else:
                self.names[target.id] = value
                nothing = isinstance(node, ast.Constant) and value is None
                (self.nothing.add if nothing else self.nothing.discard)(target.id)
            if isinstance(node, ast.Call) and not self._changes(node, target.id):
                keys = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
                self.made[target.id] = self._maker(node), keys
        elif isinstance(target, ast.Attribute):
            self._set_attribute(target, node)
        elif isinstance(target, ast.Subscript):
            key, value = self.value(target.slice), self.value(node)
            table = self.value(target.value)
            if dotted(target.value) == "os.environ":
                if isinstance(key, str) and isinstance(value, (str, int)):
                    self.environment[key] = str(value)
            elif isinstance(table, dict) and isinstance(key, (str, int)):
                table[key] = value

    def _set_attribute(self, target: ast.Attribute, node: ast.expr) -> None:
        root, _, path = dotted(target).partition(".")
        value = self.value(node)
        if value is None and isinstance(node, ast.Call):
            value = dotted(node.func)
            keys = {f"{path}.{k.arg}": self.value(k.value) for k in node.keywords if k.arg}
            said = {key: one for key, one in keys.items() if one is not None}
            self.attributes.setdefault(root, {}).update(said)
        unset = isinstance(node, ast.Constant) and node.value is None
        if path and (value is not None or unset):
            self.attributes.setdefault(root, {})[path] = value
            if isinstance(own := self.names.get(root), dict) and "." not in path:
                own[path] = value

    def _changes(self, node: ast.Call, name: str) -> bool:
        """Whether a call gives back what it is given: `recipe = tuned(recipe, ...)`."""
        first = node.args[0] if node.args else None
        return name in self.made and isinstance(first, ast.Name) and first.id == name

    def _maker(self, node: ast.Call) -> str:
        """Name of what a call makes: of `partial(f, ...)` that of `f`."""
        name = dotted(node.func)
        partial = name.rsplit(".", 1)[-1].lower() == "partial" and node.args
        return dotted(node.args[0]) if partial else name

    def _defaults(self, args: ast.arguments) -> None:
        for name, default in with_defaults(args):
            if (value := self.value(default)) is not None:
                self.options.setdefault(name, value)

    def _call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        words = [self.said(one) for one in node.args]
        keys = {k.arg: self.said(k.value) for k in node.keywords if k.arg}
        for more in (self.said(k.value) for k in node.keywords if not k.arg):
            keys |= more if isinstance(more, dict) else {"**": more}
        if name.endswith(("add_argument", "click.option")) and any(map(is_option, words)):
            self.argument(words, keys)
        elif name.endswith("set_defaults"):
            self.options |= keys
        elif name.endswith("environ.setdefault") and len(words) == 2:
            self.environment.setdefault(str(words[0]), str(words[1]))
        elif name.endswith(".update") and isinstance(node.func, ast.Attribute):
            table = self.value(node.func.value)
            if isinstance(table, dict):
                first = words[0] if words and isinstance(words[0], dict) else {}
                table |= {**first, **keys}
        elif (
            name.endswith((".extend", ".append")) and isinstance(node.func, ast.Attribute) and words
        ):
            more = words[0] if name.endswith(".extend") else [words[0]]
            extend(self.value(node.func.value), more)
        self.returned(node)
        if self.under:
            self.only_if[len(self.calls)] = self.under[-1]
        self.calls.append((name, words, keys))

    def returned(self, node: ast.Call) -> Any:
        """Read the function or class that a call names with what it is called with, once."""
        if id(node) in self.values:
            return self.values[id(node)]
        root, _, last = dotted(node.func).rpartition(".")
        if last in self.classes:
            said = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
            return self.classes[last] | said
        plain = isinstance(node.func, ast.Name) or root.split(".")[-1] in self.own
        function = (self.functions if plain else self.methods).get(last)
        if function is None or not self._may_run(function):
            return None
        self.values[id(node)] = None  # within itself
        told = self._told(function, node)
        if not plain and isinstance(node.func, ast.Attribute):
            own = self.value(node.func.value)
            told |= {"self": own} if isinstance(own, dict) else {}
        self.values[id(node)] = value = self._run(function, told)
        return value

    def _may_run(self, function: Function) -> bool:
        return id(function) not in self.running and self.runs.get(id(function), 0) < MOST_RUNS

    def _told(self, function: Function, node: ast.Call) -> Table:
        """Give what a call tells the arguments of a function."""
        named = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        if named[:1] in (["self"], ["cls"]):
            named = named[1:]
        told = dict(zip(named, [self.said(one) for one in node.args], strict=False))
        for keyword in node.keywords:
            value = self.said(keyword.value)
            more = {keyword.arg: value} if keyword.arg else value
            told |= more if isinstance(more, dict) else {}
        return told

    def _run(self, function: Function, told: Table) -> Any:
        """Read the body of a function; give what it returns."""
        if len(self.results) >= MOST_DEPTH:
            return None
        self.runs[id(function)] = self.runs.get(id(function), 0) + 1
        self.running.append(id(function))
        before = dict(self.names)
        defaults = {name: self.value(one) for name, one in with_defaults(function.args)}
        own = [a.arg for a in (*function.args.args, *function.args.kwonlyargs) if a.arg != "self"]
        self.names |= {name: None for name in own if name not in before} | defaults | told
        self.results.append(None)
        values, self.values = self.values, {}
        self._walk(function.body)
        self.values = values
        self.running.pop()
        after, self.names = self.names, before
        for name, value in after.items():  # what nothing else is called may be looked for elsewhere
            self.names.setdefault(name, value)
        return self.results.pop()

    def loaded(self, node: ast.Call) -> Any:
        """Table of a file that the program loads: YAML, TOML or JSON."""
        path = self.said(node.args[0]) if node.args else None
        if not isinstance(path, str) or (UNSET not in path and not path.endswith(TABLES)):
            return self.returned(node)
        if UNSET in path and not re.search(r"(?i)yaml|omegaconf|toml", dotted(node.func)):
            return self.returned(node)
        file = self.look(ANY_YAML if UNSET in path else path)
        if file is None:
            shown = path.replace(UNSET, "the YAML of ", 1)
            self.beside += [shown] if shown not in self.beside else []
            return None
        return table_of(*file)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Take the names of a module that stands near, and what the program imports."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.imports.add(alias.name)
                self._as_table(alias.asname or alias.name.split(".")[-1], self._module(alias.name))
            return
        name = node.module or ""
        self.imports.add(name)
        module = self._module(name)
        for alias in node.names:
            if module is None:
                inner = self._module(f"{name}.{alias.name}")
                self._as_table(alias.asname or alias.name, inner)
            elif alias.name in module.names:
                self.names[alias.asname or alias.name] = module.names[alias.name]

    def _as_table(self, called: str, module: Program | None) -> None:
        if module is not None:
            self.own.add(called)
            self.names[called] = dict(module.names)

    def _module(self, name: str) -> Program | None:
        """Read a module that stands near, its functions and classes with it."""
        name = name.strip(".")
        if name in self.modules:
            return self.modules[name]
        if not name or len(self.modules) >= MOST_MODULES or name.split(".")[0] in LIBRARIES:
            return None
        path = name.replace(".", "/")
        names = (f"{path}.py", f"{path}/__init__.py", f"src/{path}.py")
        file = next((file for one in names if (file := self.look(one))), None)
        try:
            with unwarned():
                tree = ast.parse(file[1]) if file else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        if tree is None:
            return None
        self.modules[name] = None  # within itself
        module = Program(tree, {}, self.given, self.look, main=False, modules=self.modules)
        self.modules[name] = module
        self.functions = {**module.functions, **self.functions}
        self.methods = {**module.methods, **self.methods}
        self.classes = {**module.classes, **self.classes}
        self.options = {**module.options, **self.options}
        self.names = {**module.names, **self.names}
        self.imports |= module.imports
        self.beside += module.beside
        return module
