"""Write presets/model/*.toml from a table of model shapes and a folder of Hugging Face configs.

Developer tool. `python tools/make_model_presets.py SHAPES.csv SOURCES.csv CONFIG_FOLDER`; the
written files are what the package ships, and each of them is checked by the tests.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

from gpuscale.core.model.params import count_params
from gpuscale.io.hf import spec_from_config
from gpuscale.io.toml_out import spec_to_toml
from gpuscale.specs.model import ModelSpec
from gpuscale.specs.pattern import compress

OUT = Path(__file__).resolve().parent.parent / "presets" / "model"

ONE_NORM = ("gpt-j", "palm-540b")
BIASED = ("gpt2", "gpt3", "megatron", "bloom", "opt")
ROUTER_BIAS = ("deepseek-v3", "kimi-k2", "glm-4.5", "glm-4.5-air")
WINDOWS: dict[str, tuple[int, str]] = {
    "llama4-scout": (8192, "12 x (3 x sliding+moe, full+moe)"),
    "llama4-maverick": (8192, "12 x (sliding+dense, sliding+moe, sliding+dense, full+moe)"),
    "mistral-7b": (4096, "32 x sliding+dense"),
    "gemma2-27b": (4096, "23 x (sliding+dense, full+dense)"),
    "gemma3-27b": (1024, "10 x (5 x sliding+dense, full+dense), 2 x sliding+dense"),
    "phi3-mini": (2048, "32 x sliding+dense"),
    "phi3-medium": (2048, "40 x sliding+dense"),
    "gpt-oss-20b": (128, "12 x (sliding+moe, full+moe)"),
    "gpt-oss-120b": (128, "18 x (sliding+moe, full+moe)"),
}
"""Window and pattern; the order of a period is that of the family's config.json."""

NORMS = {"gemma2-27b": 4, "gemma3-27b": 4, "grok-1": 4, "palm-540b": 1}
ROUTE_GROUPS = {"deepseek-v2": 3, "deepseek-v3": 4}
WEIGHT_BITS = {"gpt-oss-20b": 4.25, "gpt-oss-120b": 4.25, "deepseek-v3": 8, "kimi-k2": 8}
TITLES = {"deepseek-v3": "DeepSeek-V3 and R1"}
REAL_NOTES = {
    "llama2-70b": "the published 70B is a rounded label; the exact count is 69.0B",
    "llama4-scout": "the published 109B counts the vision encoder, which is not part of this shape",
    "qwen3-1.7b": "the published 1.7B is a rounded label; the exact count is 1.72B",
    "gemma3-27b": "the published 27.4B counts the vision encoder of 0.4B; this is the text model",
    "kimi-k2": "published as 1T and as 1.04T; the exact count is 1.026T",
    "falcon-40b": "the published 40B is a rounded label; the exact count is 41.3B; parallel "
    "attention and MLP, two layer norms",
}
SIZE_SOURCE = "the size in the name or announcement of the model; no readable source found"


def _int(row: dict[str, str], key: str) -> int:
    return int(row[key]) if row[key] else 0


def _mixer(row: dict[str, str]) -> dict[str, Any]:
    name = row["id"]
    if row["attention"] == "MLA":
        return {
            "kind": "mla",
            "n_heads": _int(row, "heads"),
            "q_lora_rank": _int(row, "mla_q_lora_rank"),
            "kv_lora_rank": _int(row, "mla_kv_lora_rank"),
            "qk_nope_head_dim": _int(row, "mla_qk_nope_head_dim"),
            "qk_rope_head_dim": _int(row, "mla_qk_rope_head_dim"),
            "v_head_dim": _int(row, "mla_v_head_dim"),
        }
    bias = row["qkv_bias"] == "true"
    mixer: dict[str, Any] = {
        "kind": "attention",
        "n_heads": _int(row, "heads"),
        "n_kv_heads": _int(row, "kv_heads"),
        "head_dim": _int(row, "head_dim"),
        "qkv_bias": bias,
        "out_bias": bias and (name.startswith(BIASED) or name.startswith("gpt-oss")),
        "qk_norm": {"per-head": "head", "full-width": "full"}.get(row["qk_norm"], "none"),
        "sinks": name.startswith("gpt-oss"),
    }
    if name == "chinchilla-70b":
        mixer["extra_params"] = _int(row, "hidden") ** 2
    return mixer


