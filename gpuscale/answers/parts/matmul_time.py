"""`gpuscale matmul-time`: one matrix product or elementwise operation on one GPU."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Swept, amount, text, whole
from gpuscale.core.dataclasses import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Document


@dataclass
class MatmulTime(Swept):
    """Time of one matrix product or elementwise operation on one GPU.

    The roofline is a lower bound: each operand moved once, compute and memory overlapped.
    """

    NAME: ClassVar[str] = "matmul-time"
    RESULTS: ClassVar[str] = "parts.matmul_time_answer:KernelAnswer"
    EXAMPLE: ClassVar[str] = "gpuscale matmul-time b200 64 4096 8192 --dtype bf16"
    HEADLINES: ClassVar[str] = "time_s expected.time_s bound"
    gpu: Asked[str] = text("GPU preset, TOML file or -.", ...)
    m: Asked[int] = whole("Rows M of [M,K] x [K,N]; with --op the elements.", ..., label="M")
    k: Asked[int | None] = whole("Inner dimension K.", label="K")
    n: Asked[int | None] = whole("Columns N.", label="N")
    _: KW_ONLY
    dtype: Asked[str | None] = text(
        "Number format of all operands. [default: bf16, or the GPU's best 16]"
    )
    dtypes: Asked[str | None] = text("Formats of the operands and the result.", metavar="X,W,OUT")
    batch: Asked[int] = whole("Independent products.", 1, most=1e9)
    groups: Asked[int] = whole(
        "Weights that the M rows are divided among (grouped product).", 1, most=1e9
    )
    op: Asked[str | None] = text(
        "Elementwise instead: add, mul, scale, relu, axpy, fma, copy, sum, dot."
    )
    efficiency: Asked[float | None] = amount(
        "Also show the time at this share of the roofline, as 0.78.", "frac", most=1.0
    )
    catalogue: Asked[str] = options.catalogue()

    def answer(self) -> Document:
        """Time the product, or the elementwise operation."""
        from gpuscale.answers.parts.matmul_time_answer import elementwise_document, matmul_document
        from gpuscale.io.inputs import load_inputs

        loaded = load_inputs(self, gpu=self.gpu, catalogue=self.catalogue)
        sizes = [size for size in (self.m, self.k, self.n) if size is not None]
        if self.op is not None:
            _refuse(dtypes=self.dtypes is not None, batch=self.batch > 1, groups=self.groups > 1)
            return elementwise_document(self, loaded, self.op, sizes)
        if len(sizes) < 3:
            raise GpuscaleError(
                "M, K and N are wanted for a matrix product",
                "for example `gpuscale matmul-time b200 64 4096 8192`; one size goes with --op add",
            )
        if max(sizes) > 1e10:
            raise GpuscaleError(f"M, K and N must be at most 1e10, got {max(sizes):g}")
        return matmul_document(self, loaded, sizes)


def _refuse(**given: bool) -> None:
    for name, wrong in given.items():
        if wrong:
            raise GpuscaleError(f"--{name} has no meaning with --op")
