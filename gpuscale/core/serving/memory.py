"""Memory of a serving GPU as engines count it: weights, activations, room for the cache; its terms.

Blocks of cache beside weights and a profiled peak: Kwon et al. 2023 (vLLM, arXiv:2309.06180),
section 4.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Annotated

from gpuscale.core.bounds import Among, Fraction, Measured, Within
from gpuscale.core.formats import edge_bytes, element_bytes, weight_bytes
from gpuscale.core.model import params
from gpuscale.core.model.layer_shape import STATE_BYTES_PER_ELEMENT
from gpuscale.core.records import Term, dataclass, term_of, total_of

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.core.serving.records import Replica
    from gpuscale.core.serving.replica import ServingMemory
    from gpuscale.specs.model import AnyFfn, ModelSpec

SAMPLER_COPIES = 8.0
"""fp32 copies of the logits that a sampler with top-k and top-p holds at its peak: sorted values,
64-bit indices, probabilities, their sums. vLLM issue 13061 prints 1.22 GiB more on the rank that
samples 256 sequences of a vocabulary of 152,064: 8.4 copies."""

SPARE_FRAC = 0.02
"""Room for the cache, of the device, below which an operator lowers the number of sequences that
the sampler's logits are held for (`--max-num-seqs`), down to `FEWEST_SEQUENCES`."""

FEWEST_SEQUENCES = 16.0

STREAM_COPIES = 3.0
"""Hidden-sized 16-bit tensors alive at a layer's peak: its input, the residual, attention's out.
vLLM issue 10517 prints the cache at two lengths: 7,584 tokens less for a pass of 9,000 more are 110
kB a token of Llama 3.1 8B, 2.98 copies beside the MLP."""


Bytes = Annotated[float, Measured("bytes")]
Measure = Annotated[float, Within(1, 4096)]


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """How an engine divides the memory of a GPU.

    `rule` says what `utilisation_frac` is taken of: "device" (vLLM: the device's memory, from which
    weights, the profiled peak and the sampler are subtracted), "static" (SGLang: what is free at
    start; weights and cache share it and everything else has the rest), "free" (TensorRT-LLM: what
    weights and the profiled peak leave), "all" (llama.cpp: no reserve).
    """

    rule: Annotated[str, Among(("device", "static", "free", "all"))] = "device"
    utilisation_frac: Fraction = 0.9
    context_bytes: Bytes = 0.55e9  # CUDA context and libraries, outside of the engine's pool
    collective_bytes: Bytes = 0.65e9  # buffers of the communication library, a TP group of 2
    sampler_sequences: float = 256.0
    sampler_copies: float = SAMPLER_COPIES
    chunk_tokens: float = 8192.0
    apart: bool = False  # the sampler's logits come after a pass of its largest size: no sum
    embedding_on_host: bool = False  # the table that tokens are looked up in, unless it is the head
    inner_multiple: Measure = 1.0  # to which kernels of mxfp4 pad the experts' inner width of a GPU
    hidden_multiple: Measure = 1.0  # and the hidden size

    def sampler_bytes(self, vocab_size: int) -> float:
        """Logits that the sampler holds at its peak, in fp32. [byte]."""
        return self.sampler_copies * 4.0 * self.sampler_sequences * vocab_size


@dataclass(frozen=True, slots=True)
class CacheRoom:
    """Memory of one GPU when the engine has started. [byte]."""

    weights_bytes: float
    activations_bytes: float  # of one prefill chunk, and the sampler's logits
    overhead_bytes: float  # context, communication buffers, what the engine leaves alone
    cache_bytes: float  # room of the KV cache; negative: the engine does not start
    usable_bytes: float  # of the device

    @property
    def peak_bytes(self) -> float:
        """Memory of the GPU with its cache full. [byte]."""
        kept = self.weights_bytes + self.activations_bytes + self.overhead_bytes
        return kept + max(0.0, self.cache_bytes)


def routed_params(ffn: AnyFfn, hidden: int) -> float:
    """Weights of all routed experts of one layer. [1]."""
    return ffn.n_experts * params.expert_params(ffn, hidden) if ffn.kind == "moe" else 0.0


def mixer_params_of_rank(model: ModelSpec, mixer: AnyMixer, tp: int) -> float:
    """Weights of a mixer on one of `tp` ranks, with its norms. [1].

    Down projections of latents and an indexer are on every rank (DeepSeek-V2, section 2.1.2), KV
    heads repeat where the ranks are more.
    """
    h = model.hidden_size
    whole, own = (sum(p.n * p.k for p in mixer.work(h, n).products) for n in (1, tp))
    return params.mixer_params(mixer, h) - whole + own + params.layer_norm_params(model) / tp