def _ffns(row: dict[str, str]) -> dict[str, dict[str, Any]]:
    name, gated = row["id"], row["mlp_matrices"] == "3"
    experts, layers = _int(row, "experts"), _int(row, "layers")
    ffns: dict[str, dict[str, Any]] = {}
    if not experts or _int(row, "first_dense_layers") or _int(row, "moe_every_n_layers") > 1:
        ffns["dense"] = {
            "kind": "dense",
            "ffn_hidden_size": _int(row, "ffn"),
            "gated": gated,
            "bias": name.startswith(BIASED),
        }
    if experts:
        width = _int(row, "moe_ffn")
        ffns["moe"] = {
            "kind": "moe",
            "n_experts": experts,
            "top_k": _int(row, "top_k"),
            "expert_ffn_hidden_size": width,
            "gated": gated,
            "shared_ffn_hidden_size": _int(row, "shared_experts") * width,
            "bias": name.startswith("gpt-oss"),
            "router_bias": name.startswith("gpt-oss") or name in ROUTER_BIAS,
            "n_route_groups": ROUTE_GROUPS.get(name, 0),
        }
    assert layers
    return ffns


def _layers(row: dict[str, str], mixer: str) -> str:
    n, first = _int(row, "layers"), _int(row, "first_dense_layers")
    if not _int(row, "experts"):
        return compress([(mixer, "dense")] * n)
    every = _int(row, "moe_every_n_layers") or 1
    kinds = ["moe" if i >= first and (i + 1) % every == 0 else "dense" for i in range(n)]
    return compress([(mixer, kind) for kind in kinds])


def from_row(row: dict[str, str], sources: dict[str, str]) -> ModelSpec:
    """Make the spec of one row of the table."""
    name = row["id"]
    mixer_name = "mla" if row["attention"] == "MLA" else "full"
    mixer = _mixer(row)
    mixers = {mixer_name: mixer}
    layers = _layers(row, mixer_name)
    if name in WINDOWS:
        window, layers = WINDOWS[name]
        mixers["sliding"] = {**mixer, "window_tokens": window}
        if "full" not in layers:
            del mixers["full"]
    norm = {"layernorm1p": "layernorm"}.get(row["norm"], row["norm"])
    if name in ("dbrx", "palm-540b"):
        norm = "layernorm-nobias"
    position = row["position"] if row["position"] in ("rope", "learned", "alibi") else "none"
    fields: dict[str, Any] = {
        "name": name,
        "title": TITLES.get(name, row["name"]),
        "family": name.split("-")[0],
        "hidden_size": _int(row, "hidden"),
        "vocab_size": _int(row, "vocab"),
        "layers": layers,
        "mixers": mixers,
        "ffns": _ffns(row),
        "tie_embeddings": row["tie_embeddings"] == "true",
        "norm": norm,
        "norms_per_layer": NORMS.get(name, 2),
        "embedding_norm": name.startswith("bloom"),
        "position": position,
        "max_position": _int(row, "max_position") or None,
        "n_mtp_layers": _int(row, "mtp_layers"),
        "extra_params": 2 * _int(row, "hidden") if name.startswith("opt") else 0,
        "published_params": _int(row, "published_params") or None,
        "published_active_params": _int(row, "published_active_params") or None,
        "training_tokens": _int(row, "training_tokens") or None,
        "batch_tokens": _int(row, "batch_tokens") or None,
        "weight_bits": WEIGHT_BITS.get(name),
        "notes": _notes(row),
        "sources": _sources(row, sources),
    }
    return ModelSpec(**fields)


