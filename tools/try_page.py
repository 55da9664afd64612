"""Build the page that runs the planner in the browser: a folder of static files, nothing elsewhere.

    python tools/try_page.py site/try

Takes Pyodide from npm (`npm pack`) and the wheels of pydantic from the Python package index, both
pinned here, and a wheel of this checkout; that Pyodide compiles their modules into two archives,
which the page checks against their hashes: what every answer needs, and pydantic, which only files
of the visitor need and which comes behind it. Observable Plot draws, bundled from npm. The
answers that the page shows first are made here: they need no Python there.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs" / "try"
PLOT = "plot, barX, dot, line, pointer, ruleX, ruleY, stackX, text, tip"
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
    """Fetch the pinned wheels and build our own, unless GPUSCALE_WHEEL says where it is."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    target = f"--python-version {PYTHON} --implementation cp --abi {ABI} --abi none"
    where = f"--platform {PLATFORM} --platform any -d {work / 'wheels'}"
    fetch = f"download -q --no-deps --only-binary=:all: {target} {where}"
    run(*pip, *fetch.split(), *WHEELS, cwd=work)
    if built := os.environ.get("GPUSCALE_WHEEL"):
        shutil.copy(built, work / "wheels")
    else:
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
for (const name of ["code.zst", "pydantic.zst"])
  writeFileSync(`${out}/${name}`, python.FS.readFile(`/${name}`));
writeFileSync(`${folder}/python_stdlib.zip`, python.FS.readFile("/stdlib.zip"));
"""
"""For node: gives wheels to the Python that the page will run, and takes archives from it."""

ARCHIVE = """
import json, re, zipfile
import importlib._bootstrap_external as written
from compression.zstd import CompressionParameter as Say, compress

LEFT_OUT = ("pydantic/v1/", "pydantic/mypy.py", "pydantic/_hypothesis", ".pyi", ".dist-info/",
    "gpuscale/evidence/", "gpuscale/textbook/", "gpuscale/cli/", "gpuscale/data/validation/",
    "gpuscale/answers/validate/", "gpuscale/answers/calibrate", "gpuscale/answers/study/",
    "gpuscale/answers/quiz")

def bare(code):
    "Without the tables of line numbers, and without docstrings where nothing shows them."
    inner = tuple(bare(c) if hasattr(c, "co_code") else c for c in code.co_consts)
    return code.replace(co_linetable=b"", co_consts=inner)

def compiled(name, content):
    "A file as it is shipped: byte code in place of a source."
    if not name.endswith(".py"):
        return name, content
    shown = 1 if "/answers/" in name or "/errors" in name else 2
    code = bare(compile(content, name, "exec", optimize=shown, dont_inherit=True))
    return name + "c", bytes(written._code_to_hash_pyc(code, b"x" * 8, False))

with (
    zipfile.ZipFile("/lib/python314.zip") as whole,
    zipfile.ZipFile("/stdlib.zip", "w", zipfile.ZIP_STORED) as kept,
):
    for name in sorted(whole.namelist()):
        if not re.match(STDLIB_LEFT_OUT, name):
            name, content = compiled(name, whole.read(name))
            kept.writestr(zipfile.ZipInfo(name), content)

wheels = [zipfile.ZipFile(f"/{i}.whl") for i in range(n_wheels)]
rows = [(name, wheel) for wheel in wheels for name in wheel.namelist()]
rows = [row for row in rows if not any(p in row[0] for p in LEFT_OUT) and row[0][-1] != "/"]
rows.sort(key=lambda row: (row[0].rsplit(".")[-1], row[0]))
files = [compiled(name, wheel.read(name)) for name, wheel in rows]
best = {Say.compression_level: level, Say.window_log: 25}
ours = [row for row in files if row[0].startswith(("gpuscale/", "tomli/"))]
for kept, name in ((ours, "code"), ([row for row in files if row not in ours], "pydantic")):
    index = json.dumps([(name, len(content)) for name, content in kept]).encode()
    parts = [len(index).to_bytes(4), index, *(content for _, content in kept)]
    with open(f"/{name}.zst", "wb") as out:
        out.write(compress(b"".join(parts), options=best))
