"""The answer of `gpuscale model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuscale.answers import options
from gpuscale.answers.summary import changed
from gpuscale.core.model.layer_shape import (
    ModelFlops,
    cached_elements,
    flop_per_token,
    kv_bytes_per_token,
    kv_cache_bytes,
    six_p_flop_per_token,
    state_bytes,
)
from gpuscale.core.model.params import ModelParams, count_params
from gpuscale.core.quantity import format_count, format_si
from gpuscale.core.records import Term, dataclass, made_of, term_of
from gpuscale.core.words import gb
from gpuscale.io.inputs import Loaded, load_inputs
from gpuscale.render.document import Column, Document, Facts, Point, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.parts.asked import Model
    from gpuscale.specs.model import AnyFfn, ModelSpec


@dataclass(frozen=True, slots=True)
class LayersOfKind:
    """Layers of one kind."""

    n_layers: int
    mixer: str
    ffn: str
    layer_params: float
    active_layer_params: float
    params: float


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model is made of, and what a token costs."""

    name: str
    n_layers: int
    hidden_size: int
    vocab_size: int
    params: float
    active_params: float
    active_params_excl_embedding: float
    embedding_params: float
    head_params: float
    mixer_params: float
    ffn_params: float
    norm_params: float
    extra_params: float
    vision_params: float
    mtp_params: float
    published_params: float | None
    published_active_params: float | None
    forward_flop_per_token: float
    training_flop_per_token: float
    attention_flop_per_token: float
    six_p_flop_per_token: float
    kv_bytes_per_token: float
    kv_cache_bytes: float
    state_bytes: float
    weight_bits: float | None
    layers: str
    groups: tuple[LayersOfKind, ...]
    sources: dict[str, str]
    notes: str | None


@dataclass(frozen=True, slots=True)
class ModelToml:
    """A model as a file."""

    toml: str


def model_document(asked: Model) -> Document:
    """Count what a model is made of, or write it as TOML."""
    loaded = load_inputs(asked, model=asked.model)
    tokens = options.usual_seq_len(asked.seq_len, loaded.model)
    element = asked.kv_bytes
    inputs: dict[str, str | float] = {
        "model": loaded.model.name,
        "seq_len": tokens,
        "kv_bytes": element,
    }
    if asked.toml:
        from gpuscale.io.toml_out import spec_to_toml

        text = spec_to_toml(loaded.model)
        return Document(
            "model", inputs, ModelToml(text), [Text(text.rstrip())], warnings=loaded.warnings
        )
    return _counted(loaded, asked.model, inputs, tokens, element)


def _counted(
    loaded: Loaded, named: str, inputs: Mapping[str, str | float], tokens: int, element: float
) -> Document:
    spec = loaded.model
    params = count_params(spec)
    flops = flop_per_token(spec, tokens)
    groups = _groups(spec, params)
    result = made_of(
        ModelAnswer,
        spec,
        params,
        params=params.total_params,
        forward_flop_per_token=flops.forward_flop,
        training_flop_per_token=flops.training_flop,
        attention_flop_per_token=flops.attention_flop,
        six_p_flop_per_token=six_p_flop_per_token(params.active_params),
        kv_bytes_per_token=kv_bytes_per_token(spec, element),
        kv_cache_bytes=kv_cache_bytes(spec, tokens, element),
        state_bytes=state_bytes(spec, element),
        groups=groups,
        sources=dict(spec.sources),
    )
    table = _layer_table(groups)
    title = f"{spec.title or spec.name}: {spec.n_layers} layers, hidden size {spec.hidden_size:,}"
    return Document.layered(
        "model",
        inputs,
        result,
        _summary(result, named, f"{title}.", tokens),
        {
            "layers": [Text(title), table],
            "parameters": [_parameters(result)],
            "work": [_work(result, tokens)],
            "sources": [*_remarks(spec), *changed(loaded)],
        },
        warnings=loaded.warnings,
        terms=_terms(spec, params, flops, result, element),
        csv_table=table,
    )


def _summary(r: ModelAnswer, named: str, said: str, tokens: int) -> list[Point]:
    """Parameters, layers, work of a token, cache, weights, and what to ask next."""
    active = f"{format_count(r.active_params)} met by one token"
    total = "; ".join(filter(None, (active, _against(r.params, r.published_params))))
    train = f"forward and backward, sequences of {tokens:,}; "
    train += f"{r.training_flop_per_token / r.six_p_flop_per_token:.3f} times the rule 6P"
    cache = f"a token; {gb(r.kv_cache_bytes)} a sequence of {tokens:,}"
    weights = r.params * (r.weight_bits or 16) / 8
    bits = f"at {r.weight_bits:g} bit, as published" if r.weight_bits else "in bf16"
    following = f"gpuscale memory {named} --gpu h100"
    return [
        Point("verdict", said),
        Point("parameters", format_count(r.params), total),
        *(
            Point("layers", f"{g.n_layers} x", f"{g.mixer}; {g.ffn}; {format_count(g.params)}")
            for g in r.groups
        ),
        Point("training", format_si(r.training_flop_per_token, "flop"), f"a token: {train}"),
        Point("KV cache", format_si(r.kv_bytes_per_token, "bytes"), cache),
        Point("weights", gb(weights), bits),
        *([Point("next", following, "whether it fits")] if named != "-" else []),
    ]


