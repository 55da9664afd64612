"""Documentation and the planner in a real browser: one build, nothing from elsewhere.

Needs Chromium, npm and a package index; where one is missing the tests say which and are skipped.
"""

import base64
import contextlib
import csv
import functools
import gzip
import http.server
import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpuscale.answers.page import asked_json
from gpuscale.answers.validate import scores
from gpuscale.io.text import read_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "render"))
from browser import AGAIN, at_width, axe_core, chromium, page, violations

pytestmark = [pytest.mark.slow, AGAIN]

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
JOBS = [  # the first wants modules that come behind the first answer
    ("plan", {"model": "llama3-8b", "gpus": "8", "gpu": "h100", "set": "gpu.hbm_bytes=90GB"}),
    ("memory", {"model": "llama3-8b", "gpu": "rtx-3090", "gpus": "2", "method": "qlora"}),
    ("memory", {"model": "llama3-8b", "gpu": "rtx-4090", "method": "lora", "seq_len": "2048"}),
    ("memory", {"model": "qwen2.5-7b", "gpu": "h100", "gpus": "4", "method": "full"}),
    ("memory", {"model": "llama3-70b", "cluster": "dgx-h100", "tp": "8", "pp": "8"}),
    (
        "memory",
        {"model": "deepseek-v3", "cluster": "dgx-h200", "pp": "8", "ep": "64", "gpus": "512"},
    ),
    ("memory", {"params": "70e9"}),
    (
        "plan",
        {"model": "llama3-8b", "gpus": "2", "gpu": "rtx-3090", "method": "qlora", "tokens": "50M"},
    ),
    (
        "plan",
        {"model": "mistral-7b", "gpus": "1", "gpu": "a100", "method": "lora", "tokens": "20M"},
    ),
    ("plan", {"model": "llama3-8b", "gpus": "64"}),
    ("plan", {"model": "llama3-70b", "gpus": "512", "tokens": "1T"}),
    ("plan", {"model": "mixtral-8x7b", "gpus": "64", "cluster": "dgx-b200"}),
    ("plan", {"model": "llama3-8b", "gpus": "16", "software": "torchtitan"}),
    ("serve", {"model": "llama3.1-8b", "gpus": "1", "gpu": "h100", "rate": "2/s"}),
    ("serve", {"model": "llama3.1-70b", "gpus": "8", "weights": "fp8", "concurrency": "16"}),
    (
        "serve",
        {
            "model": "llama3.1-8b",
            "gpu": "rtx-4090",
            "gpus": "1",
            "engine": "llama.cpp",
            "weights": "q4_k_m",
            "concurrency": "1",
        },
    ),
    ("memory", {"model": "qwen3-30b-a3b", "serve": "true", "gpus": "2"}),
    ("matmul-time", {"gpu": "b200", "m": "64", "n": "4096", "k": "8192"}),
    ("plan", {"model": "qwen2.5-7b", "method": "grpo", "gpu": "h100", "gpus": "8", "steps": "100"}),
    ("plan", {"model": "llama3-8b", "method": "dpo", "gpu": "a100-80gb", "gpus": "8"}),
    ("memory", {"model": "llama3-8b", "gpu": "no-such-card"}),
]
ASK = """new Promise((done, failed) => {
  const worker = new Worker('worker.js', {type: 'module'}), jobs = %s, got = [];
  worker.onerror = (e) => failed(e.message);
  worker.onmessage = ({data}) => {
    if (data.failed) failed(data.failed);
    const ask = ([command, given], id) => worker.postMessage({id, what: 'answer', command, given});
    if (data.names) jobs.forEach(ask);
    if (data.made) got[data.id] = [data.made.error ?? null, data.made.answer ?? null];
    if (Object.keys(got).length === jobs.length) done(JSON.stringify(got));
  };
})"""


LEVEL, PACKED_LESS_BYTES = 3, 854e3
"""Of the archives, which the site packs at 9; how many more bytes they are so."""
EVERY = 300
"""One measured row in so many is scored for the page of scores: its text is tested elsewhere."""


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """Files of a few of the package's measurements."""
    given, folder = {}, tmp_path_factory.mktemp("rows")
    for kind, shipped in scores.own_files().items():
        rows = read_rows(shipped)[::EVERY]
        given[kind] = folder / f"{kind}.csv"
        with open(given[kind], "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return given


@pytest.fixture(scope="module")
def documents(some, tmp_path_factory):
    """Folder of the documentation; empty without the extra `docs`."""
    folder = tmp_path_factory.mktemp("site")
    if importlib.util.find_spec("zensical") is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scores, "own_files", lambda: some)
            runpy.run_path(str(TOOLS / "site.py"))["documents"](folder)
    return folder


