"""What the planner says of the same job, and of the same job with one thing changed."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpuscale.answers.diagnose.records import Predicted
from gpuscale.core.quantity import format_si
from gpuscale.core.records import replace
from gpuscale.errors import GpuscaleError
from gpuscale.io.models import load_model
from gpuscale.io.run import first_of, load_table, told

if TYPE_CHECKING:
    from gpuscale.answers.diagnose.case import RunCase
    from gpuscale.answers.launch_check.records import LaunchReport
    from gpuscale.answers.training.asked import Memory
    from gpuscale.core.diagnosis.causes import Cause

Said = tuple[Predicted | None, dict[str, float]]
"""What the planner says of the figure, and the factor of each counterfactual by cause."""
REFUSED = (GpuscaleError, ValueError, ArithmeticError, LookupError)
USABLE: dict[str, str] = load_table("_known")["usable"]
"""Option of `plan` -> the words of a run's settings that it takes."""
SPREAD = 0.35
"""Half width of ln of what `serve` and `memory` say, 80 %, where their answers give none."""
NETWORK_SPREAD = 0.22
WITHOUT: dict[str, str] = load_table("_known")["without"]
"""Option of a counterfactual -> the same job without that cause."""


def predicted(case: RunCase, causes: Mapping[str, Cause]) -> Said:
    """Ask the planner; (None, {}) where the job is not known well enough, or no model covers it."""
    c, n = case.cluster, case.nodes or 1
    if c is not None and n > 1 and (case.gpus or 0) <= (n - 1) * c.scaleup_domain_gpus:
        case = replace(case, cluster=None)  # fewer GPUs a node than this cluster's
    for ask in OF_KIND.get(case.kind, ()):
        with suppress(*REFUSED):
            found, factors = ask(case, causes)
            if found is not None:
                return found, factors
    return None, {}


def _compared(
    case: RunCase, values: Mapping[str, float | None], factors: tuple[float, float], by: str
) -> Predicted | None:
    """Hold the first figure that was predicted against it.

    `factors`: lower and upper edge of the value, 80 %; of a time, as rates have them inverted.
    """
    figure = next((f for f in case.figures if f.value and values.get(f.name)), None)
    if figure is None:
        return None
    value, measured = values[figure.name], figure.value
    assert value is not None and measured is not None
    less = figure.quantity.less_is_better
    low, high = factors if less else (1 / factors[1], 1 / factors[0])
    ratio, span = measured / value if less else value / measured, (value * low, value * high)
    return Predicted(figure.name, value, *span, figure.unit, measured, ratio=ratio, by=by)


def _around(spread: float) -> tuple[float, float]:
    return math.exp(-spread), math.exp(spread)


def _rates(step_s: float, tokens: float, samples: float, n: int) -> dict[str, float | None]:
    """Figures of a step. [s, 1/s]."""
    return {
        "step_time": step_s,
        "steps_per_s": 1 / step_s,
        "samples_per_s": samples / step_s,
        "tokens_per_s": tokens / step_s,
        "tokens_per_s_per_gpu": tokens / step_s / n,
    }


# --- training ----------------------------------------------------------------------------------

DUMPED = 8
"""Arguments that a log prints, from which it is a launch file."""
WORTH = 1.1
"""Times faster from which another layout is spoken of."""


def report_of(case: RunCase) -> tuple[LaunchReport, str] | None:
    """Check the launch whose arguments a log prints: its report, and what was checked."""
    from gpuscale.answers.launch_check.files import command_of_log

    where = case.cluster.name if case.cluster else case.gpu.name if case.gpu else None
    dumps = (log.name for log in case.logs if log.text("dump") or len(log.arguments) >= DUMPED)
    dump = next((name for name in dumps if command_of_log(name)), None)
    if dump is None or where is None:
        return None
    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.answers.launch_check.check import checked

    place: dict[str, Any] = {"cluster" if case.cluster else "gpu": where}
    r = checked(LaunchCheck(dump, gpus=case.gpus, model=case.model_arg or None, **place)).report
    return r, f"gpuscale launch-check {dump} --cluster {where}"


