"""Products of mixed formats, batches and groups, as products of one format by the calibration."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.core.formats import element_bytes
from gpuscale.core.kernel.calibration import ArchCalibration
from gpuscale.core.kernel.expected import ProductRows, product_time_s


@dataclass(frozen=True, slots=True)
class MixedProduct:
    """(m, k) @ (k, n), `batch` times, the rows shared out over `groups` weights."""

    m: int
    k: int
    n: int
    x_dtype: str
    w_dtype: str
    out_dtype: str
    batch: int = 1
    groups: int = 1

    @property
    def unseen(self) -> str:
        """Form of product that the measurements do not hold; empty where they do."""
        forms = {
            "a batched product": self.batch > 1,
            "a grouped product": self.groups > 1,
            "a product of mixed formats": self.x_dtype != self.w_dtype,
        }
        return next((form for form, given in forms.items() if given), "")

    def single(
        self,
        compute_dtype: str,
        flop_per_s: float,
        hbm_bytes_per_s: float,
        n_units: int | None,
        l2_bytes: float | None,
    ) -> tuple[float, ProductRows]:
        """Rows, and launch of equal products of one format, the narrower operand second."""
        rows, columns, narrow = self.m / self.groups, float(self.n), self.w_dtype
        if self.x_dtype != compute_dtype:
            rows, columns, narrow = columns, rows, self.x_dtype
        return rows, ProductRows(
            n=columns,
            k=self.k,
            in_bytes=element_bytes(compute_dtype),
            peak_flop_per_s=flop_per_s,
            hbm_bytes_per_s=hbm_bytes_per_s,
            n_units=n_units or 1,
            l2_bytes=l2_bytes or 0.0,
            out_bytes=element_bytes(self.out_dtype),
            weight_bytes=None if self.x_dtype == self.w_dtype else element_bytes(narrow),
            products=float(self.groups * self.batch),
        )


def mixed_product_time_s(
    product: MixedProduct,
    compute_dtype: str,
    arch: ArchCalibration,
    flop_per_s: float,
    hbm_bytes_per_s: float,
    *,
    n_units: int | None,
    l2_bytes: float | None,
) -> float:
    """Return the expected time of a product of mixed formats. [s].

    The narrower operand is widened on the way; where that is the first, the product is the
    transposed one: the same work with the operands swapped. A grouped product is one launch of
    equal products, the rows shared out evenly.

    `compute_dtype`: format in which it is multiplied. `flop_per_s, hbm_bytes_per_s`: peaks of the
    GPU [FLOP/s, byte/s]. `n_units`: compute units [1]. `l2_bytes`: L2 cache [byte].
    """
    rows, one = product.single(compute_dtype, flop_per_s, hbm_bytes_per_s, n_units, l2_bytes)
    return product_time_s(rows, one, compute_dtype, arch)