def tiled_frac(ffn: AnyFfn, hidden: int, replica: Replica, engine: EngineMemory) -> float:
    """Weights of experts as kernels of mxfp4 hold them, in whole tiles, over those of the file."""
    if ffn.kind != "moe" or replica.ffn_format != "mxfp4":
        return 1.0
    each = ffn.expert_ffn_hidden_size * min(replica.ep, replica.group) / replica.group
    tiles = ((each, engine.inner_multiple), (hidden, engine.hidden_multiple))
    return math.prod(math.ceil(width / multiple) * multiple / width for width, multiple in tiles)


def replica_weight_bytes(
    model: ModelSpec, replica: Replica, engine: EngineMemory | None = None
) -> float:
    """Weights on one GPU of the fullest stage. [byte].

    Projections, dense and shared MLPs are split over `tp`, routed experts over the group; embedding
    and head stay in 16 bits (published checkpoints; not so GGUF), and so does attention where the
    replica says so. Drafts of the model's own prediction layer add that layer.
    """
    h, engine = model.hidden_size, engine or EngineMemory()
    narrow = weight_bytes(1.0, replica.ffn_format, scales=True)
    wide = weight_bytes(1.0, replica.attention_format, scales=True)
    layers = 0.0
    for group in model.layer_groups:
        routed = routed_params(group.ffn, h)
        beside = params.ffn_params(group.ffn, h) - routed
        held = routed * tiled_frac(group.ffn, h, replica, engine)
        mixer = mixer_params_of_rank(model, group.mixer, replica.tp)
        layers += group.n * (narrow * (held / replica.group + beside / replica.tp) + wide * mixer)
    layers += (2.0 - narrow) * kept_params(model, replica) / replica.tp
    per_stage = math.ceil(model.n_layers / replica.pp) / model.n_layers
    edges = edge_params(model, replica.pp)
    if engine.embedding_on_host and params.head_params(model):
        edges = params.head_params(model)
    drafts = params.mtp_params(model) * narrow / replica.group if replica.drafts else 0.0
    each = min(edge_bytes(f) for f in (replica.ffn_format, replica.attention_format))
    return layers * per_stage + each * edges / replica.tp + drafts


def kept_params(model: ModelSpec, replica: Replica) -> float:
    """Weights of the MLPs that a checkpoint in fp8 keeps in 16 bits beside the attention. [1]."""
    if replica.ffn_format != "fp8" or replica.attention_format != "bf16":
        return 0.0
    whole = sum(g.n * params.ffn_params(g.ffn, model.hidden_size) for g in model.layer_groups)
    return whole * model.fp8_whole_layers / model.n_layers


def edge_params(model: ModelSpec, pp: int) -> float:
    """Weights of embedding, towers and head, of several stages those of the fuller end. [1]."""
    first, last = params.embedding_params(model) + model.vision_params, params.head_params(model)
    return first + last if pp == 1 else max(first, last)


def reserved_bytes(replica: Replica, engine: EngineMemory) -> float:
    """Context and buffers of the collectives, outside of the engine's pool. [byte]."""
    return engine.context_bytes + engine.collective_bytes * math.log2(replica.group)


def activation_bytes(model: ModelSpec, replica: Replica, tokens: float) -> float:
    """Peak of one pass over `tokens` tokens of a rank, 16 bits. [byte].

    ``2 tokens (3 h + widest FFN)``: gate, up and their product of a dense MLP; of experts the
    gathered rows of every chosen expert and their inner width.
    """
    h = model.hidden_size
    widest = 0.0
    for ffn in model.ffns.values():
        if ffn.kind == "dense":
            widest = max(widest, 3.0 * ffn.ffn_hidden_size / replica.tp)
        elif ffn.kind == "moe":
            inner = 3.0 * ffn.expert_ffn_hidden_size * replica.ep / replica.group
            rows = ffn.top_k * replica.dp_attention / min(replica.ep, ffn.n_experts)
            widest = max(widest, max(1.0, rows) * ((ffn.latent_size or h) + inner))
    return 2.0 * tokens * (STREAM_COPIES * h + widest)


