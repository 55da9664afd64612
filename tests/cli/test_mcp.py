"""The commands as tools of an assistant, through the SDK's own client where it is installed."""

import sys

import pytest

from gpuscale.answers.table import COMMANDS
from gpuscale.cli.app import run
from gpuscale.cli.mcp import TOOLS, answered, tool_schema


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_has_a_schema_of_its_questions_fields(name):
    schema = tool_schema(name)
    assert set(schema["required"]) <= set(schema["properties"])
    assert all(p["description"] for p in schema["properties"].values())


def test_a_call_is_the_commands_answer(capsys):
    text, answer, wrong = answered("model", {"model": "llama3-8b"})
    assert run(["model", "llama3-8b"]) == 0
    assert text.strip() == capsys.readouterr().out.strip() and not wrong
    assert answer["result"]["params"] == 8030261248


@pytest.mark.parametrize(
    ("name", "given", "part"),
    [
        ("memory", {"model": "lama3-8b"}, "unknown model preset `lama3-8b`"),
        ("memory", {"modle": "llama3-8b"}, "unknown argument `modle`"),
        ("model", {}, "the argument model is missing"),
        ("rm", {}, "unknown tool `rm`"),
    ],
)
def test_a_wrong_call_is_an_error_that_says_what(name, given, part):
    text, answer, wrong = answered(name, given)
    assert wrong and part in text and answer["error"] in text


def test_no_tool_writes_a_file():
    for name in TOOLS:
        assert name in COMMANDS
        assert not {"save", "rows", "output_file"} & set(tool_schema(name)["properties"])


def test_the_sdks_client_lists_and_calls():
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    import anyio
    from mcp.client.stdio import stdio_client

    async def talk():
        server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "gpuscale", "mcp"])
        async with stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            tools = await session.list_tools()
            fits = await session.call_tool(
                "memory", {"model": "llama3-8b", "gpu": "rtx-4090", "method": "qlora"}
            )
            wrong = await session.call_tool("memory", {"model": "no-such-model"})
            return tools, fits, wrong

    tools, fits, wrong = anyio.run(talk)
    assert {t.name for t in tools.tools} == set(TOOLS)
    assert not fits.is_error and fits.structured_content["result"]["fits"] is True
    assert wrong.is_error and "no-such-model" in wrong.content[0].text


def test_without_the_sdk_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert run(["mcp"]) == 2
    assert "pip install 'gpuscale[mcp]'" in capsys.readouterr().err