def built(folder):
    """Add the page to the documentation; or skip with the reason."""
    if chromium() is None or shutil.which("npm") is None:
        pytest.skip("no Chromium or no npm here: the page was not tried in a browser")
    if made := os.environ.get("GPUSCALE_SITE"):  # built before, to be quick at work
        return shutil.copytree(made, folder, dirs_exist_ok=True)
    try:
        runpy.run_path(str(TOOLS / "site.py"))["planner"](folder, level=LEVEL)
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"the page cannot be built here: {error}")
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    held = "/never"  # end of a path that is not answered

    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        if self.path.endswith(self.held):
            threading.Event().wait()
        super().do_GET()


class Held(Quiet):
    held = "python.xz"


@contextlib.contextmanager
def served(folder, kind=Quiet):
    """A plain static file server of a folder; its address, and what stops it."""
    handler = functools.partial(kind, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop():
        server.shutdown()
        server.server_close()

    yield f"http://127.0.0.1:{server.server_port}/try/", stop
    stop()


@pytest.fixture(scope="module")
def site(documents):
    folder = built(documents)
    with served(folder) as (address, _), page() as tab:
        yield tab, address, folder


def wait_for(tab, condition, seconds=120):
    said = tab.evaluate(
        f"new Promise((done) => {{ let left = {seconds * 20}; const look = () => ({condition}) "
        "? done('yes') : left-- > 0 ? setTimeout(look, 50) "
        ": done(document.body.innerText.slice(0, 800)); look(); })"
    )
    assert said == "yes", said


def follow(tab, link, end):
    """Click a link and wait for the page that it leads to."""
    tab.events.clear()
    tab.evaluate(f"setTimeout(() => document.querySelector('{link}').click()); 0")
    while "Page.loadEventFired" not in tab.events:
        tab.receive()
    assert tab.evaluate("location.pathname").endswith(end)


def test_a_visitor_comes_by_the_button_of_the_index_and_no_link_is_dead(site):
    tab, address, folder = site
    if not (folder / "index.html").exists():
        pytest.skip("the documentation was not built here: no extra docs")
    assert list(runpy.run_path(str(TOOLS / "site.py"))["dead_links"](folder)) == []
    tab.open(address.removesuffix("try/") + "index.html")
    follow(tab, ".md-button", "/try/index.html")
    wait_for(tab, SHOWN)
    assert "llama3.1-8b" in text_of(tab, "#head")
    follow(tab, ".top .name a", "/index.html")
    assert tab.evaluate("Boolean(document.querySelector('.md-nav'))")


def test_jobs_have_the_same_answers_as_here(site):
    tab, address, _ = site
    tab.open(address)
    got = json.loads(tab.evaluate(ASK % json.dumps(JOBS)))
    for (command, given), (error, answer) in zip(JOBS, got, strict=True):
        here = json.loads(asked_json(command, json.dumps(given)))
        assert error == here.get("error"), (command, given)
        if error is None:
            close(answer["result"], here["answer"]["result"], f"{command} {given}")


def close(one, other, where):
    """Hold two JSON values equal, numbers to 1e-9."""
    assert type(one) is type(other) or {type(one), type(other)} == {int, float}, where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one.keys() - {"age_days"}:  # counted to today, which the page takes elsewhere
            close(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for i, pair in enumerate(zip(one, other, strict=True)):
            close(*pair, f"{where}[{i}]")
    elif isinstance(one, (int, float)) and not isinstance(one, bool):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-15), where
    else:
        assert one == other, where


SHIFTS = """self.shifts = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) shifts += entry.value;
}).observe({type: "layout-shift", buffered: true})"""
SHOWN = "document.querySelector('#answer:not(.old) #head .answer') && "
SHOWN += "document.querySelector('#details details')"
READY = "document.querySelector('#state').textContent === '' && " + SHOWN
OPTIONS_SAID = (
    "(() => { const said = document.querySelector('#answer').cloneNode(true); "
    "said.querySelectorAll('pre, code').forEach((e) => e.remove()); "
    "return [...document.querySelectorAll('#form [name]')]"
    ".map((e) => `--${e.name.replaceAll('_', '-')}`)"
    ".filter((o) => new RegExp(o + '(?![\\w-])').test(said.textContent)).join() })()"
)
"""Options that the form has a field for, and that the answer names all the same."""
LOOKS = (((390, False), (1440, True)), ((390, True), (1440, False)))
"""Widths and whether dark, by turns: layout is of the width, colours of the scheme."""
TASKS = ("train", "tune", "serve", "rl", "collective", "diagnose")


def text_of(tab, selector):
    return tab.evaluate(f"document.querySelector('{selector}').textContent")


def fill(tab, field, value):
    """Type into a field of the form."""
    tab.evaluate(
        f"{{ const box = document.getElementById('{field}'); box.value = '{value}'; "
        "for (const kind of ['input', 'change']) "
        "box.dispatchEvent(new Event(kind, {bubbles: true})) }"
    )


@pytest.fixture
def without_python(site):
    with served(site[2], Held) as (address, _):
        yield address


def test_each_task_answers_before_python_is_there_and_is_accessible(site, without_python):
    tab, address, folder = site[0], without_python, site[2]
    tab.messages.clear()
    axe = axe_core(folder)
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=SHIFTS)
    for task, looks in zip(TASKS, LOOKS * 3, strict=True):
        tab.open(f"{address}?{task}#task={task}")
        loading = "document.querySelector('#state').textContent.includes('Loading')"
        wait_for(tab, f"({SHOWN}) && {loading}", 5)  # the first answer waits for nothing
        assert float(tab.evaluate("shifts")) < 0.1, f"{task}: what is read jumps"
        assert tab.evaluate(OPTIONS_SAID) == "", task
        for width, dark in looks:
            assert at_width(tab, width), (task, width)
            assert violations(tab, axe, dark) == [], (task, width, dark)
    assert tab.messages == []
    names = tab.evaluate("performance.getEntriesByType('resource').map((e) => e.name)")
    assert all(name.startswith(("http://127.0.0.1", "data:", "blob:")) for name in names)


