"""Reading what a serving question is given: lengths, limits, rates, pools, drafts, adapters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpuscale.answers.values import quantity
from gpuscale.core.formats import FORMATS, format_name, number_format
from gpuscale.core.records import dataclass
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.core.serving.capacity import LatencyLimit
    from gpuscale.core.serving.extras import Adapters
    from gpuscale.core.serving.records import Drafts
    from gpuscale.core.serving.traffic import Lengths

MOST_TOKENS = 1e8
MOST_RATE = 1e9
LENGTHS_HINT = "a number, lognormal:MEAN,SIGMA, exp:MEAN, uniform:LOW,HIGH or sharegpt"
PER = {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "day": 86400.0}
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "llamacpp": "llama.cpp"}
SHOWN = {"trtllm": "trtllm", "llamacpp": "llama.cpp"}


def lengths(value: Any, label: str) -> Lengths:
    """Read a length or its distribution.

    >>> lengths("2k", "--input"), lengths("uniform:100,200", "--input").mean
    (Lengths(kind='fixed', a=2048.0, b=0.0, values=()), 150.0)
    """
    from gpuscale.core.serving.traffic import CHAT, Lengths

    if isinstance(value, Lengths):
        return value
    kind, colon, rest = str(value).strip().partition(":")
    if kind.strip().lower() == "sharegpt" and not colon:
        return CHAT["output" in label]
    if not colon:
        return Lengths("fixed", _tokens(value, label))
    kind = kind.strip().lower().replace("-", "")
    parts = rest.split(",")
    wanted = {"fixed": 1, "lognormal": 2, "exp": 1, "exponential": 1, "uniform": 2}
    if kind not in wanted:
        raise unknown_name(f"distribution in {label}:", kind, wanted, LENGTHS_HINT)
    if len(parts) != wanted[kind]:
        raise GpuscaleError(f"{label}: {kind} takes {wanted[kind]} numbers", LENGTHS_HINT)
    a = _tokens(parts[0], label)
    if kind == "lognormal":
        return Lengths(kind, a, quantity(parts[1], "count", f"{label}: sigma", most=3.0, zero=True))
    if kind == "uniform":
        b = _tokens(parts[1], label)
        if b < a:
            raise GpuscaleError(f"{label}: write the smaller length first, uniform:{b:g},{a:g}")
        return Lengths(kind, a, b)
    return Lengths("exp" if kind.startswith("exp") else kind, a)


def _tokens(value: Any, label: str) -> float:
    return quantity(value, "positions", label, least=1.0, most=MOST_TOKENS)


def rate(value: Any, label: str) -> float:
    """Read a rate of requests: ``5/s``, ``300/min``, ``20k/h``; a bare number is per second.

    >>> rate("300/min", "--rate"), rate(5, "--rate"), rate("5rps", "--rate")
    (5.0, 5.0, 5.0)
    """
    bare = re.sub(r"(?i)\s*(req(uest)?s?|[rq]ps$)", "", str(value))  # 5 req/s, 5rps
    if re.search(r"(?i)req(uest)?s?\s*$", str(value)):
        raise GpuscaleError(f"{label}: requests in which time?", "as 5/s, 300/min or 20k/h")
    number, slash, unit = bare.partition("/")
    unit = unit.strip().lower()
    if unit not in PER or (slash and not unit):
        raise GpuscaleError(f"{label}: per {unit[:20]!r} is not known", "as 5/s, 300/min or 20k/h")
    return quantity(number, "count", label, least=1e-9, most=MOST_RATE * PER[unit]) / PER[unit]


def limit(value: Any, label: str) -> LatencyLimit:
    """Read a limit of a latency: ``p95:500ms``, ``mean:30ms``; a bare time is of p95.

    >>> limit("p99:1s", "--ttft"), limit("30ms", "--tpot")
    (LatencyLimit(statistic='p99', at_most_s=1.0), LatencyLimit(statistic='p95', at_most_s=0.03))
    """
    from gpuscale.core.serving.capacity import LatencyLimit
    from gpuscale.core.serving.percentiles import STATISTICS

    if isinstance(value, LatencyLimit):
        return value
    statistic, colon, time = str(value).partition(":")
    if not colon:
        statistic, time = "p95", str(value)
    statistic = {"median": "p50", "avg": "mean"}.get(statistic.strip().lower(), statistic.strip())
    if _bare(value, time):
        shown = str(time).strip()
        raise GpuscaleError(
            f"{label} {shown}: a latency needs its unit", f"{label} {shown}ms, or {label} {shown}s"
        )
    if statistic.lower() not in STATISTICS:
        known = ", ".join(STATISTICS)
        raise unknown_name(f"statistic in {label}:", statistic, STATISTICS, f"known: {known}")
    return LatencyLimit(statistic.lower(), quantity(time, "s", label, least=1e-6, most=1e6))


LONGEST_BARE_S = 20.0
"""Seconds above which a number of the library, which has no unit, is taken for milliseconds."""


def _bare(value: Any, time: str) -> bool:
    """Whether a latency is without a unit, and so may be meant in milliseconds."""
    if isinstance(value, (int, float)):
        return value > LONGEST_BARE_S
    return re.fullmatch(r"\s*[\d._]+\s*", time) is not None


def engines(value: Any, label: str) -> tuple[str, ...]:
    """Read engines: one, a list, or any; a version after the name stays.

    >>> engines("vllm, trt-llm", "--engine"), len(engines("any", "--engine"))
    (('vllm', 'trtllm'), 3)
    >>> engines("vllm==0.5.4", "--engine"), engines("SGLang v0.4", "--engine")
    (('vllm:0.5.4',), ('sglang:0.4',))
    >>> engines("vllm/vllm-openai:v0.12.0,lmsysorg/sglang:v0.5.6-cu129", "--engine")
    ('vllm:0.12.0', 'sglang:0.5.6')
    >>> engines("vllm:2025-12", "--engine"), engines("vllm:nightly", "--engine")
    (('vllm:2025-12',), ('vllm:nightly',))
    """
    from gpuscale.core.serving.layouts import TENSOR_ENGINES
    from gpuscale.io.serving import load_words

    words = load_words()
    own, known = words["engines"], words["engines"] | words["nearest"]
    given = value.split(",") if isinstance(value, str) else list(value)
    found: list[str] = []
    for text in given:
        name, version = _versioned(str(text).strip().lower(), words)
        if name == "any":
            found += TENSOR_ENGINES
            continue
        if name not in known:
            names = ", ".join((*dict.fromkeys(own.values()), "any"))
            raise unknown_name("engine", name, known, f"known: {names}")
        mine = known[name] if name in own else name
        found.append(mine + (f":{version}" if version and name in own else ""))
    return tuple(dict.fromkeys(found))


_VERSION = r"20\d\d-\d\d(?:-\d\d)?|nightly|v?\d+(?:\.\d+)+(?:rc\d+)?(?:\.post\d+)?"


def _versioned(text: str, words: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    """Name of an engine and the version, day or tag behind it: ``vllm 0.5.4``, ``vllm:2025-12``."""
    image, _, tag = text.rpartition(":")
    if "/" in image:
        name, found = image.split("/")[-1], re.match(_VERSION, tag)
        return words["images"].get(name, name), found[0].removeprefix("v") if found else ""
    found = re.fullmatch(rf"(.*?[a-z])[\s:=@-]*({_VERSION})[\w.+-]*", text)
    if found is None or text in words["engines"]:
        return text.removesuffix(":latest"), ""
    return found[1].strip(), found[2].removeprefix("v")


PLAIN = {
    **{f"{n}bit": (f"{n}.5bpw",) * 2 for n in (2, 3, 5, 6)},
    "4bit": ("int4-g128", "4.5bpw"),
    "8bit": ("int8", "8.5bpw"),
}
"""Bits alone -> what servers load (AWQ, GPTQ; W8A8), what MLX and MLC store (groups with a scale
and an offset of 16 bits: mlx-lm `quantize`, group of 64)."""


def stored(name: str, engine: str) -> str:
    """Format that bits alone mean to an engine.

    >>> stored("4bit", "vllm"), stored("6bit", "llamacpp"), stored("fp8", "vllm")
    ('int4-g128', '6.5bpw', 'fp8')
    """
    return PLAIN[name][engine == "llamacpp"] if name in PLAIN else name


def own_format(published: str, engines: tuple[str, ...]) -> str:
    """Format that nobody names; `llama-server -hf` (common/arg.cpp) and ollama take Q4_K_M."""
    gguf = any(e.startswith("llamacpp") for e in engines)
    return "q4_k_m" if gguf and published in ("bf16", "fp16") else published


def formats(value: Any, label: str) -> tuple[str, ...]:
    """Read number formats: one or a list; ``2.5bpw`` is a free number of bits a weight.

    ``4bit`` and its like are left as they are: what they mean depends on the engine (`stored`).
    """
    given = value.split(",") if isinstance(value, str) else list(value)
    found = []
    for text in given:
        name = re.sub(r"^ud-|_xl$", "", str(text).strip().lower())
        if (bits := name.replace("-", "")) in PLAIN:
            found.append(bits)
            continue
        try:
            found.append(number_format(format_name(name)).name)
        except ValueError:
            hint = f"known: {', '.join(FORMATS)}, or bits such as 2.5bpw"
            raise unknown_name(f"{label} format", name, FORMATS, hint) from None
    return tuple(dict.fromkeys(found))


def weight_format(name: str | None, label: str, default: str = "bf16") -> str:
    """Format of served weights or of a cache, by one of its names."""
    (found,) = formats([name or default], label)
    return found


@dataclass(frozen=True, slots=True)
class Draft:
    """Speculative decoding as typed: who drafts, and how many tokens."""

    kind: str  # mtp, eagle, ngram, model
    n_tokens: int


def draft(value: Any, label: str) -> Draft:
    """Read ``mtp:3``.

    >>> draft("mtp:3", "--draft")
    Draft(kind='mtp', n_tokens=3)
    """
    if isinstance(value, Draft):
        return value
    kind, colon, count = str(value).strip().lower().partition(":")
    kinds = ("mtp", "eagle", "eagle3", "medusa", "ngram")
    if kind not in kinds:
        raise unknown_name(f"{label}:", kind, kinds, f"as mtp:3; known: {', '.join(kinds)}")
    n = quantity(count, "count", f"{label}: tokens", least=1, most=64) if colon else 1.0
    return Draft(kind, int(n))


def acceptance(value: Any, label: str) -> tuple[float, ...]:
    """Read probabilities by position, ``0.8,0.6,0.4``, or the mean tokens of a pass, ``2.7``.

    >>> acceptance("0.8,60%", "--accept"), acceptance(2.7, "--accept")
    ((0.8, 0.6), (2.7,))
    """
    given = value.split(",") if isinstance(value, str) else value
    given = [given] if isinstance(given, (int, float)) else given
    found = []
    for part in given:
        text = str(part).strip()
        share = text.removesuffix("%")
        most = 100.0 if text != share else 65.0 if len(given) == 1 else 1.0
        one = quantity(share, "count", label, most=most, zero=True)
        found.append(one / 100.0 if text != share else one)
    return tuple(found)


def drafts(what: Draft | None, accepted: tuple[float, ...]) -> Drafts | None:
    """Put drafts and their acceptance together."""
    from gpuscale.core.serving.records import Drafts, drafts_of_mean

    if what is None:
        if accepted:
            raise GpuscaleError("--accept needs --draft", "as --draft mtp:3 --accept 0.8,0.6,0.4")
        return None
    if not accepted:
        raise GpuscaleError(
            "--draft needs --accept: how likely each draft is kept",
            f"as --draft {what.kind}:{what.n_tokens} --accept 0.8,0.6; or the mean tokens of a "
            "pass, 2.7, that serving logs print",
        )
    if accepted[0] <= 1.0:
        return Drafts(what.n_tokens, accepted)
    if accepted[0] > what.n_tokens + 1.0:
        raise GpuscaleError(
            f"--accept {accepted[0]:g}: a pass with {what.n_tokens} drafts makes at most "
            f"{what.n_tokens + 1} tokens",
            "mean tokens of a pass, or probabilities by position, 0.8,0.6",
        )
    return drafts_of_mean(what.n_tokens, accepted[0] - 1.0)


def adapters(value: Any, label: str) -> Adapters:
    """Read ``rank=16,n=8``.

    >>> adapters("rank=16,n=8", "--lora")
    Adapters(rank=16, n=8)
    """
    from gpuscale.core.serving.extras import Adapters

    if isinstance(value, Adapters):
        return value
    found = {"rank": 16.0, "n": 1.0}
    for part in str(value).split(","):
        name, equals, number = map(str.strip, part.partition("="))
        if name not in found or not equals:
            raise GpuscaleError(f"{label}: {part.strip()[:40]!r} is not known", "as rank=16,n=8")
        found[name] = quantity(number, "count", f"{label}: {name}", least=1, most=1e5)
    return Adapters(int(found["rank"]), int(found["n"]))


@dataclass(frozen=True, slots=True)
class PoolText:
    """One pool by hand: workers of a layout."""

    workers: int
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1


_PART = re.compile(r"(tp|pp|dep|dpa|dp|ep)(\d{1,5})")


def pools(value: Any, label: str) -> tuple[PoolText, PoolText]:
    """Read a prefill and a decode pool: ``4xTP2+1xDEP16``.

    ``TP2`` splits every layer; ``DEP16`` is data-parallel attention with experts over 16 GPUs;
    ``PP2`` adds stages; parts are joined by ``-``.

    >>> pools("4xTP2+1xDEP16", "--disagg")[1]
    PoolText(workers=1, tp=1, pp=1, dp=16, ep=16)
    """
    sides = str(value).lower().replace(" ", "").split("+")
    if len(sides) != 2:
        raise GpuscaleError(
            f"{label}: a prefill and a decode pool are wanted", "as --disagg 4xTP2+1xDEP16"
        )
    return _pool(sides[0], label), _pool(sides[1], label)


def _pool(text: str, label: str) -> PoolText:
    match = re.fullmatch(r"(?:(\d{1,6})x)?((?:[a-z]+\d+-?)+)", text)
    parts = _PART.findall(match[2]) if match else []
    if match is None or not parts or "-".join(a + b for a, b in parts) != match[2].strip("-"):
        raise GpuscaleError(f"{label}: {text[:40]!r} is not a pool", "as 4xTP2, 1xDEP16, 2xTP8-PP2")
    found = {"tp": 1, "pp": 1, "dp": 1, "ep": 1}
    for name, number in parts:
        n = int(number)
        if n < 1:
            raise GpuscaleError(f"{label}: {name}{n} must be at least 1")
        if name == "dep":
            found |= {"dp": n, "ep": n}
        else:
            found["dp" if name == "dpa" else name] = n
    return PoolText(int(match[1] or 1), **found)
