"""Commands that start a serving engine, whichever: what they say, in `serve`'s words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from gpuscale.launch import named
from gpuscale.launch.found import UNSET, Found, known_options, launch_table, main_of, named_model

_WORDS = launch_table("words")["serving"]
WRAPPERS = tuple(_WORDS["wrappers"])
REDIRECTION = re.compile(r"(\d|&)?(>>?|<)(&\d|.*)$|\|\|?$|&$")
A_VALUE = re.compile(rf"(?!{REDIRECTION.pattern})(?:(?!-)|-[\d.]+$)")  # a number may be negative


def engine_of(words: list[str]) -> str | None:
    """Engine that a command starts.

    >>> engine_of(["nohup", "vllm", "serve", "a/b"]), engine_of(["pkill", "-f", "vllm serve"])
    ('vllm', None)
    """
    at = _start(words)
    return at[0] if at else None


LONGEST = 300
"""Characters of a program's path."""


def _start(words: list[str]) -> tuple[str, int] | None:
    """Engine, and the place of the last word that starts it."""
    for i, word in enumerate(words):
        if len(word) > LONGEST:
            continue
        pair = (word.rsplit("/", 1)[-1], words[i + 1] if i + 1 < len(words) else "")
        name = named.PAIRS.get(pair) or _named(word, words)
        if name and _runs(words, i):
            return name, i + (pair in named.PAIRS)
    return None


def _named(word: str, words: list[str]) -> str | None:
    """Engine whose program a word is."""
    base = word.rsplit("/", 1)[-1]
    module = word.removesuffix(".py").replace("/", ".")
    module = module[module.find("vllm.entrypoints") :] if "vllm.entrypoints" in module else module
    if base.endswith(".py") and base in ("quantize.py", "convert_checkpoint.py"):
        converts = any(w.replace("-", "_").startswith("__model_dir") for w in words)
        return "trtllm" if converts else None
    for name, programs in PROGRAMS.items():
        if programs.fullmatch(base) or programs.fullmatch(module):
            return name
    if UNSET in word and re.search(r"(?i)llama_?(cpp_?)?server", word):
        return "llamacpp"  # a variable that is called so
    if not re.fullmatch(r"(main|server|koboldcpp)(\.exe|\.py)?", base) and UNSET not in word:
        return None
    pairs = zip(words[:99], words[1:100], strict=False)
    return "llamacpp" if any(b.endswith(".gguf") for a, b in pairs if a in MODELS) else None


PROGRAMS = {name: re.compile(one.programs) for name, one in named.ENGINES.items() if one.programs}
MODELS = ("-m", "--model")


def _runs(words: list[str], i: int) -> bool:
    """Whether the word at a place is a command, and no argument of one."""
    first = words[0].rsplit("/", 1)[-1]
    if "which" in words[:i] or any(w.rsplit("/", 1)[-1] in STOPPERS for w in words[: min(i, 4)]):
        return False
    if i == 0 or words[i - 1] == "-m" or first in WRAPPERS or first.startswith("python"):
        return True
    pair = (words[i].rsplit("/", 1)[-1], words[i + 1] if i + 1 < len(words) else "")
    return "=" in first or pair in named.PAIRS


STOPPERS = tuple(_WORDS["stoppers"])


PLACEHOLDER = re.compile(r"(__\w+__|<.*>|\{\{.*\}\}|\[.*\]|your[ _-].*|\.\.\.)$", re.I)
"""A value that a person, or another program, puts in before the command runs."""


class _Line:
    """Options of a command by field, what cannot be read noted on a record."""

    def __init__(self, found: Found, given: dict[str, tuple[str, str]]) -> None:
        self.found, self.given = found, given

    def text(self, field: str) -> str | None:
        """Value as text; None where it is missing or holds an unset variable."""
        if field not in self.given:
            return None
        option, value = self.given[field]
        if UNSET in value or PLACEHOLDER.match(value):
            self.found.unread[field] = value.replace(UNSET, "")
            return None
        self.found.places[field] = f"{option} {value}"
        return value

    def _made(self, field: str, make: Callable[[str], float], kind: str, *unsaid: str) -> Any:
        """Value as a number; None where a word of `unsaid` stands; another text is wrong."""
        text = self.text(field)
        if not text or text in unsaid:
            return None
        try:
            return make(text)
        except ValueError:
            self.found.wrong.append(f"{self.given[field][0]} {text[:40]}: not a {kind}")
            return None

    def whole(self, field: str) -> int | None:
        """Value as a whole number; one below 1 is unsaid."""
        number: int | None = self._made(field, int, "whole number", "auto", "all", "null")
        return number if number and number > 0 else None

    def length(self, field: str) -> int | None:
        """Tokens: a number, or `32k` (1,000) and `32K` (1,024) as vLLM reads them."""
        number: int | None = self._made(field, _tokens, "length", "auto", "-1", "0")
        return number

    def share(self, field: str) -> float | None:
        """Share of the memory, above 0 and at most 1."""
        number: float | None = self._made(field, float, "number")
        if number is not None and not 0 < number <= 1:
            said = " ".join(self.given[field])
            self.found.wrong.append(f"{said}: must be above 0 and at most 1")
        return number


