"""The commands as tools of an assistant: the Model Context Protocol over standard input and output.

Offline, and nothing is written but what the assistant asks for: options that write files are not
offered.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from gpuscale.answers.answer import ask
from gpuscale.answers.ask import fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.answers.ask import Asked

TOOLS = tuple(
    name
    for name in (
        "plan",
        "memory",
        "serve",
        "matmul-time",
        "collective",
        "roofline",
        "network",
        "checkpoint",
        "timeline",
        "model",
        "compare",
        "launch-check",
        "explain",
        "presets",
    )
    if name in COMMANDS
)
"""Commands that answer a question and touch no file but those they are told to read."""

UNSAFE = ("save", "rows", "into")
"""Fields that name a file to be written."""

INSTRUCTIONS = (
    "gpuscale answers capacity questions about large language models on GPUs: does it fit, how "
    "long, what does it cost. `memory`: does training, fine-tuning (method=qlora|lora|full) or "
    "serving fit. `plan`: best layout, step time, days and price of a training or fine-tuning run. "
    "`serve`: GPUs, layout, latency and price for a traffic. Numbers may carry units: 15T, 64k, "
    "5/s. Always quote the stated interval beside an expected value, and the command that gives it."
)


def tool_schema(name: str) -> dict[str, Any]:
    """JSON Schema of a tool's arguments.

    Examples
    --------
    >>> tool_schema("model")["required"]
    ['model']
    """
    properties: dict[str, Any] = {}
    required = []
    for field_name, (field, _) in fields_of(question_of(name)).items():
        if field_name in UNSAFE:
            continue
        properties[field_name] = _property(field)
        if field.default is ...:
            required.append(field_name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _property(field: Asked[Any]) -> dict[str, Any]:
    said = {"description": field.help}
    if field.kind == "flag":
        return {"type": "boolean", **said}
    if field.kind == "many":
        return {"type": "array", "items": {"type": "string"}, **said}
    return {"type": ["string", "number", "boolean"], **said}


def answered(name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any], bool]:
    """Answer a call.

    `name`: a tool of `TOOLS`. `given`: its arguments. Returns: text for the assistant, the JSON
    answer, and whether it is an error.
    """
    from gpuscale.render.data import to_json
    from gpuscale.render.plain import to_text

    try:
        if name not in TOOLS:
            raise unknown_name("tool", name, TOOLS)
        known = tool_schema(name)["properties"]
        for key in given:
            if key not in known:
                raise unknown_name("argument", key, known, f"known: {', '.join(known)}")
        for key in tool_schema(name)["required"]:
            if key not in given:
                raise GpuscaleError(f"the argument {key} is missing")
        document = ask(question_of(name)(**given))
    except GpuscaleError as error:
        text = error.message + (f"\nhint: {error.hint}" if error.hint else "")
        return text, {"error": error.message, "hint": error.hint}, True
    warnings = "".join(f"\nwarning: {w}" for w in document.warnings)
    return to_text(document) + warnings, json.loads(to_json(document, {})), False


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
        tools = []
        for name in TOOLS:
            about = inspect.cleandoc(question_of(name).__doc__ or "")
            tools.append(types.Tool(name=name, description=about, input_schema=tool_schema(name)))
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: Any, params: Any) -> Any:
        text, answer, wrong = answered(params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=answer,
            is_error=wrong,
        )

    async def run() -> None:
        server: Any = Server(
            "gpuscale",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
        )
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)
