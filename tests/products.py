"""A matrix product with everything that its expected time depends on, as tests say it."""

from gpuscale.core.formats import element_bytes
from gpuscale.core.kernel.expected import ProductRows, product_time_s


def expected_matmul_time_s(
    m, n, k, dtype, arch, peak_flop_per_s, hbm_bytes_per_s, *, kernels="", **more
):
    """Time of (m, k) @ (k, n) in one format. [s]."""
    given = {name: value for name, value in more.items() if value is not None}
    rows = ProductRows(n, k, element_bytes(dtype), peak_flop_per_s, hbm_bytes_per_s, **given)
    return product_time_s(m, rows, dtype, arch, kernels)
