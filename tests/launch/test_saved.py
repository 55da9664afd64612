"""A saved answer launches by what it holds; one that was edited is refused with a reason."""

import copy
import functools
import json
import random

import pytest

import gpuscale
from gpuscale.answers.saved import launch_of
from gpuscale.errors import GpuscaleError
from gpuscale.launch.dialects.write import framework_of, launch_script


@functools.cache
def saved():
    return [
        gpuscale.plan("llama3-8b", gpus="8").to_dict()["job"],
        gpuscale.memory("llama3-8b", gpus=8, method="lora", gpu="h100-sxm").to_dict()["job"],
        gpuscale.memory("qwen2.5-7b", gpus=8, method="grpo", software="verl").to_dict()["job"],
    ]


def paths(value, before=()):
    """Ways to every value of a nested table."""
    if before:
        yield before
    pairs = value.items() if isinstance(value, dict) else ()
    for key, inner in pairs:
        yield from paths(inner, (*before, key))


@pytest.mark.parametrize("seed", range(60))
def test_an_edited_job_is_launched_or_refused(seed):
    rng = random.Random(seed)
    job = copy.deepcopy(rng.choice(saved()))
    *folders, last = rng.choice(list(paths(job)))
    at = functools.reduce(lambda table, key: table[key], folders, job)
    at[last] = rng.choice([None, -1, 0, 10**12, "x", [], {}, 1.5, True, "fp8", 3])
    edited = ("KeyError", "TypeError", "ValueError", "AttributeError")  # of `launch`: EDITED
    try:
        launch = launch_of(json.loads(json.dumps(job)))
        assert launch_script(launch, framework_of(launch), "torchrun")[2]
    except (GpuscaleError, KeyError, TypeError, ValueError, AttributeError) as error:
        assert type(error).__name__ in ("GpuscaleError", *edited)


def test_a_job_with_numbers_of_its_own_is_launched_as_it_was(tmp_path):
    answer = gpuscale.memory(
        "llama3-8b", gpus=8, set=("model.n_mtp_layers=0", "gpu.hbm_bytes=99e9")
    )
    job = answer.to_dict()["job"]
    assert job["cluster"]["gpu"]["hbm_bytes"] == 99e9
    assert launch_of(job).model.name == "llama3-8b"
