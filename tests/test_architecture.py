"""The rooms of the package: which may import which, no circles, no module that grew too long."""

import ast
import graphlib
from pathlib import Path

import pytest
from parsed import nodes

PACKAGE = Path(__file__).resolve().parent.parent / "gpuscale"

MAY = {
    "core": set(),
    "specs": {"core", "errors"},
    "io": {"core", "specs", "errors", "meant"},
    "textbook": {"core", "io", "specs", "errors"},
    "evidence": {"core", "io", "specs", "errors", "foreign"},
    "render": {"core", "errors", "foreign", "version"},
    "launch": {"core", "specs", "io", "errors", "foreign"},
    "answers": {
        "core",
        "specs",
        "io",
        "textbook",
        "evidence",
        "launch",
        "render",
        "errors",
        "foreign",
        "meant",
    },
    "api": {"answers", "io", "errors"},
    "cli": {"answers", "render", "io", "errors", "foreign", "version"},
    "__main__": {"cli", "version"},
    "": {"api", "version"},
    "errors": {"meant"},
    "foreign": set(),
    "meant": set(),
    "version": set(),
}
"""Room -> rooms that it may import at run time; "" is the package itself."""

RECORDS = "gpuscale.core.records"
"""The standard library's `dataclasses` for every room, as quick to declare as may be."""

LONGEST = 400

LONGEST_FUNCTION = 60
"""Lines without the docstring."""

MOST_BY_PLACE = 6
"""Arguments that a call may give by their place; more go by name."""


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def type_checking(every):
    """Nodes under `if TYPE_CHECKING:`, which never run."""
    return {
        inner
        for node in every
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for child in node.body
        for inner in ast.walk(child)
    }


def imports_of(path, known):
    hidden = type_checking(nodes(path))
    for node in nodes(path):
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


def folder(name):
    """Folder of a module, which is its own where it is a package."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return name if path.is_dir() else name.rpartition(".")[0]


def test_imports_point_one_way(modules):
    wrong = [
        f"{name} imports {other}"
        for name, others in modules.items()
        for other in others
        if room(name) != room(other) and room(other) not in MAY[room(name)] and other != RECORDS
    ]
    assert wrong == []


def test_no_circle(modules):
    circle = []
    try:
        graphlib.TopologicalSorter(modules).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_no_circle_of_rooms(modules):
    """Folders of modules; the package's own few files (errors, api) are seen module by module."""
    rooms = {}
    for name, others in modules.items():
        inside = {folder(o) for o in others if o.count(".") > 1}
        rooms.setdefault(folder(name), set()).update(inside - {folder(name)})
    assert len(rooms) > 25
    circle = []
    try:
        graphlib.TopologicalSorter(rooms).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_no_module_is_too_long():
    lines = {name_of(p): p.read_text("utf-8").count("\n") for p in PACKAGE.rglob("*.py")}
    assert {name: n for name, n in lines.items() if n > LONGEST} == {}


def test_no_function_is_too_long():
    long = []
    for path in PACKAGE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                first = node.body[0]
                said = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) else 0
                if node.end_lineno - node.lineno + 1 - said > LONGEST_FUNCTION:
                    long.append(f"{name_of(path)}.{node.name}")
    assert long == []


def test_no_reach_into_private_names_of_others():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        for node in nodes(path):
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
        for node in nodes(path):
            if isinstance(node, ast.Call) and len(node.args) > MOST_BY_PLACE:
                wrong.append(f"{name_of(path)}:{node.lineno}: {ast.unparse(node.func)}")
    assert wrong == []


# --- numbers in core ---

ROUNDING = 1e-6
"""Below this a number keeps rounding errors apart."""

SMALL = 16
"""Whole numbers up to this count: matrices, FLOP of a product, bytes of a format, ZeRO stages."""

TEXT = ("quantity.py", "words.py")
"""Modules of core that read and write units: their numbers are those of the units."""


def counts_or_rounds(value):
    """Whether a literal is a count, a half, a hundred (percent) or below rounding."""
    return value in (0.5, 100) or abs(value) < ROUNDING or (value == int(value) and value <= SMALL)


def numbers_that_need_no_name(tree):
    """Literals that have a name: constants and fields, defaults of parameters; places, messages."""
    named = [n for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            named += [n for n in node.body if isinstance(n, (ast.Assign, ast.AnnAssign))]
        elif isinstance(node, ast.FunctionDef):
            named += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            named += node.decorator_list  # lru_cache(maxsize=...)
        elif isinstance(node, ast.Subscript):
            named.append(node.slice)
        elif isinstance(node, (ast.JoinedStr, ast.Raise)):
            named.append(node)
    return {id(inner) for node in named for inner in ast.walk(node)}


def test_no_bare_factor_in_core():
    """A factor is a field of a record that a preset fills, or a constant that says why."""
    bare = []
    for path in (PACKAGE / "core").rglob("*.py"):
        allowed = numbers_that_need_no_name(nodes(path)[0])
        bare += [
            f"{name_of(path)}:{node.lineno}: {node.value}"
            for node in nodes(path)
            if isinstance(node, ast.Constant)
            and type(node.value) in (int, float)
            and id(node) not in allowed
            and not counts_or_rounds(node.value)
            and path.name not in TEXT
        ]
    assert bare == []


UNITS = ("run.time", "run.bill", "run.checkpoint", "kernel.roofline")
"""Modules of core with conversions of units beside their formulas: hours of a year, J of a kWh."""


def test_constants_of_core_say_why():
    """A constant with a fraction in it has a sentence below it."""
    silent = []
    for path in (PACKAGE / "core").rglob("*.py"):
        name, body = name_of(path), nodes(path)[0].body
        if path.name in TEXT or name.endswith(UNITS):
            continue
        for node, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            value = node.value.value
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(value, float) and not counts_or_rounds(value) and not said:
                silent.append(f"{name}: {ast.unparse(node)}")
    assert silent == []


def test_a_bare_factor_is_seen():
    tree = ast.parse("WIDTH = 0.35\ndef f(x: float = 0.2):\n    return 0.35 * x + x[3] / 3")
    allowed = numbers_that_need_no_name(tree)
    found = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    assert [v for v in found if v == 0.35] == [0.35, 0.35]
    numbers = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in allowed]
    assert [n.value for n in numbers if not counts_or_rounds(n.value)] == [0.35]
