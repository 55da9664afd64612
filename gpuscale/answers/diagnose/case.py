"""One run to be judged: what is said of it, and what its logs say."""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gpuscale.answers.diagnose.figures import Figure, quantity_name, read_figures
from gpuscale.core.diagnosis.series import Log
from gpuscale.core.finetune.rl import ROLLED_OUT
from gpuscale.core.model.params import count_params
from gpuscale.core.records import dataclass, field
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.log_patterns import load_patterns
from gpuscale.io.run import load_table, told
from gpuscale.io.text import shown_name

if TYPE_CHECKING:
    from gpuscale.answers.diagnose import Diagnose
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec
    from gpuscale.specs.model import ModelSpec

MOST_LOGS = 64


@dataclass
class RunCase:
    """What is known of a run."""

    kind: str
    figures: tuple[Figure, ...]
    settings: dict[str, str]
    said: str
    software: str
    model_name: str
    gpu_name: str
    logs: list[Log] = field(default_factory=list)
    model: ModelSpec | None = None
    cluster: ClusterSpec | None = None
    gpu: GpuSpec | None = None
    gpus: int | None = None
    nodes: int | None = None
    place: str = ""  # the machines, in words

    def number(self, name: str) -> float | None:
        """Return a setting as a number."""
        text = self.settings.get(name)
        hit = re.match(r"\s*(\d[\d,_]*\.?\d*)\s*([kK]?)", text) if text else None
        if hit is None:
            return None
        return float(hit[1].replace(",", "").replace("_", "")) * (1024 if hit[2] else 1)

    def log_number(self, name: str) -> float | None:
        """Steady value of a name in the logs."""
        found = (log.number(name) for log in self.logs)
        return next((v for v in found if v is not None), None)

    def log_text(self, name: str) -> str | None:
        """Text of a name in the logs."""
        return next((t for log in self.logs if (t := log.text(name)) is not None), None)

    @property
    def nics(self) -> tuple[float, float]:
        """NICs of a node, and byte/s of each, as the words for the machines say; 0 where not."""
        if (hit := told("wires", self.place)) is None:
            return 0.0, 0.0
        alone = 1 if float(hit[2]) <= LONE else 0
        count = SPELLED.get(hit[1]) or int(hit[1]) if hit[1] else alone
        return count, float(hit[2]) * 1e9 / 8

    @property
    def what_if(self) -> list[str]:
        """What the words for the machines change in the cluster that is taken: for --set."""
        count, rate = self.nics
        if not (count and rate):
            return []
        egress = f"cluster.node_egress_bytes_per_s={count * rate / 1e9:g} GB/s"
        return [egress, f"cluster.nics_per_node={count:g}"]

    @property
    def model_arg(self) -> str:
        """Model as commands take it: the file that was given, or a preset's name."""
        own = os.path.exists(self.model_name)
        return (self.model_name if own else self.model.name) if self.model else ""

    @property
    def params(self) -> float:
        """Parameters of the model, or those that its name says; 0 where neither is known."""
        if self.model is None:
            return max(named_params(self.model_name), default=0.0)
        return count_params(self.model).total_params

    @property
    def symptoms(self) -> frozenset[str]:
        """Classes of what looks wrong."""
        found = {f.quantity.symptom for f in self.figures if f.quantity.symptom}
        if self.log_text("oom") or self.log_text("start_refused"):
            found.add("memory")
        if self.kind == "network" and not found:
            found.add("network")
        return frozenset(found or {"speed"})

    @property
    def main(self) -> Figure | None:
        """Figure that the complaint is of."""
        off = [f for f in self.figures if f.ratio is not None and f.quantity.symptom]
        if off:  # of several the least: a rate is off by what is wrong, a queue by much more
            worse = [f for f in off if (f.ratio or 0.0) > 1.05]
            return min(worse or off, key=lambda f: f.ratio or 0.0)
        return next((f for f in self.figures if f.value is not None), None)


