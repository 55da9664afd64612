"""A planning job: what is asked over a `plan.toml` over defaults."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import Question, Swept, fields_of
from gpuscale.answers.options import usual_seq_len
from gpuscale.answers.saved import told, typed
from gpuscale.answers.sweep import option_names
from gpuscale.answers.table import question_of
from gpuscale.core.layout import RECOMPUTE
from gpuscale.core.plan.records import sequences_for
from gpuscale.core.plan.scan import Conditions
from gpuscale.core.records import dataclass, made_of, replace
from gpuscale.errors import GpuscaleError
from gpuscale.io.jobs import LeastDegrees
from gpuscale.io.software import usual_software
from gpuscale.io.text import parse_toml, read_text, shown_name

if TYPE_CHECKING:
    from gpuscale.answers.training.plan import Plan
    from gpuscale.specs.hardware import ClusterSpec
    from gpuscale.specs.model import ModelSpec

DEFAULT_BATCH_TOKENS = 4e6
MOST_CASES = 64

IN_FILES = ("machines", "batch", "kernels", "money", "search")
"""Groups of options that `plan.toml` has as keys; those of a layout are its table."""
APART = ("gpu", "job", "measured", "scaling", "micro_batch", *fields_of(Swept))
"""Options of those groups that say no job."""


def job_keys(question: type[Question]) -> list[str]:
    """Options of a plan that are keys of `plan.toml`, group by group."""
    known = {name: f for name, (f, _) in fields_of(question).items() if name not in APART}
    kept = [n for n, f in known.items() if f.group in IN_FILES and "pretrain" in f.tasks]
    return sorted(kept, key=lambda n: (IN_FILES.index(known[n].group), not known[n].common))


@dataclass(frozen=True, slots=True)
class Request:
    """A planning job, read, with its defaults; what needs the model or cluster is read later."""

    asked: Plan  # over its job file
    software: str
    conditions: Conditions
    job: Mapping[str, Any]  # what was said, for plan.toml
    said: Mapping[str, str]  # who said it: name -> option, or line of the job file

    @property
    def size_wanted(self) -> str:
        """Size that is looked for: the "fewest" GPUs, the "fastest", the "most"; empty: none is.

        A budget asks for the fastest within it, an MFU for the largest size that keeps it.
        """
        c = self.conditions
        timed = c.deadline_s is not None or c.max_step_s is not None
        objective = self.asked.objective
        if objective == "fewest-gpus" or timed or (c.any and objective != "step-time"):
            return "fewest"
        if c.budget_usd is not None:
            return "fastest"
        return "most" if c.any else ""

    def pinned_degrees(self, sequences: int) -> LeastDegrees:
        """Stages, virtual stages, expert ranks and recomputation, where a single one is given.

        `sequences` of a step: stages that cannot take turns in them are not interleaved.
        """
        pins = self.pin_texts
        one = {k: int(v) for k, v in pins.items() if v.isdigit()}
        given: dict[str, Any] = {k: one[k] for k in ("pp", "vpp", "ep") if k in one}
        if pins.get("recompute") in RECOMPUTE:
            given["recompute"] = pins["recompute"]
        turns = 1
        if "dp" in one and one.get("pp", 1) > 1:
            turns = one["pp"] * one["dp"] * one.get("micro_batch", 1)
        if pins.get("schedule", "interleaved") != "interleaved" or sequences % turns:
            given["vpp"] = 1
        return LeastDegrees(**given)

    @property
    def pin_texts(self) -> dict[str, str]:
        """Pins as `core.plan.pins.pin_space` reads them."""
        texts = {k: str(v) for k, v in self.asked.pinned.items() if k != "pipeline_layout"}
        if self.asked.recompute_modules:
            texts.setdefault("recompute", "selective")
        return texts

    @property
    def n_cases(self) -> int:
        """Searches that the request means, sizes to be looked for not counted."""
        x = self.asked
        batches = len(x.batch_tokens) + len(x.global_batch)
        return len(x.clusters) * prod(max(1, n) for n in (len(x.gpus), len(x.seq_len), batches))


def read_request(asked: Plan) -> Request:
    """Put what is asked over the job file and the defaults.

    Raises GpuscaleError for combinations that mean nothing.
    """
    said = told(asked)
    asked, lines = with_job(asked)
    if not asked.model:
        raise GpuscaleError(
            "give a model, or a job file that names one",
            "for example `gpuscale plan llama3-70b --gpus 4096`",
        )
    if asked.batch_tokens and asked.global_batch:
        raise GpuscaleError("give --batch-tokens or --global-batch, not both")
    if asked.accumulation is not None:
        if len(asked.gpus) != 1:
            raise GpuscaleError("--accumulation needs one number of --gpus")
        from gpuscale.answers.training.tune_wanted import with_accumulation

        asked = with_accumulation(asked, asked.gpus[0])
    request = Request(
        asked=asked,
        software=asked.software or usual_software(*asked.clusters, catalogue=asked.catalogue),
        conditions=Conditions(
            asked.deadline, asked.budget, asked.mfu_at_least, asked.max_step_time
        ),
        job=_said(asked),
        said={**said, **lines},
    )
    if request.n_cases > MOST_CASES:
        raise GpuscaleError(
            f"that is {request.n_cases} searches, more than {MOST_CASES}", "narrow a range"
        )
    return request


def with_job(asked: Plan) -> tuple[Plan, dict[str, str]]:
    """Fill a question up from its job file: what is asked wins; say what stands where in it."""
    if asked.job is None:
        return asked, {}
    from gpuscale.answers.study_jobs import fields_named
    from gpuscale.core.plan.pins import FLAGS

    text, name = read_text(asked.job), shown_name(asked.job)
    table, keys = parse_toml(text, name), (*FLAGS, "pipeline_layout", *job_keys(type(asked)))
    options = {o: field for o, field in option_names(type(asked)).items() if field in keys}
    layout = fields_named(table.pop("layout", {}), options, f"[layout] of {name}")
    known = fields_of(type(asked))
    values = {
        k: _text(v, known[k][0].dim)
        for k, v in {**layout, **fields_named(table, options, name)}.items()
    }
    lines = {
        one.split("=")[0].strip().replace("-", "_"): f"{name}:{i}"
        for i, one in reversed([*enumerate(text.splitlines(), 1)])
    }
    if asked.gpu is not None:
        values.pop("cluster", None)
    for one, other in (("batch_tokens", "global_batch"), ("global_batch", "batch_tokens")):
        if getattr(asked, one):
            values.pop(other, None)
    wanted: dict[str, Any] = {
        k: v for k, v in values.items() if getattr(asked, k) in ((), None, known[k][0].default)
    }
    return replace(asked, job=None, **wanted), {k: lines.get(k, name) for k in wanted}


def _said(asked: Plan) -> dict[str, Any]:
    """List what was said of a job, as `plan.toml` says it."""
    found: dict[str, Any] = {}
    known = fields_of(type(asked))
    for key in job_keys(type(asked)):
        value = getattr(asked, key)
        if value == known[key][0].default:
            continue
        if key == "cluster":
            value = ",".join(asked.cluster) or asked.gpu
        elif key == "price" and value:
            value = typed(value)
        elif isinstance(value, tuple):
            value = [_number(v) for v in value] if len(value) > 1 else next(iter(value), None)
        if value:
            found[key] = _number(value)
    return found


def _text(value: Any, dim: str = "") -> Any:
    """Numbers, booleans and lists as the text that the flag of the same name takes."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if dim == "s" and not isinstance(value, str):
        return f"{value}s"
    plain = isinstance(value, list) and all(isinstance(v, str | int | bool) for v in value)
    return typed(tuple(map(_text, value)) if plain else value)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """The global batch: as asked in tokens, and as planned in sequences."""

    asked_tokens: float
    sequences: int
    origin: str


