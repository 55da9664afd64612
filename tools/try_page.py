"""Build the page that runs the planner in the browser: a folder of static files, nothing elsewhere.

    python tools/try_page.py site/try

Takes Pyodide from npm (`npm pack`) and the wheels of pydantic from the Python package index, both
pinned here, and a wheel of this checkout. Pyodide is started here, answers once, and its memory is
kept (`try_snapshot.mjs`): the page starts where that ended. What was not imported by then comes
behind it. Observable Plot draws, bundled from npm. The answers that the page shows first are made
here: they need no Python there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
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
BUNDLES = {
    "plot": "{ plot, barX, dot, line, pointer, ruleX, ruleY, stackX, text, tip } "
    "from '@observablehq/plot'",
    "xz": "{ XzReadableStream } from 'xz-decompress'",
}
"""Modules that the page loads -> what of a package they give it."""
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
import ast, json, re, zipfile
import importlib._bootstrap_external as written

LEFT_OUT = ("pydantic/v1/", "pydantic/mypy.py", "pydantic/_hypothesis", "pydantic/experimental",
    "pydantic/networks.py", "annotated_types/test_cases", ".pyi", ".dist-info/",
    "gpuscale/evidence/", "gpuscale/textbook/", "gpuscale/cli/", "gpuscale/data/validation/",
    "gpuscale/answers/validate/", "gpuscale/answers/calibrate", "gpuscale/answers/study",
    "gpuscale/answers/quiz", "gpuscale/answers/compare/", "gpuscale/render/notebook",
    "gpuscale/__main__")
DYNAMIC = (r"encodings/(__init__|aliases|ascii|utf_|latin_1|idna|unicode)"
    r"|_sysconfigdata|pyodide/|_pyodide/")

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

def imported(name, source):
    "Names of modules that a source imports, anywhere in it."
    package = name.removesuffix(".py").removesuffix("/__init__").split("/")
    package = package if name.endswith("__init__.py") else package[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))

def reached(library, known):
    "Files of the library that `known` sources import, and those that these import."
    todo, found = [*known.items()], set()
    while todo:
        name, source = todo.pop()
        for module in imported(name, source):
            parts = module.split(".")
            stems = ["/".join(parts[: i + 1]) for i in range(len(parts))]
            for file in (end for stem in stems for end in (stem + ".py", stem + "/__init__.py")):
                if file in library and file not in found:
                    found.add(file)
                    todo.append((file, library[file]))
    return found

wheels = [zipfile.ZipFile(f"/{i}.whl") for i in range(n_wheels)]
ours = {name: wheel.read(name) for wheel in wheels for name in wheel.namelist()
    if name[-1] != "/" and not any(part in name for part in LEFT_OUT)}
ours["pydantic/plugin/_loader.py"] = b"def get_plugins():\\n    return ()"  # it asks for packages
with zipfile.ZipFile("/lib/python314.zip") as whole:
    names = [name for name in whole.namelist() if not re.match(STDLIB_LEFT_OUT, name)]
    library = {name: whole.read(name) for name in names}
known = {n: s for n, s in (library | ours).items() if n.endswith(".py")}
first = {n: s for n, s in known.items() if n in ours or re.match(DYNAMIC, n)}
kept = reached(known, first) | {n for n in library if re.match(DYNAMIC, n)}
library = [compiled(name, library[name]) for name in sorted(kept & library.keys())]
files = [compiled(name, ours[name]) for name in sorted(ours, key=lambda n: (n.rsplit(".")[-1], n))]
for rows, made in ((library, "/library"), (files, "/ours")):
    index = json.dumps([(name, len(content)) for name, content in rows]).encode()
    with open(made, "wb") as out:
        out.writelines([len(index).to_bytes(4), index, *(content for _, content in rows)])
with zipfile.ZipFile("/library.zip", "w", zipfile.ZIP_STORED) as made:
    for name, content in library:
        made.writestr(zipfile.ZipInfo(name), content)
"""
"""For the Python of the page: byte code in place of sources, and of its library what is wanted."""

