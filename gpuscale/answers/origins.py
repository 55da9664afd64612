"""Who said each value of a job: the person, a file and its line, a habit, a search or a default."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from gpuscale.answers.ask import Question, fields_of
from gpuscale.answers.options import length_words
from gpuscale.core.layout import Layout

if TYPE_CHECKING:
    from gpuscale.answers.training.memory import Memory
    from gpuscale.answers.training.timeline import Timeline
    from gpuscale.core.habits import Habit
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.software import SoftwareSpec

OPTIONS = {
    "micro_batch_size": ("micro_batch",),
    "global_batch_size": ("global_batch", "batch_tokens", "accumulation"),
    "seq_len": ("seq_len", "max_len"),
    "dp": ("gpus", "n_gpus"),
    "zero_stage": ("zero",),
    "shard_group_size": ("shard_group", "dp_replicate"),
    "stage_layers": ("pipeline_layout",),
    "offload_optimizer": ("offload",),
    "offload_activations": ("offload",),
}
"""Field of a layout -> options that say it; of others that of its own name."""

LAYOUT = tuple(f.name for f in fields(Layout))
"""Fields of a layout."""

CHOSEN = tuple(n for n in LAYOUT if n not in ("seq_len", "global_batch_size", "precision"))
"""Those that a plan searches over unless they are pinned."""

OWN = ("zero_stage", "sequence_parallel", "recompute", "cp_kind")
"""Fields of a layout that a family's preset decides where nobody says them."""

OF_A_JOB = ("machines", "layout", "batch", "kernels", "fine-tuning", "rl", "serving")
"""Groups of options that say a job; the others say what is looked for, counted or shown."""


def told(asked: Question) -> dict[str, str]:
    """Options of a job that a person gave: name -> the option."""
    return {
        name: f"--{name.replace('_', '-')}" if not argument else "argument"
        for name, (field, argument) in fields_of(type(asked)).items()
        if field.group in OF_A_JOB and getattr(asked, name) != field.default
    }


def said_by(
    said: Mapping[str, str],
    software: SoftwareSpec,
    *,
    habits: Mapping[str, Habit] | None = None,
    searched: Collection[str] = (),
) -> dict[str, str]:
    """Say who said each value of a job: fields of its layout, and the options beside it.

    `said`: field or option -> who said it (`told`, and what files say). `habits`: field -> habit of
    the framework and version that was named. `searched`: fields that the answer chose.
    """
    why = software.sources
    usual = {n: f"habit of {software.name}: {why.get(n, '')}".removesuffix(": ") for n in OWN}
    usual |= {k: f"habit of {software.name}: {h.source}" for k, h in (habits or {}).items()}
    where = {} if "gpu" in said else {"cluster": "default"}
    found, known = {}, {"software": "default", **where, **usual, **said}
    for name in LAYOUT:
        options = (name, *OPTIONS.get(name, ()))
        known = {k: who for k, who in known.items() if k not in options or k == "gpus"}
        by_person = next((said[o] for o in options if o in said), "")
        if name in searched and (not by_person or (name == "dp" and "dp" not in said)):
            by_person = "searched"
        found[name] = by_person or next((usual[o] for o in options if o in usual), "default")
    return found | known


def unsaid(*rows: tuple[object, str, str]) -> tuple[str, ...]:
    """List what nobody said: of (what was given, what is taken, the option) those not given.

    >>> unsaid((None, "sequences of 8,192", "--seq-len"), ("phi4", "llama3-8b", "--model"))
    ('sequences of 8,192 (--seq-len)',)
    """
    return tuple(f"{taken} ({option})" for given, taken, option in rows if not given)


def taken_of(asked: Memory | Timeline, loaded: Loaded, layout: Layout) -> tuple[str, ...]:
    """List what nobody said of a layout that is given in full."""
    return unsaid(
        (asked.cluster or asked.gpu, loaded.cluster.name, "--cluster"),
        (asked.seq_len, length_words(layout.seq_len, loaded.model), "--seq-len"),
        (asked.software, loaded.specs["software"].name, "--software"),
        (asked.micro_batch, f"micro-batch {layout.micro_batch_size}", "--micro-batch"),
        (asked.recompute, f"recompute {layout.recompute}", "--recompute"),
        (asked.zero is not None, f"ZeRO {layout.zero_stage}", "--zero"),
    )
