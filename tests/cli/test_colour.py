"""Colours: on a terminal, in a pipe that wants them, and nowhere else; never alone in meaning."""

import re

import pytest
from running import forked

from gpuscale.render.palette import MEANINGS

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
TUNE = ["memory", "llama3-8b", "--gpu", "rtx-4090", "--method", "qlora"]


def on_a_terminal(args, **more):
    """What a command writes to a terminal."""
    return forked(*args, columns=100, **more).stdout


def in_a_pipe(args, **more):
    return forked(*args, **more)


def test_a_terminal_gets_the_colours_of_the_parts():
    text = on_a_terminal(TUNE, COLORTERM="truecolor")
    for name in ("weights", "activations", "context"):
        red, green, blue = (int(MEANINGS[name].dark[i : i + 2], 16) for i in (1, 3, 5))
        assert f"38;2;{red};{green};{blue}m" in text, name
    light = on_a_terminal(TUNE, COLORTERM="truecolor", COLORFGBG="0;15")
    red, green, blue = (int(MEANINGS["weights"].light[i : i + 2], 16) for i in (1, 3, 5))
    assert f"38;2;{red};{green};{blue}m" in light
    assert ESCAPE.sub("", light) == ESCAPE.sub("", text)


def test_errors_are_marked():
    text = on_a_terminal(["memory", "no-such-model"])
    assert "\x1b[1;31merror:\x1b[0m" in text and "\x1b[36mhint:\x1b[0m" in text


@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CLICOLOR": "0"}])
def test_who_wants_none_gets_none(more):
    for args in (TUNE, ["memory", "no-such-model"]):
        assert "\x1b" not in on_a_terminal(args, **more)


def test_a_pipe_is_plain_unless_colours_are_forced():
    plain = in_a_pipe(TUNE)
    assert "\x1b" not in plain.stdout + plain.stderr
    forced = in_a_pipe(TUNE, CLICOLOR_FORCE="1", COLORTERM="truecolor")
    assert "38;2;" in forced.stdout
    assert "\x1b" not in in_a_pipe(TUNE, CLICOLOR_FORCE="1", NO_COLOR="1").stdout


def test_the_letters_of_a_picture_have_the_colours_of_the_page():
    text = on_a_terminal(
        ["timeline", "llama3-8b", "--gpus", "8", "--pp", "2"], COLORTERM="truecolor"
    )
    for name in ("forward", "backward"):
        red, green, blue = (int(MEANINGS[name].dark[i : i + 2], 16) for i in (1, 3, 5))
        assert f"38;2;{red};{green};{blue}m" in text, name