def cache_room(
    model: ModelSpec, replica: Replica, engine: EngineMemory, device_bytes: float
) -> CacheRoom:
    """Room that an engine leaves for the KV cache on one GPU.

    `replica`: layout and formats. `engine`: rule, fraction, buffers.
    `device_bytes`: memory of the GPU that a process can have (`core.memory.fit.usable_bytes`).
    [byte]

    .. [1] vLLM, `gpu_worker.py: determine_available_memory`.
    .. [2] SGLang, `model_runner.py: profile_max_num_token`.
    .. [3] TensorRT-LLM, `kv_cache_config.free_gpu_memory_fraction`.
    """
    device = device_bytes
    weights = replica_weight_bytes(model, replica, engine)
    peak = activation_bytes(model, replica, engine.chunk_tokens)
    sampler = engine.sampler_bytes(model.vocab_size)
    if engine.apart:
        sampler = max(0.0, sampler - peak)
    overhead = reserved_bytes(replica, engine)
    if engine.rule == "device":
        least = sampler * FEWEST_SEQUENCES / max(FEWEST_SEQUENCES, engine.sampler_sequences)
        spare = engine.utilisation_frac * device - weights - peak - overhead - SPARE_FRAC * device
        sampler = max(least, min(sampler, spare))
        room = engine.utilisation_frac * device - weights - peak - sampler - overhead
        left = device - weights - peak - sampler - room
    elif engine.rule == "static":
        room = engine.utilisation_frac * (device - overhead) - weights
        left, peak, sampler = device - weights - room, 0.0, 0.0
    else:
        frac = 1.0 if engine.rule == "all" else engine.utilisation_frac
        room = frac * (device - weights - peak - sampler - overhead)
        left = device - weights - peak - sampler - room
    return CacheRoom(weights, peak + sampler, left, room, device)


def cache_bytes_per_sequence(model: ModelSpec, replica: Replica, tokens: float) -> float:
    """Cache of one sequence of `tokens` tokens on one GPU of its attention rank. [byte].

    KV heads and states split over the rank's GPUs, a latent has one copy on each (DeepSeek-V2,
    section 2.1.2); of pipeline stages the mean.
    """
    element = element_bytes(replica.kv_format)
    total = 0.0
    for group in model.layer_groups:
        c = group.mixer.cache()
        kept = c.elements_per_token * tokens
        kept += c.window_elements_per_token * min(tokens, c.window_tokens)
        state = c.state_elements * STATE_BYTES_PER_ELEMENT + c.conv_elements * element
        total += group.n * (kept * element + state) / group.mixer.cache_shards(replica.tp)
    return total / replica.pp


def state_blocks(model: ModelSpec, replica: Replica, cache_bytes: float) -> float:
    """Blocks of vLLM's cache where layers keep states; without such layers as many as one likes.

    A page of every layer is as large as a state, and a block has a page of as many layers as the
    kind of the fewest has: of the others it holds several blocks (vLLM, `kv_cache_utils.py`).
    """
    element, layers, state = element_bytes("bf16"), Counter[str](), 0.0
    for group in model.layer_groups:
        c = group.mixer.cache()
        if group.mixer.kind != "none":
            layers[group.mixer.kind] += group.n
        one = c.state_elements * STATE_BYTES_PER_ELEMENT + c.conv_elements * element
        state = max(state, one / group.mixer.cache_shards(replica.tp))
    fewest = min(layers.values()) / replica.pp
    return cache_bytes / (fewest * state) if state else math.inf


KWON = "Kwon et al. 2023 (arXiv:2309.06180), section 4"

OWN = "context_bytes + collective_bytes * log2(group)"
KEPT_BACK = {
    "device": f"{OWN} + (1 - utilisation_frac) * usable_bytes",
    "static": f"utilisation_frac * ({OWN}) + (1 - utilisation_frac) * usable_bytes",
    "free": f"utilisation_frac * ({OWN})"
    " + (1 - utilisation_frac) * (usable_bytes - weights_bytes - activations_bytes)",
    "all": OWN,
}
"""What an engine leaves alone, by its rule of dividing the memory."""

SAMPLER = "sampler_copies * 4 * sampler_sequences * vocab_size"