def _tokens(text: str) -> int:
    scale = {"k": 1000, "K": 1024, "m": 10**6, "M": 1024**2}.get(text[-1:], 1)
    return round(float(text[:-1] if scale > 1 else text) * scale)


def read(words: list[str], name: str) -> Found:
    """Read a command of an engine; context length is `seq_len`, concurrent sequences `max_seqs`."""
    found = Found(name, software=name, method="serve")
    engine = named.ENGINES[name]
    known = known_options("vllm").arity if name == "vllm" else None
    found.version = known_options("vllm").version if known else name
    at = _start(words)
    start = at[1] if at else 0
    given, positional = _options(words[start + 1 :], engine, known, found)
    line = _Line(found, given)
    _model(line, positional)
    _limits(line, name)
    _extras(line)
    if "config" in given and (file := line.text("config")):
        found.beside = [file]
    if name == "trtllm" and words[start].endswith((".py", "trtllm-build")):
        found.kind = "trtllm" if words[start].endswith("trtllm-build") else "trtllm-checkpoint"
    return found


def _options(
    words: list[str], engine: named.Engine, known: dict[str, str] | None, found: Found
) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Options by field, and the words that are no option's."""
    given: dict[str, tuple[str, str]] = {}
    positional: list[str] = []
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if REDIRECTION.match(word):
            break
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        if name.startswith("--") and "llama" not in engine.title:
            name = name.replace("_", "-")
        if known and name.startswith("--"):
            name = _prefixed(name, known, engine)
        table = {**engine.options, **engine.flags}
        if (
            known
            and name.partition(".")[0] not in (*known, *table)
            and not name.startswith(named.SERVER)
        ):
            found.not_understood.append(name)
        flag = name in engine.flags or (known is not None and known.get(name) == "0")
        if not equals and not flag and i < len(words) and A_VALUE.match(words[i]):
            value = words[i]
            i += 1
        if name in table:
            given[table[name]] = (name, value)
    return given, positional


