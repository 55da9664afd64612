"""Write gpuscale/api.py: one typed, documented function per command, from the command itself.

python tools/make_api.py            write
python tools/make_api.py --check    exit 1 if the file would change
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

COMMANDS = (
    "plan",
    "memory",
    "roofline",
    "matmul-time",
    "collective",
    "network",
    "model",
    "timeline",
    "explain",
    "validate",
)
"""Commands that answer a question; the others are for files and pipelines."""

PATH = Path(__file__).resolve().parent.parent / "gpuscale" / "api.py"

TEXTS = {
    "model",
    "cluster",
    "gpu",
    "catalogue",
    "dtype",
    "dtypes",
    "op",
    "software",
    "schedule",
    "recipe",
    "precision",
    "algorithm",
    "routing",
    "subject",
    "target",
    "scope",
    "objective",
    "weights",
    "kv",
    "recompute",
    "offload",
    "job",
    "shape",
    "term",
    "compare",
    "cp_kind",
    "sequence_parallel",
    "overlap_tp",
    "overlap_dp",
    "overlap_pp",
}
"""Arguments that are names, never numbers."""

HEAD = '''"""The commands as functions: `gpuscale.memory("llama3-70b", tp=8, pp=8)` and its sisters.

Written by tools/make_api.py from the commands, which they call: the same checks, the same numbers.
A number may be given as a number in SI units or as a text with a unit. What the command line
refuses is raised as `gpuscale.GpuscaleError`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscale.answer import Answer, Settings, Sweeps, Value, answer
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.gpu import GpuSpec
    from gpuscale.specs.model import ModelSpec

__all__ = [
    {names}
]


def load_gpu(name: str, catalogue: str = "vendor") -> GpuSpec:
    """Figures of a GPU: preset name or TOML file.

    Examples
    --------
    >>> load_gpu("h100").hbm_bytes_per_s
    3350000000000.0
    """
    from gpuscale.io.hardware import load_gpu as load

    return load(name, catalogue)


def load_cluster(name: str, catalogue: str = "vendor") -> ClusterSpec:
    """Figures of a cluster: preset name, GPU name (its usual node) or TOML file.

    Examples
    --------
    >>> load_cluster("dgx-h100").node_egress_bytes_per_s
    400000000000.0
    """
    from gpuscale.io.hardware import load_cluster as load

    return load(name, catalogue)


def load_model(name: str) -> ModelSpec:
    """Shape of a model: preset name, TOML file or Hugging Face ``config.json``.

    What had to be assumed is told by `warnings.warn`.

    Examples
    --------
    >>> load_model("llama3-70b").hidden_size
    8192
    """
    from gpuscale.io.models import load_model as load

    found = load(name)
    for text in found.warnings:
        warnings.warn(text, stacklevel=2)
    return found.spec
'''

SHARED = (
    ("set", "Settings", "()", 'What-if changes, as ``{"cluster.node_egress_bytes_per_s": 8e11}``.'),
    ("sweep", "Sweeps", "()", 'One or two keys to sweep, as ``{"gpus": "512..4096"}``: a table.'),
    ("sweep_show", "str | None", "None", "Keys of the result that the sweep tabulates."),
    ("calibration", "str | None", "None", "File of `gpuscale calibrate`, for expected figures."),
)


def _type(parameter: inspect.Parameter) -> str:
    kind = str(parameter.annotation)
    name = parameter.name.rstrip("_")
    base = (
        "Sequence[str]"
        if "list[str]" in kind
        else ("str" if name in TEXTS else "Value")
        if "str" in kind
        else "bool"
        if "bool" in kind
        else "int"
        if "int" in kind
        else "float"
    )
    return f"{base} | None" if "None" in kind else base


def _parameters(function: Any) -> list[tuple[str, str, str, str, bool]]:
    """Name, type, default, help and whether it is positional, of each argument."""
    import typer

    signature = inspect.signature(function, eval_str=True, locals={"Document": object})
    found = []
    for p in signature.parameters.values():
        if p.name in ("common", "sweep"):
            continue
        info = p.annotation.__metadata__[0]
        if isinstance(p.default, str):
            default = f'"{p.default}"'
        else:
            default = "" if p.default is p.empty else repr(p.default)
        positional = isinstance(info, typer.models.ArgumentInfo)
        text = re.sub(r"--([a-z][a-z-]*)", lambda m: f"`{m[1].replace('-', '_')}`", info.help or "")
        found.append((p.name.rstrip("_"), _type(p), default, text, positional))
    return found


def _documented(name: str, type_: str, default: str, text: str) -> str:
    shown = type_.removesuffix(" | None") + (", optional" if default else "")
    body = textwrap.fill(text, 96, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return f"    {name} : {shown}\n{body}"


def function_text(command: str) -> str:
    """Write the function of a command."""
    from gpuscale.cli.app import COMMANDS as TABLE

    name = command.replace("-", "_")
    function = getattr(importlib.import_module(f"gpuscale.cli.{TABLE[command][0]}"), name)
    own = _parameters(function)
    swept = [s for s in SHARED if "sweep" not in s[0] or command in _swept()]
    if command == "explain":
        swept = []
    if command == "collective":
        swept[1] = (*swept[1][:3], swept[1][3] + " Or a range of sizes, ``1KiB:1GiB``.")
    lines, starred = [], False
    for key, type_, default, _, positional in [*own, *((*s, False) for s in swept)]:
        if not positional and not starred:
            lines.append("    *,")
            starred = True
        lines.append(f"    {key}: {type_}" + (f" = {default}" if default else "") + ",")
    summary, _, more = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    documented = "\n".join(_documented(*p[:4]) for p in [*own, *swept])
    text = textwrap.indent(f"{more.strip()}\n\n", "    ") if more.strip() else ""
    return (
        f"def {name}(\n" + "\n".join(lines) + "\n) -> Answer:\n"
        f'    """{summary}\n\n{text}    Parameters\n    ----------\n{documented}\n    """\n'
        f'    return answer("{command}", locals())\n'
    )


def _swept() -> tuple[str, ...]:
    from gpuscale.cli.common import SWEPT

    return SWEPT


def api_text() -> str:
    """Write the whole module."""
    names = sorted(
        [
            "Answer",
            "GpuscaleError",
            "load_gpu",
            "load_cluster",
            "load_model",
            *(c.replace("-", "_") for c in COMMANDS),
        ]
    )
    listed = "\n    ".join(f'"{n}",' for n in names)
    body = "\n\n".join(function_text(c) for c in COMMANDS)
    head = HEAD.replace("{names}", listed)
    if "Sequence[" not in body:
        head = head.replace("from collections.abc import Sequence\n", "")
    return f"{head}\n\n{body}"


def main() -> int:
    """Write the file, or compare it."""
    text = api_text()
    if "--check" in sys.argv:
        return int(PATH.read_text("utf-8") != text)
    PATH.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