def weights_term(model: ModelSpec, replica: Replica, engine: EngineMemory, room: CacheRoom) -> Term:
    """Weights on one GPU of the fullest stage."""
    h, groups = model.hidden_size, model.layer_groups
    routed = sum(g.n * routed_params(g.ffn, h) for g in groups)
    held = sum(
        g.n * routed_params(g.ffn, h) * tiled_frac(g.ffn, h, replica, engine) for g in groups
    )
    ffn = "dense_params / tp" + (" + routed_params / group" if routed else "")
    kept = kept_params(model, replica)
    wide = " + (2 - ffn_bytes_each) * kept_params / tp" if kept else ""
    drafts = " + ffn_bytes_each * draft_params / group" if replica.drafts else ""
    return term_of(
        "weights_bytes",
        "bytes",
        f"stage_layers / layers * (ffn_bytes_each * ({ffn}) + mixer_bytes_each * mixer_params"
        f"{wide}) + edge_bytes_each * edge_params / tp{drafts}",
        "formats table; embedding and head in 16 bits but in GGUF; experts over the group",
        room,
        replica,
        ffn_bytes_each=weight_bytes(1.0, replica.ffn_format, scales=True),
        dense_params=sum(g.n * params.ffn_params(g.ffn, h) for g in groups) - routed,
        routed_params=held,
        kept_params=kept,
        mixer_bytes_each=weight_bytes(1.0, replica.attention_format, scales=True),
        mixer_params=sum(g.n * mixer_params_of_rank(model, g.mixer, replica.tp) for g in groups),
        stage_layers=math.ceil(model.n_layers / replica.pp),
        layers=model.n_layers,
        edge_bytes_each=edge_bytes(replica.ffn_format),
        edge_params=edge_params(model, replica.pp),
        draft_params=params.mtp_params(model),
    )


def activations_term(
    model: ModelSpec, replica: Replica, engine: EngineMemory, room: CacheRoom
) -> Term:
    """Peak of a prefill chunk, and the logits that the sampler is profiled with."""
    if engine.rule == "static":
        text = "inside what the engine leaves alone"
        return Term("activations_bytes", room.activations_bytes, "bytes", source=text)
    chunk = Term(
        "chunk_bytes",
        activation_bytes(model, replica, engine.chunk_tokens),
        "bytes",
        source=f"2 bytes x {engine.chunk_tokens:,.0f} tokens of a chunk x (4 hidden sizes + the "
        "widest FFN), core/serving/memory.py",
    )
    reserved = reserved_bytes(replica, engine)
    sampler_bytes = engine.sampler_bytes(model.vocab_size)
    taken = room.weights_bytes + chunk.value + reserved + sampler_bytes
    formula = f"chunk_bytes + {SAMPLER}"
    if (
        engine.rule == "device"
        and taken > (engine.utilisation_frac - SPARE_FRAC) * room.usable_bytes
    ):
        least = SAMPLER.replace("sampler_sequences", "fewest_sequences")
        formula = (
            f"chunk_bytes + max({least}, min({SAMPLER}, (utilisation_frac - {SPARE_FRAC:g})"
            " * usable_bytes - weights_bytes - chunk_bytes - reserved_bytes))"
        )
    return term_of(
        "activations_bytes",
        "bytes",
        formula,
        f"profiled peak and the sampler's fp32 copies; {KWON}",
        chunk,
        room,
        sampler_sequences=engine.sampler_sequences,
        sampler_copies=engine.sampler_copies,
        utilisation_frac=engine.utilisation_frac,
        vocab_size=model.vocab_size,
        reserved_bytes=reserved,
        fewest_sequences=min(FEWEST_SEQUENCES, engine.sampler_sequences),
    )


def serving_terms(
    model: ModelSpec, replica: Replica, engine: EngineMemory, m: ServingMemory
) -> tuple[Term, ...]:
    """Total of a serving GPU with its parts, and the concurrency that fits."""
    room = cache_room(model, replica, engine, m.usable_bytes)
    names = ("weights_bytes", "kv_cache_bytes", "activations_bytes", "overhead_bytes")
    each = {"sequence_bytes": m.kv_bytes_per_sequence_per_gpu}
    cache = term_of(
        "kv_cache_bytes",
        "bytes",
        "concurrency * sequence_bytes",
        "KV heads, latent and state of each layer (core/serving/memory.py)",
        m,
        **each,
    )
    source = f"serving preset, rule `{engine.rule}` of [memory]"
    kept_back = term_of(
        "overhead_bytes", "bytes", KEPT_BACK[engine.rule], source, room, engine, group=replica.group
    )
    total = total_of(
        "total_bytes",
        m.total_bytes,
        "bytes",
        {name: getattr(m, name) for name in names},
        "sum of the parts",
        (
            weights_term(model, replica, engine, room),
            cache,
            activations_term(model, replica, engine, room),
            kept_back,
        ),
    )
    if m.kv_bytes_per_sequence_per_gpu <= 0.0:
        return (total,)
    left = "usable_bytes - weights_bytes - activations_bytes - overhead_bytes"
    most = term_of(
        "max_concurrency",
        "count",
        f"max(0, floor(({left}) / sequence_bytes))",
        "sequences whose cache fits beside the rest",
        m,
        **each,
    )
    return total, most
