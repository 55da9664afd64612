"""Plans: the best layout of a training job, what it costs, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers import ask, options
from gpuscale.answers.layout_options import Pins
from gpuscale.answers.lifetime import Failing
from gpuscale.answers.money import PRICE, Costed, read_price
from gpuscale.answers.training.tune_asked import Rollouts
from gpuscale.core.records import KW_ONLY, dataclass, replace
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.render.document import Document

SCALINGS = ("strong", "weak")
OBJECTIVES = ("step-time", "tokens-per-dollar", "memory-headroom", "fewest-gpus")
MOST_GPUS = 4_194_304

BATCH: dict[str, Any] = {"group": "batch", "common": 1}
SEARCHED: dict[str, Any] = {"group": "search", "tasks": ask.PRETRAIN}


def _prices(value: Any, label: str) -> dict[str, float]:
    """Prices of a GPU-hour by cluster: ``2.5 USD/h``, or ``dgx-h100=2.5 USD/h,dgx-b200=4 USD/h``.

    >>> _prices("2.5 USD/h", "--price"), _prices("a=2 USD/h, b=3 USD/h", "--price")
    ({'': 2.5}, {'a': 2.0, 'b': 3.0})
    """
    if isinstance(value, str):
        parts = [part.rpartition("=") for part in value.split(",")]
        if empty := [p for name, equals, p in parts if equals and not name.strip()]:
            raise GpuscaleError(f"{label} ={empty[0].strip()[:60]}: an empty name before `=`")
        value = {name.strip(): price for name, _, price in parts}
    given = value if isinstance(value, Mapping) else {"": value}
    return {name: read_price(p, label) for name, p in given.items()}


@dataclass
class Plan(Pins, options.Wired, Rollouts, Failing, Costed, ask.Swept):
    """Best layout of a training job on a cluster, its time, memory and cost.

    Every dimension that is not pinned is searched; the layout printed is the best of all. With
    --method it is fine-tuning: hours and dollars for one's own tokens.
    """

    NAME: ClassVar[str] = "plan"
    RESULTS: ClassVar[str] = (
        "training.plan_answer:PlanResult training.plan_scan_answer:ScanAnswer "
        "training.plan_answer:JobAnswer training.tune_plan_blocks:TuningPlan "
        "training.rl_blocks:RlAnswer diagnose.records:Diagnosis"
    )
    EXAMPLE: ClassVar[str] = "gpuscale plan llama3-70b --gpus 4096"
    HEADLINES: ClassVar[str] = (
        "step_s roofline_s mfu tokens_per_s peak_bytes layout.tp layout.cp layout.pp layout.dp "
        "run.days chosen.n_gpus chosen.step_s chosen.mfu"
    )
    GROUP: ClassVar[str] = "machines"
    OF_TASKS: ClassVar[tuple[str, ...]] = ask.TRAIN
    model: ask.Asked[str | None] = options.model()
    _: KW_ONLY
    gpus: options.Sizes = options.sizes(
        "GPUs; a range 512..16384 or a list is a scan.", most=MOST_GPUS, metavar="N", common=1
    )
    cluster: options.Names = options.names(
        f"{options.CLUSTER} Several, comma-separated, are compared. "
        f"[default: {options.DEFAULT_CLUSTER}]",
        common=1,
    )
    gpu: ask.Asked[str | None] = ask.text(options.GPU, common=1)
    catalogue: ask.Asked[str] = options.catalogue()
    seq_len: options.Sizes = options.sizes(
        options.SEQ_LEN, most=2**28, dim="positions", flags=("--seq",), tasks=ask.TRAIN, **BATCH
    )
    batch_tokens: options.Amounts = options.amounts(
        "Tokens of a step. Rounded to sequences that divide well. [default: the model's, or 4M]",
        "tokens",
        most=1e12,
        tasks=ask.PRETRAIN,
        instead="--global-batch are the sequences of a step",
        **BATCH,
    )
    global_batch: options.Sizes = options.sizes(
        "Sequences of a step, exactly.", most=1e8, tasks=ask.TRAIN, **BATCH
    )
    tokens: ask.Asked[float | None] = ask.amount(
        "Tokens of the whole run, e.g. 15T. [default: the model's]",
        "tokens",
        most=1e18,
        tasks=("pretrain", "tune"),
        **BATCH,
        instead="--steps, or --examples (prompts) with --epochs, give the length of a run",
    )
    precision: ask.Asked[str | None] = ask.text(
        "bf16, fp16, fp8, mxfp8, nvfp4, a list, or all. [default: bf16]", common=1
    )
    software: ask.Asked[str | None] = options.software(fine_tuning="hf-peft")
    examples: ask.Asked[int | None] = ask.whole(
        "Examples of the data, with --mean-len.", group="fine-tuning", common=1, tasks=ask.TUNE
    )
    epochs: ask.Asked[float | None] = ask.amount(
        "Passes over the data.", "count", most=1e4, group="fine-tuning", common=1, tasks=ask.TUNE
    )
    steps: ask.Asked[int | None] = ask.whole(
        "Steps of the run, for hours and dollars.",
        most=1e9,
        group="fine-tuning",
        tasks=ask.TUNE,
        instead="without one --tokens is the length of the run: steps x --batch-tokens",
    )
    objective: ask.Asked[str] = ask.text(
        f"{', '.join(OBJECTIVES)}.", OBJECTIVES[0], known=OBJECTIVES, **SEARCHED
    )
    fit: ask.Asked[str | None] = ask.text(
        "What fits: safe (the upper end of the memory interval), expected, or tight (the lower "
        "end). [default: safe, else expected]",
        known=("safe", "expected", "tight"),
        group="search",
        tasks=("pretrain", "tune"),
    )
    price: ask.Converted[dict[str, float] | None, float | Mapping[str, float]] = ask.Converted(
        f"{PRICE} By cluster: a=2USD/h,b=3USD/h.",
        None,
        _prices,
        group="money",
        common=1,
        tasks=ask.TRAIN,
    )
    job: ask.Asked[str | None] = ask.text(
        "Read the job from a file.", metavar="PLAN.TOML", group="machines", tasks=ask.PRETRAIN
    )
    measured: ask.Converted[tuple[str, ...], Sequence[str]] = ask.texts(
        "What a run of this job measured, e.g. 'tokens/s/gpu=3100': whether it is normal, and if "
        "not, what it is, as `diagnose` says. Repeatable.",
        metavar="WHAT=VALUE",
    )
    show_job: ask.Asked[bool] = ask.flag(
        "Print the job as plan.toml, to edit and reuse.",
        group="show",
        tasks=ask.PRETRAIN,
        instead="a [[job]] of `gpuscale check` takes the command line as it is",
    )
    alternatives: ask.Asked[int] = ask.whole(
        "Next best process grids to show.",
        3,
        least=0,
        most=64,
        group="show",
        tasks=ask.PRETRAIN,
        instead="the other ways that fit are always shown",
    )
    deadline: ask.Asked[float | None] = ask.amount(
        "Find the smallest size that trains in time, e.g. 30d.",
        "s",
        most=1e12,
        common=1,
        instead="--gpus takes a list: the time of each is shown",
        **SEARCHED,
    )
    budget: ask.Asked[float | None] = ask.amount(
        "Find the fastest size within a budget, e.g. 5MUSD.",
        "usd",
        most=1e15,
        common=1,
        instead="--gpus takes a list: the cost of each is shown",
        **SEARCHED,
    )
    mfu_at_least: ask.Asked[float | None] = ask.amount(
        "Find the largest size that keeps an MFU, 0.4.", "frac", most=1.0, **SEARCHED
    )
    max_step_time: ask.Asked[float | None] = ask.amount(
        "Find the smallest size with a step time, e.g. 5s.", "s", most=1e9, **SEARCHED
    )
    scaling: ask.Asked[str | None] = ask.text(
        "Scaling over --gpus: strong (same batch) or weak.", known=SCALINGS, **SEARCHED
    )

    @property
    def clusters(self) -> tuple[str, ...]:
        """Clusters that are meant."""
        if self.cluster and self.gpu is not None:
            raise GpuscaleError("give --cluster or --gpu, not both")
        return self.cluster or (self.gpu or options.DEFAULT_CLUSTER,)

    def answer(self) -> Document:
        """Plan training."""
        if self.measured:
            from gpuscale.answers.training.plan_request import of_plan

            return of_plan(self).answer()
        if self.method is not None:
            from gpuscale.answers.training.tune_plan import tuning_plan

            return tuning_plan(self)
        ask.refuse_others(replace(self, accumulation=None), "pretrain")
        from gpuscale.answers.training.plan_train import training_plan

        return training_plan(self)
