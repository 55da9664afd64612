"""The size that is looked for is the one that trying every size finds, or gaps are told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.answers.training.plan import Plan
from gpuscale.core.plan.scan import MOST_SIZES, SizeVerdict, doubled_sizes, largest, smallest

NODES = st.sampled_from([1, 4, 8])


def tried(seek, verdict):
    """Drive a search: sizes that were tried, and whether there are gaps."""
    sizes = []
    try:
        n, _ = next(seek)
        while True:
            sizes.append(n)
            n, _ = seek.send(verdict(n))
    except StopIteration as end:
        return sizes, end.value


def all_sizes(node, most):
    """Parts of a node in powers of two, multiples of a node, and the largest."""
    return sorted({*doubled_sizes(node, most), *range(node, most + 1, node)})


def verdicts(rng, sizes):
    """Verdicts without any order: a size meets or not whatever its neighbours do."""
    share = rng.choice([0.02, 0.1, 0.5])
    found = {n: rng.choice([SizeVerdict.MORE, SizeVerdict.FEWER]) for n in sizes}
    return found | {n: SizeVerdict.MEETS for n in sizes if rng.random() < share}


@settings(max_examples=30)
@given(NODES, st.integers(1, 600), st.randoms(use_true_random=False))
def test_the_smallest_is_that_of_all_sizes(node, most, rng):
    sizes = all_sizes(node, most)
    known = verdicts(rng, sizes)
    found, gaps = tried(smallest(node, most), known.__getitem__)
    meet = [n for n in sizes if known[n] is SizeVerdict.MEETS]
    assert len(found) == len(set(found)) <= 2 * len(sizes)
    assert set(found) <= set(sizes)
    able = [n for n in found if n in meet]
    if not gaps:
        assert min(able, default=None) == min(meet, default=None)
    assert gaps <= (most > MOST_SIZES * node)


@settings(max_examples=30)
@given(NODES, st.integers(1, 600), st.booleans(), st.randoms(use_true_random=False))
def test_the_largest_is_that_of_all_sizes(node, most, fastest, rng):
    sizes = all_sizes(node, most)
    known = verdicts(rng, sizes)
    found, gaps = tried(largest(node, most, fastest=fastest), known.__getitem__)
    meet = [n for n in sizes if known[n] is SizeVerdict.MEETS]
    assert set(found) <= set(sizes)
    if most <= MOST_SIZES * node:
        assert not gaps
        assert max((n for n in found if n in meet), default=None) == max(meet, default=None)
        assert not fastest or set(found) == set(sizes)


def test_many_sizes_are_thinned_and_it_is_told():
    found, gaps = tried(smallest(8, 131_072), lambda n: SizeVerdict(-(n < 5000)))
    assert gaps
    assert len(found) < 2 * MOST_SIZES
    assert min(n for n in found if n >= 5000) == 5000
    above, gaps = tried(smallest(1, 8192, 7000), lambda n: SizeVerdict(-(n < 8000)))
    assert gaps and min(above) >= 7000 and min(n for n in above if n >= 8000) == 8000
    found, gaps = tried(largest(8, 131_072), lambda n: SizeVerdict(int(n > 5000)))
    assert gaps
    assert max(n for n in found if n <= 5000) == 5000
    assert not tried(smallest(8, 131_072, 7800), lambda n: SizeVerdict(-(n < 8000)))[1]


SMALL = {
    "cluster": "dgx-h100",
    "seq_len": "4096",
    "price": "2 USD/h",
    "tokens": "100B",
    "schedule": "1f1b",
    "cp": "1",
}
KEYS = {"deadline": "days", "budget": "usd", "mfu_at_least": "mfu", "max_step_time": "step_s"}
BEST = {
    "fewest": lambda rows: min(rows, key=lambda r: r.n_gpus),
    "most": lambda rows: max(rows, key=lambda r: r.n_gpus),
    "fastest": lambda rows: max(rows, key=lambda r: r.tokens_per_s),
}
SIZES = {"budget": "fastest", "mfu_at_least": "most"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "software", "wishes"),
    [
        ("phi4", "megatron-core", ["deadline", "budget"]),
        ("llama3-70b", "deepspeed-zero3", ["budget"]),
        ("llama3-8b", "torchtitan", ["mfu_at_least", "deadline,budget"]),
        ("llama3-70b", "megatron-core", ["objective", "max_step_time"]),
    ],
)
def test_what_is_found_is_the_best_of_every_size_of_a_small_cluster(model, software, wishes):
    job = SMALL | {"model": model, "software": software}
    sizes = all_sizes(8, 48)
    rows = [r for r in Plan(**job, gpus=sizes).answer().result.rows if r.fits]
    for wish in wishes:
        wanted = {"objective": "fewest-gpus"}
        if wish != "objective":
            values = {name: sorted(getattr(r, KEYS[name]) for r in rows) for name in KEYS}
            wanted = {k: values[k][len(rows) // 2] * (1 + 1e-3) for k in wish.split(",")}
        if "deadline" in wanted:
            wanted["deadline"] *= 86400
        every = Plan(**job, **wanted, gpus=sizes).answer().result
        found = Plan(**job, **wanted, gpus="48").answer().result.chosen
        able = [row for row in every.rows if row.meets]
        assert len(able) < len(every.rows)
        assert (found is None) == (not able)
        if able:
            assert (found.n_gpus, found.layout) == (every.chosen.n_gpus, every.chosen.layout)
            assert found.n_gpus == BEST[SIZES.get(wish, "fewest")](able).n_gpus


def test_a_list_of_sizes_says_that_others_were_not_tried():
    text = str(Plan("phi4", **SMALL, gpus="16..64", deadline="5d").answer().blocks[0].text)
    assert "the fewest GPUs tried for 5 days" in text


def test_a_budget_below_the_peak_rate_searches_only_what_is_shown(monkeypatch):
    from gpuscale.answers.training import plan_case

    limits = []
    real = plan_case.solve

    def counted(case, *rest, **how):
        limits.append((case.n_gpus, how.get("limit_s", float("inf"))))
        return real(case, *rest, **how)

    monkeypatch.setattr(plan_case, "solve", counted)
    job = SMALL | {"model": "llama3-8b", "software": "megatron-core"}
    answer = Plan(**job, gpus="256", budget="6").answer()
    assert answer.answered_no
    assert all(limit == float("inf") for _, limit in limits)
    assert {n for n, _ in limits} <= {1, 2, 4, 8, 16, 32, 64, 128, 256}
