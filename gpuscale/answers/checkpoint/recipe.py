"""Bytes of a parameter that a checkpoint holds: of a recipe, or as a framework keeps them."""

from __future__ import annotations

from dataclasses import replace

from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.memory.states import RECIPES, Recipe
from gpuscale.core.settings import MOMENT_BYTES, JobSettings
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import capabilities_of, load_software

ADAM_MOMENTS = 2


def saved_recipe(recipe: str | None, software: str | None, moments: str | None = None) -> Recipe:
    """Recipe by name, else that of a framework, else mixed-adam; with Adam's moments in a format.

    >>> r = saved_recipe(None, "torchtitan")
    >>> r.weights_bytes, r.master_bytes, r.optimizer_bytes
    (4.0, 0.0, 8.0)

    Raises GpuscaleError for both, and for a framework that is not known.
    """
    if moments is not None:
        if recipe is not None:
            raise GpuscaleError("give --recipe or --moments, not both", "a recipe has its own")
        if software is not None:
            soft = capabilities_of(load_software(software))
            if why := JobSettings(moments=moments).against(soft):
                raise GpuscaleError(why)
        return replace(saved_recipe(None, software), optimizer_bytes=MOMENT_BYTES[moments])
    if software is None:
        return RECIPES[recipe or "mixed-adam"]
    if recipe is not None:
        raise GpuscaleError("give --recipe or --software, not both", "a framework has its own")
    spec = load_software(software)
    tuned = spec.finetune
    if tuned is not None and "memory" not in spec.model_fields_set:
        p = tuned
        saved = (p.full_weights_bytes, p.full_master_bytes, ADAM_MOMENTS * p.full_moment_bytes)
    else:
        saved = parameters_of(spec).saved_bytes
    weights, master, states = saved
    origin = f"as {spec.title or spec.name} keeps them"
    return Recipe(spec.name, weights, 0.0, master, states, origin)