def _as_launched(case: RunCase, _: Mapping[str, Cause]) -> Said:
    """Predict a run from the arguments that its log prints, as `launch-check` does."""
    r, by = report_of(case) or (None, "")
    if r is None or r.step_s is None or r.n_gpus is None:
        return None, {}
    case.gpus = case.gpus or r.n_gpus
    with suppress(GpuscaleError):
        case.model = case.model or load_model(r.model).spec
    size = f"{r.n_params / 1e9:.3g}B" if r.n_params else ""
    case.model_name = case.model_name or (r.model if case.model else size)
    samples = float(r.said.global_batch_size or (r.layout.global_batch_size if r.layout else 0))
    values = _rates(r.step_s, samples * (r.said.seq_len or 0), samples, r.n_gpus) | {"mfu": r.mfu}
    edges = _around(SPREAD)
    if r.step_low_s and r.step_high_s:
        edges = (r.step_low_s / r.step_s, r.step_high_s / r.step_s)
    found = _compared(case, values, edges, by)
    better = ""
    if r.best_step_s is not None and r.best_step_s < r.step_s / WORTH:
        changes = ", ".join(f"{c.field.replace('_', ' ')} {c.best}" for c in r.changes[:3])
        better = f"{format_si(r.best_step_s, 's', 3)} is possible on these GPUs ({changes})"
    return found and replace(found, better=better), {}


OF_BATCH = ("step_time", "steps_per_s", "samples_per_s")
"""Figures of which a batch that is not said decides."""


def _training(case: RunCase, causes: Mapping[str, Cause]) -> Said:
    model, cluster = case.model, case.cluster
    if model is None or cluster is None:
        return None, {}
    whole = any(f.value and f.name not in PER_GPU for f in case.figures)
    if case.gpus is None and not whole:
        case = replace(case, gpus=8)  # of a node: most of what one GPU makes is the same
    n = case.gpus
    if n is None:
        return None, {}
    from gpuscale.answers.training.plan_case import best_or_closest, solve
    from gpuscale.core.plan.records import estimate
    from gpuscale.io.jobs import step_interval

    found = _plan_case(case, {})
    layout = best_or_closest(found, solve(found))
    if layout is None:
        return None, {}
    base = estimate(found.problem, layout)
    values = _rates(base.step_s, found.batch_tokens, layout.global_batch_size, n)
    values |= {"mfu": base.step.mfu, "tflops_per_gpu": base.step.model_flop / base.step_s / n}
    if not (case.number("global_batch") and case.number("seq_len")):
        values |= dict.fromkeys(OF_BATCH)
    software = found.loaded.specs["software"].name
    low_s, high_s = step_interval(base.step, found.problem, software, layout)
    by = f"gpuscale plan {shlex.quote(case.model_arg)} --gpus {n} --cluster {cluster.name}"
    said = _compared(case, values, (low_s / base.step_s, high_s / base.step_s), by)
    if said is None:
        return None, {}
    factors: dict[str, float] = {}
    for word, cause in causes.items():
        known = cause.options and WITHOUT.keys() >= set(cause.options)
        if not known or case.kind not in cause.kinds:
            continue
        steps = []
        for change in (dict(cause.options), {k: WITHOUT[k] for k in cause.options}):
            with suppress(*REFUSED):
                other = _plan_case(case, change, layout)
                if (changed := best_or_closest(other, solve(other))) is not None:
                    steps.append(estimate(other.problem, changed).step_s)
        if len(steps) == 2 and steps[0] > 1.01 * steps[1]:
            factors[word] = steps[0] / steps[1]
    return replace(said, over_tuned=found.problem.software.maturity.factor), factors


PER_GPU = ("tokens_per_s_per_gpu", "tflops_per_gpu", "mfu")