def read_case(asked: Diagnose) -> RunCase:
    """Read the logs and what is said.

    Raises GpuscaleError for a file that cannot be read, a quantity that is not known, or where
    nothing at all is given.
    """
    _check_words(asked)
    logs, names = _logs(asked)
    for word in filter(None, (asked.model, asked.gpu, asked.cluster, *names)):
        if re.fullmatch(r"[-+]?(nan|inf|infinity)", word, re.IGNORECASE):
            raise GpuscaleError(f"{word}: is no name")
        if word not in names and re.search(FILE_NAME, word) and not os.path.isfile(word):
            raise GpuscaleError(f"{word[:200]}: no such file", "a name, or a file that is there")
    figures = read_figures(asked.measured, asked.expected)
    settings = _settings(asked, logs)
    model_name = asked.model or (names[0] if names else "") or _of_logs(logs, "model")
    software = asked.software or _program(logs)
    if not (logs or figures or settings or model_name):
        raise GpuscaleError(
            "nothing to judge: give a log, or say what was measured",
            "gpuscale diagnose train.log, or gpuscale diagnose llama3-8b --gpu h100 --gpus 32 "
            "--measured 'tokens/s/gpu=3100'",
        )
    gpu_name = asked.gpu or _of_logs(logs, "gpu") or settings.get("gpu", "")
    texts = [software, asked.version, model_name, gpu_name, asked.cluster]
    texts += [f"{f.name} {f.text} {f.expected_text}" for f in figures]
    texts += [*asked.settings, *(asked.method and [asked.method] or [])]
    texts += [f.printed for log in logs for (n, _), f in log.firsts.items() if n in ("env",)]
    case = RunCase(
        _kind(asked, logs, figures, software, settings),
        figures=figures or _own_figures(logs),
        settings=settings,
        said="; ".join(t for t in texts if t).lower(),
        software=f"{software} {asked.version or ''}".strip().lower(),
        model_name=model_name,
        gpu_name=gpu_name,
        logs=logs,
        place=(asked.cluster or "").lower(),
    )
    _known(case, asked)
    return case


def _check_words(asked: Diagnose) -> None:
    """Refuse a word of a layout that no framework has."""
    from gpuscale.core.plan.pins import NAMES, SWITCHES

    known = {**NAMES, **dict.fromkeys(SWITCHES, ("on", "off")), "zero": ("0", "1", "2", "3")}
    for name, value in asked.pinned.items():
        words = known.get(name, (str(value),))
        if str(value) not in words:
            option = f"value of --{name.replace('_', '-')}"
            raise unknown_name(option, str(value), words, f"known: {', '.join(words)}")


FILE_NAME = r"\.(log|txt|out|err|jsonl?|toml|ya?ml|csv|gz|md|html?)$|^\.{0,2}/"


def _logs(asked: Diagnose) -> tuple[list[Log], list[str]]:
    """Read what is a file as a log: (logs, other words)."""
    files, names = [*asked.log, *asked.nccl], list[str]()
    for word in asked.run:
        there = word == "-" or os.path.exists(word) and not (os.path.isdir(word) or _is_model(word))
        if not there and ("/" in word or os.path.isdir(word) or re.search(FILE_NAME, word)):
            _model(word)
        (files if there else names).append(word)
    if len(files) > MOST_LOGS:
        raise GpuscaleError(f"{len(files)} logs, more than {MOST_LOGS}")
    return [_log(name) for name in dict.fromkeys(files)], names


def _is_model(name: str) -> bool:
    """Whether a JSON file describes a model, not a run."""
    with suppress(GpuscaleError):
        return name.endswith(".json") and bool(_model(name))
    return False


def _model(name: str) -> ModelSpec:
    from gpuscale.io.models import load_model

    try:
        return load_model(name).spec
    except GpuscaleError:
        why = "a folder, not a log" if os.path.isdir(name) else "no such file"
        raise GpuscaleError(f"{name[:200]}: {why}", "give a log, or the model's name") from None


DOCUMENT = r"(?i)\.(md|markdown|rst|adoc|tex|html?)$"
LARGE_BYTES, MOST_TIMES = 2e8, 16
"""A packed log that unpacks to more than so many bytes, and times its usual size, is none."""


