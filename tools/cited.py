"""Count the numeric functions of core that say where their formula is from.

`python tools/cited.py [ROOM ...]` prints each room's share, and of the rooms named what is left. A
function cites in its docstring, or its module or class does for all of them. Counted are public
functions that return numbers and multiply, divide or raise to a power; not the properties of a
record, which are arithmetic over its own fields.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CORE = Path(__file__).resolve().parent.parent / "gpuscale" / "core"
SOURCE = re.compile(
    r"arXiv:\d|doi:|https?://|github\.com/|et al\.|\b(19|20)\d\d\b|[Ss]ection \d|[Tt]able \d"
    r"|figure \d|appendix [A-Z]|How to Scale Your Model|nccl-tests|[Dd]ata ?sheet"
    r"|Technical Report|IEEE|RFC \d|JPDC"
)
NUMBERS = ("float", "int")


class Function(NamedTuple):
    """One numeric function and whether it or its module cites."""

    room: str
    path: Path
    name: str
    cites: bool


def _numeric(returns: ast.expr | None) -> bool:
    """Whether a function returns numbers: float, int, or a tuple or list of them."""
    return returns is not None and any(
        isinstance(n, ast.Name) and n.id in NUMBERS for n in ast.walk(returns)
    )


def _computes(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.BinOp | ast.AugAssign) and isinstance(n.op, ast.Mult | ast.Div | ast.Pow)
        for n in ast.walk(node)
    )


def functions() -> Iterator[Function]:
    """Public functions of core that compute numbers."""
    for path in sorted(CORE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        module = bool(SOURCE.search(ast.get_docstring(tree) or ""))
        room = path.relative_to(CORE).parts[0].removesuffix(".py")
        for node, whole in _defined(tree, ""):
            if node.name.startswith("_") or not _numeric(node.returns):
                continue
            if node.decorator_list or not _computes(node):
                continue
            own = SOURCE.search((ast.get_docstring(node) or "") + whole)
            yield Function(room, path, node.name, module or bool(own))


def _defined(tree: ast.AST, doc: str) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, doc
        elif isinstance(node, ast.ClassDef):
            yield from _defined(node, ast.get_docstring(node) or "")


def main(rooms: list[str]) -> int:
    """Print the share of each room and the functions that do not cite."""
    found = [f for f in functions() if not rooms or f.room in rooms]
    for room in sorted({f.room for f in found}):
        here = [f for f in found if f.room == room]
        cited = sum(f.cites for f in here)
        print(f"{room:12} {cited:4} of {len(here):4}  {100 * cited / len(here):3.0f} %")
        for f in here:
            if not f.cites and rooms:
                print(f"    {f.path.relative_to(CORE)} {f.name}")
    print(f"all          {sum(f.cites for f in found)} of {len(found)}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    sys.exit(main(parser.parse_args().rooms))