STDLIB_LEFT_OUT = (
    r"(_pyrepl|unittest|ctypes|multiprocessing|xml|xmlrpc|wsgiref|http|sqlite3|curses|dbm|idlelib"
    r"|ensurepip|lib2to3|turtledemo|tkinter|venv|pydoc_data|profiling|concurrent/interpreters"
    r"|email|importlib/metadata)/"
    r"|encodings/(cp|iso|mac|big5|euc|gb|hz|johab|koi8|kz|ptcp|shift|tis|hp|palmos)"
    r"|(tarfile|argparse|_pydatetime|urllib/(request|response|error|robotparser)|pdb|doctest|pydoc"
    r"|imaplib|smtplib|mailbox|optparse|turtle|nntplib|ftplib|poplib|telnetlib"
    r"|cProfile|profile|pstats|trace|tracemalloc|webbrowser|configparser|pickletools|bdb|cmd"
    r"|difflib|ssl|socketserver|netrc|plistlib|aifc|wave|sunau|mimetypes|filecmp|fileinput|getpass"
    r"|rlcompleter|symtable|tabnanny|timeit|this|antigravity|asynchat|xdrlib|_aix_support"
    r"|_android_support|_apple_support|_ios_support|_osx_support|_strptime_t|zipapp|sched)\.pyc?$"
)
"""Modules of the library that nothing here asks for."""


WARM = """
import functools, gc, json, sys, zipimport

gc.set_threshold(20_000, 20, 20)

FORGET = ("gpuscale.answers.page", "gpuscale.core.step.operators", "gpuscale.core.memory.peak",
    "gpuscale.core.step.parallel_comm", "gpuscale.core.stages", "gpuscale.core.kernel.expected")

def stop_reading_the_library():
    "What is not imported yet is found beside the planner, once it is there."
    for name in [name for name in sys.path if name.endswith(".zip")]:
        sys.path.remove(name)
    sys.path_importer_cache.clear()
    zipimport._zip_directory_cache.clear()

def imported():
    "Files of the modules that are there already."
    stems = [name.replace(".", "/") for name in sys.modules]
    return [stem + end for stem in stems for end in (".pyc", "/__init__.pyc")]

def blank():
    "Blocks of small objects that were freed are filled with zeros."
    for size in range(8, 500, 16):
        kept = [bytes(size) for _ in range(1_500_000 // size)]
        del kept

from gpuscale.answers.page import asked_json, kept_json, names_json
names_json()
asked_json(*QUESTION)
for one in gc.get_objects():  # what it was about helps no other question
    if isinstance(one, functools._lru_cache_wrapper) and one.__module__ in FORGET:
        one.cache_clear()
del one
gc.collect()
stop_reading_the_library()
"""
"""What is asked before the memory is kept: imported, read and compiled then for every visitor."""

PACKED = {"python": (3, 0, 0), "start": (2, 2, 2), "rest": (3, 0, 0)}
"""Archive -> lc, lp, pb of LZMA that pack it best: words of a memory are of four bytes."""


def pack(out: Path, work: Path, found: list[Path], level: int = 9) -> None:
    """Write the interpreter as it stands after a first answer, and what it may import later."""
    first = asked(work)["train"][0]
    question = (first["command"], json.dumps(first["given"]))
    program = {"compile": f"STDLIB_LEFT_OUT = {STDLIB_LEFT_OUT!r}\n{COMPILE}"}
    program["warm"] = f"QUESTION = {question!r}\n{WARM}"
    script = ROOT / "tools" / "try_snapshot.mjs"
    command = ["node", "--no-warnings", str(script), str(work / "pyodide"), str(work)]
    told = json.dumps(program)
    subprocess.run([*command, *map(str, found)], input=told, text=True, check=True)
    preset = level | (lzma.PRESET_EXTREME if level == 9 else 0)
    for name, (lc, lp, pb) in PACKED.items():
        how = {"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": 1 << 26}
        packed = lzma.compress(
            (work / name).read_bytes(),
            lzma.FORMAT_XZ,
            lzma.CHECK_CRC32,
            filters=[how | {"lc": lc, "lp": lp, "pb": pb}],
        )
        (out / f"{name}.xz").write_bytes(packed)


