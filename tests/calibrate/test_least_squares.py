import math

import pytest

from gpuscale.evidence.fit_collectives import cholesky, fit, smooth, solve


def test_solve():
    a = [[4.0, 2.0, 0.6], [2.0, 3.0, 0.1], [0.6, 0.1, 2.0]]
    x = solve(a, [1.0, 2.0, 3.0])
    assert [sum(p * q for p, q in zip(row, x, strict=True)) for row in a] == pytest.approx(
        [1.0, 2.0, 3.0]
    )
    with pytest.raises(ValueError, match="definite"):
        cholesky([[1.0, 2.0], [2.0, 1.0]])


def test_fit_finds_an_exponential_in_spite_of_an_outlier():
    xs = [0.1 * i for i in range(30)]
    ys = [2.0 * math.exp(-0.7 * x) for x in xs]
    ys[7] *= 5.0

    def residuals(p):
        return [p[0] + p[1] * x - math.log(y) for x, y in zip(xs, ys, strict=True)]

    a, b = fit(residuals, [0.0, 0.0], [0.0, 0.0], [100.0, 100.0], 0.01)
    assert math.exp(a) == pytest.approx(2.0, rel=0.01)
    assert b == pytest.approx(-0.7, abs=0.01)


def test_prior_holds_what_the_data_do_not_tell():
    x = fit(lambda p: [p[0] - 3.0], [0.0, 0.0], [0.0, 0.5], [10.0, 0.1], 0.1)
    assert x == pytest.approx([3.0, 0.5], abs=0.05)


def test_smoothing_follows_the_values_and_fades_away():
    mean = smooth([(0.0, 0.0), (1.0, 0.0)], [0.1, 0.2], length=1.0, spread=0.2, noise=0.001)
    assert mean(0.0, 0.0) == pytest.approx(0.1, abs=1e-3)
    assert mean(1.0, 0.0) == pytest.approx(0.2, abs=1e-3)
    assert abs(mean(50.0, 50.0)) < 1e-6
