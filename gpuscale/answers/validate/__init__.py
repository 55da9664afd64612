"""Validation: how well the model does on measured runs."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers.ask import Asked, Calibrated, text
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.render.document import Document


@dataclass
class Validate(Calibrated):
    """Score the predictions on measured runs: MAPE, median, p90 and bias, by class.

    Without a file, the package's own copy of published measurements is scored; with files, each
    of them, in the columns of the published sets.
    """

    NAME: ClassVar[str] = "validate"
    RESULTS: ClassVar[str] = "validate.scores:Scores"
    EXAMPLE: ClassVar[str] = "gpuscale validate --runs my_runs.csv --rows scored.csv"
    _: KW_ONLY
    runs: Asked[str | None] = text("Training runs to score (CSV).", metavar="FILE")
    layouts: Asked[str | None] = text("Layout grids: the choice is scored too.", metavar="FILE")
    gemm: Asked[str | None] = text("Measured matmuls.", metavar="FILE")
    collectives: Asked[str | None] = text("Measured collectives.", metavar="FILE")
    inference: Asked[str | None] = text("Served models: TTFT, TPOT, throughput.", metavar="FILE")
    finetune: Asked[str | None] = text("Fine-tuning: peak memory, step time.", metavar="FILE")
    rows: Asked[str | None] = text(
        "Write one line per input row: measured, predicted.", metavar="OUT.csv"
    )

    def answer(self) -> Document:
        """Score them."""
        from gpuscale.answers.validate.scores import scores_document

        return scores_document(self)