def bundles(out: Path, work: Path) -> None:
    """Bundle what the page draws with and what unpacks its archives."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, work / name)
    run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=work)
    bundle = "--bundle --minify --format=esm --target=es2022 --legal-comments=none"
    for name, taken in BUNDLES.items():
        (work / f"{name}-in.js").write_text(f"export {taken};\n", "utf-8")
        command = ["npx", "esbuild", f"{name}-in.js", *bundle.split(), f"--outfile={out / name}.js"]
        run(*command, cwd=work)
    for name in ("pyodide.mjs", "pyodide.asm.mjs"):
        command = ["npx", "esbuild", f"pyodide/{name}", *bundle.split()[1:]]
        run(*command, f"--outfile={out / 'pyodide' / name}", cwd=work)


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


def asked(work: Path, **known: Any) -> dict[str, list[dict[str, Any]]]:
    """Questions of the page for the form of each task as it stands at first."""
    from gpuscale.answers.page import names_json

    (work / "asked.mjs").write_text(ASKED % (SOURCE / "tasks.js").as_uri(), "utf-8")
    told = json.dumps({"names": json.loads(names_json()), **known})
    command = ["node", "--no-warnings", "asked.mjs"]
    said = subprocess.run(command, cwd=work, input=told, text=True, check=True, stdout=-1)
    found: dict[str, list[dict[str, Any]]] = json.loads(said.stdout)
    return found


def first_answers(out: Path, work: Path) -> None:
    """Answer what the page asks at first: it needs no Python then."""
    from gpuscale.answers.page import asked_json, kept_json, names_json

    @cache
    def said(what: str, command: str, given: str) -> Any:
        one = asked_json(command, given) if what == "answer" else kept_json(command, given, what)
        return json.loads(one)

    def answer(question: dict[str, Any]) -> Any:
        return said(question["what"], question["command"], json.dumps(question["given"]))

    names = json.loads(names_json())
    results = {task: answer(ask[0])["answer"]["result"] for task, ask in asked(work).items()}
    questions = asked(work, results=results)
    rows = {task: [(q, answer(q)) for q in found] for task, found in questions.items()}
    at_once = {"names": names, "answers": rows["train"][:1]}
    told = json.dumps(at_once, separators=(",", ":")).replace("<", "\\u003c")
    index = out / "index.html"
    index.write_text(index.read_text("utf-8").replace(">null<", f">{told}<"), "utf-8")
    rest = [row for found in rows.values() for row in found]
    (out / "first.json").write_text(json.dumps(rest, separators=(",", ":")), "utf-8")


def build(out: Path, address: str = "", level: int = 9) -> None:
    """Write the folder; `address`: where it will be found, for the picture of a pasted link.

    A lower `level` of LZMA packs sooner, and larger.
    """
    from gpuscale.render.html_report import stylesheet

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pyodide(work / "pyodide", work)
        found = wheels(work)
        pack(out, work, found, level)
        bundles(out, work)
        for file in SOURCE.iterdir():
            if not file.name.startswith("package"):
                shutil.copy(file, out / file.name)
        first_answers(out, work)
    shutil.copy(ROOT / "docs" / "pictures" / "timeline.png", out / "preview.png")
    index, picture = out / "index.html", 'content="{}preview.png"'
    said = index.read_text("utf-8").replace(picture.format(""), picture.format(address))
    index.write_text(said, "utf-8")
    (out / "report.css").write_text(stylesheet(), "utf-8")
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
