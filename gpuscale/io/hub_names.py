"""Names of models on a hub: what only says how a model was tuned, dated or stored, and what is it.

`Llama-3.1-8B-Instruct`, `Qwen3-4B-Thinking-2507` and `Llama-2-13B-chat-GPTQ` have the layers of
`llama-3.1-8b`, `qwen3-4b` and `llama-2-13b`; the last one is stored in 4 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpuscale.core.formats import FORMATS, format_name

TUNED = re.compile(
    r"instruct|chat|it|base|hf|thinking|think|preview|latest|sft|mixture|dpo|rlhf|rl|pt|beta|fast|"
    r"uncensored|abliterated|distill|quantized|qat|turbo|exp|block|marlin|reasoning|coder|code|math|python|unsloth|mlx|dynamic|"
    r"([1248]|10|12|16|20|24|32|40|48|60|64|80|96|\d{3,4})k|1m|bf16|fp16|meta|intermediate"
)
"""Words that change no shape: how it was tuned, for whom, its context, its 16 bits."""

STEP = r"-step-?\d+k?(-[\d.]+[bt])?"
"""A checkpoint on the way: its step and its tokens."""

DATED = re.compile(r"\d{4}|v\d(\.\d)?|\d{2}-\d{2}")
"""Dates and versions, where the name without them is known."""

_SAID = "fp8 w8a8 int8 awq gptq int4 w4a16 w8a16 nvfp4 fp4 mxfp4".split()
STORED = {word: format_name(word) for word in _SAID}
STORED |= {"8bit": "int8", "4bit": "int4-g128", "gguf": "q4_k_m"}
"""Words that say how the weights are stored -> their format; `bnb-4bit` is `nf4`."""


class HubName(NamedTuple):
    """What a name means: the model whose shape it has, the format of its weights; None: 16 bits."""

    model: str
    stored: str | None


def read_hub_name(name: str, known: Callable[[str], bool]) -> HubName | None:
    """Model and format that a name on a hub means; None where no part of it is known.

    `name`: as a hub has it, without the owner. `known`: whether a shorter name is one of a model.

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
    for short in _shorter(words):
        if short and known(short):
            return HubName(short, stored or (formats[0] if formats else None))
    return None


def _shorter(words: list[str]) -> Iterator[str]:
    """Names without words that change no shape: how it was tuned, from the end on, all."""
    either = re.compile(f"{TUNED.pattern}|{DATED.pattern}")
    yield "-".join(words)
    yield "-".join(w for w in words if not TUNED.fullmatch(w))
    left = list(words)
    while left and either.fullmatch(left[-1]):
        left.pop()
        yield "-".join(left)
    yield "-".join(w for w in words if not either.fullmatch(w))


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
