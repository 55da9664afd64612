"""Bytes of a parameter that a checkpoint holds: of a recipe, or as a framework keeps them."""

from __future__ import annotations

from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.memory.states import RECIPES, Recipe
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import load_software

ADAM_MOMENTS = 2


def saved_recipe(recipe: str | None, software: str | None) -> Recipe:
    """Recipe by name, else that of a framework, else mixed-adam.

    >>> r = saved_recipe(None, "torchtitan")
    >>> r.weights_bytes, r.master_bytes, r.optimizer_bytes
    (4.0, 0.0, 8.0)

    Raises GpuscaleError for both, and for a framework that is not known.
    """
    if software is None:
        return RECIPES[recipe or "mixed-adam"]
    if recipe is not None:
        raise GpuscaleError("give --recipe or --software, not both", "a framework has its own")
    spec = load_software(software)
    tuned = spec.finetune
    if tuned is not None and "memory" not in spec.model_fields_set:
        p = tuned.to_core()
        saved = (p.full_weights_bytes, p.full_master_bytes, ADAM_MOMENTS * p.full_moment_bytes)
    else:
        saved = parameters_of(spec).saved_bytes
    weights, master, states = saved
    origin = f"as {spec.title or spec.name} keeps them"
    return Recipe(spec.name, weights, 0.0, master, states, origin)