def _plan_case(case: RunCase, changes: dict[str, Any], layout: Any = None) -> Any:
    from gpuscale.answers.training.plan import Plan
    from gpuscale.answers.training.plan_case import load_case, make_case
    from gpuscale.answers.training.plan_request import batches_of, read_request, seq_len_of, suited

    said = {name: case.settings.get(name, "").lower() for name in USABLE}
    given: dict[str, Any] = {k: v for k, v in said.items() if re.fullmatch(USABLE[k], v)}
    if layout is not None:
        given |= {name: str(getattr(layout, name)) for name in ("tp", "pp", "cp", "ep", "vpp")}
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
        case.model_arg,
        gpus=case.gpus,
        cluster=case.cluster.name,
        software=first_of(load_table("_words")["software"], case.software),
        set=[*sets, *case.what_if],
        fit="expected",
        **given,
    )
    request = read_request(plan)
    loaded = load_case(request, request.asked.clusters[0])
    length = seq_len_of(request, loaded.model)[0]
    n = request.asked.gpus[0]
    batch = suited(request, batches_of(request, loaded.model, length)[0], length, n)
    return make_case(loaded, request, n, length, batch)


# --- fine-tuning and RL --------------------------------------------------------------------------


def tuning_job(case: RunCase) -> Memory | None:
    """Return a fine-tuning or RL job whose method, rows and batch are known."""
    from gpuscale.answers.training.asked import Memory

    method = re.search(r"qlora|dora|lora|full|dpo|ppo|grpo|rloo", case.settings.get("method", ""))
    each = case.number("micro_batch") or case.number("batch")
    length, n = case.number("seq_len"), case.gpus or 1
    if method is None or case.model is None or case.gpu is None or not (each and length):
        return None
    more: dict[str, Any] = {"gpus": n if n > 1 else None, "micro_batch": int(each)}
    if (recompute := case.settings.get("recompute", "").lower()) in ("full", "none", "true"):
        more["recompute"] = recompute.replace("true", "full")
    return Memory(case.model_arg, method=method[0], gpu=case.gpu.name, seq_len=int(length), **more)


def _tuning(case: RunCase, _: Mapping[str, Cause]) -> Said:
    """Step, rates or peak of a fine-tuning or RL job."""
    if (job := tuning_job(case)) is None:
        return None, {}
    length, steps, n = job.seq_len or 0, case.number("accumulation") or 1.0, case.gpus or 1
    r: Any = job.answer().result
    if not (step_s := getattr(r, "step_s", None)):
        return None, {}
    tokens = r.tokens_per_s * step_s
    once = _rates(step_s, tokens, tokens / length, n)
    if case.kind == "finetune":  # a step is as many of them as are accumulated
        once |= {"step_time": step_s * steps, "steps_per_s": 1 / step_s / steps}
    by = f"gpuscale memory {job.model} --method {job.method}"
    by += f" --gpu {job.gpu} --seq-len {length:g} --micro-batch {job.micro_batch:g}"
    wide = math.log(r.memory_interval_factor_80)
    found = _compared(case, once, _around(SPREAD), by)
    return found or _compared(case, {"memory": r.peak_bytes}, _around(wide), by), {}


# --- serving -----------------------------------------------------------------------------------

OF_SERVED: dict[str, str] = load_table("_known")["served"]
"""Figure -> field of a served load; an answer that nothing fits has none of them."""


def _serving(case: RunCase, causes: Mapping[str, Cause]) -> Said:
    own = case.software and not told("serving", case.software)  # a loop of its own is no engine
    if case.model is None or case.gpu is None or own:
        return None, {}
    base = _served(case, {})
    model = shlex.quote(case.model_arg)
    by = f"gpuscale serve {model} --gpu {case.gpu.name} --gpus {case.gpus or 1}"
    values = {name: getattr(base, key, None) for name, key in OF_SERVED.items()}
    spread = SPREAD
    if values["tpot"] and base.tpot_low_s and base.tpot_high_s:
        spread = max(spread, math.log(base.tpot_high_s / base.tpot_low_s) / 2)
    found = _compared(case, values, _around(spread), by)
    if found is None or (not _clients(case) and found.ratio < 1 and found.quantity in RATES):
        return None, {}  # one stream is the least of any load
    factors = {}
    if cause := causes.get("cuda-graphs-off"):
        with suppress(*REFUSED):
            if slow := getattr(_served(case, dict(cause.options)), OF_SERVED[found.quantity], None):
                factors["cuda-graphs-off"] = max(slow / found.value, found.value / slow)
    return found, factors


RATES = ("tokens_per_s", "requests_per_s")


