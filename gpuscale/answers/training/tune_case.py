"""A fine-tuning question read: model, machine, software, and the job as the formulas take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.layout import is_legal, refuse_illegal
from gpuscale.answers.saved import command_of, saved_job
from gpuscale.answers.training import tune_wanted as wanted
from gpuscale.answers.training.tune_asked import RL
from gpuscale.core.finetune.bench import Bench
from gpuscale.core.finetune.method import ALL, Job, Method, canonical, check
from gpuscale.core.finetune.parameters import WEIGHTS
from gpuscale.core.finetune.states import OPTIMIZERS, optimizer
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.parameters import FP32_BYTES
from gpuscale.core.records import dataclass, field, replace
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.finetune import finetune_parameters, finetune_site, tuning_software
from gpuscale.io.inputs import load_inputs
from gpuscale.io.jobs import reach_of
from gpuscale.io.software import day_of, framework_habits, load_software, older_ways

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuscale.answers.ask import Question
    from gpuscale.answers.training.asked import Memory
    from gpuscale.core.finetune.bench import Trial
    from gpuscale.core.finetune.parameters import FinetuneParameters
    from gpuscale.core.finetune.states import Optimizer
    from gpuscale.core.habits import Habit
    from gpuscale.io.finetune import FinetuneFigures
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.hardware import ClusterSpec
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec

    OlderWays = Mapping[str, tuple[float, Mapping[str, str]]]  # `older_ways`


SHORT = 0.2
"""Mean of the rows over where they are cut, at the low end of a step: prior. Alpaca's examples have
about a hundred tokens, and its scripts cut at 512."""


@dataclass(frozen=True, slots=True)
class FinetuneCase:
    """One model on one kind of GPU with one software family."""

    loaded: Loaded
    software: SoftwareSpec
    bench: Bench
    job: Job
    assumed: tuple[str, ...] = field(default=())
    habits: Mapping[str, Habit] = field(default_factory=dict)  # of the framework that was named
    older: OlderWays = field(default_factory=dict)
    unsaid: frozenset[str] = frozenset()  # settings that the question leaves open
    named: bool = True  # a framework was named
    told_maturity: str | None = None
    limit: bool = False  # the length is where rows are cut, and nobody said how long they are

    def older_values(self, field: str) -> set[str]:
        """Values of a setting that older stacks have; none where the version is said."""
        return {fields[field] for _, fields in self.older.values() if field in fields}

    def family(self) -> SoftwareSpec:
        """Preset whose figures hold for the job."""
        return family_for(self.software, self.job)

    @property
    def maturity(self) -> str:
        """How far the job was tuned: as said, else a framework as it comes, or an own script."""
        return self.told_maturity or ("as-it-comes" if self.named else "script")

    def short_step_s(self, trial: Trial) -> float:
        """Step of rows as short as they may be, where only a limit was said; else its own. [s]."""
        short = replace(self.bench, mean_tokens=SHORT * trial.job.layout.seq_len)
        rows = SHORT if self.bench.packed else 1.0  # the samples of a batch make fewer
        return rows * short.step(trial.job).step_s if self.limit else trial.step.step_s

    def step_ends_s(self, trial: Trial) -> tuple[float, float]:
        """80 % interval of a step: of the family's own tables, as wide as its maturity. [s]."""
        width, step = self.bench.site(trial.job)[2].step_interval_factor_80, trial.step.step_s
        reach = reach_of(self.family(), self.loaded.model.has_experts, self.maturity)
        low, high = reach.interval_s(step / width, step, step * width)
        low *= self.short_step_s(trial) / step
        ways = self.older_values("experts") if self.loaded.model.has_experts else ()
        older = (replace(trial.job, experts=way) for way in ways)  # as older versions run them
        return low, max([high, *(self.bench.step(job).step_s for job in older)])

    def warnings(self) -> list[str]:
        """Say what the GPU cannot do as asked, and what of the model is not counted."""
        found = list(self.loaded.warnings)
        if self.loaded.gpu.bf16_flop_per_s is None and self.job.layout.precision == "bf16":
            found.append(f"{self.loaded.gpu.name} has no bf16: fp16 is meant, with the same bytes")
        if self.loaded.model.vision_params:
            found.append(
                "the vision tower is frozen: its weights are counted, its activations and time "
                "are not; images are tokens of --seq-len"
            )
        return found


