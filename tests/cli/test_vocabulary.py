"""One vocabulary: an option has one name, one meaning and one default in every command."""

import pytest
from running import invoke

from gpuscale.answers.ask import fields_of
from gpuscale.answers.layout_options import Dimensions, Pins
from gpuscale.answers.table import COMMANDS, question_of

LAYOUT = [name for name in fields_of(Pins) if name in vars(Dimensions)]
JOBS = ("plan", "memory", "timeline")
MACHINES = (*JOBS, "serve", "roofline", "checkpoint", "launch-check", "network", "collective")
HAVE = {
    "gpu": (*MACHINES, "matmul-time"),
    "cluster": MACHINES,
    "catalogue": (*MACHINES, "matmul-time", "presets"),
    "seq-len": (*JOBS, "roofline", "launch-check", "model"),
    "software": JOBS,
    "recipe": (*JOBS, "checkpoint"),
    "moments": (*JOBS, "checkpoint"),
    "params": ("memory", "checkpoint"),
    "price": ("plan", "serve", "checkpoint"),
    "sequence-parallel": JOBS,
    **dict.fromkeys((name.replace("_", "-") for name in LAYOUT), JOBS),
    **dict.fromkeys(
        ("cuda-graphs", "dispatcher", "overlap-ep", "moe-kernels", "recompute-modules"), JOBS
    ),
    **dict.fromkeys(("offload-layers", "gradients", "precision"), JOBS),
}
"""Option -> commands that must have it, with one meaning."""

WORDS = {
    "gpu": "GPU instead of a cluster",
    "cluster": "Cluster preset, GPU name (its usual node), file or -.",
    "precision": "bf16, fp16, fp8, mxfp8",
}
"""What the meaning begins with, where some commands add to it."""

OTHER = {
    ("matmul-time", "gpu"): "the GPU is the question",
    ("network", "gpu"): "the argument",
    ("collective", "gpu"): "the argument",
    ("roofline", "zero"): "the board has one stage",
    ("checkpoint", "software"): "its states, of any framework",
    ("launch-check", "catalogue"): "figures of the vendor",
    ("presets", "catalogue"): "of the list",
}


def field(command, option):
    return fields_of(question_of(command)).get(option.replace("-", "_"), (None,))[0]


@pytest.mark.parametrize("option", HAVE)
def test_an_option_means_the_same_everywhere(option):
    found = {c: field(c, option) for c in HAVE[option] if (c, option) not in OTHER}
    assert None not in found.values(), found
    meanings = {f.help.partition(" [default")[0] for f in found.values()}
    first = min(meanings, key=len)
    begin = WORDS.get(option, first)
    assert all(m.startswith(begin) for m in meanings), meanings
    assert len({f.flags for f in found.values()} - {("--gpu",)}) <= 1


@pytest.mark.parametrize("option", ["seq-len", "cluster", "software"])
def test_an_option_has_the_same_default_everywhere(option):
    shown = set()
    for command in HAVE[option]:
        asked = field(command, option)
        words = asked.help.partition("[default: ")[2].partition("]")[0].partition(";")[0]
        if asked.default is not ...:
            shown.add(words or str(asked.default))
    assert len(shown) == 1, shown


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"check", "study", "calibrate"}))
def test_options_of_one_name_are_known_here(command):
    """A new command that has a name of the vocabulary is in it."""
    for name in fields_of(question_of(command)):
        option = name.replace("_", "-")
        listed = command in HAVE.get(option, (command,)) or (command, option) in OTHER
        own = ("serve", "roofline") if option in ("tp", "pp", "ep", "cp", "offload", "zero") else ()
        free = command == "diagnose"  # a run in its owner's words: machines that no preset has
        assert listed or command in own or free, f"{command} --{option}"


NAMED = [
    ("collective all-reduce dgx-h100 --bytes 1GB", "collective all-reduce --cluster dgx-h100"),
    ("collective all-reduce dgx-h100 --bytes 1GB", "collective --gpu=dgx-h100 all-reduce"),
    ("network h100-superpod --gpus 64", "network --cluster h100-superpod --gpus 64"),
    ("network h100 --gpus 64", "network --gpu h100 --gpus 64"),
    ("memory llama3-8b --gpus 8", "memory --model llama3-8b --gpus 8"),
]


@pytest.mark.parametrize(("placed", "named"), NAMED)
def test_an_argument_may_be_given_by_name(placed, named):
    more = ["--bytes", "1GB"] if placed.startswith("collective") else []
    plain, by_name = invoke(*placed.split()), invoke(*named.split(), *more)
    assert plain.returncode == by_name.returncode <= 1
    assert plain.stdout == by_name.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("collective --cluster dgx-h100", "missing argument `op`"),
        ("network --cluster h100 --gpu b200", "--gpu: the cluster is given twice"),
        ("network --cluster", "option --cluster requires an argument"),
        ("network dgx-h100 --cluster dgx-h100 x y", "unexpected extra argument"),
    ],
)
def test_arguments_by_name_that_do_not_go_together(line, message):
    done = invoke(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and "hint: " in done.stderr


def test_recipe_moves_memory_and_plan_alike():
    wide = invoke("plan", "llama3-8b", "--gpus", "8", "--recipe", "fp32-adam", "--json")
    assert wide.returncode == 0 and '"recipe": "fp32-adam"' in wide.stdout
    lean = invoke("plan", "llama3-8b", "--gpus", "8", "--recipe", "book-min", "--json")
    assert '"recipe": "book-min"' in lean.stdout and lean.stdout != wide.stdout
