"""The answer of `gpuscale memory --params`: model states by recipe and ZeRO stage, or weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.layout import data_parallel, shard_group
from gpuscale.answers.summary import changed, part_bars, part_table
from gpuscale.core.formats import FORMATS
from gpuscale.core.memory.parameters import (
    RECIPES,
    Recipe,
    StateBytes,
    gpus_to_hold,
    nodes_to_hold,
    sharded_states,
)
from gpuscale.core.quantity import format_count
from gpuscale.core.records import Term, dataclass, term_of
from gpuscale.core.words import MEMORY_PARTS, STATE_PARTS, gb
from gpuscale.errors import GpuscaleError
from gpuscale.io.inputs import load_inputs
from gpuscale.render.document import Document, Facts, Text

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Memory


@dataclass(frozen=True, slots=True)
class StatesAnswer:
    """Model states of one GPU. [byte]."""

    params: float
    params_per_gpu: float  # before ZeRO: divided by tp * pp
    recipe: str
    bytes_per_param: float
    zero_stage: int
    n_shards: int
    states: StateBytes
    peak_bytes: float
    capacity_bytes: float
    all_gpus_bytes: float  # one copy of all states
    hbm_bytes: float
    fits: bool
    n_gpus_to_hold: int
    n_nodes_to_hold: int


def params_document(asked: Memory) -> Document:
    """Answer a question about a number of parameters."""
    assert asked.params is not None
    n_params, tp, pp, cp, recipe = asked.params, asked.tp, asked.pp, asked.cp, _recipe(asked)
    if asked.serve and asked.gpus:
        tp, pp, dp = asked.gpus, 1, 1  # a replica over all of them
    else:
        dp = data_parallel(asked, pp)
    zero = asked.zero or 0
    shards = shard_group(asked, dp * cp) or dp * cp
    loaded = load_inputs(asked, cluster=asked.where, catalogue=asked.catalogue)
    hbm, node = loaded.gpu.hbm_bytes, loaded.cluster.gpus_per_node
    states = sharded_states(n_params / (tp * pp), recipe, zero, shards)
    whole_bytes = n_params * recipe.bytes_per_param
    n_gpus = gpus_to_hold(whole_bytes, hbm)
    result = StatesAnswer(
        params=n_params,
        params_per_gpu=n_params / (tp * pp),
        recipe=recipe.name,
        bytes_per_param=recipe.bytes_per_param,
        zero_stage=zero,
        n_shards=shards,
        states=states,
        peak_bytes=states.total_bytes,
        capacity_bytes=hbm,
        all_gpus_bytes=whole_bytes,
        hbm_bytes=hbm,
        fits=states.total_bytes <= hbm,
        n_gpus_to_hold=n_gpus,
        n_nodes_to_hold=nodes_to_hold(n_gpus, node),
    )
    rows = [(MEMORY_PARTS[name], v) for name in STATE_PARTS if (v := getattr(states, name))]
    head = (
        f"{format_count(n_params)} parameters on {tp * pp * cp * dp:,} {loaded.gpu.name}: "
        f"TP {tp}, PP {pp}, DP {dp}, ZeRO {zero}"
        + (f" in groups of {shards}" if shards != dp * cp else "")
    )
    facts = Facts(_facts(result, recipe, node))
    table = part_table(rows, states.total_bytes, "states")
    degrees = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "zero_stage": zero}
    named = {"catalogue": asked.catalogue, "recipe": recipe.name}
    return Document(
        command="memory",
        inputs=loaded.inputs(params=n_params, **named, **degrees, shard_group_size=shards),
        result=result,
        blocks=[Text(head), table, part_bars(rows, hbm, "HBM"), facts, *changed(loaded)],
        warnings=loaded.warnings,
        answered_no=not result.fits,
        terms=(_term(result, recipe, tp, pp),),
        csv_table=table,
    )


def _recipe(asked: Memory) -> Recipe:
    """Bytes of a parameter: of a way to train, or of served weights alone."""
    from gpuscale.answers.serve.reading import weight_format

    if not asked.serve:
        return RECIPES[asked.recipe or "mixed-adam"]
    for name in ("kv", "context", "concurrency", "dp_attention"):
        if getattr(asked, name):
            raise GpuscaleError(f"--{name.replace('_', '-')} needs a model, not --params")
    dtype = weight_format(asked.weights, "--weights")
    return Recipe(f"{dtype} weights", FORMATS[dtype].bits / 8, 0.0, 0.0, 0.0, "served: no KV cache")


def _facts(result: StatesAnswer, recipe: Recipe, gpus_per_node: int) -> list[tuple[str, str, str]]:
    """Verdict, one copy of all states, and the recipe."""
    held = f"{gb(result.peak_bytes)} of {gb(result.hbm_bytes)} HBM; states alone, no activations"
    each = f"{recipe.bytes_per_param:g} bytes per parameter"
    nodes = f"{result.n_nodes_to_hold:,} nodes of {gpus_per_node}"
    return [
        ("verdict", "fits" if result.fits else "does not fit", held),
        ("all states", gb(result.all_gpus_bytes), each),
        ("GPUs to hold them", f"{result.n_gpus_to_hold:,}", nodes),
        ("recipe", recipe.name, recipe.source),
    ]


def _term(result: StatesAnswer, recipe: Recipe, tp: int, pp: int) -> Term:
    """Total by recipe and shards."""
    zero, n = result.zero_stage, result.n_shards
    return term_of(
        "peak_bytes",
        "bytes",
        "params / (tp * pp) * (weights / weight_shards + gradients / gradient_shards"
        " + k / optimizer_shards)",
        "ZeRO (arXiv:1910.02054), figure 1",
        result,
        tp=tp,
        pp=pp,
        weights=recipe.weights_bytes,
        gradients=recipe.gradients_bytes,
        k=recipe.k_bytes,
        weight_shards=n if zero >= 3 else 1,
        gradient_shards=n if zero >= 2 else 1,
        optimizer_shards=n if zero >= 1 else 1,
    )
