"""Terms of `checkpoint`: size, times of a save, a run with failures and its bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.lifetime import conditions_of, store_of
from gpuscale.answers.money import stops_per_s
from gpuscale.answers.run_terms import BilledTime, bill_terms, outlook_terms, save_terms
from gpuscale.core.records import Term, term_of

if TYPE_CHECKING:
    from gpuscale.answers.checkpoint import Checkpoint
    from gpuscale.answers.checkpoint.records import CheckpointAnswer
    from gpuscale.specs.cluster import ClusterSpec


LOST = "saving, work done again, recovery, slow machines"


def checkpoint_terms(
    asked: Checkpoint, cluster: ClusterSpec, r: CheckpointAnswer
) -> tuple[Term, ...]:
    """Explain the headline numbers."""
    from gpuscale.io.run import load_saver

    store = store_of(asked, cluster, r.n_gpus)
    writers = min(r.n_gpus, asked.writers or r.n_gpus)
    met = conditions_of(asked, r.n_gpus, r.save, stops_per_s(asked))
    held = BilledTime(r.outlook.expected_s, r.n_gpus, 1 - r.outlook.goodput.recovery_frac)
    g = r.outlook.goodput
    return (
        _size(asked, r),
        *save_terms(r.save, load_saver(asked.saver), store, r.n_nodes, writers),
        *outlook_terms(r.outlook, met),
        term_of("lost_frac", "frac", "1 - goodput_frac", LOST, r, g),
        *bill_terms(r.bill, held),
    )


def _size(asked: Checkpoint, r: CheckpointAnswer) -> Term:
    from gpuscale.answers.checkpoint.recipe import saved_recipe

    recipe = saved_recipe(asked.recipe, asked.software)
    adapters = asked.trainable is not None and not asked.weights_only
    return term_of(
        "checkpoint_bytes",
        "bytes",
        "saved_params * weight_bytes_each"
        " + trained_params * (master_bytes_each + state_bytes_each)",
        f"recipe {recipe.name}; gradients are not saved",
        r,
        saved_params=r.trainable_params if adapters else r.n_params,
        weight_bytes_each=recipe.weights_bytes,
        trained_params=r.trainable_params,
        master_bytes_each=recipe.master_bytes,
        state_bytes_each=recipe.optimizer_bytes,
    )
