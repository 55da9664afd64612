"""Serving: how many GPUs for a traffic, with which layout, and what its users see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers import options, values
from gpuscale.answers.ask import Asked, Converted, Swept, Value, amount, flag, text, texts, whole
from gpuscale.answers.money import Priced, read_price
from gpuscale.answers.serve import reading
from gpuscale.core.records import KW_ONLY, dataclass, replace
from gpuscale.errors import unknown_name

if TYPE_CHECKING:
    from gpuscale.core.serving.capacity import LatencyLimit
    from gpuscale.core.serving.extras import Adapters
    from gpuscale.core.serving.traffic import Lengths
    from gpuscale.render.document import Document

OBJECTIVES = ("gpus", "cost")
LAUNCH = ("vllm", "sglang", "trtllm", "llama.cpp", "k8s")
OFFLOADS = ("none", "auto", "layers", "experts")

LengthsField = Converted[Any, Value]

PROMPT_TOKENS = 1024.0
"""Of a prompt where neither its length nor a context is given."""


def _launches(value: Any, label: str) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else list(value)
    found = tuple(str(v).strip().lower() for v in given)
    for name in found:
        if name not in LAUNCH:
            raise unknown_name(label, name, LAUNCH, f"known: {', '.join(LAUNCH)}")
    return found


def _gpus(value: Any, label: str) -> Any:
    """Read the number of GPUs, or of a range or list the numbers."""
    found = options.several(value, label, lambda v: values.whole(v, label, most=1e5))
    return found[0] if len(found) == 1 else found


@dataclass
class Serve(options.Machine, Priced, Swept):
    """How many GPUs a traffic needs, with which layout, and what its users see.

    What is left open is solved for: GPUs, layout, replicas or the highest rate.
    """

    NAME: ClassVar[str] = "serve"
    EXAMPLE: ClassVar[str] = (
        "gpuscale serve llama3.3-70b --gpus 8 --weights fp8 --rate 5/s --ttft p95:500ms"
    )
    RESULTS: ClassVar[str] = (
        "serve.records:ServeAnswer serve.no_room:NoRoom serve.pareto:ParetoAnswer "
        "serve.trace:TraceAnswer serve.pool:PoolAnswer"
    )
    HEADLINES: ClassVar[str] = (
        "n_gpus label at_most_per_s ttft_p95_s tpot_p95_s output_tokens_per_s tokens_per_s_per_gpu "
        "usd_per_million_output_tokens"
    )
    GROUP: ClassVar[str] = "serving"
    model: Asked[str] = options.model(...)
    _: KW_ONLY
    gpus: Asked[int | None] = Asked(
        "GPUs to use; left out, as few as needed. A range 1..16 or a list is a table.",
        None,
        _gpus,
        metavar="N",
        group="machines",
        common=1,
    )
    engine: Converted[tuple[str, ...], str | Sequence[str]] = Converted(
        "vllm, sglang, trtllm, llama.cpp (ollama, mlx, ...), a list, or any; an old version as "
        "vllm:0.5.4. [default: vllm]",
        (),
        reading.engines,
        common=1,
    )
    weights: Converted[tuple[str, ...], str | Sequence[str]] = Converted(
        "Format of the weights: bf16, fp8, nvfp4, awq, q4_k_m, 2.5bpw, ..., or a list. "
        "[default: as published]",
        (),
        reading.formats,
        common=1,
    )
    kv: Asked[str | None] = text("Format of the cache: bf16 or fp8.", known=("bf16", "fp8", "fp16"))
    input: LengthsField = Converted(
        f"Tokens of a prompt: {reading.LENGTHS_HINT}. [default: 1024, or what fills --context]",
        None,
        reading.lengths,
        flags=("--input-len",),
        common=1,
    )
    output_len: LengthsField = Converted(
        f"Tokens of an answer: {reading.LENGTHS_HINT}.", "256", reading.lengths, common=1
    )
    rate: Converted[float | None, Value] = Converted(
        "Requests that come at random, e.g. 5/s or 300/min.", None, reading.rate, common=1
    )
    concurrency: Asked[int | None] = whole(
        "Requests in flight: a benchmark's closed loop.", most=1e5, common=1
    )
    requests: Asked[int | None] = whole(
        "Requests of the closed loop in all. [default: ten times those in flight]", most=1e6
    )
    burst: Asked[int | None] = whole("Requests that all come at once.", most=1e5)
    trace: Asked[str | None] = text(
        "Traffic of a CSV file: time, input, output[, prefix].", metavar="FILE"
    )
    day: Asked[str | None] = text(
        "Traffic of a day: a CSV file with a column rate, or office, sine:3 with --rate the peak.",
        metavar="FILE",
    )
    scale_lag: Asked[float] = amount(
        "With --trace or --day: time to start a replica.", "s", 300.0, zero=True
    )
    ttft: Converted[LatencyLimit | None, Value] = Converted(
        "Limit of the time to the first token, e.g. p95:500ms.", None, reading.limit, common=1
    )
    tpot: Converted[LatencyLimit | None, Value] = Converted(
        "Limit of the time per token after it, e.g. p95:30ms.", None, reading.limit, common=1
    )
    tp: Asked[int | None] = whole("Tensor-parallel degree of a replica.", most=4096, common=1)
    pp: Asked[int | None] = whole("Pipeline stages of a replica.", most=4096)
    dp_attention: Asked[int | None] = whole("Ranks of data-parallel attention.", most=4096)
    ep: Asked[int | None] = whole("GPUs that whole experts are spread over.", most=4096)
    disagg: Asked[str | None] = text("Prefill and decode pools: auto, or by hand as 4xTP2+1xDEP16.")
    only: Asked[str | None] = text(
        "One pool of a disaggregated service alone; embed: a prompt's embedding is the answer.",
        known=("prefill", "decode", "embed"),
    )
    chunk: Asked[int | None] = whole(
        "Prompt tokens of a pass, from 32.", dim="positions", least=32, most=1e6
    )
    max_seqs: Asked[int | None] = whole("Sequences that run at a time.", most=1e6)
    poll: Asked[int | None] = whole(
        "Decode passes between two looks at new requests (SGLang, scheduler-recv-interval).",
        most=1e6,
    )
    context: Asked[int | None] = whole(
        "Longest context to be served; 128k is 131,072.", dim="positions", most=1e9
    )
    memory_frac: Asked[float | None] = options.memory_frac()
    eager: Asked[bool] = flag("No CUDA graphs: every kernel is launched by the host.")
    no_deepgemm: Asked[bool] = flag("Products of fp8 blocks by SGLang's other kernels.")
    no_deepep: Asked[bool] = flag("SGLang's attention ranks gather all tokens for the experts.")
    no_two_batches: Asked[bool] = flag("No second batch computes while experts are exchanged.")
    cold: Asked[bool] = flag("Nobody warmed the server up: its first prompts load kernels.")
    draft: Converted[reading.Draft | None, str] = Converted(
        "Speculative decoding, e.g. mtp:3 or eagle:4.", None, reading.draft
    )
    accept: Converted[tuple[float, ...], Value | Sequence[float]] = Converted(
        "Probability that each draft is kept after those before it, e.g. 0.8,0.6,0.4; or the mean "
        "tokens of a pass that engines log, e.g. 2.7.",
        (),
        reading.acceptance,
    )
    prefix_hit: Converted[float, Value] = Converted(
        "Share of the prompt tokens found in the prefix cache.",
        0.0,
        lambda value, label: values.quantity(value, "frac", label, most=0.99, zero=True),
    )
    lora: Converted[Adapters | None, str] = Converted(
        "Adapters in memory, e.g. rank=16,n=8.", None, reading.adapters
    )
    offload: Asked[str] = text(
        "Weights that do not fit on the host: none, auto, layers, experts.", "none", known=OFFLOADS
    )
    n_cpu_moe: Asked[int | None] = whole(
        "Layers whose experts the host keeps, as llama.cpp counts them.", most=1e4
    )
    ngl: Asked[int | None] = whole(
        "Layers on the GPUs, the others on the host, as llama.cpp counts them.", least=0, most=1e4
    )
    host_bandwidth: Asked[float] = amount(
        "Memory bandwidth of the host, for --offload.", "bytes_per_s", 80e9, flags=("--host-bw",)
    )
    beside: Converted[tuple[str, ...], Sequence[str]] = texts(
        "Another model on the same GPUs, 'MODEL rate=20/s input=512 ...', or a TOML file of them "
        "([[model]]). Repeatable.",
        flags=("--with",),
        metavar="TEXT",
    )
    objective: Asked[str] = text(
        "Best of several kinds of GPUs (--gpu h100,l40s): fewest gpus, or lowest cost.",
        "gpus",
        known=OBJECTIVES,
        group="search",
    )
    pareto: Asked[bool] = flag(
        "Tokens/s of a user against tokens/s of a GPU, every layout.", group="search", common=1
    )
    launch: Converted[tuple[str, ...], str | Sequence[str]] = Converted(
        "Lines to start it and to check it: vllm, sglang, trtllm, llama.cpp, k8s. "
        "[default: of the engine]",
        (),
        _launches,
    )
    price_total: Asked[float | None] = Asked(
        "Of all GPUs given together, e.g. an instance's '2.84 USD/h'.",
        None,
        read_price,
        group="money",
    )
    seed: Asked[int] = whole("Of the simulated requests.", 0, least=0, most=1e9)

    @property
    def prompts(self) -> Lengths:
        """Lengths of the prompts: as given; else 1,024 tokens, or what fills --context."""
        from gpuscale.core.serving.traffic import Lengths

        given: Lengths | None = self.input
        if given is not None:
            return given
        if self.context is None or self.trace is not None:
            return Lengths("fixed", PROMPT_TOKENS)
        return Lengths("fixed", max(1.0, self.context - self.output_len.most))

    def answer(self) -> Document:
        """Answer by the kind of traffic; several numbers of GPUs as a sweep does."""
        if isinstance(self.gpus, tuple):
            from gpuscale.answers.sweep import sweep_document

            swept = (*self.sweep, f"gpus={','.join(map(str, self.gpus))}")
            return sweep_document(replace(self, gpus=None, sweep=swept), ())
        if self.beside:
            from gpuscale.answers.serve.pool import pool_document

            return pool_document(self)
        from gpuscale.answers.serve.document import serve_document

        return serve_document(self)
