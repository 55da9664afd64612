"""Loading a model: preset, TOML file, Hugging Face config or folder, name on a hub, standard input.

Names on a hub say how a model was tuned, dated or stored too: `Llama-3.1-8B-Instruct`,
`Qwen3-4B-Thinking-2507` and `Llama-2-13B-chat-GPTQ` have the layers of `llama-3.1-8b`, `qwen3-4b`
and `llama-2-13b`; the last one is stored in 4 bits.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.core.formats import FORMATS, format_name, number_format
from gpuscale.core.records import NamedTuple, dataclass, replace
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import checked, find_preset, is_own, looks_like_path, preset_path, shipped
from gpuscale.io.text import STDIN, Table, parse_toml, read_text, read_toml

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

TUNED = (
    r"instruct|chat|it|base|hf|thinking|think|preview|latest|sft|mixture|dpo|rlhf|rl|pt|beta|fast|"
    r"uncensored|abliterated|distill|quantized|qat|turbo|exp|block|marlin|reasoning|coder|code|math|python|unsloth|mlx|dynamic|"
    r"([1248]|10|12|16|20|24|32|40|48|60|64|80|96|\d{3,4})k|1m|bf16|fp16|meta|intermediate"
)
"""Words that change no shape: how it was tuned, for whom, its context, its 16 bits."""

SIZE = r"(\d+x)?[\d.]+b"
RESHAPED = (
    r"\d|prun|slim|draft|eagle|medusa|speculat|merg|expand|scal|embed|rerank|reward|rm|moe|vl|vis|"
    r"audio|omni|image|speech|lite|mini|tiny|half|layer|mtp|hybrid|mamba|linear|critic|class|llama|"
    r"qwen|gemma|mistral|mixtral|phi|falcon|yi|deepseek|glm"
)
"""Words behind a model's size with which it may have another shape."""

STEP = r"-step-?\d+k?(-[\d.]+[bt])?"
"""A checkpoint on the way: its step and its tokens."""

DATED = r"\d{4}|v\d(\.\d)?|\d{2}-\d{2}"
"""Dates and versions, where the name without them is known."""

_SAID = "fp8 w8a8 int8 awq gptq int4 w4a16 w8a16 nvfp4 fp4 mxfp4".split()
STORED = {word: format_name(word) for word in _SAID}
STORED |= {"8bit": "int8", "4bit": "int4-g128", "gguf": "q4_k_m"}
"""Words that say how the weights are stored -> their format; `bnb-4bit` is `nf4`."""


class HubName(NamedTuple):
    """What a name means: the model whose shape it has, the format of its weights; None: 16 bits."""

    model: str
    stored: str | None


def read_hub_name(name: str, known: Callable[[str], bool], owned: bool = False) -> HubName | None:
    """Model and format that a name on a hub means; None where no part of it is known.

    `name`: as a hub has it, without the owner. `known`: whether a shorter name is one of a model.
    `owned`: it had an owner, who may call it as he likes behind its size.

    >>> read_hub_name("Qwen3-4B-Instruct-2507-FP8", {"qwen3-4b"}.__contains__)
    HubName(model='qwen3-4b', stored='fp8')
    >>> read_hub_name("Mistral-7B-Instruct-v0.3", {"mistral-7b", "mistral-7b-v0.3"}.__contains__)
    HubName(model='mistral-7b-v0.3', stored=None)
    """
    text = re.sub(r"[\s_:]+|\.(?=w\da\d)", "-", name.strip().lower()).removesuffix(".gguf")
    text, stored = _without_quants(re.sub(STEP, "", text))
    words = text.split("-")
    formats = [STORED[w] for w in words if w in STORED]
    if "bnb" in words or "nf4" in words:
        formats = ["nf4"]
    words = [w for w in words if w not in STORED and w not in ("bnb", "nf4")]
    for short in _shorter(words, owned):
        if short and known(short):
            return HubName(short, stored or (formats[0] if formats else None))
    return None


def _shorter(words: list[str], owned: bool) -> Iterator[str]:
    """Names without words that change no shape: how it was tuned, from the end on, all."""
    either = re.compile(f"{TUNED}|{DATED}")
    yield "-".join(words)
    yield "-".join(w for w in words if not re.fullmatch(TUNED, w))
    left = list(words)
    while left and either.fullmatch(left[-1]):
        left.pop()
        yield "-".join(left)
    yield "-".join(w for w in words if not either.fullmatch(w))
    size = next((i for i, w in enumerate(words) if re.fullmatch(SIZE, w)), len(words)) + 1
    if owned and not re.search(RESHAPED, "-".join(words[size:])):  # what a tuner calls it
        yield "-".join(words[:size])