def _clients(case: RunCase) -> int:
    return int(case.number("running") or case.number("clients") or 0)


def _served(case: RunCase, changes: dict[str, Any]) -> Any:
    from gpuscale.answers.serve import Serve

    assert case.model is not None and case.gpu is not None
    tp, words = int(case.number("tp") or 0), case.said
    running = max(1, _clients(case))
    given: dict[str, Any] = {
        "gpu": case.gpu.name,
        "gpus": max(case.gpus or 1, tp),
        "concurrency": running,
        "requests": max(16, 3 * running),
        "engine": first_of(load_table("_words")["engines"], words) or "vllm",
        "tp": tp or None,
    }
    for name, said, short in (("input", "input_len", "in"), ("output_len",) * 2 + ("out",)):
        if (value := case.number(said) or case.number(short)) is not None:
            given[name] = str(int(value))
    if not {"input", "output_len"} & set(given) and case.number("running"):
        held = int((case.log_number("kv_used_tokens") or 0.0) / running)  # half answered requests
        given |= {"input": str(max(1, held // 2)), "output_len": str(held)} if held else {}
    if weights := re.search(r"\b(awq|gptq|q4_k_m|q8_0|q4_0|fp8|nvfp4)\b", words):
        given["weights"] = weights[1]
    if re.search(r"enforce[-_]eager(?! *= *false)", words) and not changes:
        given["eager"] = True
    return Serve(case.model_arg, **given, **changes).answer().result


# --- network -----------------------------------------------------------------------------------


def _collective(case: RunCase, _: Mapping[str, Cause]) -> Said:
    from gpuscale.answers.parts.asked import Collective

    n = case.gpus
    if case.cluster is None or n is None:
        return None, {}
    op = re.search(r"all.?reduce|all.?gather|reduce.?scatter|all.?to.?all|sendrecv", case.said)
    rows = [r for log in case.logs for r in log.tables.get("nccl_tests", ()) if "size" in r]
    usual = case.log_number("message_bytes") or 8e9
    size = max((float(r["size"].value) for r in rows), default=usual)
    word = (op[0] if op else "all-reduce").replace("_", "-").replace(" ", "-")
    asked = Collective(word, case.cluster.name, gpus=n, bytes=size, set=case.what_if)
    expected = asked.answer().result.expected
    if expected is None:
        return None, {}
    algbw = size / expected.time_s
    factor = 2 * (n - 1) / n if "reduce" in word and "scatter" not in word else (n - 1) / n
    values = {"busbw": algbw * factor, "algbw": algbw}
    by = f"gpuscale collective {word} {case.cluster.name} --gpus {n} --bytes {size:.3g}"
    by += "".join(f" --set '{change}'" for change in case.what_if)
    nics = case.nics[0] or case.cluster.nics_per_node or 1
    factors = {"single-nic": float(nics)} if nics > 1 and (case.nodes or 1) > 1 else {}
    return _compared(case, values, _around(NETWORK_SPREAD), by), factors


def with_figure(case: RunCase) -> RunCase:
    """RunCase whose ranks are those that are listed, or that two bandwidths of an all-reduce mean.

    Bus over algorithm bandwidth is 2 (n-1)/n.
    """
    for log in case.logs if case.gpus is None else ():
        if ranks := [t for (_, _, name), t in log.tracks.items() if name == "ranks_listed"]:
            hosts = sum(name == "host" for name, _ in log.firsts)
            n = 1 + int(max(max(t.series.values) for t in ranks))
            return replace(case, gpus=n, nodes=case.nodes or hosts or None)
    for row in (r for log in case.logs for r in reversed(log.tables.get("nccl_tests", []))):
        if case.gpus is None and row.get("redop") and row["redop"].value == "sum":
            ratio = float(row["busbw"].value) / float(row["algbw"].value)
            if 1.0 <= ratio < 1.995:
                return replace(case, gpus=round(2 / (2 - ratio)))
    return case


OF_KIND = {
    "pretrain": (_as_launched, _training),
    "finetune": (_as_launched, _tuning),
    "rl": (_tuning,),
    "serving": (_serving,),
    "network": (_collective,),
}
