"""`gpuscale validate` on the package's own copy, computed once: scores, their page, the site."""

import re
import runpy
from pathlib import Path

import pytest

from gpuscale import api

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def answer():
    return api.validate()


@pytest.fixture(scope="module")
def sections(answer):
    return {section["name"]: section for section in answer.to_dict()["result"]["sections"]}


def test_page_of_the_own_copy(answer):
    page = str(answer)
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
    assert set(sections["inference"]["unpredicted"]) <= {
        "no lengths, and the data set is unknown",
        "a decode pool, and its batch is not printed",
        "no percentile of this kind of load",
        "unknown model 'moonshotai/Kimi-Linear-48B-A3B-Instruct': `kimi` is known, "
        "`-linear-48b-a3b` is not",
        "unknown model 'stepfun-ai/Step-3.5-Flash': architecture unknown",
    }


def test_development_error_of_served_rows(sections):
    limits = {"tpot_ms": 0.14, "throughput_tok_s": 0.15, "ttft_ms": 0.40}
    found = {s["name"]: s["median_frac"] for s in sections["inference"]["by_class"]["quantity"]}
    for quantity, median in limits.items():
        assert found[quantity] < median, quantity


def test_page_of_the_documentation_has_the_scores_that_the_command_prints(answer, sections):
    tool = runpy.run_path(str(ROOT / "tools" / "reference.py"))
    text = tool["validation_page"](answer)
    for section in sections.values():
        score = section["total"]
        row = f"| {score['name']} | {score['n_scored']} | {100 * score['mape_frac']:.1f} % |"
        assert row in text


def test_site_is_built_without_a_warning(answer, tmp_path, monkeypatch):
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(api, "validate", lambda: answer)
    build(load_config("mkdocs.yml", site_dir=str(tmp_path)))  # strict: a warning ends it
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        for tag in re.findall(r"<(?:script|link|img)[^>]*>", page.read_text("utf-8")):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{page.name}: {tag}"