def family_for(software: SoftwareSpec, job: Job) -> SoftwareSpec:
    """Preset whose figures hold for a job: a framework that shards does so with another's engine.

    LLaMA-Factory, TRL and the Trainer train with DeepSpeed under ZeRO, and a quantised base that is
    sharded is FSDP's; replicas of one are PEFT's, which keeps its adapters in fp32.
    """
    table, layout = software.finetune, job.layout
    if table is None:
        return software
    sharded = layout.dp * layout.cp > 1
    if table.quantised and sharded and layout.zero_stage == 3 and job.method.quantised:
        return load_software(table.quantised)
    if table.sharded and (
        layout.zero_stage >= 1 or job.offload & {"parameters", "optimizer", "gradients"}
    ):
        return load_software(table.sharded)
    replicas = table.replicas if sharded and layout.zero_stage == 0 else ""
    return load_software(replicas) if replicas else software


def method_of(asked: Memory, model: ModelSpec, kind: str, habits: FinetuneParameters) -> Method:
    """Read the method as asked, refused where no framework can run it."""
    if kind == "full":
        for name in ("rank", "targets", "train_embeddings"):
            if getattr(asked, name):
                raise GpuscaleError(
                    f"--{name.replace('_', '-')} is for adapters, not for --method full",
                    "for adapters write --method lora",
                )
    base = asked.base or ("nf4" if kind == "qlora" else "bf16")
    if kind == "qlora" and base in ("bf16", "fp16", "fp32"):
        raise GpuscaleError(f"--method qlora over a base in {base} is --method lora")
    adapted = 0 if kind == "full" else habits.adapted_layers
    frozen = asked.freeze or str(max(0, model.n_layers - adapted) if adapted else 0)
    if kind != "full" and frozen == "embeddings":
        raise GpuscaleError("--freeze embeddings is for --method full: adapters leave them so")
    if frozen != "embeddings" and not frozen.isdecimal():
        raise GpuscaleError(
            f"--freeze {frozen[:40]!r}: neither `embeddings` nor a number of layers"
        )
    method = Method(
        kind="lora" if kind == "qlora" else kind,
        rank=asked.rank or habits.rank,
        targets=tuple(map(canonical, asked.targets or habits.targets)),
        base="bf16" if base == "fp32" else base,  # products are in 16 bits: `Job.weights`
        train_embeddings=asked.train_embeddings,
        frozen_layers=0 if frozen == "embeddings" else int(frozen[:9]),
        embeddings_frozen=frozen == "embeddings",
    )
    if method.frozen_layers >= model.n_layers:
        raise GpuscaleError(f"--freeze {frozen}: the model has {model.n_layers} layers")
    try:
        check(model, method)
    except ValueError as error:
        hint = "--method qlora trains adapters over it" if kind == "full" else ""
        raise GpuscaleError(str(error), hint) from None
    return method


def optimizer_of(asked: Memory, habits: FinetuneParameters, fused: bool) -> Optimizer:
    """Optimizer as asked, or the family's; `fused`: AdamW steps without temporaries."""
    name = (asked.optimizer or habits.optimizer).strip().lower()
    try:
        found = optimizer(name)
        return replace(found, temporaries=0.0) if fused and found.name == "adamw" else found
    except ValueError:
        known = f"known: {', '.join(OPTIMIZERS)}"
        raise unknown_name("optimizer", name, OPTIMIZERS, known) from None


def _attention_of(software: SoftwareSpec, named: str, facts: Mapping[str, str], at: Loaded) -> str:
    """Kernel of attention by the framework's habit, for a model on a GPU."""
    sinks = any(getattr(m, "sinks", False) for m in at.model.mixers.values())
    own = {**facts, "family": at.model.family, "sinks": str(sinks).lower()}
    own |= {"positions": at.model.position, "architecture": at.gpu.architecture}
    found = framework_habits(named, own) or framework_habits(software.name, own)
    said = found["attention"].value if "attention" in found else ""
    usual = "flash2" if software.flash_generation == "2" else "best"
    return str(said) if said in ("eager", "best") else usual


def _with_experts(
    job: Job, habits: FinetuneParameters, named: str, facts: Mapping[str, str]
) -> Job:
    """Job with experts run and adapted as by the framework, or Transformers of that day."""
    facts = {**facts, "targets": "all" if ALL in job.method.targets else "named"}
    found = framework_habits(named, facts)
    if habits.expert_launch_s:
        found = framework_habits(f"transformers:{day_of(named)}".rstrip(":"), facts) | found
    run, meet = (found.get(name) for name in ("experts", "on_experts"))
    method = replace(job.method, on_experts=str(meet.value) if meet else "each")
    return replace(job, experts=str(run.value) if run else "loop", method=method)