"""
"""For that Python: byte code in place of sources, as it starts in a third of the time."""

STDLIB_LEFT_OUT = (
    r"(_pyrepl|unittest|multiprocessing|xml|xmlrpc|wsgiref|http|sqlite3|curses|dbm|idlelib|ensurepip"
    r"|lib2to3|turtledemo|tkinter|venv|pydoc_data|profiling|concurrent/interpreters)/"
    r"|encodings/(cp|iso|mac|big5|euc|gb|hz|johab|koi8|kz|ptcp|shift|tis|hp|palmos)"
    r"|(pdb|doctest|pydoc|imaplib|smtplib|mailbox|optparse|turtle|nntplib|ftplib|poplib|telnetlib"
    r"|cProfile|profile|pstats|trace|tracemalloc|webbrowser|configparser|pickletools|bdb|cmd"
    r"|difflib|ssl|socketserver|netrc|plistlib|aifc|wave|sunau|mimetypes|filecmp|fileinput|getpass"
    r"|rlcompleter|symtable|tabnanny|timeit|this|antigravity|asynchat|xdrlib|_aix_support"
    r"|_android_support|_apple_support|_ios_support|_osx_support|_strptime_t|zipapp|sched)\.pyc?$"
)


def pack(out: Path) -> None:
    """Pack what a server would send whole: the interpreter, and its library."""
    for name in ("pyodide.asm.wasm", "python_stdlib.zip"):
        raw = (out / name).read_bytes()
        (out / f"{name}.gz").write_bytes(gzip.compress(raw, 9, mtime=0))
        (out / name).unlink()
    lock = json.loads((out / "pyodide-lock.json").read_text("utf-8"))
    lock["packages"] = {}
    (out / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")


def archive(out: Path, work: Path, found: list[Path], level: int = 19) -> dict[str, str]:
    """Write the modules of wheels as two archives, packed at a level of zstd; their hashes."""
    (work / "compile.mjs").write_text(COMPILE, "utf-8")
    command = ["node", "compile.mjs", str(out / "pyodide"), str(out), *map(str, found)]
    program = f"STDLIB_LEFT_OUT, level = {STDLIB_LEFT_OUT!r}, {level}\n{ARCHIVE}"
    subprocess.run(command, cwd=work, input=program, text=True, check=True)
    packed = {file.name: file.read_bytes() for file in sorted(out.glob("*.zst"))}
    return {
        name: base64.b64encode(hashlib.sha256(content).digest()).decode()
        for name, content in packed.items()
    }


def charts(out: Path, work: Path) -> None:
    """Bundle the parts of Observable Plot that the page draws with."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, work / name)
    run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=work)
    (work / "plot-in.js").write_text(f"export {{ {PLOT} }} from '@observablehq/plot';\n", "utf-8")
    bundle = "--bundle --minify --format=esm --target=es2022 --legal-comments=none"
    run("npx", "esbuild", "plot-in.js", *bundle.split(), f"--outfile={out / 'plot.js'}", cwd=work)


ASKED = """
import { TASKS, ask, given, questions, values } from "%s";
const { names, results } = JSON.parse((await import("node:fs")).readFileSync(0, "utf-8"));
console.log(JSON.stringify(Object.fromEntries(Object.keys(TASKS).map((task) => {
  const options = given(task, values(task), names);
  const first = [ask("answer", TASKS[task].command, options)];
  return [task, results ? questions(task, options, results[task]) : first];
}))));
"""
"""For node: what the page asks for the form of each task as it stands at first."""


def first_answers(out: Path, work: Path) -> None:
    """Answer what the page asks at first: it needs no Python then."""
    from gpuscale.answers.page import asked_json, kept_json, names_json

    def asked(**known: Any) -> dict[str, list[dict[str, Any]]]:
        (work / "asked.mjs").write_text(ASKED % (SOURCE / "tasks.js").as_uri(), "utf-8")
        told = json.dumps({"names": names, **known})
        command = ["node", "--no-warnings", "asked.mjs"]
        said = subprocess.run(command, cwd=work, input=told, text=True, check=True, stdout=-1)
        found: dict[str, list[dict[str, Any]]] = json.loads(said.stdout)
        return found

    @cache
    def said(what: str, command: str, given: str) -> Any:
        one = asked_json(command, given) if what == "answer" else kept_json(command, given, what)
        return json.loads(one)

    def answer(question: dict[str, Any]) -> Any:
        return said(question["what"], question["command"], json.dumps(question["given"]))

    names = json.loads(names_json())
    results = {task: answer(ask[0])["answer"]["result"] for task, ask in asked().items()}
    rows = {task: [(q, answer(q)) for q in found] for task, found in asked(results=results).items()}
    at_once = {"names": names, "answers": rows["train"][:1]}
    told = json.dumps(at_once, separators=(",", ":")).replace("<", "\\u003c")
    index = out / "index.html"
    index.write_text(index.read_text("utf-8").replace(">null<", f">{told}<"), "utf-8")
    rest = [row for found in rows.values() for row in found]
    (out / "first.json").write_text(json.dumps(rest, separators=(",", ":")), "utf-8")


def build(out: Path, address: str = "", level: int = 19) -> None:
    """Write the folder; `address`: where it will be found, for the picture of a pasted link.

    A lower `level` packs sooner: 9 takes half the time of 19 for the archives, and 284 kB more.
    """
    from gpuscale.render.html_report import stylesheet

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pyodide(out / "pyodide", work)
        found = wheels(work)
        digest = archive(out, work, found, level)
        pack(out / "pyodide")
        charts(out, work)
        for file in SOURCE.iterdir():
            if not file.name.startswith("package"):
                shutil.copy(file, out / file.name)
        first_answers(out, work)
    shutil.copy(ROOT / "docs" / "pictures" / "timeline.png", out / "preview.png")
    index, picture = out / "index.html", 'content="{}preview.png"'
    said = index.read_text("utf-8").replace(picture.format(""), picture.format(address))
    index.write_text(said, "utf-8")
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
