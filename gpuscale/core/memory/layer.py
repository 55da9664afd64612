"""Activations of one layer and one micro-batch: what is kept, and what its backward needs."""

from __future__ import annotations

from gpuscale.core.memory.facts import LayerFacts
from gpuscale.core.memory.parameters import MemoryParameters


def layer_bytes(
    layer: LayerFacts,
    hidden_size: int,
    software: MemoryParameters,
    *,
    tokens: float,
    context_tokens: float,
    tp: int = 1,
    sequence_parallel: bool = False,
    etp: int = 1,
    unfused_attention: bool = False,
    recompute: str = "none",
    modules: tuple[str, ...] = ("core_attn",),
    eight_bit: bool = False,
    expert_imbalance: float = 1.0,
    exchanged: bool = False,
) -> float:
    """Activation bytes that one layer keeps for one micro-batch on one GPU.

    Korthikanti's count, generalised: per token ``hidden + latent`` (split by TP only with
    sequence parallelism), attention and FFN elements (split by TP), score matrices of unfused
    attention, and the copies of the token that experts of this GPU receive.

    `layer`: elements per token. `hidden_size`: model width [1]. `software`: bytes per element of
    the family. `tokens`: tokens of the micro-batch on this context-parallel rank [1].
    `context_tokens`: whole sequence, the length of a row of the score matrix [1]. `tp, etp`: tensor
    and expert-tensor parallel degree [1]. `sequence_parallel`: norms and residuals are split along
    the sequence over TP. `unfused_attention`: score matrices are stored. `recompute`: ``none``,
    ``selective`` (`modules` recomputed), ``full`` (only the input kept), ``per-op`` (input, and
    what `saved_elements` counts; `exchanged`: also the tokens that all-to-alls brought to experts
    and back). `modules`: for ``selective``. `eight_bit`: inputs of linears are kept in 8 bits
    (Transformer Engine, fp8 and narrower formats): one byte less for each norm output, FFN input of
    the down projection, expert input. `expert_imbalance`: tokens of the busiest expert rank over
    the mean [1]. Returns: bytes [byte].

    .. [1] V. Korthikanti et al., arXiv:2205.05198, section 4.
    """
    whole = tp if sequence_parallel else 1
    if recompute == "full":
        return 2.0 * hidden_size * tokens / whole
    if recompute == "per-op":
        routed = 2.0 * expert_imbalance * layer.top_k * layer.expert_width if exchanged else 0.0
        split = (layer.saved_split + routed) / tp
        return 2.0 * (hidden_size / whole + split + layer.saved_width) * tokens
    drop = modules if recompute == "selective" else ()
    narrow = 1.0 if eight_bit else 0.0
    ffn_bytes = software.ffn_bytes * (1 - narrow / 6)  # a third of the elements at half the bytes
    hidden = (software.hidden_bytes / 2 - narrow) * layer.n_sublayers
    if "layernorm" in drop:
        hidden -= (2.0 - narrow) * layer.n_sublayers
    if "attn_proj" in drop:  # and with it the input of the second sublayer
        hidden -= 2.0 * (layer.n_sublayers - 1)
    split = layer.mixer.split - (layer.mixer.up_projected if "mla_up_proj" in drop else 0.0)
    per_token = max(0.0, hidden) * hidden_size / whole + 2.0 * layer.mixer.latent / whole
    per_token += software.attention_bytes * split / tp
    if "mlp" not in drop:
        per_token += ffn_bytes * layer.ffn * (2 / 3 if "mlp_act" in drop else 1.0) / tp
    if unfused_attention and "core_attn" not in drop:  # a window masks scores that are there
        per_token += software.scores_bytes * layer.mixer.score_heads * context_tokens / tp
    if layer.top_k and "moe" not in drop:
        ffn = ffn_bytes * layer.expert_ffn * (2 / 3 if "moe_act" in drop else 1.0)
        width = layer.expert_width * etp
        copy = software.expert_hidden_bytes * (1 - narrow / 2) * width + ffn
        per_token += expert_imbalance * layer.top_k * copy / tp
    return per_token * tokens
