"""A parsed `config.json` to a `ModelSpec`, with what was assumed on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pydantic

from gpuscale.core.formats import element_bytes
from gpuscale.errors import GpuscaleError
from gpuscale.io.hf_family import UNGATED, family_parts
from gpuscale.io.hf_keys import Keys, family_tables
from gpuscale.io.hf_parts import Parts, rows
from gpuscale.io.hf_towers import TEXT_ONLY, TOWERS, gemma4_audio, plain_tower
from gpuscale.io.presets import spec_error
from gpuscale.io.text import Table
from gpuscale.specs.model import ModelSpec, compress

WRAPPED_TEXT = ("text_config", "llm_config", "language_config")
REQUIRED = ("hidden_size", "num_hidden_layers")
GENERIC_REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def spec_from_config(config: Mapping[str, Any], where: str) -> tuple[ModelSpec, list[str]]:
    """Read a Hugging Face config.

    `config`: the parsed `config.json`. `where`: name of the file in errors and of the model when
    the config has no name. Returns `spec`: the model. `warnings`: what was assumed or left out.
    Raises GpuscaleError if keys are missing or wrong; one line that names file and key.
    """
    warnings: list[str] = []
    if isinstance(inner := config.get("thinker_config"), dict):  # Qwen-Omni
        config = inner
        warnings.append(f"{where}: the part that speaks is not counted")
    wrapper_type = _model_type(config, where)
    text, text_type = _text_part(config, wrapper_type, where)
    tables = family_tables()
    known = tables["same"].get(text_type, text_type)
    family = next((name for name, row in rows().items() if known in row.types), "any")
    defaults = "" if family == "any" else tables["defaults"].get(known, known)
    keys = Keys(text, defaults, where)
    if family == "any":
        warnings.append(_unknown(keys, text_type, where))
    else:
        missing = [key for key in REQUIRED if not keys.given(key) and not _counted(keys, key)]
        if missing:
            raise GpuscaleError(
                f"{where}: {', '.join(missing)}: required and missing in a `{text_type}` config",
                "a config.json of Hugging Face holds these keys",
            )
    wrapper = Keys(config, "", where)
    try:
        parts = family_parts(family, keys, rows()[family])
        spec = _spec(parts, keys, wrapper, text_type, wrapper_type, warnings)
    except pydantic.ValidationError as error:
        raise spec_error(where, error) from None
    except ValueError as error:
        raise GpuscaleError(f"{where}: {error}") from None
    if keys.assumed:
        warnings.append(
            f"{where}: not in the file, taken from the defaults of `{text_type}`: "
            + ", ".join(dict.fromkeys(keys.assumed))
        )
    return spec, warnings


def _counted(keys: Keys, key: str) -> bool:
    """Nemotron-H gives its number of layers by its pattern."""
    lists = ("hybrid_override_pattern", "layers_block_type")
    return key == "num_hidden_layers" and any(keys.table.get(name) for name in lists)


def _model_type(config: Mapping[str, Any], where: str) -> str:
    value = config.get("model_type") or ""
    if not isinstance(value, str):
        raise GpuscaleError(f"{where}: model_type: text is wanted")
    return value


def _text_part(
    config: Mapping[str, Any], wrapper_type: str, where: str
) -> tuple[Mapping[str, Any], str]:
    text_of = family_tables()["text"]
    for key in WRAPPED_TEXT:
        inner = config.get(key)
        if inner is None:
            continue
        if not isinstance(inner, dict):
            raise GpuscaleError(f"{where}: {key}: a table is wanted")
        own = _model_type(inner, f"{where}: {key}")
        if wrapper_type in family_tables()["structure"] or not own:
            own = text_of.get(wrapper_type, own or wrapper_type)
        return inner, own
    return config, text_of.get(wrapper_type, wrapper_type)


_FOREIGN = re.compile(
    r"mamba|ssm_|rwkv|xlstm|retnet|linear_num_|linear_attn|attn_layer_period|layers_block_type"
    r"|hybrid_override|conv_l_cache|type_vocab_size|encoder_layers|decoder_layers|laurel|altup"
    r"|short_conv|hyper_connection|hc_mult|num_loops|recurrent|lru_width"
)
"""Keys of layers that are no plain decoder's: reading such a config as one would be wrong."""


