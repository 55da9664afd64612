"""Modules as syntax trees, parsed and walked once a process."""

import ast
from functools import cache


@cache
def nodes(path):
    """Every node of a file, the module first."""
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))
