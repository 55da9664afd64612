"""The commands as tools of an assistant: the Model Context Protocol over standard input and output.

Offline, and nothing is written but what the assistant asks for: options that write files are not
offered. A tool lists the arguments that most need; `options` takes every other option of its
command, checked alike. It answers with the summary; details are texts by name, or resources.
"""

from __future__ import annotations

import inspect
import os
import re
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Any

from gpuscale.answers.answer import ask
from gpuscale.answers.ask import Asked, Swept, fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.render.document import Document

TOOLS = tuple(
    name
    for name in (
        "plan memory serve collective roofline network checkpoint timeline model compare "
        "launch-check diagnose explain presets"
    ).split()
    if name in COMMANDS
)
"""Commands that answer a question and touch no file but those they are told to read."""

UNSAFE = ("save", "rows", "into")
"""Fields that name a file to be written."""

MOST_ARGUMENTS = 12
"""Arguments that a tool lists; the others of its command are given in `options`."""

LONGEST_HELP = 48
"""Characters of a description from which its first words are enough."""

LONGEST_TEXT = 3_000
"""Characters of an answer that has no summary of its own; the rest is a resource."""

KEPT = 32
"""Answers whose details can be read as resources."""

INSTRUCTIONS = (
    "gpuscale answers capacity questions about large language models on GPUs: does it fit, how "
    "long, what does it cost. `memory`: does training, fine-tuning (method=qlora|lora|full) or "
    "serving fit. `plan`: best layout, step time, days and price of a training or fine-tuning run. "
    "`serve`: GPUs, layout, latency and price for a traffic. Numbers may carry units: 15T, 64k, "
    "5/s. Always quote the stated interval beside an expected value. `options` takes any other "
    "option of the command by its name, as {'recompute': 'full'}; a wrong one is answered with "
    "those known. `show` takes names of details that an answer says it has."
)

SHOW = "show"
OPTIONS = {"type": "object", "description": "any other option"}
SHOWN = {"description": "details, or all"}
OUTPUT = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "numbers": {"type": "object"}},
}


FIRST = ("machines", "batch", "fine-tuning", "serving", "search", "money", "layout")
"""Groups in the order in which an assistant needs them."""


def offered(name: str) -> dict[str, Asked[Any]]:
    """Fields that a tool lists: its arguments, then its own and those that most need."""
    shared = (*UNSAFE, *fields_of(Swept))

    def place(n: str) -> tuple[bool, int, int]:
        field, argument = fields[n]
        group = FIRST.index(field.group) if field.group in FIRST else len(FIRST)
        return not argument, (0 if field.group == "" else group), field.common or 99

    fields = {n: f for n, f in fields_of(question_of(name)).items() if n not in shared}
    listed = [n for n, (f, argument) in fields.items() if argument or not f.group or f.common]
    order = sorted(listed, key=place)
    return {n: fields[n][0] for n in order[:MOST_ARGUMENTS]}


def tool_schema(name: str) -> dict[str, Any]:
    """JSON Schema of a tool's arguments.

    >>> tool_schema("model")["required"]
    ['model']
    """
    known = offered(name)
    properties = {n: _property(field) for n, field in known.items()}
    return {
        "type": "object",
        "properties": properties | {"options": OPTIONS, SHOW: SHOWN},
        "required": [n for n, field in known.items() if field.default is ...],
        "additionalProperties": False,
    }


def _property(field: Asked[Any]) -> dict[str, Any]:
    first = re.split(r"\. (?=[A-Z.\[])|; | \(|, e\.g\.", field.help)[0].rstrip(".")
    said = {"description": first.partition(": ")[0] if len(first) > LONGEST_HELP else first}
    kinds: dict[str, dict[str, Any]] = {
        "flag": {"type": "boolean"},
        "many": {"type": "array", "items": {"type": "string"}},
    }
    return {**kinds.get(field.kind, {}), **said}


def answered(name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any], bool]:
    """Answer a call.

    `name`: a tool of `TOOLS`. `given`: its arguments. Returns: text for the assistant, the same as
    JSON, and whether it is an error.
    """
    from gpuscale.render.document import layer
    from gpuscale.render.text import to_text

    try:
        show, asked = _asked(name, given)
        document = ask(question_of(name)(**asked))
        seen = layer(document, show)
    except GpuscaleError as error:
        message, hint = in_tools(error.message), in_tools(error.hint)
        text = message + (f"\nhint: {hint}" if hint else "")
        return text, {"error": message, "hint": hint}, True
    address = keep(document)
    text = to_text(seen).replace("--show ", "show: ")
    if not show and len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT].rpartition(chr(10))[0]}\n... all of it is {address}"
    warnings = "".join(f"\nwarning: {in_tools(w)}" for w in document.warnings)
    return text + warnings, _figures(document, address), False


