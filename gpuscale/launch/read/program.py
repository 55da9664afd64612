"""A training program of one's own: its launcher says the machines, its options are not known."""

from __future__ import annotations

import re
from itertools import takewhile

from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested
from gpuscale.launch.found import UNSET, Found, launch_table, named_model
from gpuscale.launch.read.bash.launchers import LAUNCHERS
from gpuscale.launch.read.bash.words import Script, as_list
from gpuscale.launch.read.together import key_values

STARTERS = tuple(name for name in LAUNCHERS if name not in ("srun", "mpirun", "mpiexec"))
"""Launchers that start training and nothing else."""


def options_of(script: Script) -> list[str]:
    """Megatron's options in the variables of a file that only sets them, for another to start."""
    words: list[str] = []
    for value in script.variables.values():
        text = value if isinstance(value, str) else " ".join(value)
        if "--" in text and any(option in text for option in MEGATRON):
            try:
                words += as_list(value)
            except ValueError:
                continue
    return words


PROGRAM = re.compile(r"[^\s=]+\.py")
MEGATRON = ("--num-layers", "--tensor-model-parallel-size", "--micro-batch-size", "--seq-length")


TRAINS = re.compile(r"train|finetun|fine_tun|fine-tun|sft|grpo|ppo|dpo|rlhf|lora|distill")
NO_TRAINING = re.compile(
    r"eval|infer|generat|predict|(^|_)test|merge|convert|prepar|process|download|export|serve|plot"
    r"|sample|benchmark|compare|upload|score|^(chat|make|build|check|patch|gen)"
)
"""Parts of the names of programs that do something else."""
RUNNERS = ("uv", "poetry", "pdm", "pixi", "nohup", "time", "conda", "exec", "stdbuf", "env", "sudo")
"""Commands that start the one behind them as it is."""


def _name_of(words: list[str]) -> str:
    """Name of the program of a command: its first Python file or the module behind `-m`."""
    script = next((w.rsplit("/", 1)[-1] for w in words if PROGRAM.fullmatch(w)), "")
    named = (b for a, b in zip(words, words[1:], strict=False) if a in ("-m", "--module"))
    return (script or next(named, "")).lower()


def _trains(words: list[str]) -> bool:
    """Whether the program that a command starts trains, by its name."""
    name = _name_of(words)
    return bool(TRAINS.search(name)) and not NO_TRAINING.search(name)


def _starter(words: list[str]) -> int | None:
    """Place of the launcher, or of the `python` before a program that trains by its name."""
    at = next((i for i, w in enumerate(words) if w.rsplit("/", 1)[-1] in STARTERS), None)
    if at is not None:
        return at
    first = words[0].rsplit("/", 1)[-1]
    interpreters = [i for i, w in enumerate(words) if re.search(r"(^|/)python[\d.]*$", w)]
    if first in ("srun", "mpirun", "mpiexec"):
        whole = any(map(PROGRAM.fullmatch, words))
        return interpreters[0] if interpreters else 0 if whole else None
    if not _trains(words):
        return None
    if first in RUNNERS:
        return interpreters[0] if interpreters else 0
    return 0 if interpreters[:1] == [0] else None


def of_script(script: Script) -> tuple[Found, list[str]] | None:
    """Job of the first command that trains by its name, else of the first that a launcher starts.

    Returns: the record and the command; None for no such command.
    """
    started = [(at, words) for words in script.commands if (at := _starter(words)) is not None]
    trained = [(at, words) for at, words in started if _trains(words[at + 1 :])]
    rest = [(at, words) for at, words in started if not NO_TRAINING.search(_name_of(words))]
    for at, words in trained or rest or started:
        rest_of = words[at + 1 :]
        start = next((i for i, w in enumerate(rest_of) if PROGRAM.fullmatch(w)), None)
        module = next((m for m in ("-m", "--module") if m in rest_of[:-1]), "")
        if start is None and module:
            start = rest_of.index(module) + 1
        if start is None:
            continue
        found = Found("program", software="", version="")
        found.unread["layout"] = "as the program has it"
        found.places["script"] = rest_of[start].replace(UNSET, "")
        name = rest_of[start]
        found.program = name if name.endswith(".py") else name.replace(".", "/") + ".py"
        found.options = options_in(rest_of[start + 1 :])
        _put_options(rest_of[start + 1 :], found)
        others = {_name_of(other) for _, other in trained} - {_name_of(words)}
        if others:
            named = ", ".join(sorted(others)[:3])
            found.unresolved.append(f"one of {len(others) + 1} programs: not read are {named}")
        return found, words
    return None


