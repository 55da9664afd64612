"""The commands as tools of an assistant, through the SDK's own client where it is installed."""

import json
import subprocess
import sys

import pytest

from gpuscale.answers.ask import fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.app import run
from gpuscale.cli.mcp import TOOLS, about, answered, read, resources, tool_schema
from gpuscale.errors import GpuscaleError


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_has_a_schema_of_its_questions_fields(name):
    schema = tool_schema(name)
    assert set(schema["required"]) <= set(schema["properties"])
    assert all(p["description"] for p in schema["properties"].values())
    arguments = [n for n, (_, a) in fields_of(question_of(name)).items() if a]
    assert set(arguments) <= set(schema["properties"]) and len(schema["properties"]) <= 15


TOKEN = 4.0
"""Characters of a token in such texts."""


@pytest.mark.slow
def test_the_list_and_an_answer_are_short():
    listed = [about(name) for name in TOOLS]
    assert len(json.dumps(listed, separators=(",", ":"))) < 4_000 * TOKEN  # as it travels
    for name, given in (
        ("plan", {"model": "llama3-8b", "gpus": 64}),
        ("memory", {"model": "llama3-8b", "gpu": "rtx-4090", "method": "qlora"}),
        ("serve", {"model": "llama3-8b", "rate": "2/s"}),
        ("network", {"cluster": "h100-superpod", "gpus": 1024}),
    ):
        text, answer, wrong = answered(name, given)
        assert not wrong and len(text) + len(json.dumps(answer)) < 1_000 * TOKEN, name


def test_any_option_is_taken_and_checked():
    given = {"model": "llama3-70b", "tp": 8, "options": {"pp": 4, "--recompute": "full"}}
    full = answered("memory", given)[1]["numbers"]
    less = answered("memory", {"model": "llama3-70b", "tp": 8, "pp": 4})[1]["numbers"]
    assert full["peak_bytes"] < less["peak_bytes"]
    text = answered("memory", given | {"options": {"recompte": "full"}})[0]
    assert "did you mean `recompute`?" in text
    assert "given twice" in answered("memory", given | {"options": {"tp": 4}})[0]


def test_details_are_asked_for_or_read():
    given = {"model": "llama3-70b", "tp": 8, "pp": 4}
    part = answered("memory", given | {"show": "figures"})[0]
    _, answer, _ = answered("memory", given)
    assert "as nvidia-smi" in part and read(f"{answer['resource']}/figures")[1].strip() in part
    assert json.loads(read(f"{answer['resource']}/json")[1])["schema"] == 2
    assert f"{answer['resource']}/all" in dict(resources())
    with pytest.raises(GpuscaleError):
        read("gpuscale://answer/0")


def test_a_call_is_the_commands_answer(capsys):
    text, answer, wrong = answered("model", {"model": "llama3-8b", "show": "all"})
    assert run(["model", "llama3-8b"]) == 0
    assert text.strip() == capsys.readouterr().out.strip() and not wrong
    assert answer["numbers"]["params"] == 8030261248


@pytest.mark.parametrize(
    ("name", "given", "part"),
    [
        ("memory", {"model": "lama3-8b"}, "unknown model preset `lama3-8b`"),
        ("memory", {"modle": "llama3-8b"}, "unknown argument `modle`"),
        ("model", {}, "the argument model is missing"),
        ("rm", {}, "unknown tool `rm`"),
        ("plan", {"model": "llama3-8b", "gpus": 8, "deadline": 30}, "a time needs its unit"),
        ("plan", {"model": "llama3-8b", "gpus": 8, "price": 2.5}, "a price needs its unit"),
        ("serve", {"model": "llama3-8b", "ttft": 500}, "a latency needs its unit"),
    ],
)
def test_a_wrong_call_is_an_error_that_says_what(name, given, part):
    text, answer, wrong = answered(name, given)
    assert wrong and part in text and answer["error"] in text


def test_no_tool_writes_a_file():
    for name in TOOLS:
        assert name in COMMANDS
        assert not {"save", "rows", "output_file"} & set(tool_schema(name)["properties"])


@pytest.mark.slow
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
    assert not fits.is_error and fits.structured_content["numbers"]["fits"] is True
    assert wrong.is_error and "no-such-model" in wrong.content[0].text


@pytest.mark.slow
def test_what_is_piped_in_is_answered_before_it_ends():
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t"}}
    client["clientInfo"]["version"] = "1"
    call = {"name": "memory", "arguments": {"model": "llama3-8b", "gpu": "rtx-4090"}}
    lines = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        *({"id": n, "method": "tools/call", "params": call} for n in range(2, 7)),
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    command = [sys.executable, "-m", "gpuscale", "mcp"]
    said = subprocess.run(command, input=text, capture_output=True, text=True, timeout=100)
    got = {answer["id"]: answer for answer in map(json.loads, said.stdout.splitlines())}
    assert said.returncode == 0 and got.keys() == {1, 2, 3, 4, 5, 6}
    assert "does not fit" in got[6]["result"]["content"][0]["text"]


def test_without_the_sdk_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert run(["mcp"]) == 2
    assert "pip install 'gpuscale[mcp]'" in capsys.readouterr().err
