"""The package's own copy of the measurements, read once a process."""

from functools import cache

from gpuscale.evidence.score_runs import own_copy, read_runs


@cache
def own_runs(name="training_runs"):
    """Runs of one file of the copy."""
    return read_runs(own_copy(name))
