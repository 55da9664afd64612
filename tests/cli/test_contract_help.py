"""Help of every command: its line in the table, its example, its options, its size at start-up."""

import shlex
import subprocess
import sys

import pytest
import typer

from gpuscale.answers.ask import GROUPS, fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.app import run
from gpuscale.cli.help import help_text
from gpuscale.cli.parser import app

GROUP = typer.main.get_command(app)
LIGHT = "print(*sorted({'typer', 'rich', 'pydantic', 'numpy'} & set(sys.modules)))"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_line_in_the_table_is_the_first_sentence_of_the_help(name):
    command = GROUP.get_command(None, name)
    assert command.help.split(". ")[0].rstrip(".") + "." == COMMANDS[name]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_ends_with_the_example_and_explains_every_option(name, capsys):
    assert run([name, "--help"]) == 0
    out, err = capsys.readouterr()
    last = out.rstrip().splitlines()[-1].strip()
    assert err == "" and last == question_of(name).EXAMPLE and f"gpuscale {name} " in last
    for param in GROUP.get_command(None, name).params:
        assert param.help, param.name
    first = out
    assert run([name, "-h"]) == 0 and capsys.readouterr().out == first


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_typo_in_an_option_gets_a_hint(name, capsys):
    assert (
        run([*shlex.split(question_of(name).EXAMPLE.split("| ")[-1].split(">")[0])[1:], "--exlain"])
        == 2
    )
    out, err = capsys.readouterr()
    assert (
        out == "" and err == "error: no such option: --exlain\n\nhint: did you mean `--explain`?\n"
    )


def test_help_lists_every_command(capsys):
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    listed = [line.split()[0] for line in out.splitlines() if line[:3].strip() and line[0] == " "]
    assert [name for name in COMMANDS if not any(word == name for word in listed)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import gpuscale", ""),
        ("import gpuscale.core", ""),
        ("import gpuscale.cli.app", ""),
        ("import gpuscale.render.text", ""),
        (
            "from gpuscale.cli.help import COMMANDS, help_text; "
            "[help_text(name, '', 80) for name in COMMANDS]",
            "",
        ),
        ("from gpuscale.cli.app import run; run(['explain', 'mfu'])", ""),
        ("from gpuscale.cli.app import run; run(['matmul-time', 'h100', '8', '8', '8'])", ""),
        ("from gpuscale.cli.app import run; run(['memory', 'gpt2', '--cluster', 'dgx-h100'])", ""),
        ("from gpuscale.cli.app import run; run(['memory', '--typo'])", "pydantic typer"),
    ],
)
def test_only_what_is_needed_is_imported(code, loaded):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; {LIGHT}"], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == loaded, done.stderr


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_first_help_is_one_screen_and_all_has_every_option(name):
    for width in (80, 100):
        first = help_text(name, "", width).splitlines()
        assert len(first) <= 60 and max(map(len, first[:-1])) <= width  # the last is to be copied
    whole = help_text(name, "all", 80)
    for field, (_, argument) in fields_of(question_of(name)).items():
        assert argument or f"--{field.replace('_', '-')}" in whole
    groups = {f.group for f, argument in fields_of(question_of(name)).values() if not argument}
    assert groups <= {"", *GROUPS}


def test_a_group_of_options_is_asked_for_by_name(capsys):
    assert run(["plan", "--help", "layout"]) == 0
    shown = capsys.readouterr().out
    assert "--order" in shown and "--spot" not in shown
    assert run(["plan", "-h", "layuot"]) == 2
    assert "hint: did you mean `layout`?" in capsys.readouterr().err
    assert run(["help", "plan", "rl"]) == 0 and "--rollout-tp" in capsys.readouterr().out
