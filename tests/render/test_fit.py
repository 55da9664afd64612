"""Tables fit every width: no column is lost, no word breaks that need not."""

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.render.fit import fit, lines_needed, naming, shrink

words = st.text("abcdefgh", min_size=0, max_size=30)
cell = st.lists(words, min_size=1, max_size=6).map(" ".join)
tables = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(cell, min_size=n, max_size=n), min_size=1, max_size=5)
)


@given(tables, st.integers(20, 200))
def test_parts_fit_and_hold_every_column_once(table, width):
    asked = (table, [i % 2 == 0 for i in range(len(table[0]))])
    parts = fit(*asked, width)
    for part in parts:
        assert sum(part.widths) + part.gap * (len(part.widths) - 1) <= width or len(parts) == 1
        assert len(part.indices) == len(part.widths)
    again = min(
        sum(all(i in p.indices for p in parts) for i in range(len(table[0]))), naming(*asked)
    )
    names, rest = tuple(range(again)), [i for part in parts for i in part.indices[again:]]
    assert all(part.indices[:again] == names for part in parts) and again >= 1
    assert rest == list(range(again, len(table[0])))


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1), st.integers(1, 400))
def test_shrink_keeps_within_the_budget(pairs, budget):
    natural = [max(p) for p in pairs]
    least = [min(p) for p in pairs]
    widths = shrink(natural, least, budget)
    if widths is None:
        assert sum(least) > budget
    else:
        assert sum(widths) <= max(budget, 0)
        assert all(a <= w <= b for a, w, b in zip(least, widths, natural, strict=True))


def test_lines_needed():
    assert lines_needed("a bb ccc", 8) == 1
    assert lines_needed("a bb ccc", 4) == 2
    assert lines_needed("", 4) == 1
