"""Scripts read without running them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.launch.read.shell import read_script
from gpuscale.launch.read.words import UNSET

CASES = [
    ("run --a 1 # comment", [["run", "--a", "1"]]),
    ("A=3\nrun --a $A --b ${A}x", [["run", "--a", "3", "--b", "3x"]]),
    ("run --a \\\n  1 \\\n  --b", [["run", "--a", "1", "--b"]]),
    ('A=(--x 1\n  --y "2 3" # why\n)\nrun "${A[@]}"', [["run", "--x", "1", "--y", "2 3"]]),
    ("A=(-x)\nA+=(-y)\nrun ${A[@]}", [["run", "-x", "-y"]]),
    ('A="--x 1"\nA="$A --y"\nrun $A', [["run", "--x", "1", "--y"]]),
    ('A="--x 1\n --y"\nB="$(echo "$A" | tr \'\\n\' \' \')"\nrun $B', [["run", "--x", "1", "--y"]]),
    ("run ${A:-4} ${B:=5} $B", [["run", "4", "5", "5"]]),
    ("N=2\nG=8\nrun $((N*G)) $(($N * $G - 1))", [["run", "16", "15"]]),
    ("if [ $X = a ]; then\nrun 1\nelse\nrun 2\nfi", [["run", "1"]]),
    ("X=b\nif [ $X = a ]; then run 1; else run 2; fi", [["run", "2"]]),
    ("X=b\nif [[ $X == a ]]; then\nrun 1\nelif [[ $X == b ]]; then\nrun 2\nfi", [["run", "2"]]),
    ("N=4\nif (( N > 2 )); then\nrun big\nfi", [["run", "big"]]),
    ("export A=1 B=2\nrun $A $B", [["run", "1", "2"]]),
    ("A=1 run $HOME_OF", [["run", UNSET + "$HOME_OF"]]),
    ("run '$A' \"a b\"", [["run", "$A", "a b"]]),
    ("a; b && c || d", [["a"], ["b"], ["c"], ["d"]]),
    ("bash <<EOF\nrun 1\nEOF", [["run", "1"]]),
    # what a test is taken to say stays so
    (
        "S=$1\nif [ $S = 7B ]; then L=32; fi\nif [ $S = 13B ]; then L=40; fi\nrun $L",
        [["run", "32"]],
    ),
    # a branch that leaves the script is not the one a job goes through
    ("if [ $# -eq 0 ]; then\nN=1\nexit 1\nelse\nN=2\nfi\nrun $N", [["run", "2"]]),
    ("if [ $A = x ]; then\npython t.py\nexit 0\nfi", [["python", "t.py"]]),
    ('if [ ! -z "$X" ]; then\nrun 1\nelse\nrun 2\nfi', [["run", "2"]]),
    ("A=b\nif ! [ $A = a ]; then run 1; fi", [["run", "1"]]),
    ("N=`expr 4 + 4`\nrun $N", [["run", "8"]]),
    ("N=$(expr 16 / 8)\nrun $N $(echo 0,1,2 | tr ',' ' ' | wc -w)", [["run", "2", "3"]]),
]


@pytest.mark.parametrize(("text", "commands"), CASES)
def test_script_is_read_as_a_shell_would(text, commands):
    assert read_script(text).commands == commands


def test_here_document_is_kept_by_its_file_name():
    script = read_script("cat > ds.json <<'END'\n{\"a\": 1}\nEND\nrun ds.json")
    assert script.documents == {"ds.json": '{"a": 1}\n'}
    assert script.commands == [["run", "ds.json"]]


def test_nothing_is_executed_and_what_is_not_known_is_listed(tmp_path):
    file = tmp_path / "made"
    script = read_script(f"A=$(touch {file})\nB=`touch {file}`\nrun $A $UNKNOWN")
    assert not file.exists()
    assert "$UNKNOWN" in script.unresolved


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="aA1$ {}()[]\"'\\\n;&|#=<>+-:`", max_size=60))
def test_any_text_is_read_without_failing(text):
    read_script(text)
