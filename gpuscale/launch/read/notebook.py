"""Notebooks: their cells as a program, the commands that they start, the files that they write."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.launch.found import Found
from gpuscale.launch.gpus import gpu_named
from gpuscale.launch.read.program_text import unwarned
from gpuscale.launch.read.together import Look, followed, last_of

WRITTEN = re.compile(r"%%(?:writefile|file)\s+(?:-a\s+)?[\"']?([^\s\"']+)")
SHELLS = ("%%bash", "%%sh", "%%shell", "%%script")
MAGIC = re.compile(r"^(\s*)(?:[\w.,\s]+=\s*)?[!%](.*)$")
NO_BF16 = ("t4", "v100", "p100")
"""GPUs of hosted notebooks without bf16 (compute capability below 8): they train in fp16."""


def is_notebook(name: str) -> bool:
    """Whether a file is one of Jupyter's by its name."""
    return name.lower().endswith(".ipynb")


Read = Callable[[str, str, Mapping[str, Any], Look], "list[Found]"]
"""Records of a file by its name, its text, the options that it is started with, and its folder."""
NONE: Mapping[str, Any] = MappingProxyType({})


def read_notebook(name: str, text: str, near: Look, read: Read) -> list[Found]:
    """Read the parts of a notebook; where no command starts more it is one process.

    `near`: finds the files beside it. `read`: reads a part. Raises GpuscaleError if no part of it
    says a job.
    """
    parts = parts_of(name, text)
    bodies = {last_of(part): body for part, body in parts.items()}

    def within(path: str) -> tuple[str, str] | None:
        body = bodies.get(last_of(path))
        return near(path) if body is None else (path, body)

    found: list[Found] = []
    for part, body in parts.items():
        try:
            found += read(part, body, NONE, within)
        except GpuscaleError:
            continue  # it says no job
    if not found:
        why = f"{name}: its cells start no training that is known here"
        raise GpuscaleError(why, "give the script or the configuration that its job is in")
    found = followed(
        found, list(parts), within, lambda part, body, told: read(part, body, told, within)
    )
    found = [one for one in found if one.method != "serve"] or found  # what it trains comes first
    gpu = gpu_of(text)
    for one in found:
        one.gpu = one.gpu or gpu
        one.precision = "fp16" if one.gpu in NO_BF16 else one.precision
    if all(one.world_size is None and "n_gpus" not in one.unread for one in found):
        found[0].n_gpus = 1
        found[0].notes.append("one GPU, as a notebook is one process (--gpus says another number)")
    return found


def parts_of(name: str, text: str) -> dict[str, str]:
    """Files that a notebook is as good as: its program, its commands, what its cells write.

    Raises GpuscaleError if it is no notebook.
    """
    program, commands, written = [], [], {}
    for source in _cells(name, text):
        lines = source.replace("\r\n", "\n").split("\n")
        while lines and not lines[0].strip():
            lines.pop(0)
        first = lines[0] if lines else ""
        if named := WRITTEN.match(first):
            written[named[1]] = "\n".join(lines[1:])
        elif first.startswith(SHELLS):
            commands += lines[1:]
        else:
            python, started = _split(lines[1:] if first.startswith("%%") else lines)
            commands += started
            program += [python] if _parses(python) else []
    parts = {f"{name}.py": "\n".join(program), f"{name}.sh": "\n".join(commands), **written}
    return {key: part for key, part in parts.items() if part.strip()}


def gpu_of(text: str) -> str | None:
    """GPU that a hosted notebook asks for.

    >>> gpu_of('{"metadata": {"accelerator": "GPU", "colab": {"gpuType": "T4"}}}')
    't4'
    """
    named = re.search(r'"gpuType"\s*:\s*"(\w+)"|"accelerator"\s*:\s*"nvidiaTesla(\w+)"', text)
    gpu = gpu_named((named[1] or named[2]).lower()) if named else None
    return "a100-40gb" if gpu == "a100" else gpu


def _cells(name: str, text: str) -> list[str]:
    """Give the sources of the cells that hold code."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GpuscaleError(f"{name}: not a notebook: {str(error)[:120]}") from None
    cells: Any = table.get("cells") if isinstance(table, dict) else None
    if not isinstance(cells, list):
        raise GpuscaleError(f"{name}: not a notebook: it has no cells")
    found = []
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            found.append("".join(map(str, source)) if isinstance(source, list) else str(source))
    return found


def _split(lines: list[str]) -> tuple[str, list[str]]:
    """Program of a cell, and the commands in it; where one stands the program passes."""
    program: list[str] = []
    commands: list[str] = []
    more = False
    for line in lines:
        magic = MAGIC.match(line)
        if more:
            commands[-1] += "\n" + line
        elif magic is None:
            program.append(line)
            continue
        elif magic[2].startswith("env ") and "=" in magic[2]:
            key, _, value = magic[2][4:].partition("=")
            program.append(f"{magic[1]}os.environ[{key.strip()!r}] = {value.strip()!r}")
            commands.append(f"export {key.strip()}={value.strip()}")
        else:
            program.append(f"{magic[1]}pass")
            commands.append(magic[2] if "!" in line else "")
        more = line.rstrip().endswith("\\")
    return "\n".join(program), [re.sub(r"(?<!\$)\{(\w+)\}", r"${\1}", one) for one in commands]


def _parses(source: str) -> bool:
    try:
        with unwarned():
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
