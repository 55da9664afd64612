"""Build the page that runs the planner in the browser: a folder of static files, nothing elsewhere.

    python tools/try_page.py site/try

Takes Pyodide from npm (`npm pack`) and the wheels of pydantic from the Python package index, both
pinned here, and a wheel of this checkout. The page checks every wheel against its hash.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYODIDE = "314.0.7"
FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
PYTHON, ABI, PLATFORM = "3.14", "cp314", "pyemscripten_2026_0_wasm32"
WHEELS = (
    "pydantic==2.14.3",
    "pydantic_core==2.50.4",
    "typing_extensions==4.16.0",
    "annotated_types==0.8.0",
    "typing_inspection==0.4.5",
    "tomli==2.5.0",
)


def run(*words: str, cwd: Path) -> None:
    """Run a package client; what it prints goes to stderr."""
    subprocess.run(words, cwd=cwd, check=True, stdout=sys.stderr)


def pyodide(out: Path, work: Path) -> None:
    """Unpack the pinned Pyodide."""
    run("npm", "pack", "--silent", f"pyodide@{PYODIDE}", cwd=work)
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(work / f"pyodide-{PYODIDE}.tgz") as archive:
        for name in FILES:
            source = archive.extractfile(f"package/{name}")
            assert source is not None, name
            (out / name).write_bytes(source.read())


def wheels(out: Path, work: Path) -> list[dict[str, str]]:
    """Fetch the pinned wheels and build our own; their files and hashes."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(
        *pip,
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        PYTHON,
        "--implementation",
        "cp",
        "--abi",
        ABI,
        "--abi",
        "none",
        "--platform",
        PLATFORM,
        "--platform",
        "any",
        "-d",
        str(work / "wheels"),
        *WHEELS,
        cwd=work,
    )
    run(*pip, "wheel", "-q", "--no-deps", "-w", str(work / "wheels"), str(ROOT), cwd=work)
    out.mkdir(parents=True, exist_ok=True)
    listed = []
    for file in sorted((work / "wheels").glob("*.whl")):
        shutil.copy(file, out / file.name)
        digest = base64.b64encode(hashlib.sha256(file.read_bytes()).digest()).decode()
        listed.append({"file": file.name, "sha256": digest})
    return listed


def build(out: Path) -> None:
    """Write the folder."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pyodide(out / "pyodide", work)
        listed = wheels(out / "wheels", work)
    for file in (ROOT / "docs" / "try").iterdir():
        shutil.copy(file, out / file.name)
    shutil.copy(ROOT / "gpuscale" / "render" / "assets" / "report.css", out / "report.css")
    text = json.dumps({"pyodide": PYODIDE, "wheels": listed}, indent=1) + "\n"
    (out / "manifest.json").write_text(text, "utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    worker = out / "sw.js"
    worker.write_text(worker.read_text("utf-8").replace("VERSION", digest), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    build(parser.parse_args().out.resolve())