def test_the_answer_begins_on_the_first_screen_of_a_phone_and_charts_are_redrawn(site):
    tab, address, _ = site
    at_width(tab, 390)
    tab.open(f"{address}?phone")
    wait_for(tab, "document.querySelector('.chart svg')")
    top = "document.querySelector('#head .answer').getBoundingClientRect().top"
    assert tab.evaluate(top) < 500
    wide = "+document.querySelector('.chart svg').getAttribute('width')"
    narrow = tab.evaluate(wide)
    assert narrow <= 390
    at_width(tab, 1440)
    wait_for(tab, f"{wide} > 2 * {narrow}")


def test_one_visit_of_an_engineer(site):
    tab, address, folder = site
    tab.messages.clear()
    tab.open(f"{address}?visit")
    wait_for(tab, READY)
    # a slider: the figures follow the finger, the answer comes when it is left
    run = "document.querySelector('#knobs figcaption b').textContent"
    before = tab.evaluate(run)
    tab.evaluate(
        "{ const s = document.getElementById('slide-gpus'); s.value = +s.value + 1; "
        "s.dispatchEvent(new Event('input', {bubbles: true})) }"
    )
    assert tab.evaluate(run) != before
    assert "--gpus 16" in text_of(tab, "#command")
    tab.evaluate("document.getElementById('slide-gpus').dispatchEvent(new Event('change'))")
    wait_for(tab, "document.querySelector('#command').textContent.includes('--gpus 32')")
    assert "gpus=32" in tab.evaluate("location.hash")
    tab.evaluate("history.back()")
    wait_for(tab, "document.querySelector('#command').textContent.includes('--gpus 16')")
    assert tab.evaluate("[...document.querySelectorAll('#knobs text')].every((t) => t.textContent)")
    # a click on a point pins its layout; the job is kept beside, the other one released
    wait_for(tab, "document.querySelectorAll('.chart circle').length > 8")
    spot = "[...document.querySelectorAll('.chart circle')].at(6).getBoundingClientRect()"
    tab.evaluate("document.querySelector('.chart').scrollIntoView({block: 'center'})")
    x, y = tab.evaluate(f"(({{x, y, width}}) => [x + width / 2, y + width / 2])({spot})")
    for kind in ("mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    wait_for(tab, "document.querySelector('#command').textContent.includes('--tp ')")
    wait_for(tab, SHOWN + " && document.querySelector('#pinned').textContent.includes('Pinned')")
    assert tab.evaluate("document.querySelectorAll('.chart circle').length") > 8
    tab.evaluate("document.querySelector('#keep').click()")
    tab.evaluate("document.querySelector('#pinned button').click()")
    wait_for(tab, "document.querySelectorAll('#beside tbody tr').length > 8")
    # the address says all of it
    link = tab.evaluate("location.href").replace("?visit", "?link")
    told = text_of(tab, "#beside table")
    tab.open(link)
    wait_for(tab, "document.querySelectorAll('#beside tbody tr').length > 8")
    assert text_of(tab, "#beside table") == told
    # another task keeps model and machine
    wait_for(tab, READY)
    fill(tab, "model", "qwen2.5-7b")
    fill(tab, "gpu", "a100")
    tab.evaluate("document.querySelector('input[value=serve]').click()")
    wait_for(tab, "document.querySelector('#command').textContent.includes('gpuscale serve')")
    assert "gpuscale serve qwen2.5-7b" in text_of(tab, "#command")
    wait_for(tab, READY)
    # a mistake is said in the words of the form, and the field is marked
    fill(tab, "gpu", "rtx9999")
    wait_for(tab, "document.querySelector('#gpu').getAttribute('aria-invalid') === 'true'")
    said = text_of(tab, "#state")
    assert said.startswith("GPU or cluster: unknown") and "--" not in said
    assert tab.messages == []


@pytest.mark.parametrize("task", ["tune", "rl"])
def test_ways_of_fine_tuning_and_rl_are_drawn_and_pinned(site, task):
    tab, address, _ = site
    tab.messages.clear()
    tab.open(f"{address}?ways{task}#task={task}")
    wait_for(tab, "document.querySelectorAll('.chart circle').length > 8", 20)
    tab.evaluate(
        "{ const list = document.getElementById('pin-list'); list.value = "
        "[...list.options].find((o) => /recompute full/.test(o.text)).value; "
        "list.dispatchEvent(new Event('change')) }"
    )
    wait_for(tab, "document.querySelector('#command').textContent.includes('--recompute full')")
    assert tab.messages == []


SCROLLED_BY_KEYS = (
    "[...document.querySelectorAll('pre > code')]"
    ".every((box) => box.scrollWidth <= box.clientWidth || box.tabIndex === 0)"
)


def test_pages_of_the_documentation_are_accessible(site):
    tab, address, folder = site
    if not (folder / "index.html").exists():
        pytest.skip("the documentation was not built here: no extra docs")
    axe = axe_core(folder)
    names = ("index", "tutorial", "gallery", "physics/step", "reference/keys")
    for name, looks in zip(names, LOOKS * 3, strict=False):
        tab.open(address.removesuffix("try/") + f"{name}.html")
        for width, dark in looks:
            assert at_width(tab, width), (name, width)
            wait_for(tab, SCROLLED_BY_KEYS)  # the theme sees a new width after a moment
            assert violations(tab, axe, dark) == [], (name, width, dark)


def test_checks_of_practice_and_for_search_engines_hold(site):
    tab, address, folder = site
    ask = runpy.run_path(str(TOOLS / "audit.py"))["asked"]
    index = [] if not (folder / "index.html").exists() else [address + "../index.html"]
    for place in (f"{address}?checks", *index):
        tab.open(place)
        at_width(tab, 390)
        for kind, least in (("practices", 5), ("search", 9)):
            checks = ask(tab, kind)
            assert [name for name, held in checks.items() if held is False] == [], place
            assert sum(held is True for held in checks.values()) >= least


def test_deadline_and_range_of_gpus(site):
    tab, address, _ = site
    tab.open(f"{address}?range#task=train&deadline=30d")
    wait_for(tab, READY)
    assert "--deadline 30d" in text_of(tab, "#command")
    wait_for(tab, "document.querySelector('#tab-pareto')")
    assert "GPUs" in text_of(tab, "#head .answer")


def test_a_log_is_read_here(site):
    tab, address, _ = site
    tab.open(f"{address}?log")
    wait_for(tab, READY)
    tab.evaluate(
        "{ const all = new DataTransfer(); "
        f"all.items.add(new File([{json.dumps(LOG)}], 'run.log')); "
        "dispatchEvent(Object.assign(new Event('drop', {cancelable: true}), {dataTransfer: all})) }"
    )
    wait_for(tab, "document.querySelector('#command').textContent.includes('--log run.log')")
    wait_for(tab, READY)
    assert "17.20 s" in text_of(tab, "#answer")


LOG = "\n".join(
    f" iteration {n}/ 1000 | consumed samples: {n * 1024} | elapsed time per iteration (ms): "
    f"17200.0 | learning rate: 3.0E-04 | global batch size:  1024 | lm loss: 9.0 |"
    for n in range(1, 20)
)


def test_files_of_an_answer_and_the_keyboard(site):
    tab, address, _ = site
    at_width(tab, 1440)
    tab.open(f"{address}?files")
    wait_for(tab, READY)
    tab.evaluate("document.querySelector('#launch summary').click()")
    wait_for(tab, "document.querySelector('#launch-text').textContent.includes('torchrun')")
    saved = "const made = []; HTMLAnchorElement.prototype.click = function () "
    saved += "{ made.push(this.download) }; self.made = made; "
    saved += "for (const id of ['save-page', 'save-picture']) document.getElementById(id).click()"
    tab.evaluate(saved)
    wait_for(tab, "made.join() === 'answer.html,answer.svg'")
    tab.evaluate("document.querySelector('#form input').focus()")
    wanted = {"model", "gpus", "gpu", "config", "tokens", "slide-gpus", "tab-layouts", "pin-list"}
    wanted |= {"copy-command", "save-page", "command"}
    seen = set()
    for _ in range(150):
        for kind in ("keyDown", "keyUp"):
            tab.call(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        seen.add(tab.evaluate("document.activeElement.id || document.activeElement.className"))
        if wanted <= seen:
            break
    assert wanted <= seen, wanted - seen


def test_it_is_small(site):
    _, _, folder = site
    page = [p for p in (folder / "try").rglob("*") if p.is_file() and p.name != "preview.png"]
    limit = runpy.run_path(str(TOOLS / "site.py"))["LIMIT_BYTES"]  # held where the site is built
    assert sum(len(gzip.compress(p.read_bytes(), 6)) for p in page) < limit + PACKED_LESS_BYTES


def test_a_file_that_is_missing_is_said_and_the_first_answers_stand(site, tmp_path):
    tab, _, folder = site
    broken = tmp_path / "site"
    shutil.copytree(folder / "try", broken / "try")
    (broken / "try" / "start.xz").unlink()
    with served(broken) as (address, _):
        tab.open(address)
        wait_for(tab, "document.querySelector('#state.error')")
        assert "start.xz" in text_of(tab, "#state")
        assert "llama3.1-8b" in text_of(tab, "#head")
        tab.evaluate("document.querySelector('input[value=serve]').click()")
        wait_for(tab, "document.querySelector('#head').textContent.includes('TTFT')")


def test_without_a_network_it_still_answers(site, tmp_path):
    tab, _, folder = site
    with served(folder) as (address, stop):
        tab.open(address)
        wait_for(tab, READY)
        ready = "navigator.serviceWorker.ready.then((r) => r.active?.state ?? '')"
        assert tab.evaluate(ready) in ("activating", "activated")
        stop()
        tab.messages.clear()
        tab.open(f"{address}?again#task=serve&gpus=3")
        wait_for(tab, READY)
        assert "--gpus 3" in text_of(tab, "#command")
    picture = base64.b64decode(tab.call("Page.captureScreenshot")["data"])
    (tmp_path / "offline.png").write_bytes(picture)
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000
    assert tab.messages == []


def test_the_documentation_loads_nothing_from_elsewhere(documents):
    if not (documents / "index.html").exists():
        pytest.skip("the documentation was not built here: no extra docs")
    pages = [file for file in documents.rglob("*.html") if "try" not in file.parts]
    assert len(pages) > 30
    for file in pages:
        for tag in re.findall(r"<(?:script|link|img)[^>]*>", file.read_text("utf-8")):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{file.name}: {tag}"
