"""Pages of the documentation that are written from the code: run when the site is built.

python tools/reference.py FOLDER    write them to a folder, to read or to check
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_args

from gpuscale.answers.training.plan import Plan
from gpuscale.answers.training.plan_request import job_keys
from gpuscale.core.model import mixers
from gpuscale.core.model.mixers import AnyMixer
from gpuscale.core.plan.pins import FLAGS


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").split())


def code(text: str) -> str:
    """Write inline code."""
    return f"`{text}`" if text else ""


# --- command line -------------------------------------------------------------------------------


def help_text(command: str) -> str:
    """Give what `gpuscale COMMAND --help all` prints, 100 columns wide."""
    from gpuscale.cli.help import help_text as text

    return text(command, "all", 100)


def cli_page() -> str:
    """Write the reference of the command line."""
    from gpuscale.answers.table import COMMANDS
    from gpuscale.cli.help import OTHERS
    from gpuscale.cli.parser import other_help

    parts = [
        "# Command line",
        "Written from `--help all` when this site is built. Every command takes `--json`, "
        "`--format`, `--explain`, `--require`, `-o` and `--plot`; those about specs take "
        "`--set` and `--calibration`.",
        f"```text\n{help_text('').rstrip()}\n```",
    ]
    for name, line in COMMANDS.items():
        parts.append(f"## gpuscale {name}\n\n{line}\n\n```text\n{help_text(name).rstrip()}\n```")
    for name, line in OTHERS.items():
        parts.append(f"## gpuscale {name}\n\n{line}\n\n```text\n{other_help(name).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


# --- TOML keys ----------------------------------------------------------------------------------

SPECS = (
    ("A cluster", "hardware", ("ClusterSpec", "NetworkLevel")),
    ("A GPU", "hardware", ("GpuSpec",)),
    (
        "A model",
        "model",
        ("ModelSpec", *(cls.__name__ for cls in get_args(AnyMixer)), "DenseFfn", "MoeFfn"),
    ),
)

UNIT = {
    "Bytes": "bytes, as `80 GiB`",
    "BytesPerS": "byte/s, as `400 GB/s`",
    "FlopPerS": "FLOP/s, as `989.4 TFLOP/s`",
    "Hertz": "Hz, as `1.83 GHz`",
    "Watts": "W, as `700 W`",
    "Seconds": "s, as `1.5 us`",
    "UsdPerHour": "as `2.5 USD/h`",
    "Tokens": "tokens, as `15T`",
    "Count": "number, as `70e9`",
    "PositiveInt": "whole, from 1",
    "NonNegativeInt": "whole, from 0",
    "str": "text",
    "bool": "true or false",
    "int": "whole",
    "float": "number",
    "GpuSpec": "name or table",
    "dict[str, str]": "table: key = text",
    "tuple[NetworkLevel, ...]": "tables, below",
    "dict[str, Mixer]": "tables by name, see `kind`",
    "dict[str, Ffn]": "tables by name, see `kind`",
    "Fraction": "share, 0 to 1",
}


def _comments(cls: type) -> dict[str, str]:
    """Comment of each field: behind it, or on the line above."""
    found: dict[str, str] = {}
    above = ""
    for line in inspect.getsource(cls).splitlines():
        field = re.match(r"\s+(\w+): .*?(?:  # (.*))?$", line)
        if line.strip().startswith("#"):
            above = line.strip("# ")
        elif field:
            found[field[1]] = field[2] or above
            above = ""
    return found


def _annotations(cls: type) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(cls))
    body = tree.body[0].body  # type: ignore[attr-defined]
    return {n.target.id: ast.unparse(n.annotation) for n in body if isinstance(n, ast.AnnAssign)}


def _keys(cls: Any) -> Iterator[tuple[str, bool, Any]]:
    """(name, whether required, default) of the keys of a spec or a kind of mixer."""
    missing = dataclasses.MISSING
    for field in dataclasses.fields(cls):
        given = field.default is not missing or field.default_factory is not missing
        yield field.name, not given, None if field.default is missing else field.default


def _spec_rows(cls: Any) -> Iterator[Sequence[str]]:
    comments, kinds = _comments(cls), _annotations(cls)
    for name, required, value in _keys(cls):
        kind = kinds.get(name, "").replace(" | None", "")
        kind = re.sub(r"Literal\[(.*)\]", lambda m: "one of " + m[1].replace("'", ""), kind)
        if required:
            default = "required"
        elif value in (None, "", ()):
            default = ""
        else:
            default = str(value).lower() if isinstance(value, bool) else str(value)
        yield code(name), UNIT.get(kind, kind), default, comments.get(name, "")


def keys_page() -> str:
    """Write the reference of the TOML keys."""
    parts = [
        "# Keys of the files",
        "Written from the code when this site is built. A key that is not listed is an error. A "
        "quantity is a text with a unit or a number in SI units; rates are dense, bandwidths one "
        "direction. The same keys go behind `--set`, as `--set cluster.gpus_per_node=4`. "
        "`sources` says where each figure is from.",
    ]
    for title, module, classes in SPECS:
        found = importlib.import_module(f"gpuscale.specs.{module}")
        parts.append(f"## {title}")
        for i, name in enumerate(classes):
            cls = getattr(found, name, None) or getattr(mixers, name)
            if i:
                kind = {key: value for key, _, value in _keys(cls)}.get("kind")
                shown = f'`kind = "{kind}"`' if kind else name
                parts.append(f"### {shown}")
            parts.append(inspect.cleandoc(cls.__doc__ or ""))
            parts.append(table(("key", "value", "default", "meaning"), _spec_rows(cls)))
    parts += [
        "## A job for `gpuscale plan`",
        "`plan.toml`: every key is the flag of `gpuscale plan` of the same name, with the value as "
        f"typed behind it: {', '.join(map(code, job_keys(Plan)))}. The table `[layout]` pins what "
        f"is not to be searched: {', '.join(map(code, (*FLAGS, 'pipeline_layout')))}.",
    ]
    return "\n\n".join(parts) + "\n"


# --- Python -------------------------------------------------------------------------------------


def _sections(doc: str) -> dict[str, str]:
    """Split a numpydoc docstring; the text before the first section is ``""``."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", doc, flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def _parameter_rows(text: str) -> Iterator[Sequence[str]]:
    for name, kind, body in re.findall(r"^(\w+) : (.*)\n((?:    .*\n?|\n)*)", text, re.MULTILINE):
        yield code(name), kind, body