def _notes(row: dict[str, str]) -> str:
    parts = [REAL_NOTES.get(row["id"], "") or row["notes"].strip()]
    if row["uncited_fields"]:
        parts.append("without a readable source: " + row["uncited_fields"].replace(";", ", "))
    if row["gpu_hours"]:
        parts.append(f"{_int(row, 'gpu_hours'):,} GPU hours on {row['training_hardware']}")
    kept: list[str] = []
    for part in parts:
        if part and part not in kept and part.lower() not in " ".join(kept).lower():
            kept.append(part)
    return "; ".join(kept)


def _sources(row: dict[str, str], table: dict[str, str]) -> dict[str, str]:
    found = {}
    for key, column in (("shape", "architecture_source"), ("training", "training_source")):
        names = [n for n in row[column].split(";") if n]
        if names:
            found[key] = "; ".join(table[n] for n in names)
    if row["published_params"]:
        uncited = any(w in row["uncited_fields"] for w in ("published_params", "all"))
        found["published_params"] = (
            "the size in the model's name or report; no readable source found"
            if uncited
            else found.get("training", found["shape"])
        )
    return found


CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen--Qwen3-VL-8B-Instruct.json": {
        "name": "qwen3-vl-8b",
        "title": "Qwen3-VL 8B",
        "notes": "the 8B of the name is the language model; vision tower included here",
    },
    "Qwen--Qwen3-VL-235B-A22B-Instruct.json": {
        "name": "qwen3-vl-235b-a22b",
        "title": "Qwen3-VL 235B-A22B",
        "published_params": 235e9,
        "published_active_params": 22e9,
    },
    "Qwen--Qwen3.5-35B-A3B.json": {
        "name": "qwen3.5-35b-a3b",
        "title": "Qwen3.5 35B-A3B",
        "published_params": 35e9,
        "published_active_params": 3e9,
        "notes": "language model; the published size is the label in the name",
    },
    "Qwen--Qwen3.5-122B-A10B.json": {
        "name": "qwen3.5-122b-a10b",
        "title": "Qwen3.5 122B-A10B",
        "published_params": 122e9,
        "published_active_params": 10e9,
        "notes": "language model; the published sizes are the labels in the name",
    },
    "deepseek-ai--DeepSeek-V4-Flash.json": {
        "name": "deepseek-v4-flash",
        "title": "DeepSeek-V4-Flash",
        "notes": "experts in fp4, the rest in fp8",
    },
    "zai-org--GLM-5.json": {
        "name": "glm-5",
        "title": "GLM-5 744B-A40B",
        "published_params": 744e9,
        "published_active_params": 40e9,
    },
    "MiniMaxAI--MiniMax-M2.5.json": {
        "name": "minimax-m2.5",
        "title": "MiniMax-M2.5 230B-A10B",
        "published_params": 230e9,
        "published_active_params": 10e9,
        "notes": "the published sizes are rounded",
    },
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json": {
        "name": "nemotron-3-nano",
        "title": "Nemotron 3 Nano 30B-A3B",
        "published_params": 31.6e9,
        "published_active_params": 3.6e9,
    },
    "nvidia--Nemotron-H-56B-Base-8K.json": {
        "name": "nemotron-h-56b",
        "title": "Nemotron-H 56B",
        "published_params": 56e9,
    },
    "google--gemma-4-26B-A4B.json": {
        "name": "gemma4-26b-a4b",
        "title": "Gemma 4 26B-A4B",
        "published_params": 26e9,
        "published_active_params": 4e9,
        "notes": "the published sizes are the labels in the name; vision tower included",
    },
    "nvidia--Kimi-K2.6-NVFP4.json": {
        "name": "kimi-k2.6",
        "title": "Kimi K2.6",
        "published_params": 1e12,
        "published_active_params": 32e9,
        "notes": "published as 1T, a rounded label (the exact count is 1.027T, vision included)",
    },
}