_WORDS = launch_table("words")["program"]
SAID: dict[str, str] = _WORDS["said"]
MODELS = "model_name_or_path model_name base_model model_id hf_model model_path model"
ENDINGS = (".yaml", ".yml", ".toml", ".json", ".py")
CONFIGURES = r"conf|cfg|recipe|arg|train|param|setting|sft|tune"
"""What stands in the option or the name of a JSON, TOML or Python file that says a job."""
NO_JOB = r"vocab|merge|token|data|index|split|hostfile|template"
"""What stands in the option or the name of a file that says no job."""


def _put_options(words: list[str], found: Found) -> None:
    """Put what the options of any program mean on the record, and note the others."""
    known = " ".join((*SAID.values(), MODELS, "bf16 fp16")).split()
    options = {key.lstrip("-"): v for key, v in (key_values(words) | options_in(words)).items()}
    given = {k.rpartition(".")[2]: "" if v is True else str(v) for k, v in options.items()}
    shown = dict.fromkeys(w.partition("=")[0] for w in words if w.startswith("--"))
    keys = ((w, w.lstrip("-").rpartition(".")[2].replace("-", "_")) for w in shown)
    found.not_understood = [word for word, key in keys if key not in known]
    at = Nested(found, given)
    at.put(SAID)
    named = [named_model(given[key]) for key in MODELS.split() if "/" in given.get(key, "")]
    found.model_name = next((n for n in named if UNSET not in n), None)
    if (size := given.get("world_size", "")).isdigit() and int(size) > 0:
        found.n_gpus = int(size)
    found.precision = next((p for p in ("bf16", "fp16") if given.get(p, "0") in ("", "True")), None)
    files = {v: k for k, v in given.items() if v.endswith(ENDINGS)}
    alone = (w for w in words if w not in files and not re.match("-|.*=", w))
    files |= {w: "" for w in alone if w.endswith(ENDINGS)}
    found.beside = [v for v, k in files.items() if says_the_job(v, k)][:4]


def says_the_job(file: str, option: str) -> bool:
    """Whether a file that a command names is a configuration of its job."""
    shown = f"{option} {file.rsplit('/', 1)[-1]}"
    alike = file.endswith((".yaml", ".yml")) or re.search(CONFIGURES + "|^ the YAML of", shown)
    other = NO_JOB if option else NO_JOB + r"|train\.json|val\w*\.json|test\w*\.json|model"
    return bool(alike) and not re.search(other, shown)


def options_in(words: list[str]) -> Table:
    """`--key value` words as a table; a key without a value is true."""
    table: Table = {}
    for i, word in enumerate(words):
        if not word.startswith("--"):
            continue
        key, equals, value = word[2:].partition("=")
        following = words[i + 1] if i + 1 < len(words) else "--"
        given = value if equals else (True if following.startswith("--") else following)
        numbers = takewhile(str.isdigit, words[i + 1 :])
        if not equals and len(several := list(numbers)) > 1:
            given = " ".join(several)
        maps = list(takewhile(re.compile(r"\w+").fullmatch, words[i + 1 :]))
        if not equals and len(maps) > 1 and key.endswith(("target_modules", "lora_target")):
            given = ",".join(maps)
        table[key.replace("-", "_")] = given
    return table


LIBRARIES = frozenset(_WORDS["libraries"])
