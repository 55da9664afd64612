"""Loading a model: preset, TOML file, Hugging Face config or folder, or standard input."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import find_preset, looks_like_path, preset_path
from gpuscale.io.text import STDIN, read_text
from gpuscale.io.toml import parse_toml

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

CONFIG_FILE = "config.json"
MAX_PARAMS = 1e16
"""A model above this is a typing mistake; the largest published ones have about 1e13."""

VARIANT = re.compile(
    r"instruct|chat|base|it|hf|preview|thinking|reasoning|turbo|exp|dynamic|block|quantized|marlin"
    r"|bf16|fp16|v\d(\.\d+)?|\d{4}"
)
"""What may follow a model's name without changing its shape: kinds of tuning, releases, dates."""

STORED_BITS = {
    "fp8": 8.0,
    "awq": 4.16,
    "gptq": 4.16,
    "int4": 4.16,
    "w4a16": 4.16,
    "nvfp4": 4.5,
    "fp4": 4.5,
}
"""Words for the format of a checkpoint's weights -> bits a weight with its scales."""


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

    Examples
    --------
    >>> load_model("llama3-70b").spec.n_layers
    80
    """
    if arg == "-":
        return _loaded(read_text(arg), STDIN, None)
    if not arg.strip():
        raise GpuscaleError("the model name is empty", "list them with `gpuscale presets`")
    path = _as_path(arg)
    if path is None or (not os.path.exists(path) and _hub_name(arg) != arg):
        return _by_name(arg)
    return _loaded(read_text(path), os.fspath(path), None)


def _by_name(arg: str) -> LoadedModel:
    """Load a preset, or what a hub id has in the local cache."""
    path = find_preset("model", _hub_name(arg))
    if path is None and _hub_name(arg) != arg:
        from gpuscale.io.this_machine import cached_config

        path = cached_config(arg)
        if path is None and (variant := variant_of(_hub_name(arg))):
            return _variant(*variant)
        if path is None:
            raise GpuscaleError(
                f"{arg}: no preset of this name, and its config.json is not in the local hub cache",
                f"fetch it with `hf download {arg} config.json`, or give the file itself",
            )
        return _loaded(read_text(path), os.fspath(path), None)
    if path is None and (variant := variant_of(arg)):
        return _variant(*variant)
    path = path or preset_path("model", arg)
    return _loaded(read_text(path), f"preset {path.stem}", True)


def variant_of(name: str) -> tuple[Path, float | None] | None:
    """Preset of the same shape as a name with more words, and the bits of its weights if said.

    >>> found = variant_of("Meta-Llama-3.1-70B-Instruct-AWQ-INT4")
    >>> found[0].stem, found[1], variant_of("qwen3-32b-q4_k_m")
    ('llama3.1-70b', 4.16, None)
    """
    words = re.split(r"[-_:\s]+", name.strip().lower()[:200])
    bits = None
    for n in range(len(words) - 1, 0, -1):
        said = STORED_BITS.get(words[n])
        if said is None and not VARIANT.fullmatch(words[n]):
            break
        bits = said or bits
        path = find_preset("model", "-".join(words[:n]))
        if path is not None:
            return path, bits
    path = find_preset("model", "-".join(words))  # a colon before the size, as ollama writes
    return None if path is None else (path, None)


def _variant(path: Path, bits: float | None) -> LoadedModel:
    found = _loaded(read_text(path), f"preset {path.stem}", True)
    if bits is None:
        return found
    return LoadedModel(
        found.spec.model_copy(update={"weight_bits": bits}), found.warnings, found.origin
    )


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


def _loaded(text: str, where: str, toml: bool | None) -> LoadedModel:
    is_json = text.lstrip().startswith("{") or where.lower().endswith(".json")
    if toml or not is_json:
        return _checked(model_from_table(parse_toml(text, where), where), (), where)
    from gpuscale.io.hf import spec_from_config

    spec, warnings = spec_from_config(parse_json(text, where), where)
    return _checked(spec, tuple(warnings), where)


def _checked(spec: ModelSpec, warnings: tuple[str, ...], where: str) -> LoadedModel:
    from gpuscale.core.model.params import count_params

    total = count_params(spec).total_params
    if total > MAX_PARAMS:
        raise GpuscaleError(f"{where}: {total:.2g} parameters, more than {MAX_PARAMS:.0e}")
    return LoadedModel(spec, warnings, where)


def model_from_table(table: dict[str, Any], where: str) -> ModelSpec:
    """Make a model of a TOML table; `where` names its origin in errors."""
    import pydantic

    from gpuscale.io.spec_errors import spec_error
    from gpuscale.specs.model import ModelSpec

    try:
        return ModelSpec.model_validate(table)
    except pydantic.ValidationError as error:
        raise spec_error(where, error, list(ModelSpec.model_fields)) from None


def parse_json(text: str, where: str) -> dict[str, Any]:
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