def _without_quants(text: str) -> tuple[str, str | None]:
    """Name without llama.cpp's quantisation, and that.

    >>> _without_quants("llama-3.1-8b-q4-k-m"), _without_quants("phi-4")
    (('llama-3.1-8b', 'q4_k_m'), ('phi-4', None))
    """
    found = re.search(r"[-.](i?q\d(?:-(?:k|[01]|xs|xxs|s|m|nl))?(?:-[sml])?)(?:-gguf)?$", text)
    if not found:
        return text, None
    name = format_name(found[1].replace("-", "_"))
    return (text[: found.start()], name) if name in FORMATS else (text, None)


CONFIG_FILE = "config.json"
HUB_PAGE = r"^https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:[/?#].*)?$"
"""Address of a model's page on the hub, and the name in it."""
SEES = r"vl\b|vl\d|omni|vision|llava|pixtral|idefics|vlm|paligemma|multimodal|-4v-"
"""What names of models that see images have in them."""

MAX_PARAMS = 1e16
"""A model above this is a typing mistake; the largest published ones have about 1e13."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, what was assumed on the way, and where it is from."""

    spec: ModelSpec
    warnings: tuple[str, ...]
    origin: str  # "preset llama3-70b", the path, or "standard input"


def load_model(arg: str) -> LoadedModel:
    """Load a model by what a person typed.

    `arg`: name or alias of a preset (an `owner/` before it, as on a model hub, is skipped), path of
    a TOML file, of a Hugging Face `config.json` or of a folder that holds one, or `-` for standard
    input (TOML or JSON). Returns: the checked spec. Raises GpuscaleError: one line for everything
    that is wrong with the argument or the file.
    """
    if arg == "-":
        return _loaded(read_text(arg), STDIN)
    if not arg.strip():
        raise GpuscaleError("the model name is empty", "list them with `gpuscale presets`")
    arg = re.sub(HUB_PAGE, r"\1", arg)
    path = _as_path(arg)
    if path is None or (not os.path.exists(path) and _hub_name(arg) != arg):
        return _by_name(arg)
    return _loaded(read_text(path), os.fspath(path))


