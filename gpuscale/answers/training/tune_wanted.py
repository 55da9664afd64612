"""Layout of a fine-tuning job: as asked, and as its framework does when nobody says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from gpuscale.answers.layout import (
    data_parallel,
    experts_split,
    is_legal,
    offloads_of,
    recompute_of,
    refuse_idle,
    refuse_illegal,
    said_of,
)
from gpuscale.answers.training.tune_asked import DEFAULT_SEQ_LEN, RL
from gpuscale.core.finetune.bench import MOVED_WHOLE
from gpuscale.core.finetune.method import UNSHARDED
from gpuscale.core.finetune.parameters import WEIGHTS, FinetuneParameters, kept_in
from gpuscale.core.layout import DEFAULT_CONTEXT, Layout
from gpuscale.core.records import replace
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import (
    capabilities_of,
    framework_habits,
    load_software,
    ranks_of,
    settle,
    split_by,
)

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Memory
    from gpuscale.core.finetune.rl_step import RlCosts
    from gpuscale.core.habits import Habit
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec


def one(asked: Any, name: str) -> int:
    """Whole number of a dimension, which a plan may also be asked to search."""
    value = getattr(asked, name)
    if value is None:
        return 1
    if not isinstance(value, int):
        raise GpuscaleError(
            f"--{name.replace('_', '-')}: one number is wanted with --method, --accumulation"
        )
    return value


def accumulated(asked: Any, dp: int) -> int:
    """Sequences of a step of `dp` ranks by `--accumulation`."""
    if asked.global_batch:
        raise GpuscaleError("give --accumulation or --global-batch, not both")
    return max(1, dp) * one(asked, "micro_batch") * int(asked.accumulation)


def with_accumulation(asked: Any, n_gpus: int | None) -> Any:
    """Say `--accumulation` of pre-training as the global batch of its ranks, data-parallel.

    Degrees that are left open are 1, as with a method: else the ranks would not be known.
    """
    if getattr(asked, "batch_tokens", ()):
        raise GpuscaleError("give --accumulation or --batch-tokens, not both")
    degrees = {name: one(asked, name) for name in ("tp", "pp", "cp", "micro_batch")}
    split = degrees["tp"] * degrees["pp"] * degrees["cp"]
    dp = (n_gpus or split * one(asked, "dp")) // split
    batch = accumulated(asked, dp)
    sizes = (batch,) if isinstance(asked.global_batch, tuple) else batch
    return replace(asked, accumulation=None, global_batch=sizes, **degrees)


def settled(asked: Memory) -> Memory:
    """Question with the GPUs and the sequences of a step said.

    Raises GpuscaleError for options that contradict one another or would do nothing.
    """
    apart, n_gpus = (asked.rollout_gpus or 0) + (asked.critic_gpus or 0), asked.gpus
    apart = apart if n_gpus and apart < n_gpus else 0
    dp = data_parallel(replace(asked, gpus=n_gpus and n_gpus - apart), asked.pp)
    n_gpus = dp * asked.tp * asked.pp * asked.cp + apart
    refuse_idle(asked)
    batch, micro = asked.global_batch, asked.micro_batch
    if asked.accumulation is not None:
        batch, micro = accumulated(asked, dp), micro or 1
    if asked.recompute == "per-op":
        raise GpuscaleError("--recompute per-op has no meaning with --method", "full or none")
    return replace(asked, gpus=n_gpus, global_batch=batch, micro_batch=micro, accumulation=None)


def offload_of(asked: Memory, habits: FinetuneParameters, software: str) -> tuple[str, ...]:
    """Read what goes to the host: as asked, else what the software's own checkpointing moves.

    Raises GpuscaleError for what the software keeps on the GPU.
    """
    if asked.offload is None:
        own = habits.offload_inputs and asked.recompute is None
        return ("activations",) if own else ()
    moved = offloads_of(asked.offload)
    whole = {"optimizer", "gradients"} if habits.offload_whole else set()
    if habits.offload_all and {"parameters", *whole} & set(moved):
        moved = tuple(dict.fromkeys((*moved, *MOVED_WHOLE)))
    if never := [part for part in moved if part not in habits.offloads]:
        raise GpuscaleError(
            f"--offload {', '.join(never)}: {software} keeps them on the GPU",
            f"it moves {', '.join(habits.offloads) or 'nothing'}; hf-deepspeed moves all of them",
        )
    return moved


def seq_len_of(asked: Memory, model: ModelSpec, habits: FinetuneParameters) -> int:
    """Longest sequence of a row: as asked, the framework's habit, or a usual one."""
    habit = habits.seq_len or DEFAULT_SEQ_LEN
    if asked.max_len is not None and asked.seq_len not in (None, asked.max_len):
        raise GpuscaleError("give --max-len or --seq-len, not both: they are the same")
    longest = asked.max_len or asked.seq_len or min(habit, model.max_position or habit)
    if asked.mean_len is not None and asked.mean_len > longest:
        raise GpuscaleError(
            f"--mean-len {asked.mean_len:g} is above the longest sequence, {longest}",
            "give --max-len too",
        )
    return longest


