"""Build the whole site: documentation, and the page that runs the planner in the browser.

    pip install '.[docs]' && python tools/site.py site

Works in a fresh checkout (Python with the extra `docs`, npm, a package index). Ends with an error
if a link inside the site leads nowhere.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
LIMIT_BYTES = 8e6
"""Of the planner, as a server sends it."""
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]


class Read(HTMLParser):
    """Links and anchors of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what leads somewhere and what can be led to."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def read(file: Path) -> Read:
    found = Read()
    found.feed(file.read_text("utf-8"))
    return found


def dead_links(site: Path) -> Iterator[str]:
    """Links of every file that lead to no file or anchor of the site, as ``file: link``."""
    pages = {file: read(file) for file in sorted(site.rglob("*.html"))}
    for file, found in pages.items():
        for link in dict.fromkeys(found.links):
            to = urlsplit(link)
            if to.scheme or to.netloc or link.startswith("data:"):
                continue
            meant = (file.parent / unquote(to.path)).resolve() if to.path else file
            meant = meant / "index.html" if meant.is_dir() else meant
            lost = not meant.is_relative_to(site.resolve()) or not meant.is_file()
            anchor = to.fragment and meant in pages and to.fragment not in pages[meant].anchors
            if lost or (anchor and not to.fragment.startswith("__")):
                yield f"{file.relative_to(site)}: {link}"


def pages(folder: Path) -> None:
    """Gather what the site has: pages of docs/, those written from the code, formulas typeset."""
    import formula
    import reference

    left_out = shutil.ignore_patterns("examples", "gallery.toml", "try")
    shutil.copytree(ROOT / "docs", folder, ignore=left_out)
    for path, write in reference.PAGES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(write(), "utf-8")
    for page in folder.rglob("*.md"):
        page.write_text(formula.typeset(page.read_text("utf-8")), "utf-8")


def documents(out: Path) -> None:
    """Write the documentation into a folder; a warning ends it."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pages(work / "docs")
        settings = shutil.copy(ROOT / "zensical.toml", work)
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", settings]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
        shutil.copytree(work / "site", out, dirs_exist_ok=True)
    (out / "404.html").unlink()  # its links hold at the root of a server alone


def build(out: Path, address: str) -> None:
    """Write the site into a folder: documentation and planner at once, then hold the links."""
    with ThreadPoolExecutor() as both:
        for part in (both.submit(planner, out, address), both.submit(documents, out)):
            part.result()
    hold(out)


def planner(out: Path, address: str = "", level: int = 9) -> None:
    """Write the page that runs the planner into a folder of the documentation."""
    import try_page

    try_page.build(out / "try", address and f"{address.rstrip('/')}/try/", level)


def hold(out: Path) -> None:
    """End with an error where a link of the site leads nowhere."""
    (out / ".nojekyll").touch()
    dead = list(dead_links(out))
    if dead:
        raise SystemExit("error: links that lead nowhere:\n  " + "\n  ".join(dead))
    page = [p for p in (out / "try").rglob("*") if p.is_file()]
    packed = sum(len(gzip.compress(p.read_bytes(), 6)) for p in page if p.name != "preview.png")
    if packed >= LIMIT_BYTES:
        raise SystemExit(f"error: the planner is {packed / 1e6:.2f} MB")
    print(f"built {out}: {len(list(out.rglob('*.html')))} pages, the planner {packed / 1e6:.2f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--address", default="", help="of the site: a pasted link has its picture")
    asked = parser.parse_args()
    build(asked.out.resolve(), asked.address)
