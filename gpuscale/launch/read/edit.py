"""A launch file with another layout: the options that say it set, added and taken out."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from gpuscale.launch.dialects.write import said
from gpuscale.launch.found import known_options, launch_table
from gpuscale.launch.read.torchtitan import MOVED

Options = Mapping[str, Any]

KINDS = ("megatron", "megatron-bridge", "torchtitan", "maxtext", "nanotron")
"""Kinds of files whose options a change is put to: those that their rows write."""

GROUPS = tuple(tuple(line.split()) for line in launch_table("words")["edit"]["groups"])
"""Options that say one thing together: where it changes, those that do not say it go."""

RENAMED = {
    **{new: tuple(old for old, now in MOVED.items() if now == new) for new in MOVED.values()},
    "activation_checkpoint.mode": ("activation-checkpoint",),
    "training.local_batch_size": ("training.batch_size",),
    "model.tp_comm_overlap": ("model.ub_tp_comm_overlap",),
}
"""Option -> its names in other releases."""

KEYED = (".py", ".toml", ".json", ".yaml", ".yml")
"""Files with a key a line; in others options stand in a command."""
SPLICED = "'\"'\"'"
"""A quote inside a quoted word of a shell."""
QUOTED = r"'?'\"'\"'[^'\n]*'\"'\"''|\"[^\"\n]*\"|'[^'\n]*'"


COMPUTED = r"\$\(\((?:[^)\n]|\)(?!\)))*\)\)|\$\([^)\n]*\)|\$\{[^}\n]*\}"


def line_of(files: Mapping[str, str], written: str) -> str:
    r"""Where an option stands: ``FILE:LINE OPTION``; the option alone where it is in no text.

    `written`: the option with its value, as a reader keeps it.

    >>> line_of({"a.sh": "run \\\n  --tp 8"}, "--tp: 8")
    'a.sh:2 --tp'
    """
    option = re.split(r":? ", written)[0]
    for file, text in files.items():
        for name in (option, *RENAMED.get(option, ())):
            if place := _place(file, text, name):
                line = text.count("\n", 0, place.start) + 1
                return f"{file}:{line} {text[place.start : place.value].strip(' =:')}"
    return option


class Place(NamedTuple):
    """Where an option stands in a text: from `start`, its value from `value` to `end`."""

    start: int
    value: int
    end: int


def changed(files: Mapping[str, str], have: Options, want: Options) -> dict[str, str]:
    r"""Put the options of another layout into the files of a launch.

    `files`: text by name. `have, want`: options of the two layouts, True for a flag alone. Returns:
    the files; an option that is in none of them, and has none of its kind beside it, is left out.

    >>> script = "TP=${TP:-8}\nrun --tp $TP \\\n  --sequence-parallel \\\n  --pp 1\n"
    >>> have = {"--tp": 8, "--sequence-parallel": True, "--pp": 1}
    >>> print(changed({"a.sh": script}, have, {"--tp": 4, "--pp": 2, "--cp": 2})["a.sh"], end="")
    TP=${TP:-4}
    run --tp $TP \
      --pp 2 --cp 2
    """
    texts = dict(files)
    gone = {option for option in have if option not in want}
    for group in GROUPS:
        if any(have.get(option) != want.get(option) for option in group):
            gone |= {option for option in group if option not in want}
    for option in sorted(gone):
        texts = {file: _without(file, text, option) for file, text in texts.items()}
    for option, value in want.items():
        if option not in have or have[option] != value:
            _put(texts, option, value, list(want))
    return texts


def _put(texts: dict[str, str], option: str, value: Any, order: list[str]) -> None:
    """Set an option where it stands, or add it beside the nearest of its kind."""
    for file, text in texts.items():
        for name in (option, *RENAMED.get(option, ())):
            place = _place(file, text, name)
            if place and SPLICED in text[place.value : place.end]:
                texts[file] = _without(file, text, option)
            elif place:
                texts[file] = text if _alone(option) else _set(file, text, place, value)
                return
    at = order.index(option)
    for other in sorted(order, key=lambda one: abs(order.index(one) - at)):
        for file, text in texts.items():
            place = _place(file, text, other)
            if place and (added := _beside(file, text, place, other, option)):
                start, before, after = added
                said = "" if _alone(option) else _said(file, value)
                if not file.endswith(KEYED) and text[:start].count('"') % 2 == 0:
                    said = shlex.quote(said) if said else ""
                texts[file] = text[:start] + f"{before}{said}".rstrip(" ") + after + text[start:]
                return
    for file, text in texts.items():
        if file.endswith(".toml") and not option.startswith("--"):
            section, _, key = option.rpartition(".")
            texts[file] = f"{text.rstrip()}\n\n[{section}]\n{key} = {_said(file, value)}\n"
            return


def _alone(option: str) -> bool:
    """Whether a flag takes no value."""
    return option.startswith("--") and _arity(option) == "0"


def _arity(option: str) -> str:
    """Words that a flag takes: of a dotted one, which is another tool's, none."""
    return known_options("megatron").arity.get(option, "0" if "." in option else "1")