def _described(found: Any) -> list[str]:
    sections = _sections(inspect.cleandoc(found.__doc__ or ""))
    parts = [sections[""].strip()]
    if "Parameters" in sections:
        rows = _parameter_rows(sections["Parameters"])
        parts.append(table(("argument", "type", "meaning"), rows))
    if "Examples" in sections:
        parts.append(f"```pycon\n{sections['Examples'].strip()}\n```")
    return parts


def api_page() -> str:
    """Write the reference of the library."""
    from gpuscale import __all__ as public
    from gpuscale import api
    from gpuscale.answers.answer import Answer

    parts = [
        "# Python",
        "Written from the docstrings when this site is built. `import gpuscale` is light: the rest "
        "is imported when a function is called. A `Value` is a number in SI units or a text with a "
        "unit. `gpuscale.GpuscaleError` is raised for what the command line would refuse.",
    ]
    names = [n for n in public[1:] if inspect.isfunction(getattr(api, n))]
    for name in sorted(names, key=lambda n: n.startswith("load_")):
        found = getattr(api, name)
        first = [
            p.name
            for p in inspect.signature(found).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        parts += [
            f"## gpuscale.{name}",
            f"```python\ngpuscale.{name}({', '.join(first)}, ...)\n```",
        ]
        parts += _described(found)
    parts += ["## gpuscale.Answer", *_described(Answer)]
    rows = []
    for name, member in vars(Answer).items():
        target = member.fget if isinstance(member, property) else member
        if name == "__getitem__" or (inspect.isfunction(target) and not name.startswith("_")):
            shown = name if isinstance(member, property) else f"{name}{inspect.signature(target)}"
            shown = shown.replace("(self, ", "(").replace("(self)", "()").replace("'", "")
            rows.append((code(shown), inspect.cleandoc(target.__doc__ or "").split("\n\n")[0]))
    parts.append(table(("member", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


# --- Glossary -----------------------------------------------------------------------------------

TOPIC = {
    "speed": "Speed of one chip",
    "network": "Networks",
    "parallel": "Parallelism",
    "serving": "Serving",
}


def glossary_page() -> str:
    """Write the glossary, the data of `gpuscale explain`."""
    from gpuscale import api
    from gpuscale.answers.explain import load_glossary

    entries = load_glossary()
    parts = [
        "# Glossary",
        "The terms of `gpuscale explain`. Each formula is arithmetic and is evaluated by a test.",
    ]
    topic = ""
    for entry in entries.values():
        if entry.topic != topic:
            topic = entry.topic
            parts.append(f"## {TOPIC.get(topic, topic)}")
        numbers = api.explain(entry.name).document.blocks[2].rows[2][2]
        also = f" Also: {', '.join(entry.also)}." if entry.also else ""
        parts += [f"### {entry.name}", f"*{entry.title}.*{also}", " ".join(entry.text.split())]
        parts.append(f"```text\n{entry.formula}\n```")
        parts.append(f"Example: {entry.example}.\n\n```text\n{numbers}\n```")
        lines = [f"**Limits.** {entry.limits}", f"**Source.** {'; '.join(entry.references)}."]
        if entry.see:
            see = ", ".join(f"[{s}](#{s})" if s in entries else s for s in entry.see)
            lines.append(f"**See also.** {see}.")
        if entry.command:
            lines.append(f"**Try.** `{entry.command}`")
        parts.append("  \n".join(lines))
    return "\n\n".join(parts) + "\n"


# --- Causes -------------------------------------------------------------------------------------


def causes_page() -> str:
    """Write the catalogue of `gpuscale diagnose`: sign, size, test and remedy of every cause."""
    from gpuscale.core.diagnosis.causes import Sign, shown
    from gpuscale.io.run import load_causes

    def said(sign: Sign) -> str:
        first, (low, dots, high) = sign.condition[0], sign.condition.partition("..")
        if first in "<>":
            number = shown(sign.feature, float(sign.condition[1:]))
            return sign.words.format(f"{'more' if first == '>' else 'less'} than {number}")
        if dots and low and "*" not in sign.condition:
            ends = (shown(sign.feature, float(e)) for e in (low, high))
            return sign.words.format(" to ".join(ends))
        plain = re.fullmatch(r"(?!yes|used)\w[\w |-]+", sign.condition)
        return sign.words.format(sign.condition.replace("|", " or ") if plain else "it")

    causes = load_causes()
    rows = [
        f"| [{c.word}](#{c.word}) | {c.title} | "
        + (f"{c.size[0]:g} to {c.size[1]:g}" if c.verdict == "fault" else c.verdict)
        + f" | {c.test} |"
        for c in causes
    ]
    parts = [
        "# Causes",
        f"The {len(causes)} causes of `gpuscale diagnose`: what a run that looks wrong can be. A "
        "size is a factor on time (of memory causes on memory), 80 % of cases within.",
        "\n".join(["| cause | what it is | size | the test |", "|---|---|---|---|", *rows]),
    ]
    group = ""
    for c in causes:
        if c.group != group:
            group = c.group
            parts.append(f"## {group.capitalize()}")
        signs = sorted((s for s in c.signs if s.words.strip("{} ")), key=lambda s: -s.ratio)
        for_ = "; ".join(said(s) for s in signs if s.ratio > 2) or "none printed"
        against = "; ".join(said(s) for s in signs if s.ratio < 0.5)
        lines = [f"**{c.title[0].upper()}{c.title[1:]}.**", f"**Signs.** {for_}."]
        lines += [f"**Against it.** {against}."] if against else []
        if c.verdict == "fault":
            usual = f", usually {c.usual:g}" if c.usual else ""
            lines.append(f"**Size.** {c.size[0]:g} to {c.size[1]:g} times{usual}.")
        test = f"{c.test}: {c.shows_if} if it is this, else {c.shows_else}"
        lines += [f"**Test** ({c.cost}). {test}.", f"**Remedy.** {c.remedy}."]
        lines += [f"In gpuscale: `{words}`." for where, words in c.words.items()]
        lines.append(f"**Source.** {c.source}.")
        parts += [f"### {c.word}", "  \n".join(lines)]
    return "\n\n".join(parts) + "\n"


# --- Validation ---------------------------------------------------------------------------------

CLASS_TITLE = {
    "selection": "selection",
    "dense_or_moe": "kind of model",
    "gpu": "GPU",
    "precision": "precision",
    "family": "framework family",
    "source": "source",
    "architecture": "architecture",
    "clean": "run without stalls",
    "dtype": "number format",
    "op": "operation",
    "framework": "framework",
    "quantity": "quantity",
    "span": "span",
}

SECTION_TITLE = {
    "runs": "Step time of training runs",
    "layouts": "Layouts against each other",
    "gemm": "Matrix products",
    "collectives": "Collectives",
    "inference": "Serving",
}

SECTION_NOTE = {
    "layouts": "A measured grid of layouts. About half of its rows are runs with stalls of about "
    "1.2 s a micro-batch that no shape explains ([accuracy](../accuracy.md)); the class *no* below "
    "has them, the class *yes* is without them."
}


def _percent(value: Any) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _score_row(score: dict[str, Any]) -> Sequence[str]:
    return (
        score["name"],
        str(score["n_scored"]),
        _percent(score["mape_frac"]),
        _percent(score["median_frac"]),
        _percent(score["p90_frac"]),
        _percent(score["bias_frac"]),
        _percent(score["coverage_frac"]),
    )


AT_ONCE = 40
"""Served rows that one process scores before it takes others: a simulated server each."""


def own_sections(files: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Score the shipped measurements, or files, as `gpuscale validate` does, on all cores."""
    from gpuscale.answers.validate.scores import own_files, predicted, section
    from gpuscale.evidence.rows_named import rows_of

    files = dict(files or own_files())
    served = rows_of(files.pop("inference"))
    parts = [("inference", served[i : i + AT_ONCE]) for i in range(0, len(served), AT_ONCE)]
    found: dict[str, list[Any]] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        waiting = [(name, pool.submit(predicted, name, rows)) for name, rows in parts]
        waiting += [(name, pool.submit(predicted, name, file)) for name, file in files.items()]
        for name, made in waiting:
            found.setdefault(name, []).extend(made.result())
    return [dataclasses.asdict(section(name, found[name])) for name in (*files, "inference")]


def validation_page(answer: Any = None) -> str:
    """Write the scores of the shipped measurements, computed when the site is built."""
    sections = answer.to_dict()["result"]["sections"] if answer else own_sections()
    headers = ("class", "rows", "mean error", "median", "p90", "bias", "inside 80 % interval")
    parts = [
        "# Validation tables",
        "Computed by `gpuscale validate` when this site is built, on the published measurements "
        "that the package ships with their citations (`gpuscale/data/validation`). Errors are "
        "absolute, relative to the measurement; bias is signed, negative where the prediction is "
        "below the measurement. *Inside* is the share of measurements inside the stated 80 % "
        "interval: near 80 % is right, above it the interval is wider than it need be. "
        "The constants were fitted to a part of these measurements; "
        "[Accuracy and limits](../accuracy.md) says which numbers are from rows held out.",
    ]
    for section in sections:
        parts.append(f"## {SECTION_TITLE.get(section['name'], section['name'])}")
        if section["name"] in SECTION_NOTE:
            parts.append(SECTION_NOTE[section["name"]])
        first = [_score_row(section["total"])]
        if section.get("memory"):
            first.append(_score_row(section["memory"]))
        parts.append(table(headers, first))
        for name, scores in section["by_class"].items():
            parts.append(f"### By {CLASS_TITLE.get(name, name)}")
            parts.append(table(headers, map(_score_row, scores)))
        if section.get("choices"):
            parts.append("### The chosen layout against the best measured one")
            parts.append(_choices(section["choices"]))
    return "\n\n".join(parts) + "\n"


def _choices(choices: list[dict[str, Any]]) -> str:
    keys = [k for k in choices[0] if not isinstance(choices[0][k], (list, dict))]
    rows = [
        [f"{c[k]:.3f}" if isinstance(c[k], float) else str(c[k]) for k in keys] for c in choices
    ]
    return table([k.replace("_", " ") for k in keys], rows)


PAGES = {
    "reference/cli.md": cli_page,
    "reference/keys.md": keys_page,
    "reference/python.md": api_page,
    "glossary.md": glossary_page,
    "causes.md": causes_page,
    "physics/validation.md": validation_page,
}
"""Path below docs/ -> the function that writes the page."""


def main() -> None:
    """Write every page below the folder of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for path, write in PAGES.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(write(), "utf-8")


if __name__ == "__main__":
    main()
