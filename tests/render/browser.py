"""A real headless Chromium over its debugging pipe; nothing but the standard library."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium():
    """Path of the browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def axe_core(folder):
    """Source of axe-core, from npm; skips the test where it is not to be had."""
    if shutil.which("npm") is None:
        pytest.skip("no npm here: the page was not checked by axe-core")
    try:
        fetch = ["npm", "pack", "--silent", "axe-core@4.10.3"]
        subprocess.run(fetch, cwd=folder, check=True, capture_output=True)
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"axe-core cannot be had here: {error}")
    shutil.unpack_archive(folder / "axe-core-4.10.3.tgz", folder / "axe")
    return (folder / "axe" / "package" / "axe.min.js").read_text("utf-8")


LOOKS = """
for (const e of document.querySelectorAll('[data-look]')) e.removeAttribute('data-look');
const numbers = new Map(), behind = new Map(), seen = new Map();
const number = (text) => numbers.get(text) ?? numbers.set(text, numbers.size + 1).get(text);
const under = (e) => {  // what is painted behind a text, by the styles of all that hold it
  if (e === null) return 0;
  if (behind.has(e)) return behind.get(e);
  const s = getComputedStyle(e), ground = under(e.parentElement);
  const own = [s.backgroundColor, s.backgroundImage, s.opacity, s.filter, s.position].join();
  const plain = own === 'rgba(0, 0, 0, 0),none,1,none,static';
  return behind.set(e, plain ? ground : number(ground + own)).get(e);
};
for (const e of document.querySelectorAll('body *')) {
  if (![...e.childNodes].some((c) => c.nodeType === 3 && c.data.trim())) continue;
  if (!e.checkVisibility({visibilityProperty: true})) continue;
  const s = getComputedStyle(e), off = Boolean(e.closest(':disabled, [aria-disabled]'));
  const look = [under(e), s.color, s.fontSize, s.fontWeight, s.textShadow, off].join();
  seen.set(look, (seen.get(look) ?? 0) + 1);
  if (seen.get(look) <= 8) e.dataset.look = look;
}
axe.configure({rules: [{id: 'color-contrast', selector: '[data-look]'}]});
"""
"""Contrast is asked of eight texts of each look: of every cell it is nine tenths of the time."""


def violations(tab, axe, dark):
    """What axe-core finds wrong with the page as it stands, in light or dark."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.call("Emulation.setEmulatedMedia", features=[scheme])
    tab.evaluate("Promise.all(document.getAnimations().map((a) => a.finished)).then(() => 1)")
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(axe + "; undefined")
    found = "[v.id, v.nodes.map((n) => n.target).join()]"
    run = "axe.run(document, {resultTypes: ['violations']})"
    run += f".then((r) => JSON.stringify(r.violations.map((v) => {found})))"
    return json.loads(tab.evaluate(f"{{ {LOOKS} }} {run}"))


def at_width(tab, width):
    """Whether the page stays within a width, once it has it."""
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )
    root = "document.documentElement"
    return tab.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")


AS_3_AND_4 = """
import fcntl, os, sys
a, b = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(a, 3)
os.dup2(b, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads descriptor 3 and writes 4."""

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class BrowserEnded(Exception):
    """The browser went away, as on a machine short of memory: no verdict on the page."""


AGAIN = pytest.mark.flaky(reruns=2, only_rerun="BrowserEnded")
"""Repeats a test whose browser went away, with a new one; any other failure stays one."""


class Page:
    """One tab: load a file, evaluate, and what the console said."""

    def __init__(self):
        self.messages, self.ended = [], True

    def start(self):
        """Start the browser and give it one tab."""
        to_read, self.send_fd = os.pipe()
        self.receive_fd, to_write = os.pipe()
        self.number, self.buffer, self.session = 0, b"", None
        self.events = []
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [sys.executable, "-c", AS_3_AND_4, str(to_read), str(to_write), chromium()]
        self.process = subprocess.Popen(
            [*command, *OPTIONS, f"--user-data-dir={self.profile.name}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.ended = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network", "Inspector"):
            self.call(f"{domain}.enable")

    def end(self):
        """End the browser and forget its profile."""
        self.process.kill()
        self.process.wait(10)
        os.close(self.send_fd)
        os.close(self.receive_fd)
        self.profile.cleanup()
        self.ended = True

    def call(self, method, **params):
        if self.ended:
            self.start()
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        try:
            os.write(self.send_fd, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            self.lost()
        end = time.monotonic() + 240.0
        while True:
            assert time.monotonic() < end, f"no answer to {method}"
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def lost(self):
        """Say that the browser went away; the next page is opened in a new one."""
        self.end()
        raise BrowserEnded

    def receive(self, timeout_s=120.0):
        end = time.monotonic() + timeout_s
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.receive_fd], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self.receive_fd, 1 << 20)
            if not more:
                self.lost()
            self.buffer += more
        raw, _, self.buffer = self.buffer.partition(b"\0")
        answer = json.loads(raw)
        method = answer.get("method", "")
        self.events.append(method)
        if method == "Inspector.targetCrashed":
            self.lost()
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.messages.append(answer["params"])
        return answer

    def open(self, path, dark=False):
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.events.clear()
        address = str(path) if str(path).startswith("http") else f"file://{path}"
        self.call("Page.navigate", url=address)
        while "Page.loadEventFired" not in self.events:
            self.receive()

    def evaluate(self, expression):
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


@contextlib.contextmanager
def page():
    """One tab of a browser, which is started where it is not there."""
    tab = Page()
    try:
        tab.start()
        yield tab
    finally:
        if not tab.ended:
            tab.end()
