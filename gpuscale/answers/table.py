"""The questions by name, with a line about each; and what other tools call their options."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from gpuscale.answers.ask import Question, fields_of
from gpuscale.meant import packaged

COMMANDS: dict[str, str] = {
    "plan": "Best layout of a training job on a cluster, its time, memory and cost.",
    "memory": "Memory per GPU of training or serving a model, by part, and whether it fits.",
    "serve": "How many GPUs a traffic needs, with which layout, and what its users see.",
    "roofline": "Chip figures and the limits of each parallelism for a model.",
    "matmul-time": "Time of one matrix product or elementwise operation on one GPU.",
    "collective": "Time and bandwidth of one collective operation on a cluster.",
    "timeline": "One training step in time: passes, bubbles and exchanges of every pipeline stage.",
    "launch": "Launch file of a plan: framework options, batch, stage split, machines; what it "
    "cannot say.",
    "launch-check": "Check a launch file: layout, rules of its framework, memory, step time, and "
    "what to change.",
    "diagnose": "Is this run normal, and if not, what is it? From its logs, or from what is said "
    "of it.",
    "network": "Design of a network: bandwidth of every level, switches, cables, power, price, "
    "failures.",
    "checkpoint": "Checkpoint of a model: size by part, time to save and load, best interval, "
    "what is lost.",
    "study": "Many jobs of a file on a process pool: a grid or a list, written as they are "
    "answered.",
    "model": "Layers, parameters, FLOP per token and KV cache of a model.",
    "quiz": "Answer every question of the documents, and say where they are wrong.",
    "validate": "Score the predictions on measured runs: MAPE, median, p90 and bias, by class.",
    "calibrate": "Fit constants to your own measurements, for --calibration of every command.",
    "presets": "List the presets, or show one as TOML.",
    "explain": "Explain a term of the field: formula, example, limits of validity, references.",
    "check": "Run the jobs of a file and hold their answers against the requirements in it.",
    "compare": "Compare saved answers, plans, GPUs, clusters or models: what differs, and why.",
    "schema": "Print the JSON Schema of a command's answer.",
}
"""Name -> first sentence of the question's docstring, in help order; a test holds them together.

Only the module of the question that is asked is imported: each other one would cost start-up time.
"""

ELSEWHERE = {
    "check": "gpuscale.cli.check",
    "schema": "gpuscale.answers.requirements",
    "plan": "gpuscale.answers.training.plan",
    "roofline": "gpuscale.answers.parts.roofline",
    **dict.fromkeys(
        ("matmul-time", "collective", "network", "model"), "gpuscale.answers.parts.asked"
    ),
    **dict.fromkeys(("memory", "timeline", "checkpoint"), "gpuscale.answers.training.asked"),
}
"""Modules of questions that are not `gpuscale.answers.NAME`."""


def question_of(name: str) -> type[Question]:
    """Question of a name in `COMMANDS`."""
    usual = f"gpuscale.answers.{name.replace('-', '_')}"
    module = importlib.import_module(ELSEWHERE.get(name, usual))
    for found in vars(module).values():
        if isinstance(found, type) and issubclass(found, Question) and found.NAME == name:
            return found
    raise LookupError(f"{module.__name__} has no question `{name}`")


@cache
def _words() -> dict[str, dict[str, Any]]:
    """Word -> topic of `data/called.toml`: `options` and what they are, or `elsewhere`."""
    return {word: topic for topic in packaged("called.toml")["topic"] for word in topic["words"]}


EVERYWHERE = {"explain", "format", "set"}
"""Options that every command has beside its own."""


def called(option: str, question: type[Question] | None) -> str:
    """Say what an unknown option is here; empty where it means nothing that is known.

    >>> called("--batch-size", question_of("serve"))
    '--concurrency (requests in flight)'
    >>> called("--num-gpus", question_of("plan"))
    '--gpus (their number)'
    """
    topic = _words().get(option.strip("-").lower().replace("_", "-"))
    if topic is None:
        return ""
    known = {name.replace("_", "-") for name in fields_of(question)} if question else set()
    own = [
        f"--{name}" + (f" ({what})" if what else "")
        for name, what in topic.get("options", {}).items()
        if name.split()[0] in known | EVERYWHERE
    ]
    return ", ".join(own) or str(topic.get("elsewhere", ""))


def owners(option: str) -> list[str]:
    """Commands that have an option of this name."""
    name = option.strip("-").lower().replace("-", "_")
    return [command for command in COMMANDS if name in fields_of(question_of(command))]
