"""Rules of thumb of the documents: advice with its source, never instead of the roofline."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.core.memory.states import RULE_OF_THUMB_ACTIVATION_BYTES_PER_PARAM


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: from (or up to) `threshold` of `quantity`, do what `advice` says."""

    name: str
    quantity: str
    threshold: float | None
    advice: str
    source: str
    low: float | None = None
    high: float | None = None
    formula: str = ""

    @property
    def span(self) -> tuple[float, float] | None:
        """Lowest and highest usual value, if the rule is a range."""
        return None if self.low is None or self.high is None else (self.low, self.high)


_NOTES = "lecture notes on large-scale training, scaling recipe"
_QA = "multi-GPU Q&A"

RULES: dict[str, Rule] = {
    r.name: r
    for r in (
        Rule(
            "activation-bytes",
            "bytes per parameter",
            RULE_OF_THUMB_ACTIVATION_BYTES_PER_PARAM,
            "activations and temporaries, at most about",
            "FSDP and deployment notes, memory",
        ),
        Rule("dp-gpus", "GPUs", 128, "plain data parallelism for about 1B parameters", _NOTES),
        Rule("fsdp-params", "parameters", 1e9, "FSDP above", _NOTES),
        Rule("hsdp-gpus", "GPUs", 256, "HSDP above", _NOTES),
        Rule(
            "hsdp-group",
            "GPUs per FSDP group",
            100,
            "HSDP groups up to about",
            "lecture notes on large-scale training, HSDP",
        ),
        Rule("nd-gpus", "GPUs", 1000, "context, pipeline and tensor parallelism above", _NOTES),
        Rule(
            "nd-params",
            "parameters",
            50e9,
            "context, pipeline and tensor parallelism above",
            _NOTES,
        ),
        Rule(
            "nd-seq-len",
            "tokens of a sequence",
            16384,
            "context, pipeline and tensor parallelism above",
            _NOTES,
        ),
        Rule(
            "batch-per-gpu",
            "sequences per GPU",
            None,
            "fill the memory of the GPU",
            _NOTES,
            formula="(HBM - state)/(activation bytes per sequence)",
        ),
        Rule(
            "dp-zero2-params",
            "parameters",
            10e9,
            "data parallelism with ZeRO-2 below",
            f"{_QA}, practical advice",
        ),
        Rule(
            "dp-tp-params",
            "parameters",
            100e9,
            "data and tensor parallelism below",
            f"{_QA}, practical advice",
            low=10e9,
            high=100e9,
        ),
        Rule("3d-params", "parameters", 100e9, "3D parallelism above", f"{_QA}, practical advice"),
        Rule(
            "tp-degree",
            "GPUs",
            None,
            "tensor-parallel degree",
            f"{_QA}, 3D parallelism",
            low=2,
            high=8,
        ),
        Rule(
            "pp-degree", "GPUs", None, "pipeline stages", f"{_QA}, 3D parallelism", low=2, high=16
        ),
    )
}
"""Rules by name. The Q&A and the notes draw the lines at different sizes: print both."""


def rule(name: str) -> Rule:
    """Rule of that name.

    Raises ValueError if there is none.

    Examples
    --------
    >>> rule("hsdp-gpus").threshold
    256
    """
    if name not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {name!r}")
    return RULES[name]