def _by_name(arg: str) -> LoadedModel:
    """Load a preset, or what a hub id has in the local cache."""
    name = _hub_name(arg)
    path = find_preset("model", name)
    if path is not None:
        found = _seeing(name, _preset(path, path.stat().st_mtime_ns))
        return _reaching(name, _shaped(name, found, path.stem))
    if name != arg:
        from gpuscale.io.this_machine import cached_config

        path = cached_config(arg)
        if path is not None:
            return _loaded(read_text(path), os.fspath(path))

    meant = read_hub_name(name, lambda short: find_preset("model", short) is not None, name != arg)
    if meant is not None:
        return _reaching(name, _of_shape(arg, meant))
    if name != arg:
        raise GpuscaleError(
            f"{arg}: no preset of this name, and its config.json is not in the local hub cache",
            f"fetch it with `hf download {arg} config.json`, or give the file itself",
        )
    path = preset_path("model", arg)
    return _preset(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _preset(path: Path, _stamp: int) -> LoadedModel:
    where = f"preset {path.stem}"
    table = parse_toml(read_text(path), where)
    return _checked(model_from_table(table, where, own=is_own(str(path))), (), where)


def _seeing(name: str, found: LoadedModel) -> LoadedModel:
    """Say it where a model that sees is known by its language model alone."""
    if not re.search(SEES, name.lower()) or found.spec.vision_params:
        return found
    told = f"{name[:100]}: its language model, {found.spec.name}; the vision tower is not counted"
    return LoadedModel(found.spec, (*found.warnings, told), found.origin)


def _shaped(name: str, found: LoadedModel, stem: str) -> LoadedModel:
    """Say it where a name is no other spelling of the preset's: a model with its layers."""
    typed, own = ({*re.findall(r"[a-z]+|[\d.]+", n)} for n in (name.lower(), stem))
    alike = re.sub(r"\W|_", "", name.lower()) == re.sub(r"\W|_", "", stem)
    same = read_toml(shipped("model") / "_same_layers.toml").get(stem, [])
    if alike or found.warnings or typed <= own or own <= typed or name.lower() in same:
        return found
    told = f"{name[:100]}: answered with the layers of {stem}"
    return LoadedModel(found.spec, (told,), found.origin)


def _reaching(name: str, found: LoadedModel) -> LoadedModel:
    """Model with the length that a checkpoint of its layers was made for."""
    if name == found.spec.name:
        return found
    words = re.split(r"[\s_-]+", re.sub(STEP, "", name.lower()))
    known = read_toml(shipped("model") / "_lengths.toml").get(found.spec.name, {})
    said = [1024 * int(w[:-1]) for w in words if re.fullmatch("(8|16|32|64|128|256)k", w)]
    if not (most := said or [n for word, n in known.items() if word in words]):
        return found
    return replace(found, spec=found.spec.model_copy(update={"max_position": most[0]}))


def _of_shape(arg: str, meant: HubName) -> LoadedModel:
    """Preset whose layers a model of another name has, in the format that its name says."""
    path = preset_path("model", meant.model)
    found = _seeing(meant.model, _preset(path, path.stat().st_mtime_ns))
    told = f"{arg[:100]}: taken as preset {path.stem}"
    spec = found.spec
    if stored := meant.stored:
        told += f", weights in {stored}"
        bits = 8 * number_format(stored).bytes
        spec = spec.model_copy(update={"weight_format": stored, "weight_bits": bits})
    return LoadedModel(spec, (*found.warnings, told), found.origin)


def _hub_name(arg: str) -> str:
    """Name of a model as a hub writes it, `owner/name`, without the owner.

    >>> _hub_name("meta-llama/Meta-Llama-3-70B"), _hub_name("a/b/c"), _hub_name("x/y.toml")
    ('Meta-Llama-3-70B', 'a/b/c', 'x/y.toml')
    """
    owner, slash, name = arg.partition("/")
    hub = slash and owner not in ("", ".", "..", "~") and "/" not in name
    return name if hub and not looks_like_path(name) else arg


def _as_path(arg: str) -> Path | None:
    """File that the argument means, or None for a preset name."""
    try:
        is_dir = os.path.isdir(arg)
        if not is_dir and not os.path.isfile(arg) and find_preset("model", _hub_name(arg)):
            return None
        named = looks_like_path(arg) or (is_dir and find_preset("model", arg) is None)
        if not named and not (os.path.isfile(arg) and find_preset("model", arg) is None):
            return None
    except (OSError, ValueError):
        raise GpuscaleError(f"{arg[:60]!r}: not a file name") from None
    if not is_dir:
        return Path(arg)
    path = Path(arg) / CONFIG_FILE
    if not os.path.isfile(path):
        raise GpuscaleError(f"{arg}: the folder holds no {CONFIG_FILE}")
    return path


def _loaded(text: str, where: str) -> LoadedModel:
    is_json = text.lstrip().startswith("{") or where.lower().endswith(".json")
    if not is_json:
        return _checked(model_from_table(parse_toml(text, where), where), (), where)
    from gpuscale.io.hf_config import spec_from_config

    spec, warnings = spec_from_config(parse_json(text, where), where)
    return _checked(spec, tuple(warnings), where)


def _checked(spec: ModelSpec, warnings: tuple[str, ...], where: str) -> LoadedModel:
    from gpuscale.core.model.params import count_params

    total = count_params(spec).total_params
    if total > MAX_PARAMS:
        raise GpuscaleError(f"{where}: {total:.2g} parameters, more than {MAX_PARAMS:.0e}")
    return LoadedModel(spec, warnings, where)


def model_from_table(table: Table, where: str, *, own: bool = False) -> ModelSpec:
    """Make a model of a TOML table; `where` names its origin in errors, `own`: of the package."""
    from gpuscale.specs.model import ModelSpec

    return checked(ModelSpec, table, where, own=own)


def parse_json(text: str, where: str) -> Table:
    """Read a JSON table; NaN is refused, `Infinity` is left to the key that uses it.

    Raises GpuscaleError if the text is no JSON table.
    """
    try:
        value = json.loads(text, parse_constant=_constant)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise GpuscaleError(f"{where}: not valid JSON: {error.msg} ({at})") from None
    except RecursionError:
        raise GpuscaleError(f"{where}: not valid JSON: nested too deeply") from None
    except ValueError as error:
        problem = "a number of thousands of digits" if "digits" in str(error) else str(error)[:120]
        raise GpuscaleError(f"{where}: not valid JSON: {problem}") from None
    if not isinstance(value, dict):
        raise GpuscaleError(f"{where}: a table of keys is wanted, as in a {CONFIG_FILE}")
    return value


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError("NaN is not a value")
    return float(name)
