"""Nothing in the package is called by its tests alone."""

import ast
import re
from pathlib import Path

import pytest
from parsed import nodes

ROOT = Path(__file__).resolve().parent.parent
HOOKS = {
    "list_commands",
    "_root",
    "_repr_html_",
    "_repr_mimebundle_",
    "to_dict",
    "to_frame",
    "summary",
    "compose",
    "check_action",
}
"""What typer, notebooks, textual and people call."""


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def parsed(folder):
    return {name_of(p): nodes(p) for p in (ROOT / folder).rglob("*.py")}


def defined(tree):
    """(name, node) of everything that a module defines at its top."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        yield from ((x.id, node) for x in targets if isinstance(x, ast.Name))


def imported(every):
    """(module, name) of what a module imports, or reads as an attribute of what it imported."""
    modules = {}
    for node in every:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.module, alias.name
    for node in every:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in modules:
                yield modules[node.value.id], node.attr


def used_at_home(every):
    """Names that a module defines and reads outside their own definition."""
    read = {}
    for node in every:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.setdefault(node.id, set()).add(id(node))
    for name, node in defined(every[0]):
        if read.get(name, set()) - {id(inner) for inner in ast.walk(node)}:
            yield name


@pytest.fixture(scope="module")
def package():
    return parsed("gpuscale")


def outside():
    """Names that are called where no import shows it: the quiz's expressions, the try page."""
    for path in ROOT.glob("gpuscale/textbook/data/*.json"):
        yield from re.findall(r"\b(\w+)\(", path.read_text("utf-8"))
    yield from re.findall(r"\w+", (ROOT / "docs" / "try" / "worker.js").read_text("utf-8"))


def test_every_name_is_used(package):
    used = {pair for every in (package | parsed("tools")).values() for pair in imported(every)}
    used |= {(module, name) for module, every in package.items() for name in used_at_home(every)}
    words = set(outside()) | HOOKS | set(texts(package))
    unused = [
        f"{module}.{name}"
        for module, every in package.items()
        for name, node in defined(every[0])
        if (module, name) not in used and name not in words and not is_entry(module, node)
        if not name.startswith("__")
    ]
    assert unused == []


def texts(package):
    """Names in texts of the form module:Name, which say the type of an answer."""
    for every in package.values():
        for node in every:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from re.findall(r"(?:^| )[\w.]+:(\w+)", node.value)


def is_entry(module, node):
    """Whether a person calls it: the API, or the question of a command."""
    if isinstance(node, ast.ClassDef):
        return any(
            isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "NAME" for n in node.body
        )
    return module == "gpuscale.api"


def test_every_method_is_used(package):
    read = {
        n.attr if isinstance(n, ast.Attribute) else n.value
        for every in package.values()
        for n in every
        if isinstance(n, ast.Attribute)
        or (isinstance(n, ast.Constant) and isinstance(n.value, str))
    }
    unused = [
        f"{module}.{owner.name}.{method.name}"
        for module, every in package.items()
        for owner in every
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef)
        and method.name not in read | HOOKS
        and not method.name.startswith(("__", "visit_", "on_", "action_"))
        and not any("model_validator" in ast.unparse(d) for d in method.decorator_list)
    ]
    assert unused == []