def _prefixed(name: str, known: dict[str, str], engine: named.Engine) -> str:
    """Option that a beginning means: argparse takes one."""
    if name in known or name in engine.options:
        return name
    longer = [option for option in known if option.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def _model(line: _Line, positional: list[str]) -> None:
    """Put the model's name on the record."""
    found = line.found
    named = next((p for p in positional if not p.endswith((".py", "serve", "api_server"))), "")
    option = next((o for o in ("model", "file", "hub") if o in line.given), "")
    text = line.given[option][1] if option else named
    if option == "file" and "hub" in line.given:  # the file of a repository names the format
        text = text if re.search(r"q\d|f16", text, re.I) else line.given["hub"][1]
    text = named_model(text.strip())
    if text.endswith(".gguf") and "/" in text:
        text = text.rpartition("/")[2]
    if not text and "checkpoint" in line.given:  # of an engine that is built: converted before
        found.unread["model"] = line.given["checkpoint"][1].replace(UNSET, "")
    if UNSET in text or PLACEHOLDER.match(text):
        found.unread["model"] = text.replace(UNSET, "")
    elif text:
        found.model_name = re.sub(r"(-0+1-of-\d+)?\.gguf$", "", text, flags=re.I)
        found.places["model"] = text
    if any(p.replace(UNSET, "") in ("$@", "$*", "${@}") for p in (text, *positional)):
        found.unread.setdefault("tp", "$@")  # what the script is given may say more


def _limits(line: _Line, engine: str) -> None:
    """Degrees, context, memory and formats."""
    found = line.found
    found.tp = line.whole("tp") or 1
    found.pp = line.whole("pp") or 1
    found.dp = line.whole("dp") or 1
    found.ep = line.whole("ep")
    if "whole_experts" in line.given:
        found.ep = found.tp * (found.dp if engine == "vllm" else 1)
    if "attention" in line.given and found.dp > 1:  # divides the tensor ranks
        if found.tp % found.dp:
            found.wrong.append(f"tp {found.tp} is no multiple of the attention's dp {found.dp}")
        found.serves["attention"] = True
        words = " ".join(w for n in ("deepep", "whole_experts") for w in line.given.get(n, ()))
        if engine == "sglang" and not re.search(r"enable-deepep|backend (?!none\b)", words):
            found.serves["no_deepep"] = True
    if engine in ("vllm", "sglang") and found.dp > 1 and "two_batches" not in line.given:
        found.serves["no_two_batches"] = True
    if line.given.get("seq_len", ("", ""))[1] == "0":
        found.serves["own_context"] = True
    found.seq_len = line.length("seq_len")
    found.max_seqs = line.whole("max_seqs")
    found.memory_utilization = line.share("memory_utilization")
    if word := line.text("weights"):
        found.weights = named.weights_of(word, engine)
    if line.text("dtype") in ("float32", "float", "fp32"):
        found.weights = found.weights or "fp32"
    if word := line.text("kv"):
        found.kv = named.cache_of(word)
        if re.match(r"q[45]|iq4|int4|4$|nvfp4", word.lower()):
            found.notes.append(f"the cache in {word} is counted with 8 bits")
    if (device := line.text("device")) and engine != "llamacpp":
        found.other_machine = named.DEVICES.get(device)


def _extras(line: _Line) -> None:
    """Put passes, adapters, drafts and pools on the record, and what the host keeps."""
    found, serves = line.found, line.found.serves
    serves |= {name: n for name in ("chunk", "poll") if (n := line.whole(name))}
    if "eager" in line.given and line.given["eager"][1].lower() != "false":
        serves["eager"] = True
    if "lora" in line.given:
        n, rank = line.whole("adapters") or 1, line.whole("adapter_rank") or 16
        serves["lora"] = f"rank={rank},n={n}"
    if "draft" in line.given:
        found.notes.append(
            "how many drafts are kept is not said: speculation is left out of the speed "
            "(`serve --draft --accept` counts it)"
        )
    role = line.text("role") or ""
    transfer = line.text("transfer") or ""
    named = {"kv_producer": "prefill", "kv_consumer": "decode"}
    found.role = next((r for r in ("prefill", "decode") if r in line.given or r in role), "")
    try:
        found.role = found.role or named.get(json.loads(transfer).get("kv_role", ""), "")
    except (ValueError, AttributeError):
        pass
    _on_host(line)


def _on_host(line: _Line) -> None:
    """GPUs, and layers or experts on the host, as llama.cpp counts them."""
    found, serves = line.found, line.found.serves
    if (line.text("host_gb") or "0").strip("0.") != "":
        found.beyond.append("--cpu-offload-gb: weights that stay on the host are not predicted")
    layers = line.text("ngl")
    if layers and layers.isdigit():
        serves["ngl"] = int(layers)
    if (experts := line.whole("n_cpu_moe")) is not None:
        serves["n_cpu_moe"] = experts
    if "cpu_moe" in line.given or re.search(r"exps.*=\s*CPU", line.text("override") or ""):
        serves["n_cpu_moe"] = 10_000  # all of them
    parts = re.split(r"[,/;]", line.text("split") or line.text("devices") or "")
    used = [p for p in parts if p.strip() not in ("", "0", "none")]
    if len(used) > 1 and line.text("split_mode") != "none":
        found.pp = len(used)


def put_size(found: Found) -> None:
    """Put the GPUs that a server's degrees make on the record, and what is left unread."""
    if found.model_name:  # it is answered without its file of options
        shown = "the options of {} are not read: give it beside this file"
        found.notes += [shown.format(file[:60]) for file in found.beside]
        found.beside = []
    if found.n_gpus is None and not {"tp", "pp", "dp", "n_gpus"} & set(found.unread):
        found.n_gpus = ranks(found)


def ranks(found: Found) -> int:
    """GPUs of one copy of a server's engines: data-parallel attention is on the tensor ranks."""
    attention = "attention" in found.serves
    return found.tp * found.pp * (1 if attention else found.dp or 1)


def attention_ranks(found: Found) -> int:
    """Ranks of data-parallel attention on the tensor ranks: SGLang's `dp`, TensorRT-LLM's all."""
    if "attention" not in found.serves:
        return 1
    return (found.dp or 1) if found.kind == "sglang" else found.tp


def pooled(found: list[Found]) -> list[Found]:
    """Put a prefill and a decode worker of one model together, as pools of one service."""
    reads = [f for f in found if f.method == "serve" and f.role == "prefill"]
    makes = [f for f in found if f.method == "serve" and f.role == "decode"]
    if not reads or not makes:
        return found
    one, two = reads[0], makes[0]
    two.serves["disagg"] = f"{_pool(one)}+{_pool(two)}"
    two.model_name = two.model_name or one.model_name
    unread = {"tp", "pp", "dp"} & (set(one.unread) | set(two.unread))
    two.unread |= {k: v for k, v in one.unread.items() if k in unread}
    if not unread:
        two.n_gpus = sum(f.workers * ranks(f) for f in (one, two))
    return [two, *(f for f in found if f.kind != two.kind)]


def server_of(found: list[Found]) -> list[Found]:
    """Of several servers in one file the pools of a service, or the one that says most."""
    servers = main_of(pooled([f for f in found if f.method == "serve"]))
    best = max(servers, key=lambda f: len(f.places), default=None)
    for one in servers:  # another engine's model is another service
        if best and one is not best and one.model_name not in (None, best.model_name):
            servers = [f for f in servers if f is not one]
            best.unresolved.append(f"beside it a server of {one.model_name}: not read")
    return [*servers, *(f for f in found if f.method != "serve")]


def _pool(found: Found) -> str:
    """Write a pool in `serve`'s words: `4xTP2`, `1xDPA8-EP8`."""
    on_tensor = attention_ranks(found)
    tp, copies = max(1, found.tp // on_tensor), max(on_tensor, found.dp or 1)
    degrees = {"tp": tp, "pp": found.pp, "dpa": copies}
    degrees["ep"] = found.ep or (copies * tp if copies > 1 else 1)
    shown = [f"{name.upper()}{n}" for name, n in degrees.items() if n > 1] or ["TP1"]
    return f"{found.workers}x{'-'.join(shown)}"
