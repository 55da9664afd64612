"""The documentation: commands print what it shows, its Python runs, it covers the code."""

import dataclasses
import doctest
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest
from running import shown as shown_by

from gpuscale.answers.table import COMMANDS
from gpuscale.cli.help import OTHERS, SHOWN
from gpuscale.core.model.mixers import AnyMixer

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
tool = runpy.run_path(str(ROOT / "tools" / "readme.py"))
reference = runpy.run_path(str(ROOT / "tools" / "reference.py"))
PAGES = [page for page in tool["pages"]() if DOCS in page.parents]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(DOCS).as_posix())
def test_commands_of_a_page_print_what_it_shows(page):
    wrong = []
    with tool["folder_of"](page) as folder:
        for command, shown in tool["shown_commands"](page):
            printed = shown_by(command, folder, tool["run"])
            if "\nTraceback" in printed or (found := tool["difference"](shown, printed)):
                wrong.append(f"$ {command}\n{found}")
    assert not wrong, "\n".join(wrong) + "\nrenew with `python tools/readme.py --update`"


@pytest.mark.slow
def test_the_gallery_is_what_is_answered(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.delenv("GPUSCALE_SHOW", raising=False)
    gallery = runpy.run_path(str(ROOT / "tools" / "gallery.py"))
    assert len(gallery["questions"]()) == 20
    made, kept = gallery["page"](), gallery["PAGE"].read_text("utf-8")
    assert made == kept, "renew with `python tools/readme.py --update`"


def test_python_of_the_pages_runs():
    page = DOCS / "how-to" / "python.md"
    text = "\n".join(re.findall(r"```pycon\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert len(test.examples) > 8
    assert doctest.DocTestRunner().run(test).failed == 0


def test_every_page_of_the_physics_has_a_picture_and_typeset_formulas():
    formula = runpy.run_path(str(ROOT / "tools" / "formula.py"))
    for page in sorted((DOCS / "physics").glob("*.md")):
        text = page.read_text("utf-8")
        shown = re.search(r"!\[\w[^]]{20,}\]\(([^)]+)\)", text)
        assert shown and (page.parent / shown[1]).is_file(), page.name
        assert "<math" in formula["typeset"](text) and "```formula" not in formula["typeset"](text)
    typeset = formula["mathml"]("t_i = 2 (n - 1) / n + sqrt(a ^ 2)")
    ElementTree.fromstring(typeset)
    assert "<msub><mi>t</mi><mtext>i</mtext></msub>" in typeset and "<mfrac>" in typeset
    assert "<msqrt><msup>" in typeset
    with pytest.raises(ValueError, match="not a formula"):
        formula["mathml"]("a ? b")


def test_commands_named_in_the_text_exist():
    for page in DOCS.rglob("*.md"):
        for name in re.findall(r"`gpuscale ([a-z-]+)", page.read_text("utf-8")):
            assert name in (*COMMANDS, *OTHERS), f"{page.name}: gpuscale {name}"


def test_reference_has_every_command_and_option():
    text = reference["cli_page"]()
    sections = text.split("\n## gpuscale ")
    assert [s.split("\n")[0] for s in sections[1:]] == [*COMMANDS, *OTHERS]
    for section in sections[1:]:
        assert "Usage: gpuscale" in section and "Example:" in section
    for section in sections[1 : 1 + len(COMMANDS)]:
        for name in SHOWN:
            assert f"--{name.strip('_')}" in section


def test_reference_has_every_key_of_a_file():
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec
    from gpuscale.specs.model import ModelSpec

    text = reference["keys_page"]()
    for spec in (ClusterSpec, GpuSpec, ModelSpec):
        assert all(f"| `{name}` |" in text for name in spec.__dataclass_fields__)
    for cls in get_args(AnyMixer):
        assert f'kind = "{cls.kind}"' in text
        assert all(f"| `{field.name}` |" in text for field in dataclasses.fields(cls))
    assert "| of one node (gpus_per_node), one direction |" in text  # a comment of the code


def test_reference_has_every_function_and_term():
    from gpuscale import __all__ as public
    from gpuscale.answers.explain import load_glossary

    python, glossary = reference["api_page"](), reference["glossary_page"]()
    assert all(f"gpuscale.{n}" in python or f"gpuscale.api.{n}" in python for n in public[1:])
    assert all(f"\n### {name}\n" in glossary for name in load_glossary())


@pytest.mark.slow
def test_pre_commit_hook_runs_on_every_file(tmp_path):
    text = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    entry = shlex.split(re.search(r"entry: (.*)", text)[1])
    shutil.copy(DOCS / "examples" / "plan.toml", tmp_path / "plan.toml")
    (tmp_path / "sub").mkdir()
    bad = tmp_path / "sub" / "plan.toml"
    bad.write_text('[[job]]\ncommand = "model llama3-8b"\nrequire = ["params<=1"]\n')
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    codes = [
        subprocess.run([*entry, *files], cwd=tmp_path, env=path, capture_output=True).returncode
        for files in (["plan.toml"], ["plan.toml", "sub/plan.toml"])
    ]
    assert codes == [0, 1]


def test_what_pages_name_of_the_code_is_there():
    """A file that was renamed or put to another leaves its name in no page."""
    text = "\n".join(page.read_text() for page in [ROOT / "README.md", *DOCS.rglob("*.md")])
    roots = "core|answers|io|render|cli|textbook|evidence|launch|presets|tools|tests"
    files = set(re.findall(rf"\b(?:{roots})/[a-z_/0-9]+\.(?:py|toml|mjs|csv)\b", text))
    files |= {
        f"{m.replace('.', '/')}.py" for m in re.findall(r"`(gpuscale\.core\.[a-z_.]+)`", text)
    }
    assert len(files) > 50
    folders = (ROOT, ROOT / "gpuscale", DOCS)
    found = {f for f in files if any((folder / f).exists() for folder in folders)}
    packages = {f for f in files if (ROOT / f.removesuffix(".py")).is_dir()}
    assert files - found - packages == set()
