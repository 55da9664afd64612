"""Lines that start servers: those that the engines' own parsers took, made again."""

import json
from pathlib import Path

import pytest

import gpuscale

DATA = Path(__file__).parent.parent / "data" / "launch"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_lines_are_those_that_the_parser_took(engine):
    recorded = json.loads((DATA / f"{engine}.json").read_text("utf-8"))
    assert recorded["version"] and len(recorded["rows"]) >= 24
    assert all(row["accepted"] and row["agreed"] for row in recorded["rows"])
    taken = set().union(*(options(row["line"]) for row in recorded["rows"]))
    for row in recorded["rows"][::8]:  # an answer takes half a second
        asked = {key: value for key, value in row["asked"].items() if key != "model"}
        answer = gpuscale.serve(row["asked"]["model"], cluster="dgx-h100", **asked).to_dict()
        line = answer["result"]["launch"][0]
        assert line.split("--")[0].split()[:-1] == row["line"].split("--")[0].split()[:-1]
        assert options(line) <= taken


def options(line):
    return {word for word in line.split() if word.startswith("--")}