def _asked(name: str, given: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Details and arguments of a call, checked as the command line is."""
    if name not in TOOLS:
        raise unknown_name("tool", name, TOOLS)
    options = given.get("options") or {}
    if not isinstance(options, dict):
        raise GpuscaleError("options must be an object", "as {'recompute': 'full'}")
    options = {str(k).lstrip("-").replace("-", "_"): v for k, v in options.items()}
    listed = {k: v for k, v in given.items() if k not in ("options", SHOW)}
    known = [n for n in fields_of(question_of(name)) if n not in UNSAFE]
    for key in (*listed, *options):
        if key not in known:
            raise unknown_name("argument", key, known, f"known: {', '.join(known)}")
        if key in listed and key in options:
            raise GpuscaleError(f"{key} is given twice")
    for key in tool_schema(name)["required"]:
        if key not in {**listed, **options}:
            raise GpuscaleError(f"the argument {key} is missing")
    show = tuple(w.strip() for w in str(given.get(SHOW) or "").split(",") if w.strip())
    said = {**listed, **options}.items()  # a number as typed: a time or a price has its unit
    return show, {k: str(v) if type(v) in (int, float) else v for k, v in said}


def _figures(document: Document, address: str) -> dict[str, Any]:
    """Summary and figures of an answer: what of its record is one number or word."""
    from gpuscale.render.document import points_of
    from gpuscale.render.text import plain

    record = plain(document.result)
    numbers = record if isinstance(record, dict) else {}
    points = [p for p in points_of(document) if document.details]
    return {
        "ok": not document.answered_no,
        "summary": [" ".join(filter(None, (p.key, p.value, p.note))) for p in points[:1]],
        "numbers": {
            k: float(f"{v:.6g}") if isinstance(v, float) else v
            for k, v in numbers.items()
            if isinstance(v, (bool, int, float)) or (isinstance(v, str) and len(v) < 60)
        },
        "resource": address,
    }


def in_tools(text: str) -> str:
    """Write a hint of the command line as tools say it.

    >>> in_tools("list them with `gpuscale presets --kind gpu`; or --seq-len 4096")
    'list them with the tool `presets` (kind gpu); or `seq_len` 4096'
    """

    def command(found: re.Match[str]) -> str:
        rest = found[2].replace("--", "").strip()
        return f"the tool `{found[1]}`" + (f" ({rest})" if rest else "")

    text = re.sub(r"`?gpuscale ([a-z-]+)([^`]*)`", command, text)
    return re.sub(r"--([a-z][a-z-]*[a-z])", lambda m: f"`{m[1].replace('-', '_')}`", text)


_kept: OrderedDict[str, Document] = OrderedDict()
_numbers = count(1)


def keep(document: Document) -> str:
    """Keep an answer for a while; its address."""
    address = f"gpuscale://answer/{next(_numbers)}"
    _kept[address] = document
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return address


def read(address: str) -> tuple[str, str]:
    """(kind of text, text) of a resource: an answer whole, a detail of it, or its JSON.

    Raises GpuscaleError if there is none of that address.
    """
    from gpuscale.render.document import layer
    from gpuscale.render.text import to_json, to_text

    head, _, detail = address.removeprefix("gpuscale://answer/").partition("/")
    document = _kept.get(f"gpuscale://answer/{head}")
    if document is None:
        raise GpuscaleError(f"no answer {address}", "ask the tool again: the last answers are kept")
    if detail == "json":
        return "application/json", to_json(document, {})
    return "text/plain", to_text(layer(document, (detail or "all",)))


def resources() -> list[tuple[str, str]]:
    """(address, name) of the answers that are kept, and of their details."""
    found = []
    for address, document in _kept.items():
        for detail in ("all", *document.details, "json"):
            found.append((f"{address}/{detail}", f"{document.command}: {detail}"))
    return found


def serve() -> None:
    """Serve until the assistant closes the stream.

    Raises GpuscaleError if the SDK is not installed.
    """
    try:
        import anyio
        from mcp import types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise GpuscaleError(
            "`gpuscale mcp` needs the package mcp", "pip install 'gpuscale[mcp]'"
        ) from None

    async def list_tools(*_: Any) -> Any:
        return types.ListToolsResult(tools=[types.Tool(**about(name)) for name in TOOLS])

    left: list[str] = []  # calls without an answer: what is piped in ends after the last one

    async def lines(file: Any) -> Any:
        async for line in anyio.wrap_file(file):
            left.extend(["call"] if '"tools/call"' in line else ())
            yield line
        for _ in range(100):
            await anyio.sleep(0.02 if left else 0.002)

    async def call_tool(_: Any, params: Any) -> Any:
        del left[:1]
        text, answer, wrong = answered(params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=answer,
            is_error=wrong,
        )

    async def list_resources(*_: Any) -> Any:
        found = [types.Resource(uri=uri, name=name) for uri, name in resources()]
        return types.ListResourcesResult(resources=found)

    async def read_resource(_: Any, params: Any) -> Any:
        kind, text = read(str(params.uri))
        contents = [types.TextResourceContents(uri=params.uri, mime_type=kind, text=text)]
        return types.ReadResourceResult(contents=contents)

    async def run() -> None:
        server: Any = Server(
            "gpuscale",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_list_resources=list_resources,
            on_read_resource=read_resource,
        )
        asked = open(os.dup(0), encoding="utf-8", errors="replace")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a tool that reads `-` finds nothing
        stdin: Any = lines(asked)
        async with stdio_server(stdin) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)


def about(name: str) -> dict[str, Any]:
    """Say what is listed of a tool."""
    return {
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "description": inspect.cleandoc(question_of(name).__doc__ or "").split("\n\n")[0],
        "input_schema": tool_schema(name),
        "output_schema": OUTPUT,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
