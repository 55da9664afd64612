"""Build the page that runs the planner in the browser: a folder of static files, nothing elsewhere.

    python tools/try_page.py site/try

Takes Pyodide from npm (`npm pack`) and the wheels of pydantic from the Python package index, both
pinned here, and a wheel of this checkout; that Pyodide compiles their modules into one archive,
which the page checks against its hash.
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


def wheels(work: Path) -> list[Path]:
    """Fetch the pinned wheels and build our own."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    target = f"--python-version {PYTHON} --implementation cp --abi {ABI} --abi none"
    where = f"--platform {PLATFORM} --platform any -d {work / 'wheels'}"
    fetch = f"download -q --no-deps --only-binary=:all: {target} {where}"
    run(*pip, *fetch.split(), *WHEELS, cwd=work)
    run(*pip, "wheel", "-q", "--no-deps", "-w", str(work / "wheels"), str(ROOT), cwd=work)
    return sorted((work / "wheels").glob("*.whl"))


COMPILE = """
import { readFileSync, writeFileSync } from "node:fs";
const [folder, out, ...wheels] = process.argv.slice(2);
const { loadPyodide } = await import(`file://${folder}/pyodide.mjs`);
const python = await loadPyodide({ indexURL: folder });
wheels.forEach((file, i) => python.FS.writeFile(`/${i}.whl`, readFileSync(file)));
python.globals.set("n_wheels", wheels.length);
python.runPython(readFileSync(0, "utf-8"));
writeFileSync(out, python.FS.readFile("/out.zip"));
"""
"""For node: gives wheels to the Python that the page will run, and takes an archive from it."""

ARCHIVE = """
import pathlib, py_compile, zipfile

LEFT_OUT = ("pydantic/v1/", "pydantic/mypy.py", ".cyclonedx.json")
hashed = py_compile.PycInvalidationMode.UNCHECKED_HASH
with zipfile.ZipFile("/out.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
    for i in range(n_wheels):
        wheel = zipfile.ZipFile(f"/{i}.whl")
        for name in sorted(wheel.namelist()):
            if any(part in name for part in LEFT_OUT):
                continue
            content = wheel.read(name)
            if name.endswith(".py"):
                pathlib.Path("/one.py").write_bytes(content)
                py_compile.compile("/one.py", "/one.pyc", name, True, invalidation_mode=hashed)
                name, content = name + "c", pathlib.Path("/one.pyc").read_bytes()
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(info, content)
"""
"""For that Python: byte code in place of sources, as it starts in half the time."""


def archive(out: Path, work: Path, found: list[Path]) -> str:
    """Write the modules of wheels as one archive; its hash."""
    (work / "compile.mjs").write_text(COMPILE, "utf-8")
    subprocess.run(
        ["node", "compile.mjs", str(out / "pyodide"), str(out / "code.zip"), *map(str, found)],
        cwd=work,
        input=ARCHIVE,
        text=True,
        check=True,
    )
    return base64.b64encode(hashlib.sha256((out / "code.zip").read_bytes()).digest()).decode()


def build(out: Path) -> None:
    """Write the folder."""
    from gpuscale.render.html_report import stylesheet

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pyodide(out / "pyodide", work)
        found = wheels(work)
        digest = archive(out, work, found)
    for file in (ROOT / "docs" / "try").iterdir():
        shutil.copy(file, out / file.name)
    (out / "report.css").write_text(stylesheet(), "utf-8")
    told = {"pyodide": PYODIDE, "wheels": [f.name for f in found], "sha256": digest}
    (out / "manifest.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    keep_offline(out)


def keep_offline(out: Path) -> None:
    """Tell the service worker which files there are, and name its cache by their content."""
    files = sorted(p for p in out.rglob("*") if p.is_file() and p.name != "sw.js")
    version = hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()[:12]
    names = ["./", *(p.relative_to(out).as_posix() for p in files)]
    worker = out / "sw.js"
    text = worker.read_text("utf-8").replace("VERSION", version)
    worker.write_text(text.replace("FILES = []", f"FILES = {json.dumps(names)}"), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    build(parser.parse_args().out.resolve())