def _refuse_foreign(keys: Keys, text_type: str, where: str) -> None:
    found = [key for key, value in keys.table.items() if _FOREIGN.search(key.lower()) and value]
    if keys.table.get("is_encoder_decoder") is True:
        found.append("is_encoder_decoder")
    if found:
        raise GpuscaleError(
            f"{where}: model type `{text_type[:60] or '(none)'}` is not known, and it is no plain "
            f"decoder: it has {', '.join(key[:40] for key in found[:4])}",
            "describe the model in a TOML file; `gpuscale model nemotron-3-nano --toml` prints one",
        )


def _unknown(keys: Keys, text_type: str, where: str) -> str:
    _refuse_foreign(keys, text_type, where)
    if base := keys.table.get("base_model_name_or_path"):
        raise GpuscaleError(f"{where}: adapters, not a model", f"their base: {str(base)[:100]}")
    missing = [key for key in GENERIC_REQUIRED if not keys.given(key)]
    if not keys.given("intermediate_size") and not keys.given("moe_intermediate_size"):
        missing.append("intermediate_size")
    if missing:
        raise GpuscaleError(
            f"{where}: model type `{text_type[:60] or '(none)'}` is not known, and it cannot be "
            f"read as a plain decoder without {', '.join(missing)}",
            "describe the model in a TOML file; `gpuscale model llama3-8b --toml` prints one",
        )
    act = keys.table.get("hidden_act")
    mlp = f"MLP without a gate ({act})" if act in UNGATED else "gated MLP"
    return (
        f"{where}: model type `{text_type[:60] or '(none)'}` is not known; read as a plain "
        f"decoder: RMSNorm before both blocks, {mlp}, no biases but `attention_bias`, "
        "no Q or K norm, " + ("tied" if keys.flag("tie_word_embeddings") else "untied") + " head"
    )


def _spec(
    parts: Parts, k: Keys, wrapper: Keys, text_type: str, wrapper_type: str, warnings: list[str]
) -> ModelSpec:
    h = k.integer("hidden_size")
    fields: Table = {
        "name": _name(wrapper),
        "family": text_type,
        "hidden_size": h,
        "vocab_size": k.integer("vocab_size"),
        "layers": compress(parts.layers),
        "mixers": parts.mixers,
        "ffns": parts.ffns,
        "tie_embeddings": _tied(k, wrapper, text_type, wrapper_type),
        "max_position": k.optional("max_position_embeddings"),
        "n_mtp_layers": _mtp_layers(k),
        "vision_params": _vision(wrapper, wrapper_type, h, warnings),
        "weight_bits": _weight_bits(k, wrapper, warnings),
        **_kept_wide(k, wrapper),
        "sources": {"shape": f"config.json ({k.where}), model type {wrapper_type or text_type}"},
    }
    return ModelSpec.model_validate({**fields, **parts.spec})


def _name(wrapper: Keys) -> str:
    name = wrapper.table.get("_name_or_path")
    if not isinstance(name, str) or not name.strip():
        name = re.sub(r"[/\\]?config$", "", wrapper.where.removesuffix(".json")) or "model"
    return re.split(r"[/\\]", name)[-1][:100] or "model"


def _tied(k: Keys, wrapper: Keys, text_type: str, wrapper_type: str) -> bool:
    for table in (wrapper, k):
        if isinstance(table.table.get("tie_word_embeddings"), bool):
            return table.flag("tie_word_embeddings")
    tied = family_tables()["tied"]
    if wrapper.table is not k.table:
        return wrapper_type in tied
    return k.flag("tie_word_embeddings", text_type in tied)


def _mtp_layers(k: Keys) -> int:
    for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"):
        value = k.table.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100:
            return value
    return 0


