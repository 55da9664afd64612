"""Models: what gpuscale understands of a model, and its TOML."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Swept, amount, flag
from gpuscale.core.dataclasses import KW_ONLY, dataclass
from gpuscale.render.document import Document


@dataclass
class Model(Swept):
    """Layers, parameters, FLOP per token and KV cache of a model.

    Active counts are of one token; multi-token prediction is kept apart.
    """

    NAME: ClassVar[str] = "model"
    RESULTS: ClassVar[str] = "parts.model_answer:ModelAnswer parts.model_answer:ModelToml"
    EXAMPLE: ClassVar[str] = "gpuscale model deepseek-v3 --seq-len 4096"
    HEADLINES: ClassVar[str] = "params active_params training_flop_per_token kv_bytes_per_token"
    model: Asked[str] = options.model(...)
    _: KW_ONLY
    seq_len: Asked[int | None] = options.seq_len()
    kv_bytes: Asked[float] = amount(
        "Bytes per element of the KV cache: 2 bf16, 1 fp8.", "bytes", 2.0, most=16
    )
    toml: Asked[bool] = flag("Print the model as TOML, to edit and pass back in.")

    def answer(self) -> Document:
        """Count it."""
        from gpuscale.answers.parts.model_answer import model_document

        return model_document(self)