DEFAULTS: dict[str, dict[str, Any]] = {
    "qwen3_next": {
        "name": "qwen3-next-80b-a3b",
        "title": "Qwen3-Next 80B-A3B",
        "published_params": 80e9,
        "published_active_params": 3e9,
        "n_mtp_layers": 1,
        "notes": "the published sizes are the labels in the name",
    },
    "deepseek_v32": {
        "name": "deepseek-v3.2",
        "title": "DeepSeek-V3.2",
        "published_params": 671e9,
        "published_active_params": 37e9,
        "weight_bits": 8,
        "n_mtp_layers": 1,
        "notes": "the published active size is that of DeepSeek-V3, without the indexer",
    },
    "mimo_v2_flash": {
        "name": "mimo-v2-flash",
        "title": "MiMo-V2-Flash 309B-A15B",
        "published_params": 309e9,
        "published_active_params": 15e9,
        "notes": "the published active size is rounded",
    },
    "glm4_moe_lite": {
        "name": "glm-4.7-flash",
        "title": "GLM-4.7-Flash 30B-A3B",
        "published_params": 30e9,
        "published_active_params": 3e9,
        "n_mtp_layers": 1,
        "notes": "the published sizes are the labels in the name",
    },
}
"""Models whose shape is what transformers assumes for their type."""


def from_defaults(model_type: str, more: dict[str, Any]) -> ModelSpec:
    """Make the spec of a model from the defaults of its type."""
    table = json.loads((OUT.parent.parent / "gpuscale/io/hf/defaults.json").read_text())
    spec, _ = spec_from_config({"model_type": model_type, **table[model_type]}, model_type)
    version = table[""]["transformers"]
    sources = {
        "shape": f"defaults of model type {model_type}, huggingface/transformers {version}",
        "published_params": SIZE_SOURCE,
    }
    return ModelSpec.model_validate({**spec.model_dump(), **more, "sources": sources})


def from_config(path: Path, more: dict[str, Any]) -> ModelSpec:
    """Make the spec of one config, with the facts that a config does not hold."""
    spec, _ = spec_from_config(json.loads(path.read_text()), path.name)
    repository = path.stem.replace("--", "/", 1)
    sources = {
        "shape": f"config.json of {repository}, public copy in github.com/ai-dynamo/aiconfigurator"
    }
    if "published_params" in more:
        sources["published_params"] = SIZE_SOURCE
    return ModelSpec.model_validate({**spec.model_dump(), **more, "sources": sources})


def main(shapes: str, sources: str, configs: str) -> None:
    """Write every preset and report counts that differ from the table."""
    with open(sources) as file:
        where = {
            r["key"]: f"{r['where'] or r['used_for']} ({r['kind']})" for r in csv.DictReader(file)
        }
    where["uncited"] = "no readable source found"
    OUT.mkdir(parents=True, exist_ok=True)
    with open(shapes) as file:
        for row in csv.DictReader(file):
            spec = from_row(row, where)
            counted = count_params(spec).total_params
            if counted != _int(row, "computed_params"):
                print(row["id"], "differs by", counted - _int(row, "computed_params"))
            _write(spec)
    for name, more in CONFIGS.items():
        _write(from_config(Path(configs) / name, more))

    for model_type, more in DEFAULTS.items():
        _write(from_defaults(model_type, more))


def _active_note(spec: ModelSpec) -> str:
    """Say what is counted where the published active size is more than 1 % away."""
    params, published = count_params(spec), spec.published_active_params
    if not published or abs(params.active_params / published - 1) <= 0.01:
        return spec.notes
    below = params.active_params_excl_embedding
    said = "counts no input embedding" if abs(below / published - 1) <= 0.01 else "is rounded"
    note = (
        f"the published {published / 1e9:g}B active {said}: the exact counts are "
        f"{params.active_params / 1e9:.1f}B with it and {below / 1e9:.1f}B without"
    )
    if said == "is rounded":
        note = note.replace("with it", "with the input embedding")
    if "published active size is" in spec.notes:
        note = note.replace(f"the published {published / 1e9:g}B active is rounded: ", "")
        return f"{spec.notes}: {note.replace('exact counts', 'exact active counts')}"
    return f"{note}; {spec.notes}" if spec.notes else note


def _write(spec: ModelSpec) -> None:
    spec = spec.model_copy(update={"notes": _active_note(spec)})
    (OUT / f"{spec.name}.toml").write_text(spec_to_toml(spec), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:4])
