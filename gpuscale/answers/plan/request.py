"""What `gpuscale plan` is asked: flags over a `plan.toml` over defaults, read into numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuscale.answers.values import quantity, whole
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

OBJECTIVES = ("step-time", "tokens-per-dollar", "memory-headroom", "fewest-gpus")
DEFAULT_CLUSTER = "dgx-h100"
DEFAULT_BATCH_TOKENS = 4e6
DEFAULT_SEQ_LEN = 8192
MOST_GPUS = 4_194_304
MOST_CASES = 64

JOB_KEYS = (
    "model",
    "cluster",
    "gpus",
    "catalogue",
    "seq_len",
    "batch_tokens",
    "global_batch",
    "tokens",
    "precision",
    "software",
    "objective",
    "price",
    "deadline",
    "budget",
    "mfu_at_least",
    "max_step_time",
)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a plan must meet; None: no matter."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    mfu_at_least: float | None = None
    max_step_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return any(
            v is not None
            for v in (self.deadline_s, self.budget_usd, self.mfu_at_least, self.max_step_s)
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A planning job, read; texts that need the model or cluster are read later."""

    model: str
    clusters: tuple[str, ...]
    gpus: tuple[int, ...]  # empty: to be looked for
    catalogue: str
    seq_lens: tuple[int, ...]  # empty: the default
    batch_tokens: tuple[float, ...]  # empty: global_batches, or the default
    global_batches: tuple[int, ...]
    tokens: float | None
    precision: str | None
    software: str
    objective: str
    prices: Mapping[str, float]  # by cluster as typed; "": any
    conditions: Conditions
    pins: Mapping[str, str]
    job: Mapping[str, str] = field(default_factory=dict)  # as text, for plan.toml

    @property
    def n_cases(self) -> int:
        """Searches that the request means, sizes to be looked for not counted."""
        batches = max(1, len(self.batch_tokens) + len(self.global_batches))
        return len(self.clusters) * max(1, len(self.gpus)) * max(1, len(self.seq_lens)) * batches


def read_request(flags: Mapping[str, Any]) -> Request:
    """Merge flags and job file, and read the values.

    Raises
    ------
    GpuscaleError
        For values that cannot be read, and combinations that mean nothing.
    """
    texts, pins = _merged(flags)
    if not texts.get("model"):
        raise GpuscaleError(
            "give a model, or a job file that names one",
            "for example `gpuscale plan llama3-70b --gpus 4096`",
        )
    if "batch_tokens" in texts and "global_batch" in texts:
        raise GpuscaleError("give --batch-tokens or --global-batch, not both")
    objective = texts.get("objective", OBJECTIVES[0])
    if objective not in OBJECTIVES:
        raise unknown_name("objective", objective, OBJECTIVES, f"known: {', '.join(OBJECTIVES)}")
    request = Request(
        model=texts["model"],
        clusters=_names(texts.get("cluster", DEFAULT_CLUSTER)),
        gpus=_sizes(texts["gpus"], "--gpus", MOST_GPUS) if "gpus" in texts else (),
        catalogue=texts.get("catalogue", "vendor"),
        seq_lens=_sizes(texts["seq_len"], "--seq-len", 2**28) if "seq_len" in texts else (),
        batch_tokens=_tokens(texts["batch_tokens"]) if "batch_tokens" in texts else (),
        global_batches=(
            _sizes(texts["global_batch"], "--global-batch", 10**8)
            if "global_batch" in texts
            else ()
        ),
        tokens=_maybe(texts, "tokens", "tokens", 1e18),
        precision=texts.get("precision"),
        software=texts.get("software", "megatron-core"),
        objective=objective,
        prices=_prices(texts.get("price")),
        conditions=Conditions(
            _maybe(texts, "deadline", "s", 1e12),
            _maybe(texts, "budget", "usd", 1e15),
            _maybe(texts, "mfu_at_least", "frac", 1.0),
            _maybe(texts, "max_step_time", "s", 1e9),
        ),
        pins=pins,
        job=texts,
    )
    if request.n_cases > MOST_CASES:
        raise GpuscaleError(
            f"that is {request.n_cases} searches, more than {MOST_CASES}", "narrow a range"
        )
    return request