def sizes_of(request: Request, cluster: ClusterSpec) -> tuple[int, ...]:
    """GPUs of a request, by default all of the cluster. [1]."""
    if found := request.asked.gpus or ((cluster.n_gpus,) if cluster.n_gpus else ()):
        return found
    raise GpuscaleError(
        "missing option `--gpus`", "for example `gpuscale plan llama3-70b --gpus 4096`"
    )


def seq_len_of(request: Request, model: ModelSpec) -> tuple[int, ...]:
    """Sequence lengths of a request, by default 8192 or what the model allows."""
    return request.asked.seq_len or (usual_seq_len(None, model),)


def suited(request: Request, batch: GlobalBatch, seq_len: int, n_gpus: int) -> GlobalBatch:
    """Batch that suits a number of GPUs and a pinned micro-batch, unless sequences were given."""
    if request.asked.global_batch:
        return batch
    pinned = request.pin_texts.get("micro_batch", "")
    micro_batch = int(pinned) if pinned.isdigit() else 1
    return replace(
        batch,
        sequences=sequences_for(
            batch.asked_tokens, seq_len, n_gpus=n_gpus, micro_batch=max(1, micro_batch)
        ),
    )


def batches_of(request: Request, model: ModelSpec, seq_len: int) -> tuple[GlobalBatch, ...]:
    """Batches of a request for one sequence length."""
    if request.asked.global_batch:
        return tuple(
            GlobalBatch(float(n * seq_len), n, "given") for n in request.asked.global_batch
        )
    if request.asked.batch_tokens:
        asked, origin = request.asked.batch_tokens, "given"
    elif model.batch_tokens:
        asked, origin = (model.batch_tokens,), "the model's own"
    else:
        asked, origin = (DEFAULT_BATCH_TOKENS,), "a default, --batch-tokens changes it"
    return tuple(GlobalBatch(tokens, sequences_for(tokens, seq_len), origin) for tokens in asked)


def of_plan(asked: Plan) -> Question:
    """Make the question about the run of a plan: of fields that may be several the first is its."""
    several = ("gpus", "cluster", "seq_len", "global_batch")
    first = {name: next(iter(getattr(asked, name)), None) for name in several}
    return made_of(
        question_of("diagnose"),  # by name: it asks for plans itself
        asked,
        **{**first, "gpus": first["gpus"] and str(first["gpus"])},
        run=(asked.model,) if asked.model else (),
        model=None,
        kind=None if asked.method else "pretrain",
        settings=(),
    )
