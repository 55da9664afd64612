"""Imports point one way and in no circle, as docs/architecture.md says."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "gpuscale"
MAY_IMPORT = {  # room -> rooms, beside itself; the rest of a path is free
    "core": set(),
    "specs": {"core"},
    "io": {"specs", "core", "errors"},
    "render": {"core", "errors", "gpuscale"},
    "evidence": {"io", "specs", "core", "errors"},
    "textbook": {"io", "specs", "core", "errors"},
    "launch": {"io", "specs", "core", "errors"},
    "answers": {"launch", "evidence", "textbook", "render", "io", "specs", "core", "errors"},
    "cli": {"answers", "render", "io", "errors", "gpuscale"},
}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("gpuscale", *path.relative_to(PACKAGE).with_suffix("").parts))
        yield name.removesuffix(".__init__"), path


PATHS = dict(modules())


def imported(path):
    """Modules of the package that a file imports when it runs, inside functions too."""
    tree = ast.parse(path.read_text("utf-8"))
    typing = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in typing and node.module in PATHS:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in PATHS else node.module


GRAPH = {name: set(imported(path)) - {name} for name, path in PATHS.items()}


def room(name):
    return name.split(".")[1] if "." in name else name


@pytest.mark.parametrize("here", MAY_IMPORT)
def test_imports_point_one_way(here):
    for name in GRAPH:
        if room(name) == here:
            wrong = {m for m in GRAPH[name] if room(m) not in MAY_IMPORT[here] | {here}}
            assert not wrong, f"{name} imports {wrong}"


def test_core_imports_only_the_standard_library():
    import sys

    for name, path in PATHS.items():
        if room(name) == "core":
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    assert all(a.name.split(".")[0] in sys.stdlib_module_names for a in node.names)


def test_no_import_circle_outside_the_answers():
    """Answers start each other (a sweep asks, a scan plans) inside functions; the package itself
    imports nothing until one of its functions is called."""
    left_out = ("answers", "gpuscale")
    free = {name: set(found) for name, found in GRAPH.items() if room(name) not in left_out}
    while leaves := {name for name, found in free.items() if not found & free.keys()}:
        for name in leaves:
            del free[name]
    assert not free
