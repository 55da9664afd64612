"""Renew the keys that frameworks of fine-tuning and RL know, from their unpacked wheels.

    python tools/known_keys.py FOLDER

FOLDER holds one folder a package, as `pip download --no-deps NAME` and `unzip -d NAME` make it.
Fields of configuration classes, options of argument parsers and keys of shipped YAML go to
gpuscale/launch/data/FRAMEWORK.json; no package is imported.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "gpuscale" / "launch" / "data"
TRANSFORMERS = ("transformers", "transformers/training_args.py")
SOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "llama-factory": (("llamafactory", "llamafactory/hparams/*.py"), TRANSFORMERS),
    "axolotl": (("axolotl", "axolotl/utils/schemas/*.py"),
                ("axolotl", "axolotl/integrations/*/args.py"), TRANSFORMERS),
    "trl": (("trl", "trl/trainer/*_config.py"), ("trl", "trl/scripts/*.py"), TRANSFORMERS),
    "ms-swift": (("ms_swift", "swift/arguments/**/*.py"),
                 ("ms_swift", "swift/trainers/arguments.py"),
                 ("ms_swift", "swift/megatron/arguments/*.py"), TRANSFORMERS),
    "openrlhf": (("openrlhf", "**/openrlhf/cli/train_*.py"),),
    "verl": (("verl", "verl/trainer/config/_generated_*.yaml"),
             ("verl", "verl/trainer/config/**/*.yaml")),
    "torchtune": (("torchtune", "recipes/configs/**/*.yaml"),),
}  # fmt: skip
"""Framework -> folder of a package and files in it, by a pattern; the first names the version."""


def of_python(text: str) -> Iterator[str]:
    """Annotated fields of classes, and options of argument parsers."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    yield one.target.id
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for one in node.args:
                if isinstance(one, ast.Constant) and str(one.value).startswith("--"):
                    yield str(one.value)[2:]


def of_yaml(value: Any, before: str = "") -> Iterator[str]:
    """Last parts of the keys of a nested table."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield str(key)
        yield from of_yaml(inner, f"{before}{key}.")


def keys_of(folder: Path, pattern: str) -> Iterator[str]:
    """Keys that the files of a package hold."""
    import yaml

    for file in sorted(folder.glob(pattern)):
        text = file.read_text("utf-8")
        if file.suffix == ".py":
            yield from of_python(text)
            continue
        try:
            yield from of_yaml(yaml.safe_load(text))
        except yaml.YAMLError:
            continue


def main() -> int:
    """Write a file a framework."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    root = parser.parse_args().folder
    for framework, sources in SOURCES.items():
        names = {key for folder, pattern in sources for key in keys_of(root / folder, pattern)}
        names = {name for name in names if re.fullmatch(r"[A-Za-z][\w.-]*", name)}
        info = next((root / sources[0][0]).glob("*.dist-info"))
        version = info.name.removesuffix(".dist-info").replace("-", " ")
        table = {"version": version, "options": {"1": " ".join(sorted(names))}}
        (DATA / f"{framework}.json").write_text(json.dumps(table, indent=1) + "\n", "utf-8")
        print(f"{framework}: {len(names)} keys of {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
