"""Mutation run: change one operation of the core at a time and see whether the tests notice.

    python tools/mutate.py                       # 200 mutants, seed 0
    python tools/mutate.py --mutants 40 --seed 3 --only step/ --rows mutants.csv
    python tools/mutate.py --all core/step/moe.py:74     # every mutant of a line
    python tools/mutate.py --calls calls.json --longest 0.5 --only step/ tests/core

`--calls` keeps what each test calls in a file, so that the next run starts at once: only tests of
files that changed are run again (delete it when the core has moved).

One process collects the tests and runs them once, keeping for each the functions of `gpuscale/core`
that it calls. A mutant then is a fork of that process in which one function has another code
object (so every name that the function was imported under sees it); only the tests that call it
run, the quickest first, until one fails. A mutant that only a new process would see (a constant
of a module, a class body) is not made; a function that nothing calls counts as not caught.
"""

import argparse
import ast
import copy
import cProfile
import csv
import gc
import hashlib
import importlib
import json
import os
import random
import signal
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "gpuscale" / "core"
SLOWER, LEAST_S = 5, 10  # a test that takes so many times its CPU seconds, and more, loops: caught

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CALLS = {"min": "max", "max": "min", "ceil": "floor", "floor": "ceil", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the function's dotted name in it, the line, and what was done."""

    path: Path
    function: str
    line: int
    what: str
    index: int  # of the change within the file, in the order of `changes`

    @property
    def place(self) -> str:
        """File below the package, and line."""
        return f"{self.path.relative_to(ROOT / 'gpuscale')}:{self.line}"


def changes(node: ast.AST) -> Iterator[str]:
    """Apply each change of this node in turn, say it, and take it back when resumed."""
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        yield from swapped(node, "op", BINARY[type(node.op)]())
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            node.ops[i] = COMPARE[type(op)]()
            yield f"{type(op).__name__} -> {type(node.ops[i]).__name__}"
            node.ops[i] = op
    elif isinstance(node, ast.BoolOp):
        yield from swapped(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, (ast.If, ast.IfExp)):
        yield from swapped(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        if isinstance(node.value, bool):
            return
        yield from swapped(node, "value", node.value + 1)
    elif isinstance(node, ast.Name) and node.id in CALLS and isinstance(node.ctx, ast.Load):
        yield from swapped(node, "id", CALLS[node.id])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from swapped(node, "op", ast.UAdd())


def swapped(node: ast.AST, field: str, new: object) -> Iterator[str]:
    old = getattr(node, field)
    setattr(node, field, new)
    yield f"{said(old)} -> {said(new)}"
    setattr(node, field, old)


def said(part: object) -> str:
    if isinstance(part, ast.UnaryOp):
        return f"not {said(part.operand)}"
    if isinstance(part, ast.expr):
        return ast.unparse(part)
    return type(part).__name__ if isinstance(part, ast.AST) else repr(part)


def sites(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every node inside the body of a function, with the function's dotted name."""

    def walk(node: ast.AST, name: str, inside: bool) -> Iterator[tuple[str, ast.AST]]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = f"{name}.{node.name}" if name else node.name
            inside = inside or isinstance(node, ast.FunctionDef)
            children: list[ast.AST] = list(node.body)
        else:
            children = list(ast.iter_child_nodes(node))
        if inside and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield name, node
        for child in children:
            yield from walk(child, name, inside)

    yield from walk(tree, "", False)


def mutants(path: Path) -> list[Mutant]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: list[Mutant] = []
    for function, node in sites(tree):
        for what in changes(node):
            found.append(Mutant(path, function, getattr(node, "lineno", 0), what, len(found)))
    return found


def mutated(mutant: Mutant) -> types.CodeType:
    """Compile the file with that one change."""
    tree = ast.parse(mutant.path.read_text(encoding="utf-8"))
    index = 0
    for _, node in sites(tree):
        for _ in changes(node):
            if index == mutant.index:
                changed = ast.fix_missing_locations(copy.deepcopy(tree))
                return compile(changed, str(mutant.path), "exec")
            index += 1
    raise LookupError(f"{mutant.place}: no change {mutant.index}")


def outermost(code: types.CodeType, dotted: str) -> types.CodeType | None:
    """Return the code of a dotted name's outermost function (inner ones are constants of it)."""
    for part in dotted.split("."):
        inner = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == part]
        if not inner:
            return None
        code = inner[-1]
        if code.co_flags & 0x01:  # CO_OPTIMIZED: a function, not a class body
            return code
    return None


class TooLong(BaseException):
    """Ends a test that takes longer than it may while its calls are noted."""


def too_long(signum: int, frame: types.FrameType | None) -> None:
    raise TooLong


class Run:
    """The plugin that takes the place of pytest's own loop over the tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.called: dict[tuple[str, str], list[int]] = {}  # by file below the core, and name
        self.seconds: dict[int, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep that a test failed."""
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Profile the tests, then try mutant after mutant."""
        self.profile(session)
        functions = {f.__code__: f for f in gc.get_objects() if isinstance(f, types.FunctionType)}
        chosen = self.choose()
        print(f"\n{len(chosen)} mutants", flush=True)
        rows = []
        running: dict[int, Mutant] = {}
        while chosen or running:
            if chosen and len(running) < self.options.jobs:
                mutant = chosen.pop(0)
                child = self.start(session, mutant, functions)
                if child:
                    running[child] = mutant
                else:
                    rows.append(self.say(mutant, "not called"))
                continue
            child, status = os.wait()
            if child not in running:  # of a test that was ended while it waited for it
                continue
            ended = os.WIFSIGNALED(status) or os.WEXITSTATUS(status)  # looped, or a test failed
            rows.append(self.say(running.pop(child), "caught" if ended else "survived"))
        caught = sum(row[3] == "caught" for row in rows)
        print(f"caught {caught} of {len(rows)}: {100 * caught / max(1, len(rows)):.1f} %")
        if self.options.rows:
            with Path(self.options.rows).open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("place", "function", "change", "verdict"), *rows])
        return True

    def say(self, mutant: Mutant, verdict: str) -> tuple[str, str, str, str]:
        """Print one verdict and return its row."""
        print(f"{verdict:10} {mutant.place} {mutant.function}: {mutant.what}", flush=True)
        return mutant.place, mutant.function, mutant.what, verdict

    def profile(self, session: pytest.Session) -> None:
        """Keep which functions of the core every test calls, and its time; run what is not kept."""
        file = Path(self.options.calls) if self.options.calls else None
        known = json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else {}
        digests = {
            path: hashlib.md5(path.read_bytes()).hexdigest()
            for path in {i.path for i in session.items}
        }
        signal.signal(signal.SIGPROF, too_long)
        for number, item in enumerate(session.items):
            kept = known.get(item.nodeid, {})
            if kept.get("of") != digests[item.path]:
                kept = {"of": digests[item.path]} | self.noted(item)
                known[item.nodeid] = kept
                if file and len(known) % 100 == 0:  # what is noted outlives a run that is ended
                    file.write_text(json.dumps(known), encoding="utf-8")
            self.seconds[number] = kept["seconds"]
            if kept["calls"] is None:
                print(f"\nleft out, fails or takes too long without any change: {item.nodeid}")
            for path, name in kept["calls"] or ():
                self.called.setdefault((path, name), []).append(number)
        self.failed.clear()
        if file:
            file.write_text(json.dumps(known), encoding="utf-8")
        for path in sorted(CORE.rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            importlib.import_module(".".join(parts).removesuffix(".__init__"))

    def noted(self, item: pytest.Item) -> dict[str, object]:
        """Run a test; return its seconds and what it calls, None where it fails."""
        profile = cProfile.Profile(builtins=False)
        start = time.process_time()
        if self.options.longest:
            signal.setitimer(signal.ITIMER_PROF, self.options.longest)
        profile.enable()
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        finally:
            profile.disable()
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = time.process_time() - start
        if item.nodeid in self.failed:
            return {"seconds": seconds, "calls": None}
        codes = [e.code for e in profile.getstats() if isinstance(e.code, types.CodeType)]
        called = {
            (str(Path(c.co_filename).relative_to(CORE)), c.co_name)
            for c in codes
            if c.co_filename.startswith(str(CORE))
        }
        return {"seconds": seconds, "calls": sorted(called)}

    def choose(self) -> list[Mutant]:
        """Draw the mutants, or take every one of the named line."""
        if self.options.all:
            name, _, line = self.options.all.partition(":")
            return [m for m in mutants(ROOT / "gpuscale" / name) if not line or m.line == int(line)]
        every = [
            mutant
            for path in sorted(CORE.rglob("*.py"))
            if self.options.only in str(path.relative_to(CORE))
            for mutant in mutants(path)
        ]
        n = min(self.options.mutants, len(every))
        return random.Random(self.options.seed).sample(every, n)

    def start(
        self,
        session: pytest.Session,
        mutant: Mutant,
        functions: dict[types.CodeType, types.FunctionType],
    ) -> int:
        """Fork a process that tries this mutant; 0 where no test calls the function."""
        new = outermost(mutated(mutant), mutant.function)
        old = [
            code
            for code in functions
            if code.co_filename == str(mutant.path)
            and new is not None
            and (code.co_name, code.co_firstlineno) == (new.co_name, new.co_firstlineno)
        ]
        if new is None or not old:
            return 0
        place = str(mutant.path.relative_to(CORE)), new.co_name
        numbers = sorted(self.called.get(place, []), key=self.seconds.__getitem__)
        if not numbers:
            return 0
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os._exit(self.tried(session, numbers, [functions[code] for code in old], new))
        return child

    def tried(
        self,
        session: pytest.Session,
        numbers: list[int],
        functions: list[types.FunctionType],
        code: types.CodeType,
    ) -> int:
        """In the child: 1 as soon as a test fails, 0 when all pass."""
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        session.config.pluginmanager.unregister(name="terminalreporter")
        for function in functions:
            function.__code__ = code
        for cached in gc.get_objects():
            if callable(getattr(type(cached), "cache_clear", None)):
                cached.cache_clear()
        for number in numbers:
            item = session.items[number]
            signal.setitimer(signal.ITIMER_PROF, LEAST_S + SLOWER * self.seconds[number])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if self.failed:
                return 1
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="part of the path below gpuscale/core")
    parser.add_argument("--all", default="", help="FILE[:LINE] below gpuscale: every mutant of it")
    parser.add_argument(
        "--longest",
        type=float,
        default=0.0,
        help="CPU seconds beyond which a test is left out, so that the figure is a lower bound",
    )
    parser.add_argument("--rows", default="", help="CSV of the verdicts")
    parser.add_argument("--calls", default="", help="file that keeps which test calls what")
    parser.add_argument("tests", nargs="*", default=["tests"])
    options = parser.parse_args()
    run = Run(options)
    sys.path.insert(0, str(ROOT))  # this checkout, whatever is installed
    arguments = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    raise SystemExit(pytest.main([*arguments, *options.tests], plugins=[run]))


if __name__ == "__main__":
    main()
