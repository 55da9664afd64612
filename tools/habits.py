"""Re-reads the habits of `presets/framework` from the frameworks' packages, and lists what changed.

A habit whose source is `PACKAGE==VERSION PATH CLASS.FIELD` and has `said` is asked of the class of
the same name in a package on this disk, or in the newest release where `--fetch` takes it from the
registry by pip. Nothing is installed and nothing runs: the file is parsed.

    python tools/habits.py --fetch trl          # the newest release
    python tools/habits.py --unpacked DIR trl   # what lies there
"""

import argparse
import ast
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from gpuscale.io.presets import preset_names
from gpuscale.io.software import load_framework

SOURCE = re.compile(r"(\S+)==(\S+) (\S+\.py) (\w+)\.(\w+)")


def defaults(path):
    """(class, field) -> default as text, of one file's dataclasses and pydantic models."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8", "replace"))):
        for line in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(line, ast.AnnAssign) and line.value is not None:
                value = line.value
                if isinstance(value, ast.Call):
                    named = {k.arg: k.value for k in value.keywords}
                    first = value.args[0] if value.args else value
                    value = named.get("default", named.get("default_factory", first))
                found[node.name, ast.unparse(line.target)] = ast.unparse(value)
    return found


def fetched(package, folder):
    """Newest release of a package, unpacked."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package]
    subprocess.run(command, check=True)
    (wheel,) = Path(folder).glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return wheel.name.split("-")[1]


def file_of(root, path):
    """File of a source below a folder; modules move, so its name alone is enough."""
    whole = root / path
    if whole.is_file():
        return [whole]
    return [p for p in root.rglob(Path(path).name) if "test" not in p.parts]


def changed(framework, root):
    """Lines of what a package has otherwise than the habits say: (habit, what it has now)."""
    for habit in framework.habit:
        read = SOURCE.match(habit.source)
        if not read or not habit.said or habit.before or read[1] != framework.package:
            continue
        now = {
            d
            for p in file_of(root, read[3])
            for k, d in defaults(p).items()
            if k == read.group(4, 5)
        }
        if habit.said not in now:
            yield habit, ", ".join(sorted(now)) or "gone"


def main():
    """Re-read the named frameworks, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unpacked", default="", help="folder with the package's files")
    parser.add_argument("--fetch", action="store_true", help="newest release, by pip")
    parser.add_argument("frameworks", nargs="*", default=preset_names("framework"))
    asked = parser.parse_args()
    for name in asked.frameworks:
        framework = load_framework(name)
        if not (framework and framework.package and any(h.said for h in framework.habit)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            version = fetched(framework.package, folder) if asked.fetch else "here"
            lines = list(changed(framework, Path(asked.unpacked or folder)))
        print(f"{name}: {framework.package} {version}, read {framework.version}: ", end="")
        print(f"{len(lines)} changed" if lines else "as it is kept")
        for habit, now in lines:
            print(f"  {habit.field} {habit.value}: said {habit.said}, now {now} ({habit.source})")


if __name__ == "__main__":
    main()
