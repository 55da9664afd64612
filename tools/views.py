"""Pictures of every view of the planner's page, 390 and 1440 pixels wide, light and dark.

python tools/views.py SITE PICTURES    of a site that tools/site.py built (needs Chromium)
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "render"), str(ROOT / "tests" / "page")]

VIEWS = {
    "train": "#task=train",
    "deadline": "#task=train&deadline=30d",
    "beside": "#task=train&beside=task%3Dtrain%26gpus%3D32",
    "tune": "#task=tune",
    "serve": "#task=serve",
    "rl": "#task=rl",
    "collective": "#task=collective",
    "diagnose": "#task=diagnose",
    "error": "#task=serve&gpu=rtx9999",
}
"""Name of a view -> its address below the page."""

WIDTHS = (390, 1440)
DRAWN = "const chart = document.querySelector('.chart svg'), box = chart?.parentElement; "
DRAWN += "return !box || +chart.getAttribute('width') === Math.max(260, box.clientWidth)"
"""Whether a chart has the width that there is."""


def picture(tab: Any, width: int, dark: bool) -> bytes:
    """Whole page as it stands, as a PNG."""
    from test_try_page import wait_for

    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.call("Emulation.setEmulatedMedia", features=[scheme])
    size = {"width": width, "height": 4000, "deviceScaleFactor": 1, "mobile": True}
    tab.call("Emulation.setDeviceMetricsOverride", **size)
    wait_for(tab, f"(() => {{ {DRAWN} }})()", 60)
    tab.evaluate("new Promise((done) => setTimeout(done, 500))")
    made = tab.call("Page.captureScreenshot")
    return base64.b64decode(made["data"])


def main(site: Path, out: Path) -> None:
    """Write PICTURES/VIEW-WIDTH-SCHEME.png."""
    from browser import page
    from test_try_page import READY, served, wait_for

    out.mkdir(parents=True, exist_ok=True)
    with served(site) as (address, _), page() as tab:
        for name, view in VIEWS.items():
            tab.open(f"{address}?{name}{view}")
            wait_for(tab, f"({READY}) || document.querySelector('#state.error')", 240)
            if name not in ("diagnose", "error"):
                wait_for(tab, "document.querySelector('.chart svg')", 60)
            for width in WIDTHS:
                for dark in (False, True):
                    file = out / f"{name}-{width}-{'dark' if dark else 'light'}.png"
                    file.write_bytes(picture(tab, width, dark))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
