"""What is published beside the code: manual pages, recipe, image, workflows."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import tomli
import yaml

from gpuscale.answers.table import COMMANDS
from gpuscale.cli.help import OTHERS
from gpuscale.version import __version__

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def manual():
    return runpy.run_path(str(ROOT / "tools" / "manpages.py"))["pages"]()


def test_every_command_has_a_manual_page(manual):
    assert set(manual) == {"gpuscale.1", *(f"gpuscale-{name}.1" for name in (*COMMANDS, *OTHERS))}
    for text in manual.values():
        assert text.startswith(".TH GPUSCALE") and ".SH NAME" in text and ".SH OPTIONS" in text


def test_groff_has_no_complaint(manual):
    if shutil.which("groff") is None:
        pytest.skip("no groff here: the manual pages were not set")
    told = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-Tutf8"],
        input=manual["gpuscale-plan.1"],
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0 and told.stderr == ""


def test_the_recipe_needs_what_the_package_needs():
    text = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text("utf-8")
    recipe = yaml.safe_load(text)
    needs = {re.sub(r"\s+", "", n) for n in recipe["requirements"]["run"] if "python " not in n}
    assert needs == {d.lower() for d in PROJECT["dependencies"]}
    assert recipe["context"]["version"] == __version__


def test_the_citation_has_the_version():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert yaml.safe_load(text)["version"] == __version__


def test_the_image_copies_what_the_wheel_is_built_from():
    text = (ROOT / "Containerfile").read_text("utf-8")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "gpuscale", "presets"):
        assert (ROOT / name).exists() and re.search(rf"^COPY .*\b{re.escape(name)}\b", text, re.M)
    assert "USER 65534" in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_a_workflow_pins_its_actions_and_may_only_read(path):
    text = path.read_text("utf-8")
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {"contents": "read"}
    used = [s for job in flow["jobs"].values() for s in job["steps"] if "uses" in s]
    assert used and all(re.search(r"@[0-9a-f]{40}$|^\./$", step["uses"]) for step in used)
    scripts = [s["run"] for job in flow["jobs"].values() for s in job["steps"] if "run" in s]
    for script in re.findall(r"\.ci/\w+|tools/\w+\.py", "\n".join(scripts)):
        assert (ROOT / script).exists(), script
    assert "secrets." not in text  # published without a stored key


def test_a_release_publishes_all_that_is_built():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))[
        "jobs"
    ]
    assert set(jobs["publish"]["needs"]) == {"test", "site", "image"}
    assert {name for name, job in jobs.items() if job.get("needs") == "publish"} == {
        "publish-site",
        "publish-image",
        "action",
    }


def test_every_supported_python_is_tried_on_every_system():
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    matrix = flow["jobs"]["wheel"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert matrix["python"] == classified
    assert set(flow["jobs"]["dependencies"]["strategy"]["matrix"]["versions"]) == {
        "oldest",
        "newest",
    }