def cut(asked: Memory, habits: FinetuneParameters) -> bool:
    """Whether the length of a row is a limit, below which nobody said what rows have."""
    exact = not habits.packs_batch if asked.packing else asked.seq_len and not asked.max_len
    return not (asked.mean_len or exact)


CP_KIND = "ulysses"
"""Context parallelism of fine-tuning frameworks, where they have several kinds."""


def layout_of(
    asked: Memory,
    model: ModelSpec,
    software: SoftwareSpec,
    seq_len: int,
    offload: Sequence[str],
    judge: SoftwareSpec,
) -> Layout:
    """Layout of a job, blanks by the software's habits.

    `offload`: what goes to the host. `judge`: the framework that was named, whose rules hold with a
    method and without one. Raises GpuscaleError for a layout that it cannot run.
    """
    from gpuscale.io.finetune import finetune_parameters

    habits, said = finetune_parameters(software), said_of(asked, offload)
    dp = ranks_of(said, asked.gpus or 1)
    each = max(1, (asked.global_batch or habits.micro_batch * dp) // dp)  # that is asked for
    usual = next(n for n in range(min(habits.micro_batch, each), 0, -1) if each % n == 0)
    micro = asked.micro_batch or usual
    batch = asked.global_batch or dp * micro * asked.pp
    if asked.packing and habits.packs_batch and asked.mean_len:  # rows of so many samples
        batch = max(1, round(batch * asked.mean_len / seq_len / (dp * micro))) * dp * micro
    if batch % (dp * micro):
        raise GpuscaleError(
            f"--global-batch {batch} is no multiple of {dp} ranks * micro-batch {micro}",
            f"{-(-batch // (dp * micro)) * dp * micro} would be",
        )
    if asked.zero is None:  # context parallelism of such frameworks comes with shards
        zero = 3 if asked.cp > 1 and habits.sharded else habits.zero_stage
        zero = min(zero, 2) if asked.base in UNSHARDED else zero
        said["zero_stage"] = 3 if "parameters" in offload else zero
    said |= {"seq_len": seq_len, "global_batch_size": batch, "micro_batch_size": micro, "dp": dp}
    said["recompute"] = recompute_of(asked) or habits.recompute
    said["etp"] = experts_split(asked, model, judge)
    kinds = asked.cp > 1 and (capabilities_of(judge).cp_kinds or (CP_KIND, DEFAULT_CONTEXT))
    kinds = tuple(sorted(kinds or (DEFAULT_CONTEXT,), key=lambda kind: kind != CP_KIND))
    stages = (said["zero_stage"], 3) if asked.zero is None else (asked.zero,)
    splits = (said["etp"],) if asked.etp else (said["etp"], 1)  # 1: no rank is left for such TP
    ways = [
        settle(said | {"cp_kind": asked.cp_kind or kind, "zero_stage": stage, "etp": etp}, software)
        for etp, stage, kind in product(splits, stages, kinds)
    ]
    layout = next((way for way in ways if is_legal(model, judge, way)), ways[0])
    refuse_illegal(model, judge, layout)
    return layout


OWN = ("loss recompute compiled zero_stage optimizer rank targets seq_len micro_batch").split()
"""Habits that are keys of a family's `[finetune]` table too."""


def job_facts(trained: str, asked: Memory) -> dict[str, str]:
    """Facts of a job as conditions of habits name them.

    >>> from types import SimpleNamespace as N
    >>> job_facts("lora", N(method="grpo", gpus=8, tp=2, pp=1, ep=1))
    {'method': 'lora', 'task': 'grpo', 'devices': 'many', 'split': 'layers'}
    """
    return {
        "method": trained,
        "task": asked.method if asked.method in RL else "sft",
        "devices": "many" if (asked.gpus or 1) > 1 else "one",
        "split": "experts" if asked.ep > 1 else "layers" if asked.tp * asked.pp > 1 else "none",
    }


def with_habits(
    family: SoftwareSpec, named: str, facts: Mapping[str, str], base: str | None = None
) -> tuple[SoftwareSpec, dict[str, Habit]]:
    """Family with the habits of the framework and version that were named, and those habits.

    `family`: whose figures hold. `named`: NAME[:VERSION]. `facts`: of the job, as conditions of
    habits name them. `base`: format of frozen weights that was asked for.
    """
    found = framework_habits(named, facts) if family.finetune else {}
    if family.finetune is None or not found:
        return family, found
    tuned = family.finetune
    update: dict[str, Any] = {k: h.value for k, h in found.items() if k in OWN}
    if "targets" in update:
        update["targets"] = tuple(update["targets"])
    if "offload" in found:
        update["offload_inputs"] = "activations" in str(found["offload"].value)
    if "weights" in found:
        full = facts["method"] == "full"
        if full or not base:
            kind = base if base in WEIGHTS else str(found["weights"].value)
            tuned = kept_in(tuned, kind, full=full)
    flash = {"flash2": "2", "best": "best"}.get(str(getattr(found.get("attention"), "value", "")))
    more = {"flash_generation": flash} if flash else {}
    return family.model_copy(update={"finetune": replace(tuned, **update), **more}), found


RL_OWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "engine": ("engine", str),
    "engine_frac": ("engine_share", float),
    "engine_sleeps": ("engine_sleeps", lambda value: value == "all"),
    "states_leave": ("states_leave", lambda value: value == "all"),
    "reference": ("reference", bool),
    "group": ("group", int),
    "prompts": ("prompts", int),
    "max_response": ("max_response", float),
    "row": ("seq_len", int),
    "micro_prompts": ("micro_prompts", bool),
}
"""Field of `RlCosts` -> (habit, how it is read)."""


