"""Which framework a command starts, and its reader."""

from __future__ import annotations

import re

from gpuscale.launch.read import (
    commands,
    containers,
    keyed,
    maxtext,
    megatron,
    program,
    recipes,
    rl,
    serving,
    swift,
    torchtitan,
    trainer,
    verl,
)
from gpuscale.launch.read.found import Found
from gpuscale.launch.read.kinds import of_table
from gpuscale.launch.read.nested import nest
from gpuscale.launch.read.tables import key_values

NO_TRAINING = tuple(
    "echo printf pip git cd export source sed cat cp mv ls mkdir chmod test grep".split()
)


def command(words: list[str], stem: str) -> Found | None:
    """Read a command that trains or serves; None for any other."""
    if not words or words[0] in NO_TRAINING:
        return None
    if len(words) > 1 and any(" " in w and len(w) > 60 for w in words):
        inner = [w for w in words if "pretrain_" in w and " " in w]
        if inner:
            return command(inner[0].split(), stem)
    words = containers.started_by(words)
    if engine := serving.engine_of(words):
        return serving.read(words, engine)
    if torchtitan.is_torchtitan(words):
        return torchtitan.read_command(words)
    if rl.is_slime(words):
        return rl.read_slime(megatron.read(["train.py", *words], stem), program.options_in(words))
    if megatron.is_megatron(words):
        return megatron.read(words, stem)
    if any(re.search(r"(run_(recipe|script)|setup_experiment)\.py$", w) for w in words):
        return recipes.read_recipe(words)
    if recipes.is_nemo(words):
        return recipes.read_nemo(words)
    if (found := commands.started(words)) is not None:
        return found
    if any(w.lstrip("+").startswith("trainer.policy.model.path=") for w in words):
        return of_table(nest(key_values(words)), "rl")
    if verl.is_verl(words):
        return verl.read_verl_command(words)
    if maxtext.is_maxtext(words):
        return maxtext.read_command(words)
    table = program.options_in(words)
    if keyed.is_hydra(words):
        return keyed.read_hydra(words)
    if rl.is_openrlhf(words):
        return rl.read_openrlhf(words, table)
    if swift.is_swift(words):
        return swift.read(words, table)
    if {"model_name_or_path", "per_device_train_batch_size", "deepspeed"} & set(table):
        return trainer.read_command(words, table)
    return None
