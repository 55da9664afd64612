"""Audits of the built site in the manner of Lighthouse: what of them a headless Chromium can run.

python tools/audit.py SITE    of a site that tools/site.py built (needs Chromium, npm)

Accessibility is the share of axe-core's rules that hold, of those that apply; best practices and
search engines the share of the checks below. Performance is the weighted score of first paint,
largest paint, blocking time and jumps on Lighthouse's curves for a desktop, at 20 Mbit/s and 40 ms,
without its speed index. Blocking is counted in processor time of the page's thread, so that others
on the machine do not count; paints are later where it is busy. Ends with 1 where a score is below
95.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "render"), str(ROOT / "tests" / "page")]

LEAST = 95.0
TASKS = ("train", "tune", "serve", "rl", "collective", "diagnose")
PAGES = (
    *(f"try/?{task}#task={task}" for task in TASKS),
    "index.html",
    "tutorial.html",
    "gallery.html",
    "physics/step.html",
    "reference/keys.html",
)
CURVES = {
    "fcp": (934, 1600, 10),
    "lcp": (1200, 2400, 25),
    "tbt": (150, 350, 30),
    "cls": (0.1, 0.25, 25),
}
"""Measure -> value of score 0.9, value of score 0.5, weight: Lighthouse 10, desktop."""

BYTES_PER_S = 20e6 / 8
ASKED = (Path(__file__).parent / "audit.js").read_text("utf-8")


def on_curve(value: float, p10: float, median: float) -> float:
    """Score of a measure, 0 to 1: a log-normal curve with 0.9 at p10 and 0.5 at the median."""
    spread = math.log(median / p10) / 1.2815515655
    return 0.5 * math.erfc(math.log(max(value, 1e-9) / median) / spread / math.sqrt(2))


def speed(seen: dict[str, float]) -> float:
    """Weighted score of what was measured, 0 to 100."""
    parts = [(w, on_curve(seen[name], a, b)) for name, (a, b, w) in CURVES.items()]
    return 100 * sum(w * s for w, s in parts) / sum(w for w, _ in parts)


def share(checks: dict[str, bool | None]) -> float:
    """Share of the checks that hold, of those that apply, in %."""
    counted = [bool(held) for held in checks.values() if held is not None]
    return 100 * sum(counted) / len(counted)


def asked(tab: Any, what: str) -> dict[str, bool | None]:
    """Make the checks of a kind, by name: held, failed or None where there is nothing to check."""
    found: dict[str, bool | None] = tab.evaluate(f"(() => {{ {ASKED}; return asked.{what}() }})()")
    return found


@contextmanager
def traced(tab: Any) -> Iterator[list[dict[str, Any]]]:
    """Trace what the browser does within; its events are there at the end."""
    session, found = tab.session, list[dict[str, Any]]()
    how = {"includedCategories": ["toplevel", "loading"]}
    tab.session = None
    tab.call("Tracing.start", transferMode="ReportEvents", traceConfig=how)
    tab.session = session
    yield found
    tab.session = None
    tab.call("Tracing.end")
    while (told := tab.receive()).get("method") != "Tracing.tracingComplete":
        found += told["params"]["value"] if told.get("method") == "Tracing.dataCollected" else []
    tab.session = session


def blocked_ms(events: list[dict[str, Any]]) -> float:
    """Processor time beyond 50 ms of each task of the page's thread after its first paint."""
    paint = [e for e in events if e["name"] == "firstContentfulPaint"][-1]
    tasks = [e for e in events if (e["pid"], e["tid"]) == (paint["pid"], paint["tid"])]
    later = [e for e in tasks if e["name"].endswith("::RunTask") and e["ts"] > paint["ts"]]
    return sum(max(0.0, e.get("tdur", 0) / 1e3 - 50) for e in later)


def audit(tab: Any, url: str, axe: str) -> dict[str, tuple[float, list[str]]]:
    """Score and failed checks of each category, for one page."""
    from browser import at_width

    tab.messages.clear()
    at_width(tab, 1350)
    tab.call("Network.setCacheDisabled", cacheDisabled=True)
    with traced(tab) as events:
        tab.open(url)
        tab.evaluate("new Promise((done) => setTimeout(done, 3000))")
    seen = tab.evaluate("seen") | {"tbt": blocked_ms(events)}
    said = [str(m)[:200] for m in tab.messages]
    practices = asked(tab, "practices")
    practices["nothing in the console"] = not said
    practices["nothing deprecated"] = "eprecat" not in str(said)
    at_width(tab, 390)
    search = asked(tab, "search")
    rules: dict[str, bool | None] = {}
    for width, dark in ((390, False), (1350, False), (1350, True)):
        at_width(tab, width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.evaluate("new Promise((done) => setTimeout(done, 400))")
        tab.evaluate(axe + "; undefined")
        for rule, held in asked(tab, "rules").items():
            rules[rule] = held and rules.get(rule, True)
    slow = [f"{k} {v:,.3g}" for k, v in seen.items()]
    found: dict[str, tuple[float, list[str]]] = {"performance": (speed(seen), slow)}
    named = {"accessibility": rules, "best practices": practices, "search": search}
    for name, checks in named.items():
        found[name] = share(checks), [c for c, held in checks.items() if held is False]
    return found


def main(site: Path) -> int:
    """Print a line for each page and what failed on it."""
    from browser import axe_core, page
    from test_try_page import served

    low = 0
    with tempfile.TemporaryDirectory() as folder, served(site) as (address, _), page() as tab:
        axe = axe_core(Path(folder))
        tab.call("Page.addScriptToEvaluateOnNewDocument", source=f"{ASKED}; asked.watch()")
        tab.call(
            "Network.emulateNetworkConditions",
            offline=False,
            latency=40,
            downloadThroughput=BYTES_PER_S,
            uploadThroughput=BYTES_PER_S,
        )
        for name in PAGES:
            found = audit(tab, address.removesuffix("try/") + name, axe)
            scores = ", ".join(f"{kind} {score:.0f}" for kind, (score, _) in found.items())
            print(f"{name:<30} {scores}", flush=True)
            print(f"{'':<30} {', '.join(found['performance'][1])}")
            for kind, (score, failed) in found.items():
                low += score < LEAST
                if failed and kind != "performance":
                    print(f"{'':<30} {kind}: {'; '.join(failed)}")
    return int(low > 0)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve()))