def _merged(flags: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """(job values, pins) as text: a flag wins over the job file."""
    from gpuscale.core.plan.pins import FLAGS

    texts: dict[str, str] = {}
    pins: dict[str, str] = {}
    if flags.get("job"):
        from gpuscale.io.jobs import read_job

        job = read_job(str(flags["job"]))
        texts = {k: v for k in JOB_KEYS if (v := getattr(job, k)) is not None}
        pins = {k: v for k in FLAGS if (v := getattr(job.layout, k)) is not None}
        for one, other in (("batch_tokens", "global_batch"), ("global_batch", "batch_tokens")):
            if flags.get(one):
                texts.pop(other, None)
    texts |= {k: str(flags[k]) for k in JOB_KEYS if flags.get(k) is not None}
    pins |= {k: str(flags[k]) for k in FLAGS if flags.get(k) is not None}
    return texts, pins


def _maybe(texts: Mapping[str, str], key: str, dim: str, most: float) -> float | None:
    if key not in texts:
        return None
    return quantity(texts[key], dim, f"--{key.replace('_', '-')}", most=most)


def _prices(text: str | None) -> dict[str, float]:
    """Prices of a GPU-hour by cluster: ``2.5 USD/h``, or ``dgx-h100=2.5 USD/h,dgx-b200=4 USD/h``.

    Examples
    --------
    >>> _prices("2.5 USD/h"), _prices("a=2 USD/h, b=3 USD/h")
    ({'': 2.5}, {'a': 2.0, 'b': 3.0})
    """
    found: dict[str, float] = {}
    for part in text.split(",") if text is not None else ():
        name, equals, price = part.rpartition("=")
        if equals and not name.strip():
            raise GpuscaleError(f"--price {part.strip()[:60]}: an empty name before `=`")
        found[name.strip()] = quantity(price, "usd_per_hour", "--price", most=1e6)
    return found


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(names):
        raise GpuscaleError(f"--cluster {text[:60]!r}: an empty name")
    return names


def _sizes(text: str, flag: str, most: float) -> tuple[int, ...]:
    """One number, a list, or a range ``512..16384`` in which it doubles."""
    found: list[int] = []
    for part in text.split(","):
        low, dots, high = part.partition("..")
        first = whole(low, flag, most=most)
        last = whole(high, flag, most=most) if dots else first
        if last < first:
            raise GpuscaleError(f"{flag} {part.strip()[:40]}: write the smaller number first")
        while first < last:
            found.append(first)
            first *= 2
        found.append(last)
    return tuple(sorted(set(found)))


def _tokens(text: str) -> tuple[float, ...]:
    """Batches in tokens: one, a list, or a range in which it doubles."""
    found: list[float] = []
    for part in text.split(","):
        low, dots, high = part.partition("..")
        first = quantity(low, "tokens", "--batch-tokens", least=1.0, most=1e12)
        last = quantity(high, "tokens", "--batch-tokens", least=1.0, most=1e12) if dots else first
        if last < first:
            raise GpuscaleError(f"--batch-tokens {part.strip()[:40]}: write the smaller first")
        while first < last:
            found.append(first)
            first *= 2
        found.append(last)
    return tuple(sorted(set(found)))


@dataclass(frozen=True, slots=True)
class Batch:
    """The global batch: as asked in tokens, and as planned in sequences."""

    asked_tokens: float
    sequences: int
    origin: str


def seq_len_of(request: Request, model: ModelSpec) -> tuple[int, ...]:
    """Sequence lengths of a request, by default 8192 or what the model allows."""
    return request.seq_lens or (min(DEFAULT_SEQ_LEN, model.max_position or DEFAULT_SEQ_LEN),)


def batches_of(request: Request, model: ModelSpec, seq_len: int) -> tuple[Batch, ...]:
    """Batches of a request for one sequence length."""
    from gpuscale.core.plan.batch import sequences_for

    if request.global_batches:
        return tuple(Batch(float(n * seq_len), n, "given") for n in request.global_batches)
    if request.batch_tokens:
        asked, origin = request.batch_tokens, "given"
    elif model.batch_tokens:
        asked, origin = (model.batch_tokens,), "the model's own"
    else:
        asked, origin = (DEFAULT_BATCH_TOKENS,), "a default, --batch-tokens changes it"
    return tuple(Batch(tokens, sequences_for(tokens, seq_len), origin) for tokens in asked)
