"""Errors and answers on the page speak the words of its form, and an error marks its field."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuscale.answers.page import asked_json, names_json

SOURCE = Path(__file__).resolve().parents[2] / "docs" / "try" / "tasks.js"
WRONG = "no such thing"
FREE = {f"diagnose {name}" for name in ("settings", "software", "model", "gpu")}
"""Texts in which `diagnose` looks for what it knows: it refuses none."""
ASK = """
import { TASKS, SHARED, concerns, given, inWords, values } from "%s";
const { names, errors } = JSON.parse((await import("node:fs")).readFileSync(0, "utf-8"));
const found = [];
for (const [task, { fields, more, without, command }] of Object.entries(TASKS)) {
  const own = [...fields, ...more];
  const shared = Object.keys(SHARED).filter((name) => !without?.includes(name));
  const pairs = [...own.map((f) => [f.name, f.label]), ...shared.map((name) => [name, name])];
  const labels = Object.fromEntries(pairs);
  labels.cluster = labels.gpu;
  for (const name of [...own.filter((f) => !f.options).map((f) => f.name), ...shared]) {
    const key = `${task} ${name}`;
    const form = { ...values(task), [name]: "%s" };
    const error = errors?.[key];
    const marked = error && concerns(error, name, form[name]);
    const said = error && inWords(error, labels);
    found.push({ key, command, options: given(task, form, names), marked, said, labels });
  }
}
console.log(JSON.stringify(found));
"""


def asked(**told):
    """What tasks.js makes of each field with a wrong text in it."""
    if (node := shutil.which("node")) is None:
        pytest.skip("no node here: the form was not asked")
    script = ASK % (SOURCE.as_uri(), WRONG)
    command = [node, "--no-warnings", "--input-type=module", "-e", script]
    told = json.dumps({"names": json.loads(names_json()), **told})
    said = subprocess.run(command, input=told, capture_output=True, text=True, check=True)
    return json.loads(said.stdout)


def test_an_error_marks_its_field_and_names_no_option_that_the_form_has():
    errors = {}
    for one in asked():
        made = json.loads(asked_json(one["command"], json.dumps(one["options"])))
        errors[one["key"]] = made.get("error", "")
    assert len(errors) > 40
    for one in asked(errors=errors):
        error = errors[one["key"]]
        if one["key"] in FREE:
            continue
        assert error and one["marked"], (one["key"], error)
        options = [f"--{name.replace('_', '-')}" for name in one["labels"]]
        assert not [o for o in options if o in one["said"].split()], (one["key"], one["said"])


def test_what_the_page_imports_while_it_waits_exists():
    worker = SOURCE.with_name("worker.js").read_text("utf-8")
    names = json.loads(re.search(r"const IDLE = (\[.*\]);", worker)[1])
    assert names
    for name in names:
        assert importlib.util.find_spec(f"gpuscale.answers.{name}"), name