def _log(name: str) -> Log:
    from gpuscale.answers.progress import Progress
    from gpuscale.io.log_reader import read_log

    progress = Progress()
    try:
        with _opened(name) as (stream, size):

            def seen(done: int) -> None:
                if name.endswith(".gz") and done > max(LARGE_BYTES, MOST_TIMES * size):
                    why = f"unpacks to more than {done / 1e6:,.0f} MB, as no log does"
                    raise GpuscaleError(f"{name[:200]}: {why}")
                progress(done / max(size, 1))

            log = read_log(stream, shown_name(name), seen)
    except OSError as error:
        raise GpuscaleError(f"{name[:200]}: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise GpuscaleError(f"{name[:200]}: the packed log is cut or damaged") from None
    finally:
        progress.clear()
    if log.bytes_ <= log.lines:
        raise GpuscaleError(f"{shown_name(name)}: is empty")
    own = load_table("_known")["own"].split()
    printed = log.texts or any(k[2] in own and t.series.n > 1 for k, t in log.tracks.items())
    if re.search(DOCUMENT, name) and not printed:
        why = f"{shown_name(name)}: a document, with no line that a run printed"
        raise GpuscaleError(why, "give the log, or say what was measured with --measured")
    return log


@contextmanager
def _opened(name: str) -> Iterator[tuple[IO[bytes], int]]:
    """Open a log as bytes, with its size: unpacked where it is gzip."""
    if name == "-":
        yield sys.stdin.buffer, 1 << 60
    elif name.endswith(".gz"):
        import gzip

        with gzip.open(name) as packed:
            yield packed, 12 * Path(name).stat().st_size  # type: ignore[misc]
    else:
        if Path(name).is_char_device():
            raise GpuscaleError(f"{name[:200]}: is a device, not a log")
        with open(name, "rb") as stream:
            yield stream, Path(name).stat().st_size or 1 << 60  # a pipe says no size


def _settings(asked: Diagnose, logs: list[Log]) -> dict[str, str]:
    """Gather the settings of a run: what logs say under what a person says."""
    ours = load_table("_words")["settings"]
    names = {theirs: name for name, words in ours.items() for theirs in words.split()}
    found: dict[str, str] = {}
    for log in logs:
        found |= {names.get(key, key): value for key, value in log.arguments.items()}
        for name in load_table("_known")["logged"].split():
            if (number := log.number(name)) is not None:
                found[names.get(name, name)] = f"{number:.12g}"
        for (_, name), fact in log.texts.items():
            found.setdefault(name, str(fact.value))
    for text in asked.settings:
        found |= {names.get(key, key): value for key, value in _said_settings(text)}
    options = "seq_len global_batch precision method gpus attention loss optimizer".split()
    for name in (*options, *asked.pinned):
        if (given := getattr(asked, name, None)) is not None:
            found[name] = str(given)
    return found


def _said_settings(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"[;\n]|,\s(?=\w+\s*=)", text[:20_000]):
        key, equals, value = part.partition("=")
        if equals and " --" not in part:
            yield key.strip().lstrip("-").lower().replace("-", "_").replace(" ", "_"), value.strip()
            continue
        for hit in re.finditer(r"--([a-zA-Z][\w-]*)(?:[= ]([^\s-]\S*))?", part):
            yield hit[1].lower().replace("-", "_"), hit[2] or "true"


def _of_logs(logs: list[Log], name: str) -> str:
    return next((t for log in logs if (t := log.text(name))), "")


def _program(logs: list[Log]) -> str:
    """Program that most lines of the logs are of."""
    counts: Counter[str] = Counter()
    for log in logs:
        counts.update(log.programs)
    ranked = [name for name, _ in counts.most_common()]
    software = load_patterns().software if ranked else {}
    return next((s for name in ranked if (s := software.get(name, ""))), "".join(ranked[:1]))


def _kind(
    asked: Diagnose,
    logs: list[Log],
    figures: tuple[Figure, ...],
    software: str,
    settings: dict[str, str],
) -> str:
    """Kind of the run: as asked, as the programs of its logs, or as its figures and words say."""
    if asked.kind:
        return asked.kind
    if asked.method:
        return "rl" if asked.method.lower() in ROLLED_OUT else "finetune"
    names = {f.name for f in figures}
    words = f"{software} {' '.join(asked.settings)}"
    trained = set(load_table("_known")["trained"].split())
    kinds = {load_patterns().kinds.get(p, "") for log in logs for p in log.programs}
    said = (
        ("rl", "rl" in kinds),
        ("serving", "serving" in kinds),
        ("finetune" if told("tuners", software) else "pretrain", "training" in kinds),
        ("network", "network" in kinds or names & {"busbw", "algbw"} or told("network", software)),
        ("serving", told("serving", words) or names & {"ttft", "tpot", "itl"}),
        ("rl", told("rl", words)),
        ("finetune", told("tuners", words)),
        ("pretrain", software or trained & (names | settings.keys())),
    )
    return next((kind for kind, so in said if so), "")


def _own_figures(logs: list[Log]) -> tuple[Figure, ...]:
    found: dict[str, Figure] = {}
    for log in logs:
        for name in load_table("_known")["own"].split():
            track = log.track(name)
            known = quantity_name(name)
            if track is None or known is None or known in found:
                continue
            value = track.series.steady().median
            found[known] = Figure(known, f"{value:.6g} {track.unit}".strip(), value, track.unit)
        if large := [r for r in log.tables.get("nccl_tests", []) if "busbw" in r]:
            row = max(large, key=lambda r: float(r["size"].value))
            value = float(row["busbw"].value)
            found["busbw"] = Figure("busbw", row["busbw"].printed, value, "byte/s")
        if log.fact("oom") or log.fact("start_refused"):
            found["oom"] = Figure("oom", "out of memory", None, "")
    return tuple(found.values())


SPELLED = {"one": 1, "two": 2, "three": 3, "four": 4, "eight": 8, "single": 1}
LONE = 100
"""Gb/s up to which a network without a number of NICs has one of them in a node."""


def _known(case: RunCase, asked: Diagnose) -> None:
    """Find the presets that are meant, where there are such."""
    from gpuscale.io.hardware import load_cluster, load_gpu

    plain_name = re.sub(r"\s*\((?:VLM|text|bf16|fp16)\)", "", case.model_name).strip()
    with suppress(GpuscaleError):
        case.model = _model(plain_name) if plain_name else None
    where = asked.cluster or case.log_text("machine") or ""
    plain = re.search(r"\bpcie\b(?! switch)|(?:no|without) nvlink", case.place)
    for name in (where, f"{case.gpu_name} PCIe" if plain else "", case.gpu_name):
        if name and case.cluster is None:
            with suppress(GpuscaleError):
                case.cluster = load_cluster(name)
    with suppress(GpuscaleError):
        case.gpu = load_gpu(case.gpu_name) if case.gpu_name else None
    if case.gpu is None and case.cluster is not None:
        case.gpu = case.cluster.gpu
    if asked.gpus and not re.search(r"\d|one|two|four|eight|single", asked.gpus):
        raise GpuscaleError(f"--gpus {asked.gpus[:100]}: no number", "--gpus 8")
    for text in (asked.gpus, case.settings.get("gpus")):
        if case.gpus is None and text and (hit := re.search(r"\d[\d,]*", text)):
            case.gpus = int(hit[0].replace(",", "")[:9]) or None
    words = case.place
    if named := told("machines", words):
        case.nodes = SPELLED.get(named[1]) or int(named[1][:6])
    elif (nodes := case.number("nodes")) is not None:
        case.nodes = int(nodes)
    elif case.gpus is not None and case.cluster is not None:
        each = case.cluster.scaleup_domain_gpus if case.cluster.kind != "node" else 8
        case.nodes = -(-case.gpus // max(1, each))
    elif re.search(r"\bn nodes|\bnodes of \d+|\d+ switch levels", words):
        case.nodes = 2


def named_params(name: str) -> list[float]:
    """Parameters that a model's name says: ``GPT 1.35B``."""
    found = re.findall(r"(?<![\w.])(\d+(?:\.\d+)?) ?([bm])\b", name.lower().replace("-", " "))
    return [float(n) * (1e9 if unit == "b" else 1e6) for n, unit in found]
