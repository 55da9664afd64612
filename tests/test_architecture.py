"""The rooms of the package: which may import which, no circles, no module that grew too long."""

import ast
import graphlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "gpuscale"

MAY = {
    "core": set(),
    "specs": {"core", "errors"},
    "io": {"core", "specs", "errors"},
    "textbook": {"core", "io", "specs", "errors"},
    "evidence": {"core", "io", "specs", "errors"},
    "render": {"core", "errors", "version"},
    "launch": {"core", "specs", "io", "errors"},
    "answers": {"core", "specs", "io", "textbook", "evidence", "launch", "render", "errors"},
    "api": {"answers", "io", "errors"},
    "cli": {"answers", "render", "io", "errors", "version"},
    "__main__": {"cli", "version"},
    "": {"api", "version"},
    "errors": set(),
    "version": set(),
}
"""Room -> rooms that it may import at run time; "" is the package itself."""

LONGEST = 400

LONGEST_FUNCTION = 90
"""Lines without the docstring; most hold 60, but for some that lay a document out."""

MOST_BY_PLACE = 6
"""Arguments that a call may give by their place; more go by name."""


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def type_checking(tree):
    """Nodes under `if TYPE_CHECKING:`, which never run."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in node.body
        for inner in ast.walk(child)
    }


def imports_of(path, known):
    tree = ast.parse(path.read_text("utf-8"))
    hidden = type_checking(tree)
    for node in ast.walk(tree):
        if node in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gpuscale":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "gpuscale")


@pytest.fixture(scope="module")
def modules():
    paths = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: set(imports_of(path, paths)) - {name} for name, path in paths.items()}


def room(name):
    return name.split(".")[1] if "." in name else ""


def test_imports_point_one_way(modules):
    wrong = [
        f"{name} imports {other}"
        for name, others in modules.items()
        for other in others
        if room(name) != room(other) and room(other) not in MAY[room(name)]
    ]
    assert wrong == []


def test_no_circle(modules):
    circle = []
    try:
        graphlib.TopologicalSorter(modules).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_no_module_is_too_long():
    lines = {name_of(p): p.read_text("utf-8").count("\n") for p in PACKAGE.rglob("*.py")}
    assert {name: n for name, n in lines.items() if n > LONGEST} == {}


def test_no_function_is_too_long():
    long = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                first = node.body[0]
                said = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) else 0
                if node.end_lineno - node.lineno + 1 - said > LONGEST_FUNCTION:
                    long.append(f"{name_of(path)}.{node.name}")
    assert long == []


def test_no_reach_into_private_names_of_others():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                private = [a.name for a in node.names if a.name.startswith("_")]
                private = [n for n in private if not n.startswith("__")]
                foreign = node.module.split(".")[0] != "gpuscale"
                if (private and node.module != name_of(path)) or (foreign and "._" in node.module):
                    wrong.append(f"{name_of(path)}: from {node.module} import {private}")
    assert wrong == []


def test_calls_with_many_arguments_name_them():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and len(node.args) > MOST_BY_PLACE:
                wrong.append(f"{name_of(path)}:{node.lineno}: {ast.unparse(node.func)}")
    assert wrong == []
