"""Keys of every answer for type checkers: `answer["step_s"]` is a float to mypy and to an editor.

    python tools/answer_keys.py             compare with gpuscale/answers/keys.pyi
    python tools/answer_keys.py --update    write it

Written from the schemas of the answers, which are made of the records that questions name.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpuscale.answers.requirements import schema_of
from gpuscale.answers.table import question_of

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "gpuscale" / "answers" / "keys.pyi"
PLAIN = {"number": "float", "integer": "int", "boolean": "bool", "string": "str", "null": "None"}


def one_of(kinds: set[str]) -> str:
    """Write a union, None last."""
    return "Any" if "Any" in kinds else " | ".join(sorted(kinds, key=lambda k: (k == "None", k)))


def kind(schema: dict[str, Any], defs: dict[str, Any]) -> str:
    """Type in Python of what a schema describes."""
    if "$ref" in schema:
        return kind(defs[schema["$ref"].rpartition("/")[2]], defs)
    if options := schema.get("anyOf"):
        return one_of({kind(option, defs) for option in options})
    if schema.get("type") == "array":
        inside = kind(schema.get("items", {}), defs)
        return f"list[{inside}]"
    return PLAIN.get(schema.get("type", ""), "dict[str, Any]" if "type" in schema else "Any")


def keys_of(command: str) -> dict[str, list[str]]:
    """Type -> the keys that have it, over all records that a command answers with."""
    schema = schema_of(command)
    defs, result = schema["$defs"], schema["properties"]["result"]
    kinds: dict[str, set[str]] = {}
    for record in result.get("anyOf", [result]):
        record = defs.get(record.get("$ref", "").rpartition("/")[2], record)
        for key, value in record.get("properties", {}).items():
            kinds.setdefault(key, set()).update(kind(value, defs).split(" | "))
    found: dict[str, list[str]] = {}
    for key, names in sorted(kinds.items()):
        found.setdefault(one_of(names), []).append(key)
    return found


def asked() -> list[tuple[str, str]]:
    """Functions of the library and the names of their questions."""
    tree = ast.parse((ROOT / "gpuscale" / "api.py").read_text("utf-8"))
    made = [n for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)]
    return [(ast.unparse(n.targets[0]), ast.unparse(n.value).split("(")[1][:-1]) for n in made]


def written() -> str:
    """Text of the stub."""
    parts = [
        "# Written by tools/answer_keys.py.",
        "from collections.abc import Callable",
        "from typing import Any, Literal, ParamSpec, overload",
        "",
    ]
    imports = {"gpuscale.answers.answer": ["Answer"]}
    classes, overloads = ["", 'P = ParamSpec("P")'], []
    for function, question in sorted(asked()):
        command = function.replace("_", "-")
        imports.setdefault(question_of(command).__module__, []).append(question)
        classes.append(f"\nclass {question}Answer(Answer):")
        for of, keys in keys_of(command).items():
            said = "".join(f"            {key!r},\n" for key in keys).replace("'", '"')
            classes.append(
                "    @overload\n    def __getitem__(\n        self,\n        key: Literal[\n"
                f"{said}        ],\n    ) -> {of}: ..."
            )
        classes.append("    @overload\n    def __getitem__(self, key: str) -> Any: ...")
        line = f"def asks(question: Callable[P, {question}]) -> Callable[P, {question}Answer]: ..."
        overloads.append(f"@overload\n{line}")
    lines = (f"from {module} import {', '.join(imports[module])}" for module in sorted(imports))
    return "\n".join([*parts, *lines, *classes, "", *overloads]) + "\n"


def same() -> bool:
    """Whether the file says what would be written, however it is formatted."""
    return ast.dump(ast.parse(FILE.read_text("utf-8"))) == ast.dump(ast.parse(written()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="write the file")
    if parser.parse_args().update:
        FILE.write_text(written(), "utf-8")
        subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(FILE)], check=True)
    elif not same():
        raise SystemExit(f"{FILE.relative_to(ROOT)}: run tools/answer_keys.py --update")
