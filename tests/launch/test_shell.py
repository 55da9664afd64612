"""Scripts read without running them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.launch.found import UNSET
from gpuscale.launch.read.bash.run import read_script

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
    ("if [ $X = a ]; then\nrun 1\nelse\nrun 2\nfi", [["run", "2"]]),
    ('if [ "$X" = a ]; then\nrun 1\nfi\nrun 2', [["run", "2"]]),
    ("if [ $X = a ]; then\nrun 1\nelse\nexit 1\nfi", [["run", "1"]]),
    ("X=b\nif [ $X = a ]; then run 1; else run 2; fi", [["run", "2"]]),
    ("X=b\nif [[ $X == a ]]; then\nrun 1\nelif [[ $X == b ]]; then\nrun 2\nfi", [["run", "2"]]),
    ("N=4\nif (( N > 2 )); then\nrun big\nfi", [["run", "big"]]),
    ("export A=1 B=2\nrun $A $B", [["run", "1", "2"]]),
    ("A=1 run $HOME_OF", [["run", UNSET + "$HOME_OF"]]),
    ("run '$A' \"a b\"", [["run", "$A", "a b"]]),
    ("a; b && c || d", [["a"], ["b"], ["c"]]),
    ("bash <<EOF\nrun 1\nEOF", [["bash"], ["run", "1"]]),
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
    # loops, tables, functions and what they print
    (
        "for ((i=0; i<3; i++)); do A+=($i); done\nrun ${A[@]} ${#A[@]} ${A[$((1+1))]}",
        [["run", "0", "1", "2", "3", "2"]],
    ),
    ("for s in 7b 13b; do\nrun $s train.py\ndone", [["run", "7b", "train.py"]]),
    ("declare -A L=([7b]=32 [13b]=40)\nS=13b\nrun ${L[$S]} ${S^^}", [["run", "40", "13B"]]),
    ("f() { local n=$1; echo $((n*2)); }\nrun $(f 4)", [["run", "8"]]),
    ('run() { launch --n $N "$@"; }\nN=2\nrun a b', [["launch", "--n", "2", "a", "b"]]),
    ("G=8\n((G++, N=G*2))\nrun $G $N $((G > 8 ? 1 : 0))", [["run", "9", "18", "1"]]),
    ('S=7B\ncase "$S" in\n  7B|8B) L=32 ;;\n  *) L=40 ;;\nesac\nrun $L', [["run", "32"]]),
    # what waits is read once
    ("while true; do\nsee\nsleep 1\ndone\nrun", [["see"], ["sleep", "1"], ["run"]]),
    (
        "for i in 1 2; do A+=($i); sleep 1; done\nrun ${A[@]}",
        [["sleep", "1"], ["sleep", "1"], ["run", "1", "2"]],
    ),
    (
        "f() { bash -c 'run \"$@\"' _ $1; }\nf 3",  # its arguments are its own
        [["bash", "-c", 'run "$@"', "_", "3"], ["run", "3"]],
    ),
    ("case $X in a) L=1;; b) python t.py;; esac\ntorchrun u.py $L", [["torchrun", "u.py", "1"]]),
    ('N=4\nwhile getopts "n:" o; do case $o in n) N=$OPTARG;; esac; done\nrun $N', [["run", "4"]]),
    (
        "while [[ $# -gt 0 ]]; do case $1 in --n) N=$2; shift 2;; esac; done\nrun ${N:-3}",
        [["run", "3"]],
    ),
    ("IFS=, read -r A B <<< 1,2\nrun $B", [["run", "2"]]),
    ("cat > j.sh <<E\nrun 1\nE\nbash j.sh", [["bash", "j.sh"], ["run", "1"]]),
    ("python a.py \\\n  --x 1 2>&1 | tee log", [["python", "a.py", "--x", "1"], ["tee", "log"]]),
    # an exit of a script that starts nothing before it is passed over
    ("bash <<E\nif [ -z $A ]; then\nexit 1\nfi\nexit 2\nrun b.py\nE", [["bash"], ["run", "b.py"]]),
    ("N=$(expr 16 / 8)\nrun $N $(echo 0,1,2 | tr ',' ' ')", [["run", "2", "0", "1", "2"]]),
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


SUMS = {"-7/2": "-3", "7%-3": "1", "(2-9)/2": "-3", "(5&&3)+1": "2", "(0||4)*8": "8"}
SUMS |= {
    "1<<20": "1048576",
    "1<<2+1": "8",
    "16#ff": "255",
    "7%3*2": "2",
    "(9-2)/2": "3",
    "5||0": "1",
    "!(3>2)+8": "8",
}


@pytest.mark.parametrize(("text", "value"), SUMS.items())
def test_a_sum_is_what_bash_makes_of_it_or_is_not_known(text, value):
    [[_, found]] = read_script(f"run $(({text}))").commands
    assert found == value or UNSET in found
    assert found == value or set("-#!") & set(text)
