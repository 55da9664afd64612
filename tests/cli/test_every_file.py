"""A file without end in the place of every word and option: one line, soon, in little memory."""

import contextlib
import os
import resource
import shlex
import time

import pytest
from running import invoke

from gpuscale.answers.ask import fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.errors import GpuscaleError

ZERO = "/dev/zero"
ROOM_BYTES = 400e6  # beyond what the process has
LIMIT_S = 2.0
WRITES = {("validate", "rows"), ("calibrate", "save"), ("study", "out")}


IN_WORDS = {"diagnose"}  # its options are what a person says of a run, and no files


def lines(name, file=ZERO):
    """Command lines of one command, with the file at every place."""
    question = question_of(name)
    words = shlex.split(question.EXAMPLE.split("|")[-1].split(">")[0].split("<")[0])[1:]
    arguments = [i for i, word in enumerate(words) if i and not word.startswith("-")]
    for i in arguments:
        yield [*words[:i], file, *words[i + 1 :]]
    for field, (asked, is_argument) in fields_of(question).items():
        if is_argument or asked.kind == "flag" or (name, field) in WRITES or name in IN_WORDS:
            continue
        with contextlib.suppress(GpuscaleError):  # of a number, or a word of a list
            asked.read(file, field)
            yield [*words, f"--{field.replace('_', '-')}", file]


@pytest.fixture(autouse=True)
def bounded():
    """Too much memory is an error here, not the end of the machine."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(used + ROOM_BYTES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


LONG = "a" * 255


NAMES = (f"{LONG}.toml", f"./{LONG}", f"{LONG * 2}.json", "a\0b.toml")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_no_file_can_have(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, words in enumerate(lines(command, "NAME")):
        done = invoke(*(NAMES[number % len(NAMES)] if word == "NAME" else word for word in words))
        assert done.returncode == 2 and done.stdout == "", (words, done)
        assert done.stderr.startswith("error: ") and len(done.stderr) < 2_000, (words, done)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_without_end_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in lines(name):
        start_s = time.process_time()
        done = invoke(*words)
        took_s = time.process_time() - start_s
        assert done.returncode == 2, (words, done)
        assert done.stdout == "" and done.stderr.startswith("error: "), (words, done)
        assert took_s < LIMIT_S, (words, took_s)