def _place(file: str, text: str, option: str) -> Place | None:
    """Place of an option: `--flag value`, `--flag`, `key: value`, `key = value`, `a.key=value`."""
    table, _, key = option.rpartition(".")
    last = re.escape(option if option.startswith("--") else key)
    if option.startswith("--"):
        word = rf"(?:{QUOTED}|{COMPUTED}|(?![(\[<#|-])[^\s\\)\"';&]+)"
        words = {"0": r"(?P<value>)", "1": rf"(?:[ \t]+|=)(?P<value>{word})"}
        many = rf"(?:[ \t]+|=)(?P<value>{word}(?:[ \t]+{word})*)"
        pattern = rf"(?<![\w.-]){last}(?![\w-]){words.get(_arity(option), many)}"
    else:
        value = rf"{QUOTED}|\[[^\]\n]*\]|[^\s,\\)#}}\]\"';&|<>]+"
        flag = rf"--{re.escape(option)}(?![\w.-])(?:(?:=|[ \t]+)(?!--)(?P<flagged>{value}))?"
        key = rf"[\"']?\+*[\"']?(?P<path>(?:\w+\.)*){last}[\"']?\s*[:=]\s*(?!--)(?P<value>{value})"
        pattern = rf"(?<![\w.-])(?:{flag}|{key})"
    found: dict[int, Place] = {}
    for match in re.finditer(pattern, text):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        here = not file.endswith(".toml") or _section(text, match.start()) == table
        if here and not re.search(r"(?:^|\s)(?:#|//)", line):
            groups = match.groupdict()
            path = groups.get("path")
            rank = 0 if path is None or path.endswith(f"{table}.") else 2 if path else 1
            value = next((g for g in ("value", "flagged") if groups.get(g)), "")
            at = match.start(value) if value else match.end()  # a flag that stands without one
            found.setdefault(rank, Place(match.start(), at, match.end()))
    return found[min(found)] if found else None


def _set(file: str, text: str, place: Place, value: Any) -> str:
    """Set a value, or the variable that it is taken from."""
    old = text[place.value : place.end]
    named = re.fullmatch(r"\"?\$\{?([A-Za-z_]\w*)[^}]*\}?\"?", old)
    assigned = _assignment(text, named[1]) if named else None
    start, end = assigned or (place.value, place.end)
    new = _said(file, value)
    bare = file.endswith(".py") and isinstance(value, bool)  # text would be true
    if start == end and not assigned:
        new = f" {new}"
    if old[:1] in ("'", '"') and not assigned and not bare and new[:1] not in ("'", '"'):
        new = old[0] + new + old[0]
    return text[:start] + new + text[end:]


def _beside(
    file: str, text: str, place: Place, other: str, option: str
) -> tuple[int, str, str] | None:
    """Where an option is added to another that stands there, and the words around its value."""
    written = text[place.start : place.value]
    if option.startswith("--"):
        return (place.end, f" {option} ", "") if written.startswith("--") else None
    section, _, last = option.rpartition(".")
    key = re.search(r"[\w.]+", written)
    if key is None or (written.startswith("--") and "." not in key[0]):
        return None if key is None or section else (place.end, f" --{last} ", "")
    path, dot, _ = key[0].rpartition(".")
    if not path.endswith(section) and other.rpartition(".")[0] != section:
        if not path:
            return None
        path, dot = section, "."
    words = written.replace(key[0], f"{path}{dot}{last}", 1)
    line = text.rfind("\n", 0, place.start) + 1
    if not file.endswith(KEYED):
        return place.end, f" {words}", ""
    if text[line : place.start].strip():
        return place.start, words, ", "
    comma = "," if text[place.end :].lstrip(" \t").startswith(",") else ""
    return line, f"{text[line : place.start]}{words}", f"{comma}\n"


def _section(text: str, at: int) -> str:
    """Table of a TOML in which a place is."""
    headers = re.findall(r"^\s*\[([\w.]+)\]", text[:at], re.M)
    return headers[-1] if headers else ""


def _without(file: str, text: str, option: str) -> str:
    """Take an option out, and its line with it where nothing else is there."""
    while place := _place(file, text, option):
        start, end = place.start, place.end
        if text[start : place.value].count("'") % 2 and text[end : end + 1] == "'":  # a quoted word
            end += 1
        begin = text.rfind("\n", 0, start) + 1
        close = text.find("\n", end)
        close = len(text) if close < 0 else close
        rest = (text[begin:start] + text[end:close]).strip(" \t,")
        if rest in ("", "\\") or rest.startswith("#"):
            text = text[:begin] + text[close + 1 :]
        elif file.endswith(KEYED):
            text = text[:start] + re.sub(r"^\s*,\s*", "", text[end:])
        else:
            text = text[:start].rstrip(" \t") + text[end:]
    return text


def _assignment(text: str, name: str) -> tuple[int, int] | None:
    """Place of a variable's value, or of its default."""
    value = r"(?:\$\{\w+\}|\$\(\(.*?\)\)|[^\s}#])*"
    match = re.search(rf"^\s*(?:export\s+)?{name}=(?:\$\{{{name}:?[-=])?({value})", text, re.M)
    return match.span(1) if match else None


def _said(file: str, value: Any) -> str:
    """Value in the language of a file; a flag alone has none."""
    if file.endswith(".py"):
        return repr(value)
    if file.endswith((".toml", ".json")):
        return json.dumps(value)
    return said(value)


def diff(
    before: Mapping[str, str], after: Mapping[str, str], given: Collection[str]
) -> tuple[str, ...]:
    """Lines of a unified diff of files; of those not given its places alone."""
    return tuple(
        line
        for name, text in before.items()
        for line in difflib.unified_diff(
            text.splitlines(),
            after[name].splitlines(),
            "a/" + name.lstrip("/"),
            "b/" + name.lstrip("/"),
            n=1 if name in given else 0,
            lineterm="",
        )
        if name in given or re.match(r"@@|(---|\+\+\+) [ab]/", line)
    )