def with_rl_habits(costs: RlCosts, habits: Mapping[str, Habit]) -> RlCosts:
    """Costs and habits of an RL framework, with those of the version that was named."""
    own = {k: read(habits[h].value) for k, (h, read) in RL_OWN.items() if h in habits}
    return replace(costs, **own)


ABLE = {False: ("nemo-automodel", "megatron-swift"), True: ("verl",)}
"""Families that split a model as the usual ones do not, by whether it is RL; the first that can."""


def default_software(method: str, n_gpus: int, asked: Memory | None = None) -> str:
    """Family that people take where they name none; another where that cannot do what is asked.

    >>> default_software("lora", 1), default_software("full", 4), default_software("qlora", 2)
    ('hf-peft', 'hf-deepspeed', 'fsdp-qlora')
    """
    if n_gpus == 1:
        return "hf-peft"
    usual = "fsdp-qlora" if method == "qlora" else "hf-deepspeed"
    able = (usual, "hf-deepspeed", *ABLE[asked is not None and asked.method in RL])
    return next((name for name in able if asked is None or _has(name, asked, method)), usual)


def _has(name: str, asked: Memory, method: str) -> bool:
    """Whether a family has all kinds of parallelism of a question, and its ZeRO stage."""
    has = capabilities_of(trained_by(asked, name, method != "full")[2])
    stages = {*has.zero_stages, *has.zero_asked}
    stages &= {*has.zero_pipeline, *has.zero_pipeline_asked} if asked.pp > 1 else stages
    return bool(
        (asked.tp == 1 or (has.tensor_parallel and (method == "full" or has.adapters_split)))
        and has.pipeline >= (asked.pp > 1)
        and has.expert_parallel >= (asked.ep > 1)
        and (asked.cp == 1 or (asked.cp_kind or "").strip() in ("", *has.cp_kinds) and has.cp_kinds)
        and asked.zero in (None, *stages)
    )


def trained_by(asked: Memory, chosen: str, adapters: bool) -> tuple[Memory, str, SoftwareSpec]:
    """Question, name and family of what trains: another where the model is split, if it has one.

    A family whose name is a ZeRO stage keeps it where nobody says another.
    """
    family = load_software(chosen)
    if family.trainer and asked.tp * asked.pp * asked.ep > 1:
        own = framework_habits(chosen, job_facts("lora" if adapters else "full", asked))
        said = own.get("recompute")
        habit = str(said.value) if said else getattr(family.finetune, "recompute", None)
        asked, chosen = replace(asked, recompute=asked.recompute or habit), family.trainer
    named = family.finetune_as and {0, 1} <= {*capabilities_of(family).zero_asked}
    if named and asked.zero is None and asked.base not in UNSHARDED and (asked.gpus or 1) > 1:
        asked = replace(asked, zero=family.zero_stage)
    return asked, chosen, split_by(load_software(chosen), adapters=adapters)