def _groups(spec: ModelSpec, params: ModelParams) -> tuple[LayersOfKind, ...]:
    return tuple(
        made_of(
            LayersOfKind,
            g,
            mixer=f"{g.mixer_name}: {spec.mixers[g.mixer_name].words()}",
            ffn=f"{g.ffn_name}: {_ffn_text(spec.ffns[g.ffn_name])}",
        )
        for g in params.groups
    )


def _ffn_text(f: AnyFfn) -> str:
    if f.kind == "dense":
        return f"{f.ffn_hidden_size:,} wide{'' if f.gated else ', not gated'}"
    if f.kind == "moe":
        shared = f" + shared {f.shared_ffn_hidden_size:,}" if f.shared_ffn_hidden_size else ""
        return f"{f.top_k} of {f.n_experts} experts, {f.expert_ffn_hidden_size:,} wide{shared}"
    return "no FFN"


def _layer_table(groups: tuple[LayersOfKind, ...]) -> Table:
    counts = {"layer_params": "a layer", "active_layer_params": "active", "params": "all"}
    columns: dict[str, object] = {"n_layers": "layers", "mixer": "mixer", "ffn": "FFN"}
    columns |= {key: Column(key, head, format_count) for key, head in counts.items()}
    return Table.of(columns, groups, "Layers")


def _parameters(r: ModelAnswer) -> Facts:
    rows = [("total", format_count(r.params), _against(r.params, r.published_params))]
    active = _against(r.active_params, r.published_active_params)
    rows.append(("active", format_count(r.active_params), active or "met by one token"))
    rows.append(("active, no input embedding", format_count(r.active_params_excl_embedding), ""))
    for label, key, remark in (
        ("input embedding", "embedding_params", ""),
        ("output head", "head_params", "" if r.head_params else "tied to the embedding"),
        ("mixers", "mixer_params", ""),
        ("FFNs", "ffn_params", ""),
        ("norms", "norm_params", ""),
        ("other", "extra_params", ""),
        ("vision tower", "vision_params", ""),
        ("multi-token prediction", "mtp_params", "not in the total"),
    ):
        if getattr(r, key) or key == "head_params":
            rows.append((f"  {label}", format_count(getattr(r, key)), remark))
    return Facts(rows, "Parameters")


def _against(count: float, published: float | None) -> str:
    if not published:
        return ""
    return f"published {format_count(published)} ({100 * (count / published - 1):+.1f} %)"


def _work(r: ModelAnswer, tokens: int) -> Facts:
    train, six = r.training_flop_per_token, r.six_p_flop_per_token
    rows = [
        ("training FLOP per token", format_si(train, "flop"), "forward + backward, causal mask"),
        ("  of which attention", format_si(3 * r.attention_flop_per_token, "flop"), ""),
        (
            "  by the rule 6P",
            format_si(six, "flop"),
            f"P active; the count is {train / six:.3f} times this",
        ),
        ("KV cache per token", format_si(r.kv_bytes_per_token, "bytes"), "while windows fill"),
        (f"KV cache of {tokens:,} tokens", format_si(r.kv_cache_bytes, "bytes"), "one sequence"),
    ]
    if r.state_bytes:
        rows.append(("  of which state", format_si(r.state_bytes, "bytes"), "constant, fp32"))
    if r.weight_bits:
        rows.append(("weights as published", f"{r.weight_bits:g} bit", "on average"))
    return Facts(rows, f"Work and cache at {tokens:,} tokens")


def _remarks(spec: ModelSpec) -> list[Any]:
    lines = [f"layers: {spec.layers}"]
    if spec.training_tokens:
        batch = f", batch {format_count(spec.batch_tokens)}" if spec.batch_tokens else ""
        lines.append(f"trained on {format_count(spec.training_tokens)} tokens{batch}")
    if spec.notes:
        lines.append(f"notes: {spec.notes}")
    lines += [f"source of {key}: {text}" for key, text in spec.sources.items()]
    return [Text("\n".join(lines))]


def _terms(
    spec: ModelSpec, params: ModelParams, flops: ModelFlops, r: ModelAnswer, element: float
) -> tuple[Term, ...]:
    parts = ("embedding", "head", "mixer", "ffn", "norm", "extra", "vision")
    summands = " + ".join(f"{p}_params" for p in parts)
    idle = sum(g.n_layers * (g.ffn_params - g.ffn_active_params) for g in params.groups)
    work = " + ".join(f"{p}_flop" for p in ("mixer_linear", "attention", "ffn", "head", "other"))
    forward = term_of(
        "forward_flop_per_token",
        "",
        work,
        "2 FLOP a weight and token, and the cores of attention (core/model/layer_shape.py)",
        flops,
        r,
    )
    train = "3 * forward_flop_per_token"
    six, kaplan = "6 * active_params", "Kaplan et al. 2020, section 2.1"
    return (
        term_of("params", "count", summands, "core/model/params.py", r),
        term_of(
            "active_params",
            "count",
            "params - vision_params - idle_expert_params",
            "experts that a token does not meet, and the vision tower, left out",
            r,
            idle_expert_params=idle,
        ),
        term_of("six_p_flop_per_token", "", six, kaplan, r),
        term_of("training_flop_per_token", "", train, "backward twice the forward", forward, r),
        term_of(
            "kv_bytes_per_token",
            "",
            "element_bytes * cached_elements",
            "keys and values, or the latent, of all layers (core/model/layer_shape.py)",
            r,
            element_bytes=element,
            cached_elements=cached_elements(spec),
        ),
    )
