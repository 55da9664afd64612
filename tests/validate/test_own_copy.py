"""What `validate` says of the package's own measurements, and the page of the documentation."""

import csv
import runpy
from pathlib import Path

import pytest

from gpuscale import api
from gpuscale.answers.validate import scores as sections_of
from gpuscale.evidence.rows_named import rows_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EVERY = 6
"""Of the served rows one in six is asked here: each is a simulated server, all take minutes."""


def drawn(file, every=EVERY):
    """Rows of a file, fewer of the loads whose simulation takes most of the time."""
    rows = list(rows_of(file))
    long = [r for r in rows if r["scenario"] in ("Server", "Interactive") or crowded(r)]
    return [*[r for r in rows if r not in long][::every], *long[:: 8 * every]]


def crowded(row):
    return float(row["concurrency"] or 0) > 2000


@pytest.fixture(scope="module")
def scores():
    """All runs and layouts are scored in `test_validate_runs_layouts.py`, some of them here."""
    fewer = {
        "inference": drawn,
        "runs": lambda f: rows_of(f)[::3],
        "layouts": lambda f: rows_of(f)[:200],
    }
    whole = sections_of.predicted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sections_of,
            "predicted",
            lambda name, file, *more: whole(name, fewer.get(name, rows_of)(file), *more),
        )
        return api.validate()


@pytest.fixture(scope="module")
def sections(scores):
    return {section["name"]: section for section in scores.to_dict()["result"]["sections"]}


def test_page_of_the_own_copy(scores):
    page = str(scores)
    for text in (
        "MAPE",
        "p90",
        "bias",
        "korthikanti22-table5",
        "layout choice",
        "rank corr.",
        "predicted/measured",
        "collectives",
        "gemm",
    ):
        assert text in page


def test_served_rows_that_are_not_predicted_are_named(sections):
    known = (
        "no lengths, and the data set is unknown",
        "a decode pool, and its batch is not printed",
        "disaggregated, and the pools are not printed",
        "no percentile of this kind of load",
        "does not fit",
    )
    assert set(sections["inference"]["unpredicted"]) <= set(known)


def test_development_error_of_served_rows(sections):
    limits = {"tpot_ms": 0.14, "throughput_tok_s": 0.15, "ttft_ms": 0.40}
    found = {s["name"]: s["median_frac"] for s in sections["inference"]["by_class"]["quantity"]}
    for quantity, median in limits.items():
        assert found[quantity] < median, quantity


def test_page_of_the_documentation_has_the_scores_that_the_command_prints(scores, sections):
    tool = runpy.run_path(str(ROOT / "tools" / "reference.py"))
    text = tool["validation_page"](scores)
    for section in sections.values():
        score = section["total"]
        row = f"| {score['name']} | {score['n_scored']} | {100 * score['mape_frac']:.1f} % |"
        assert row in text


def test_what_the_site_scores_in_parts_is_what_the_command_scores(tmp_path):
    files = {}
    for name, file in sections_of.own_files().items():
        rows = drawn(file, 30) if name == "inference" else rows_of(file)[:12]
        files[name] = str(tmp_path / f"{name}.csv")
        with open(files[name], "w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    tool = runpy.run_path(str(ROOT / "tools" / "reference.py"))
    made = {section["name"]: section for section in tool["own_sections"](files)}
    for section in api.validate(**files).to_dict()["result"]["sections"]:
        for key in ("total", "by_class", "choices"):
            assert made[section["name"]][key] == section[key], (section["name"], key)
