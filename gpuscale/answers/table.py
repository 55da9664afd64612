"""The questions by name: where each stands, and its line in a list of them."""

from __future__ import annotations

import importlib

from gpuscale.answers.ask import Question

COMMANDS: dict[str, tuple[str, str]] = {
    "plan": (
        "gpuscale.answers.plan",
        "Best layout of a training job on a cluster, its time, memory and cost.",
    ),
    "memory": (
        "gpuscale.answers.memory",
        "Memory per GPU of training or serving a model, by part, and whether it fits.",
    ),
    "serve": (
        "gpuscale.answers.serve",
        "How many GPUs a traffic needs, with which layout, and what its users see.",
    ),
    "roofline": (
        "gpuscale.answers.roofline",
        "Chip figures and the limits of each parallelism for a model.",
    ),
    "matmul-time": (
        "gpuscale.answers.matmul_time",
        "Time of one matrix product or elementwise operation on one GPU.",
    ),
    "collective": (
        "gpuscale.answers.collective",
        "Time and bandwidth of one collective operation on a cluster.",
    ),
    "timeline": (
        "gpuscale.answers.timeline",
        "One training step in time: passes, bubbles and exchanges of every pipeline stage.",
    ),
    "launch": (
        "gpuscale.answers.launch",
        "Launch file of a plan: framework options, batch, stage split, machines; what it cannot "
        "say.",
    ),
    "launch-check": (
        "gpuscale.answers.launch_check",
        "Check a launch file: layout, rules of its framework, memory, step time, and what to "
        "change.",
    ),
    "diagnose": (
        "gpuscale.answers.diagnose",
        "Is this run normal, and if not, what is it? From its logs, or from what is said of it.",
    ),
    "network": (
        "gpuscale.answers.network",
        "Design of a network: bandwidth of every level, switches, cables, power, price, failures.",
    ),
    "checkpoint": (
        "gpuscale.answers.checkpoint",
        "Checkpoint of a model: size by part, time to save and load, best interval, what is lost.",
    ),
    "study": (
        "gpuscale.answers.study",
        "Many jobs of a file on a process pool: a grid or a list, written as they are answered.",
    ),
    "model": (
        "gpuscale.answers.model",
        "Layers, parameters, FLOP per token and KV cache of a model.",
    ),
    "quiz": (
        "gpuscale.answers.quiz",
        "Answer every question of the documents, and say where they are wrong.",
    ),
    "validate": (
        "gpuscale.answers.validate",
        "Score the predictions on measured runs: MAPE, median, p90 and bias, by class.",
    ),
    "calibrate": (
        "gpuscale.answers.calibrate",
        "Fit constants to your own measurements, for --calibration of every command.",
    ),
    "presets": ("gpuscale.answers.presets", "List the presets, or show one as TOML."),
    "explain": (
        "gpuscale.answers.explain",
        "Explain a term of the field: formula, example, limits of validity, references.",
    ),
    "check": (
        "gpuscale.cli.check",
        "Run the jobs of a file and hold their answers against the requirements in it.",
    ),
    "compare": (
        "gpuscale.answers.compare",
        "Compare saved answers, plans, GPUs, clusters or models: what differs, and why.",
    ),
    "schema": ("gpuscale.answers.schema", "Print the JSON Schema of a command's answer."),
}
"""Name -> (module, first sentence of the question's docstring), in help order.

Only the module of the question that is asked is imported: each other one would cost start-up time.
A test holds the lines to the docstrings.
"""


def question_of(name: str) -> type[Question]:
    """Question of a name in `COMMANDS`."""
    module = importlib.import_module(COMMANDS[name][0])
    for found in vars(module).values():
        if isinstance(found, type) and issubclass(found, Question) and found.NAME == name:
            return found
    raise LookupError(f"{COMMANDS[name][0]} has no question `{name}`")