def _vision(wrapper: Keys, wrapper_type: str, h: int, warnings: list[str]) -> int:
    tower = wrapper.sub("vision_config")
    audio = wrapper.sub("audio_config")
    heard = 0
    if audio is not None and wrapper_type == "gemma4":
        heard = gemma4_audio(audio, h)
    elif audio is not None:
        heard = _estimated(audio, h, "audio", warnings)
    if tower is None:
        return heard
    count = TOWERS.get(wrapper_type)
    if wrapper_type in TEXT_ONLY:
        size = (count(tower, wrapper, h) if count else plain_tower(tower, h)) / 1e6
        warnings.append(
            f"{wrapper.where}: language model only; its vision tower of {size:.0f}M parameters "
            "is left out, as transformers does for this type"
        )
        return 0
    if count is None:
        return heard + _estimated(tower, h, "vision", warnings)
    return heard + count(tower, wrapper, h)


def _estimated(tower: Keys, h: int, kind: str, warnings: list[str]) -> int:
    size = plain_tower(tower, h)
    said = f"taken as a plain encoder, {size / 1e6:.0f}M parameters" if size else "not counted"
    warnings.append(f"{tower.where.rpartition(': ')[0]}: the {kind} tower is {said}")
    return size


def _weight_bits(k: Keys, wrapper: Keys, warnings: list[str]) -> float | None:
    for table in (wrapper, k):
        quantization = table.table.get("quantization_config")
        if isinstance(quantization, dict):
            expert_dtype = table.table.get("expert_dtype")
            bits = _bits({"expert_dtype": expert_dtype, **quantization})
            if bits is None:
                warnings.append(f"{k.where}: quantization_config is not understood; bf16 is meant")
            return bits
    return None


NOT_CONVERTED = ("modules_to_not_convert", "ignored_layers", "ignore")
"""Keys of `quantization_config` with the modules that a checkpoint keeps in 16 bits."""


def _kept_wide(k: Keys, wrapper: Keys) -> Table:
    """Find what an fp8 checkpoint keeps in 16 bits: attention of most layers, MLPs of some."""
    tables = (table.table.get("quantization_config") for table in (wrapper, k))
    found = next((t for t in tables if isinstance(t, dict)), {})
    names = [str(name) for key in NOT_CONVERTED for name in found.get(key) or ()]
    if "fp8" not in f"{found.get('quant_method')} {found.get('quant_algo')}".lower():
        return {}
    mlps = {m[1] for name in names if (m := re.search(r"layers\.(\d+)\.mlp\.\w+_proj", name))}
    mixers = {(re.findall(r"layers\.(\d+)", n) or ["*"])[0] for n in names if "self_attn" in n}
    attention = "*" in mixers or 2 * len(mixers) > (k.optional("num_hidden_layers") or 1)
    return {"fp8_keeps_attention": attention, "fp8_whole_layers": len(mlps) if attention else 0}


def _bits(quantization: Mapping[str, Any]) -> float | None:
    if str(quantization.get("expert_dtype", "")).lower() == "fp4":
        return 8 * element_bytes("mxfp4")  # the experts are nearly all of the model
    method = str(quantization.get("quant_method", "")).lower()
    algorithm = str(quantization.get("quant_algo", "")).lower()
    for name in (algorithm, method, str(quantization.get("format", "")).lower()):
        for known, dtype in family_tables()["weights"].items():
            if known in name:
                own = quantization.get("bits", quantization.get("w_bit"))
                plain_int = known in ("awq", "gptq") and isinstance(own, int) and 1 <= own <= 16
                return float(own) if plain_int and own is not None else 8 * element_bytes(dtype)
    if method == "bitsandbytes":
        return 4.0 if quantization.get("load_in_4bit") else 8.0
    groups = quantization.get("config_groups")
    if isinstance(groups, dict):
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, dict) else None
            n = weights.get("num_bits") if isinstance(weights, dict) else None
            if isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= 16:
                return float(n)
    return None
