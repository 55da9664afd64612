"""Formulas over passes: prompts that come together, the highest rate, two pools, empty loads."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuscale.core.serving import service
from gpuscale.core.serving.capacity import NO_END, OpenLoad, SteadyLoad, open_load
from gpuscale.core.serving.loads import Demand
from gpuscale.core.serving.percentiles import summarise
from gpuscale.core.serving.records import Replica
from gpuscale.core.serving.scheduler import Simulated
from gpuscale.core.serving.service import Service, Tuning
from gpuscale.core.serving.traffic import Lengths
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.serving import serving_site

SITE, SMALL = serving_site(load_cluster("dgx-h100"), "vllm"), load_model("llama3.1-8b").spec


def served(chunk=3000.0):
    """Prompts of 1,000 take 0.1 s and a pass alone 5 ms; three fill a chunk."""
    demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 101))
    made = Service(SMALL, Replica(), SITE, demand, Tuning(chunk_tokens=chunk))
    made.table = SimpleNamespace(
        prompt=lambda tokens, keys, n, ends: 1e-4 * tokens + (0.005 if n == 0 else 0.0),
        decode=lambda n: (0.01, 0.0),
    )
    return made


@pytest.fixture
def opened(monkeypatch):
    """A queue that tells how many prompts share a pass, each time that it is asked."""
    together = []

    def made(pass_s, prompt_s, load):
        alone = prompt_s(0.0)  # 0.1 and 5 ms shared by as many
        together.append(round(0.005 / (alone - 0.1)))
        assert (load.output_tokens, load.prompt_passes, load.tokens_per_pass) == (101, 1.0, 1.0)
        return SteadyLoad(1.0, 0.01, 0.5, 4.0) if load.rate_per_s < 5000 else NO_END

    monkeypatch.setattr(service, "open_load", made)
    return together


@pytest.mark.parametrize(
    ("rate", "calls"),
    [
        (1.0, [3, 1]),  # a tenth of a prompt comes while one is read
        (20.0, [3, 2]),  # 20 x 0.10 are two
        (1000.0, [3]),  # no more than fill the chunk
        (14.0, [3, 1]),  # 1.42 and then 1.47
    ],
)
def test_prompts_that_come_during_a_pass_share_the_next(opened, rate, calls):
    assert served().steady(rate) == SteadyLoad(1.0, 0.01, 0.5, 4.0)
    assert opened == calls


def test_a_load_without_end_has_none(opened):
    assert served().steady(5000.0) == NO_END and opened == [3]
    assert not served(500.0).prompt_s(0.0) < 0.1


def test_the_highest_rate_of_a_formula(monkeypatch):
    """A first token takes 1 / (10 - rate) seconds, a token 1 ms for each request a second."""
    monkeypatch.setattr(
        Service,
        "steady",
        lambda self, rate: (
            SteadyLoad(1 / (10 - rate), rate / 1000, 0.5, 1.0) if rate < 10 else NO_END
        ),
    )
    for limits, want in (({}, 10.0), ({"ttft_s": 0.2}, 5.0), ({"tpot_s": 0.002}, 2.0)):
        assert want * (1 - 4e-3) <= served().most_rate(**limits) <= want * (1 + 1e-9)
    assert served().most_rate(ttft_s=0.2, tpot_s=0.002) == pytest.approx(2.0, rel=4e-3)
    assert served().most_rate(ttft_s=0.09) == 0.0


def test_a_formula_ends_where_the_prompts_alone_fill_the_time():
    """Prompts of 50 ms leave nothing from 20 a second on, whatever decodes."""
    load = OpenLoad(19.0, output_tokens=2, most_sequences=1e6)
    assert open_load(lambda n: 1e-4, lambda n: 0.05, load).ttft_s < math.inf
    assert open_load(lambda n: 1e-4, lambda n: 0.05, replace(load, rate_per_s=20.1)) == NO_END


# --- two pools -----------------------------------------------------------------------------------

CASES = [  # prompts a second, workers, room of one, requests
    (50.0, 1, 100.0, 16.0), (2.0, 1, 100.0, 64.0), (50.0, 4, 100.0, 64.0), (50.0, 2, 8.0, 64.0),
]  # fmt: skip


# --- nothing to count ----------------------------------------------------------------------------


def test_a_load_of_no_time_has_no_rate():
    found = summarise(Simulated([0.0], [0.0], [0.0], [5], [3]))
    assert (found.requests_per_s, found.input_tokens_per_s, found.output_tokens_per_s) == (0, 0, 0)
    assert (found.decoding_sequences, found.busy_frac, found.tokens_per_s_per_user) == (0, 0, 0)
    assert (found.n_requests, found.time_s) == (1, 0.0)
    none = summarise(Simulated([0.0, 1.0], [math.nan] * 2, [math.nan] * 2, [5, 5], [3, 3]))
    assert (none.n_requests, none.time_s, none.requests_per_s) == (0, 0.0, 0.0)


def test_a_request_of_one_token_has_no_time_of_a_token():
    found = summarise(Simulated([0.0, 0.0], [1.0, 1.0], [1.0, 3.0], [5, 5], [1, 5], busy_s=1.5))
    assert found.tpot.mean_s == 0.5 and found.ttft.mean_s == 1.0
    assert found.busy_frac == 0.5 and found.tokens_per_s_per_user == 2.0
