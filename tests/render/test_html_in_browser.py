"""The report in a real browser: no console error, sorts, folds, runs no foreign script."""

import shlex
import sys
from pathlib import Path

import pytest

from gpuscale.cli.app import run

sys.path.insert(0, str(Path(__file__).parent))
from browser import AGAIN, at_width, axe_core, chromium, page, violations  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium() is None,
        reason="no Chromium here (apt-get install chromium): the report was not tried in a browser",
    ),
    AGAIN,
]

EVIL = '</title></script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">'

EVIL_MODEL = f"""
name = '''{EVIL}'''
hidden_size = 512
vocab_size = 1024
layers = "4 x full+dense"

[mixers.full]
kind = "attention"
n_heads = 8
n_kv_heads = 8
head_dim = 64

[ffns.dense]
kind = "dense"
ffn_hidden_size = 2048

[sources]
shape = '''{EVIL}'''
"""


@pytest.fixture(scope="module")
def tab():
    with page() as found:
        yield found


@pytest.fixture
def report(tmp_path, capsys):
    def make(line, dark=False):
        path = tmp_path / "report.html"
        code = run([*shlex.split(line), "-o", str(path)])
        assert code in (0, 1), capsys.readouterr().err
        return path

    return make


def test_a_plan_opens_without_a_console_error_or_a_request(tab, report):
    tab.messages.clear()
    tab.open(report("plan llama3-70b --gpus 64"))
    assert tab.evaluate("document.querySelector('.answer').textContent").startswith("llama3-70b")
    assert tab.evaluate("document.querySelectorAll('figure svg').length") >= 4
    assert tab.evaluate("document.querySelectorAll('svg title').length") > 20
    assert tab.evaluate("performance.getEntriesByType('resource').length") == 0
    assert tab.messages == []


def test_tables_sort_by_value_both_ways(tab, report):
    tab.open(report("plan llama3-70b --gpus 64"))
    table = "[...document.querySelectorAll('table.sortable')].find(t => t.tHead.textContent"
    table += ".includes('slower'))"
    heads = tab.evaluate(f"[...{table}.tHead.rows[0].cells].map(c => c.textContent.trim())")
    column = heads.index("step")

    def values():
        key = f"Number(r.cells[{column}].dataset.v)"
        return tab.evaluate(f"[...{table}.tBodies[0].rows].map(r => {key})")

    click = f"{table}.tHead.rows[0].cells[{column}].querySelector('button').click()"
    tab.evaluate(click)
    assert values() == sorted(values()) and len(values()) > 2
    tab.evaluate(click)
    assert values() == sorted(values(), reverse=True)
    state = f"{table}.tHead.rows[0].cells[{column}].getAttribute('aria-sort')"
    assert tab.evaluate(state) == "descending"


def test_explanation_and_inputs_fold(tab, report):
    tab.open(report("plan llama3-70b --gpus 64"))
    for name in ("explanation", "inputs"):
        box = f"document.querySelector('#{name}')"
        height = f"{box}.getBoundingClientRect().height"
        folded = tab.evaluate(height)
        assert tab.evaluate(f"{box}.open") is False
        tab.evaluate(f"{box}.querySelector('summary').click()")
        assert tab.evaluate(f"{box}.open") is True and tab.evaluate(height) > folded + 20


def test_light_and_dark(tab, report):
    path = report("memory llama3-70b --tp 8 --pp 8")
    seen = []
    for dark in (False, True):
        tab.open(path, dark)
        seen.append(
            tab.evaluate(
                "[getComputedStyle(document.body).backgroundColor, "
                "getComputedStyle(document.querySelector('svg .gs-bg')).fill].join()"
            )
        )
    assert seen[0] == "rgb(255, 255, 255),rgb(255, 255, 255)"
    assert seen[1] == "rgb(18, 22, 28),rgb(18, 22, 28)"


@pytest.mark.parametrize(
    "line", ["model {}", "memory {} --tp 2 --pp 2", "timeline {} --pp 2", "plan {} --gpus 16"]
)
def test_a_script_in_a_name_does_not_run(tab, report, tmp_path, line):
    (tmp_path / "evil.toml").write_text(EVIL_MODEL, "utf-8")
    tab.messages.clear()
    tab.open(report(line.format(tmp_path / "evil.toml")))
    assert tab.evaluate("typeof window.hacked") == "undefined"
    assert tab.evaluate("document.querySelectorAll('script').length") == 1
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert "onerror" in tab.evaluate("document.body.textContent")
    assert tab.messages == []


def test_pictures_alone_open_as_files(tab, tmp_path, capsys):
    (tmp_path / "evil.toml").write_text(EVIL_MODEL, "utf-8")
    for name in ("x.svg", "x.timeline.svg"):
        path = tmp_path / name
        line = ["plan", str(tmp_path / "evil.toml"), "--gpus", "16", "-o", str(path)]
        assert run(line) in (0, 1), capsys.readouterr().err
        tab.messages.clear()
        tab.open(path)
        assert tab.evaluate("document.documentElement.tagName") == "svg"
        assert tab.evaluate("typeof window.hacked") == "undefined" and tab.messages == []


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PAGES = [
    "plan llama3-70b --gpus 64",
    "plan llama3-8b --gpus 64,128,256",
    "plan llama3-8b --gpu rtx-3090 --gpus 2 --method qlora --tokens 50M",
    "plan qwen2.5-7b --method grpo --gpu h100 --gpus 8",
    "memory llama3-70b --gpus 64 --tp 8 --pp 4",
    "memory llama3-8b --gpus 8 --sweep seq-len=4k,64k,128k",
    "serve llama3.1-8b --gpu h100 --gpus 1 --concurrency 4",
    "timeline llama3-70b --gpus 64 --tp 8 --pp 4",
    "network h100-superpod --gpus 512",
    "roofline llama3-70b",
    f"validate --runs {EXAMPLES / 'my_runs.csv'} --collectives {EXAMPLES / 'my_collectives.csv'}",
    "quiz",
    "model llama3-8b",
]


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    return axe_core(tmp_path_factory.mktemp("axe"))


@pytest.mark.parametrize("line", PAGES)
def test_a_page_is_light_and_open_to_all(tab, report, axe, line):
    path = report(line)
    assert path.stat().st_size < 150_000
    tab.messages.clear()
    for width, dark in ((390, False), (1440, True)):
        tab.open(path)
        assert at_width(tab, width), width
        assert violations(tab, axe, dark) == [], (width, dark)
    tab.call("Emulation.clearDeviceMetricsOverride")
    said = tab.evaluate("[...document.querySelectorAll('nav a')].map((a) => a.hash).join()")
    for anchor in said.split(","):
        same = f'[id="{anchor[1:]}"]'
        assert tab.evaluate(f"document.querySelectorAll('{same}').length") == 1, anchor


def test_boxes_of_a_step_carry_their_micro_batch(tab, report):
    tab.open(report("plan llama3-70b --gpus 64"))
    numbers = "[...document.querySelectorAll('svg[aria-label^=\"One step in time\"] tspan')]"
    found = set(tab.evaluate(f"{numbers}.map((t) => t.textContent)"))
    assert {"1", "2", "3", "4"} <= found


def test_a_sweep_says_where_the_answer_is_no(tab, report):
    tab.open(report("memory llama3-8b --gpus 8 --sweep seq-len=4k,64k,128k"))
    verdict = tab.evaluate("document.querySelector('.verdict.no').textContent")
    assert verdict.startswith("The answer is no")
