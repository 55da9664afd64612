"""What the planner says of the same job, and of the same job with one thing changed."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuscale.answers.diagnose.records import Predicted
from gpuscale.errors import GpuscaleError
from gpuscale.io.causes import first_of, load_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.answers.diagnose.case import Case
    from gpuscale.core.diagnosis.causes import Cause

REFUSED = (GpuscaleError, ValueError, ArithmeticError, LookupError)
PLAN_FIELDS = (
    "tp pp vpp cp ep etp zero micro_batch recompute sequence_parallel schedule attention loss "
    "overlap_dp overlap_tp"
).split()
SERVING_SPREAD = 0.35
"""Half width of ln(tokens/s) of a serving prediction, 80 %, where the answer gives none."""
NETWORK_SPREAD = 0.22
WITHOUT = {
    "attention": "best",
    "recompute": "selective",
    "set": "software.compiled=true",
    "overlap_dp": "on",
    "overlap_tp": "on",
    "sequence_parallel": "on",
    "loss": "fused",
}
"""Option of a counterfactual -> the same job without that cause."""


def predicted(case: Case, causes: Mapping[str, Cause]) -> tuple[Predicted | None, dict[str, float]]:
    """Ask the planner: (what it says of the figure, factor of each counterfactual by cause).

    (None, {}) where the job is not known well enough, or no model covers it.
    """
    with suppress(*REFUSED):
        if case.kind == "pretrain" and (found := _as_launched(case)) is not None:
            return found, {}
    with suppress(*REFUSED):
        if case.kind == "network":
            return _collective(case), {}
        if case.kind == "serving":
            return _serving(case, causes)
        if case.kind in ("finetune", "rl"):
            return _tuning(case), {}
        if case.kind == "pretrain":
            return _training(case, causes)
    return None, {}


def _compared(case: Case, name: str, value: float, low: float, high: float, by: str) -> Predicted:
    figure = next(f for f in case.figures if f.name == name)
    assert figure.value is not None
    worse = figure.value / value if figure.quantity.less_is_better else value / figure.value
    return Predicted(
        name,
        value=value,
        low=low,
        high=high,
        unit=figure.unit,
        measured=figure.value,
        ratio=worse,
        by=by,
    )


def _as_launched(case: Case) -> Predicted | None:
    """Predict a run from the arguments that its log prints, as `launch-check` does."""
    dumps = [log.name for log in case.logs if len(log.arguments) >= DUMPED]
    timed = any(f.name == "step_time" and f.value for f in case.figures)
    if not dumps or not timed or case.cluster is None:
        return None
    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.answers.launch_check.check import checked
    from gpuscale.core.quantity import format_si

    asked = LaunchCheck(
        dumps[0], cluster=case.cluster.name, model=case.model.name if case.model else None
    )
    r = checked(asked).report
    if r.step_s is None or r.step_low_s is None or r.step_high_s is None:
        return None
    case.model_name = case.model_name or r.model
    case.gpus = case.gpus or r.n_gpus
    better = ""
    if r.best_step_s is not None and r.best_step_s < r.step_s / WORTH:
        changes = ", ".join(f"{c.field.replace('_', ' ')} {c.best}" for c in r.changes[:3])
        better = f"{format_si(r.best_step_s, 's', 3)} is possible on these GPUs ({changes})"
    by = f"gpuscale launch-check {dumps[0]} --cluster {case.cluster.name}"
    found = _compared(case, "step_time", r.step_s, r.step_low_s, r.step_high_s, by)
    return replace(found, better=better)


DUMPED = 8
"""Arguments that a log prints, from which it is a launch file."""
WORTH = 1.1
"""Times faster from which another layout is spoken of."""


# --- training ----------------------------------------------------------------------------------


def _training(case: Case, causes: Mapping[str, Cause]) -> tuple[Predicted | None, dict[str, float]]:
    from gpuscale.answers.plan.case import best_or_closest, estimate_of, solve

    name = next((f.name for f in case.figures if f.value and f.name in _OF_STEP), None)
    if case.model is None or case.cluster is None or name is None:
        return None, {}
    model, cluster = case.model, case.cluster
    if case.gpus is None and name in PER_GPU:
        case = replace(case, gpus=8)  # of a node: most of what one GPU makes is the same
    if case.gpus is None:
        return None, {}
    found = _plan_case(case, {})
    layout = best_or_closest(found, solve(found))
    if layout is None:
        return None, {}
    base = estimate_of(found, layout)
    name = next((f.name for f in case.figures if f.value and f.name in _OF_STEP), None)
    if name is None or (
        name in ("step_time", "samples_per_s", "steps_per_s") and not _batched(case)
    ):
        return None, {}
    from gpuscale.io.jobs import step_interval

    software = found.loaded.specs["software"].name
    low_s, high_s = step_interval(base.step, found.problem, software, layout)
    tokens = found.batch_tokens
    scale = _OF_STEP[name](base, tokens, case.gpus, layout)
    edges = sorted(
        (scale * (s if name == "step_time" else base.step_s / s)) for s in (low_s, high_s)
    )
    value = scale * (base.step_s if name == "step_time" else 1.0)
    by = f"gpuscale plan {model.name} --gpus {case.gpus} --cluster {cluster.name}"
    factors: dict[str, float] = {}
    for word, cause in causes.items():
        if (
            not cause.options
            or case.kind not in cause.kinds
            or not WITHOUT.keys() >= set(cause.options)
        ):
            continue
        steps = []
        for change in (dict(cause.options), {k: WITHOUT[k] for k in cause.options}):
            with suppress(*REFUSED):
                other = _plan_case(case, change, layout)
                if (changed := best_or_closest(other, solve(other))) is not None:
                    steps.append(estimate_of(other, changed).step_s)
        if len(steps) == 2 and steps[0] > 1.01 * steps[1]:
            factors[word] = steps[0] / steps[1]
    untuned = found.problem.software.maturity.factor
    said = _compared(case, name, value, edges[0], edges[-1], by)
    return replace(said, over_tuned=untuned), factors


_OF_STEP: dict[str, Any] = {
    "step_time": lambda e, tokens, n, layout: 1.0,
    "tokens_per_s": lambda e, tokens, n, layout: tokens / e.step_s,
    "tokens_per_s_per_gpu": lambda e, tokens, n, layout: tokens / e.step_s / n,
    "samples_per_s": lambda e, tokens, n, layout: layout.global_batch_size / e.step_s,
    "steps_per_s": lambda e, tokens, n, layout: 1 / e.step_s,
    "mfu": lambda e, tokens, n, layout: e.step.mfu,
    "tflops_per_gpu": lambda e, tokens, n, layout: e.step.model_flop / e.step_s / n,
}
"""Figure -> its value for an estimate, of which an interval of the step time scales it."""


PER_GPU = ("tokens_per_s_per_gpu", "tflops_per_gpu", "mfu")


def _batched(case: Case) -> bool:
    return bool(case.number("global_batch") and case.number("seq_len"))


def _plan_case(case: Case, changes: dict[str, Any], layout: Any = None) -> Any:
    from gpuscale.answers.plan import Plan
    from gpuscale.answers.plan.case import load_case, make_case
    from gpuscale.answers.plan.request import batches_of, read_request, seq_len_of, suited

    given: dict[str, Any] = {}
    for name in PLAN_FIELDS:
        value = case.settings.get(name)
        if value and value.lower() not in ("none", "null", "auto", ""):
            given[name] = value
    given = {k: v for k, v in given.items() if _usable(k, v)}
    if layout is not None:
        for name in ("tp", "pp", "cp", "ep", "vpp"):
            given[name] = str(getattr(layout, name))
        given["micro_batch"] = str(layout.micro_batch_size)
    sets = [changes.pop("set")] if "set" in changes else []
    if case.settings.get("compiled", "").lower() in ("false", "off") and not sets:
        sets = ["software.compiled=false"]
    given |= changes
    for name in ("global_batch", "seq_len"):
        if (count := case.number(name)) is not None:
            given[name] = str(int(count))
    precision = (case.settings.get("precision") or "").lower()
    if precision in ("fp8", "mxfp8", "fp16", "nvfp4"):
        given["precision"] = precision
    assert case.model is not None and case.cluster is not None and case.gpus is not None
    plan = Plan(
        case.model.name,
        gpus=case.gpus,
        cluster=case.cluster.name,
        software=first_of(load_table("_words")["software"], case.software),
        set=sets,
        fit="expected",
        **given,
    )
    request = read_request(plan)
    loaded = load_case(plan, request, request.clusters[0])
    length = seq_len_of(request, loaded.model)[0]
    n = request.gpus[0]
    batch = suited(request, batches_of(request, loaded.model, length)[0], length, n)
    return make_case(loaded, request, n, length, batch)


def _usable(name: str, value: str) -> bool:
    if name == "recompute":
        return value.lower() in ("none", "selective", "full", "per-op")
    if name == "attention":
        return value.lower() in ("best", "flash1", "flash2", "eager")
    if name in ("overlap_dp", "overlap_tp", "sequence_parallel"):
        return value.lower() in ("on", "off")
    return bool(re.fullmatch(r"\d+", value)) or name in ("schedule", "loss")


# --- fine-tuning and RL --------------------------------------------------------------------------

TUNING_SPREAD = 0.35
"""Half width of ln(step time) of fine-tuning, 80 %, where the answer gives none."""


def _tuning(case: Case) -> Predicted | None:
    """Step, rates or peak of a fine-tuning or RL job whose method, rows and batch are known."""
    from gpuscale.answers.memory import Memory

    said = re.search(r"qlora|dora|lora|full|dpo|ppo|grpo|rloo", case.settings.get("method", ""))
    each = case.number("micro_batch") or case.number("batch")
    length, steps = case.number("seq_len"), case.number("accumulation") or 1.0
    if said is None or case.model is None or case.gpu is None or not (each and length):
        return None
    n = case.gpus or 1
    job = Memory(
        case.model.name,
        method=said[0],
        gpu=case.gpu.name,
        gpus=n if n > 1 else None,
        seq_len=int(length),
        micro_batch=int(each),
    )
    r: Any = job.answer().result
    if not (step_s := getattr(r, "step_s", None)):
        return None
    once = step_s * (steps if case.kind == "finetune" else 1.0)
    tokens_per_s = r.tokens_per_s
    values = {
        "step_time": once,
        "steps_per_s": 1 / once,
        "tokens_per_s": tokens_per_s,
        "tokens_per_s_per_gpu": tokens_per_s / n,
        "samples_per_s": tokens_per_s / length,
        "memory": r.peak_bytes,
    }
    name = next((f.name for f in case.figures if f.value and f.name in values), None)
    if name is None:
        return None
    spread = math.log(r.memory_interval_factor_80) if name == "memory" else TUNING_SPREAD
    value, by = values[name], f"gpuscale memory {case.model.name} --method {said[0]}"
    by += f" --gpu {case.gpu.name} --seq-len {length:g} --micro-batch {each:g}"
    low, high = value * math.exp(-spread), value * math.exp(spread)
    return _compared(case, name, value, low, high, by)


# --- serving -----------------------------------------------------------------------------------


def _serving(case: Case, causes: Mapping[str, Cause]) -> tuple[Predicted | None, dict[str, float]]:
    if case.model is None or case.gpu is None:
        return None, {}
    name = next((f.name for f in case.figures if f.value and f.name in _OF_SERVED), None)
    if name is None:
        return None, {}
    base = _served(case, {})
    value = getattr(base, _OF_SERVED[name], None)
    if not value:
        return None, {}
    spread = SERVING_SPREAD
    if base.tpot_low_s and base.tpot_high_s and base.tpot_mean_s:
        spread = max(spread, math.log(base.tpot_high_s / base.tpot_low_s) / 2)
    factors = {}
    if cause := causes.get("cuda-graphs-off"):
        with suppress(*REFUSED):
            slow = getattr(_served(case, dict(cause.options)), _OF_SERVED[name], None)
            if slow:
                factors["cuda-graphs-off"] = max(slow / value, value / slow)
    by = f"gpuscale serve {case.model.name} --gpu {case.gpu.name} --gpus {case.gpus or 1}"
    edges = (value * math.exp(-spread), value * math.exp(spread))
    return _compared(case, name, value, edges[0], edges[1], by), factors


_OF_SERVED = {
    "tokens_per_s": "output_tokens_per_s",
    "ttft": "ttft_mean_s",
    "tpot": "tpot_mean_s",
    "itl": "tpot_mean_s",
    "requests_per_s": "requests_per_s",
}
"""Figure -> field of a served load; an answer that nothing fits has none of them."""


def _served(case: Case, changes: dict[str, Any]) -> Any:
    from gpuscale.answers.serve import Serve

    running = case.number("running") or case.number("clients") or 1
    given: dict[str, Any] = {
        "gpu": case.gpu.name if case.gpu else None,
        "gpus": case.gpus or int(case.number("tp") or 1),
        "concurrency": max(1, int(running)),
        "requests": max(16, 3 * int(running)),
    }
    words = case.said
    given["engine"] = first_of(load_table("_words")["engines"], words) or "vllm"
    for name, said, short in (("input", "input_len", "in"), ("output_len",) * 2 + ("out",)):
        if (value := case.number(said) or case.number(short)) is not None:
            given[name] = str(int(value))
    for fmt in ("awq", "gptq", "q4_k_m", "q8_0", "q4_0", "fp8", "nvfp4"):
        if re.search(rf"\b{fmt}\b", words):
            given["weights"] = fmt
            break
    if (tp := case.number("tp")) is not None:
        given["tp"] = int(tp)
        given["gpus"] = max(int(tp), given["gpus"])
    if re.search(r"enforce[-_]eager(?! *= *false)", words) and not changes:
        given["eager"] = True
    assert case.model is not None
    return Serve(case.model.name, **given, **changes).answer().result


# --- network -----------------------------------------------------------------------------------


def _collective(case: Case) -> Predicted | None:
    from gpuscale.answers.collective import Collective

    name = next((f.name for f in case.figures if f.value and f.name in ("busbw", "algbw")), None)
    n = case.gpus or _ranks(case)
    if name is None or case.cluster is None or n is None:
        return None
    op = re.search(r"all.?reduce|all.?gather|reduce.?scatter|all.?to.?all|sendrecv", case.said)
    size = case.log_number("message_bytes") or 8e9
    for log in case.logs:
        rows = log.tables.get("nccl_tests", ())
        size = max((float(r["size"].value) for r in rows if "size" in r), default=size)
    word = (op[0] if op else "all-reduce").replace("_", "-").replace(" ", "-")
    result = Collective(word, case.cluster.name, gpus=n, bytes=size).answer().result
    expected = result.expected
    if expected is None:
        return None
    algbw = size / expected.time_s
    factor = 2 * (n - 1) / n if "reduce" in word and "scatter" not in word else (n - 1) / n
    value = algbw * (factor if name == "busbw" else 1.0)
    edges = (value * math.exp(-NETWORK_SPREAD), value * math.exp(NETWORK_SPREAD))
    by = f"gpuscale collective {word} {case.cluster.name} --gpus {n} --bytes {size:.3g}"
    return _compared(case, name, value, edges[0], edges[1], by)


def _ranks(case: Case) -> int | None:
    """Ranks that the two bandwidths of an all-reduce mean: bus over algorithm is 2 (n-1)/n."""
    for log in case.logs:
        for row in reversed(log.tables.get("nccl_tests", [])):
            if row.get("redop") and row["redop"].value == "sum":
                ratio = float(row["busbw"].value) / float(row["algbw"].value)
                if 1.0 <= ratio < 1.995:
                    return round(2 / (2 - ratio))
    return None


def with_figure(case: Case) -> Case:
    """Case whose ranks are those that its table of bandwidths means."""
    return replace(case, gpus=case.gpus or _ranks(case))