def site_of(cluster: ClusterSpec, software: SoftwareSpec) -> Callable[[Job], FinetuneFigures]:
    """Make the function that gives a job's figures on a cluster, each kind of job once."""
    known: dict[tuple[str, bool, str, str, str], FinetuneFigures] = {}
    own = finetune_parameters(software)

    def site(job: Job) -> FinetuneFigures:
        family = family_for(software, job)
        key = (job.attention, job.compiled, job.layout.precision, job.weights, family.name)
        if key not in known:
            found = finetune_site(cluster, family, job)
            chunk = own.logits_chunked_bytes  # the loss is the framework's, whatever it shards with
            p = replace(found.parameters, offloads=own.offloads, logits_chunked_bytes=chunk)
            known[key] = found._replace(parameters=p)
        return known[key]

    return site


def _bench(asked: Memory, loaded: Loaded, own: SoftwareSpec, judge: SoftwareSpec) -> Bench:
    """Return what every job of a question shares; `judge`: the framework whose rules hold."""
    return Bench(
        model=loaded.model,
        facts=model_facts(loaded.model),
        site=site_of(loaded.cluster, own),
        usable_bytes=loaded.gpu.process_bytes,
        gpus_per_node=loaded.cluster.gpus_per_node,
        mean_tokens=asked.mean_len,
        packed=asked.packing,
        grouped=asked.group_by_length,
        host_bytes=asked.host_memory,
        legal=lambda job: is_legal(loaded.model, judge, job.layout, _trained(asked, job)),
    )


def _trained(asked: Memory, job: Job) -> dict[str, object]:
    """Say what a job trains, as combinations that frameworks refuse name it."""
    task = asked.method if asked.method in RL else "sft"
    return {**job.facts, "task": task, "packing": asked.packing, "group": asked.group}


def _refuse(asked: Memory, job: Job, model: ModelSpec, software: str, family: SoftwareSpec) -> None:
    """Refuse a layout that its framework does not run, or not as it was typed."""
    refuse_illegal(model, family, job.layout, _trained(asked, job))
    if asked.zero == 3 and job.layout.dp > 1 and not job.method.shardable:
        said = f"ZeRO-3 of {asked.software or software} leaves a base in {job.method.base} whole"
        raise GpuscaleError(said, "--zero 2 says the job as it runs")


def make_case(
    asked: Memory, method: str | None = None, software: str | None = None, *, searched: bool = False
) -> FinetuneCase:
    """Read a question about one kind of GPU.

    `method`: that of an RL method's policy. `software`: taken where none is named. `searched`: what
    is left open is looked for, so that what it is now need not run. Raises GpuscaleError for names
    that are not known, and jobs that no framework can run.
    """
    if asked.model is None:
        raise GpuscaleError(
            "give a model", "for example `gpuscale memory llama3-8b --method qlora --gpu rtx-3090`"
        )
    kind, n_gpus = method or asked.method or "lora", asked.gpus or 1
    software = software or asked.software
    usual = wanted.default_software(kind, n_gpus)
    chosen = software or wanted.default_software(kind, n_gpus, asked)
    default = "" if software else chosen
    if chosen != usual and not asked.software:
        default = f"{chosen}, as {usual} has not what is asked"
    asked, chosen, family = wanted.trained_by(asked, chosen, kind != "full")
    facts = wanted.job_facts(kind, asked)
    tuned, taken = wanted.with_habits(tuning_software(family), chosen, facts, asked.base)
    loaded = load_inputs(
        asked,
        cluster=asked.where,
        model=asked.model,
        catalogue=asked.catalogue,
        others={"software": tuned},
        wires=asked.wires,
    )
    own: SoftwareSpec = loaded.specs["software"]
    habits, model = finetune_parameters(own), loaded.model
    at = replace(asked, max_len=None) if method else asked  # an RL method's is in --seq-len
    seq_len = wanted.seq_len_of(at, model, habits)
    offload = wanted.offload_of(asked, habits, own.name)
    job = Job(
        method=replace(method_of(asked, model, kind, habits), whole_base="whole_base" in taken),
        optimizer=optimizer_of(asked, habits, "fused_optimizer" in taken),
        layout=wanted.layout_of(asked, model, own, seq_len, offload, family),
        loss=asked.loss or habits.loss,
        offload=frozenset(offload),
        attention=asked.attention or _attention_of(own, chosen, facts, loaded),
        compiled=asked.compiled or habits.compiled,
        eval_batch=asked.eval_batch or 0,
        weights=asked.base if asked.base in WEIGHTS else "",
    )
    if model.has_experts:
        job = _with_experts(job, habits, chosen, {**facts, "family": model.family})
    if not searched:
        _refuse(asked, job, model, own.name, family)
    older = older_ways(asked.software, facts) if asked.software else {}
    unsaid = _unsaid(asked) | {"version"}
    return FinetuneCase(
        loaded,
        own,
        _bench(asked, loaded, own, family),
        job,
        assumed=_assumed(asked, job, own, family.name, default, older),
        habits={name: habit for name, habit in taken.items() if name in unsaid},
        older=older,
        unsaid=unsaid,
        named=bool(asked.software),
        told_maturity=asked.maturity,
        limit=wanted.cut(asked, habits),
    )


def _assumed(
    asked: Memory, job: Job, software: SoftwareSpec, named: str, default: str, older: OlderWays
) -> tuple[str, ...]:
    """Say what is taken; `default`: family nobody chose, `older`: where experts may be a loop."""
    found = []
    if job.method.adapts and not asked.rank:
        found.append(f"rank {job.method.rank} (--rank)")
    if job.method.adapts and not asked.targets:
        beside = ", which leaves experts out" if job.method.on_experts == "none" else ""
        found.append(f"{', '.join(job.method.targets)}{beside} (--targets)")
    if job.method.stacked:
        found.append("experts as they are loaded: bitsandbytes does not quantise them")
    if asked.loss is None and job.loss == "fused":
        found.append("loss fused: no logits are held (--loss eager: they are)")
    if asked.optimizer is None:
        found.append(f"{job.optimizer.name} (--optimizer)")
    if asked.max_len is None and asked.seq_len is None:
        found.append(f"sequences of {job.layout.seq_len:,} tokens (--seq-len)")
    if asked.mean_len is None:
        rows = "attention over whole rows" if asked.packing else "no padding"
        if wanted.cut(asked, finetune_parameters(software)):
            rows = f"full rows, low end: {SHORT:g} of that"
        found.append(f"{rows} (--mean-len)")
    if default:
        found.append(f"software {default} (--software)")
    figures = family_for(software, job)
    p = finetune_parameters(figures)
    all_bf16 = p.full_master_bytes == 0.0 and p.full_weights_bytes < FP32_BYTES
    if default and job.method.kind == "full" and all_bf16:
        found.append("weights and their states bf16 (--software trl trains them in fp32)")
    if figures is not software:
        found.append(f"figures of {figures.name}, which {software.name} shards with")
    if named != software.name:
        found.append(f"{software.name}, as {named} is what pretraining runs by")
    looped = any("experts" in fields for _, fields in older.values())
    if looped and job.experts != "loop" and job.layout.ep == 1:
        found.append("experts in one product, one by one before (--software NAME:DATE)")
    return tuple(found)


def _unsaid(asked: Memory) -> frozenset[str]:
    """Name the settings that the question leaves open, as habits do."""
    told = {
        "seq_len": asked.max_len or asked.seq_len or asked.max_response,
        "recompute": asked.recompute or asked.recompute_layers,
        "micro_batch": asked.micro_batch,
        "loss": asked.loss,
        "optimizer": asked.optimizer,
        "zero_stage": asked.zero,
        "weights": asked.base,
    }
    return frozenset(name for name, value in told.items() if not value and value != 0)


def job_of(
    asked: Question, case: FinetuneCase, job: Job, said: str, rl: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Keep a job whole, as `launch` reads it; `rl`: fields of a step of RL."""
    method, p = job.method, finetune_parameters(case.software)
    whole = method.adapts and method.base == "bf16" and p.frozen_bytes == FP32_BYTES
    along = "optimizer" in job.offload and p.offload_gradients
    tuning: dict[str, Any] = {
        "method": method.kind,
        "base": "fp32" if whole or job.weights == "fp32" else method.base,
        "optimizer": job.optimizer.name,
        "tuning.loss": job.loss,
        "tuning.attention": job.attention,
        "offload_parameters": "parameters" in job.offload,
        "offload_gradients": "gradients" in job.offload and not along,  # else ZeRO-Offload's own
        "compiled": job.compiled,
        "packing": case.bench.packed,
        "mean_len": case.bench.mean_tokens,
    }
    if method.adapts:
        tuning |= {"lora_rank": method.rank, "lora_alpha": 2 * method.rank}
        tuning |= {"targets": list(method.targets), "train_embeddings": method.train_embeddings}
    else:
        tuning |= {"frozen_layers": method.frozen_layers}
        tuning |= {"embeddings_frozen": method.embeddings_frozen}
    return saved_job(
        case.loaded,
        job.layout,
        tuning={**tuning, **(rl or {})},
        command=command_of(asked),
        estimate=(said,),
    )
