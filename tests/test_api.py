"""The library: the same records as the command line, light to import, safe in a notebook."""

import html
import inspect
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gpuscale
from gpuscale import api
from gpuscale.cli.app import run

ROOT = Path(__file__).resolve().parent.parent

SAME = [
    (
        "matmul-time b200 64 4096 8192 --dtype fp8",
        lambda: gpuscale.matmul_time("b200", 64, 4096, 8192, dtype="fp8"),
    ),
    (
        "collective all-reduce dgx-h100 --gpus 64 --bytes 1GB",
        lambda: gpuscale.collective("all-reduce", "dgx-h100", gpus=64, bytes=1e9),
    ),
    (
        "collective all-gather h100 --sweep 1KiB:1GiB",
        lambda: gpuscale.collective("all-gather", "h100", sweep="1KiB:1GiB"),
    ),
    ("memory llama3-70b --tp 8 --pp 8", lambda: gpuscale.memory("llama3-70b", tp=8, pp=8)),
    ("memory --params 70e9", lambda: gpuscale.memory(params=70e9)),
    (
        "roofline llama3-70b --gpus 4096 --batch-tokens 4M --zero 3",
        lambda: gpuscale.roofline("llama3-70b", gpus=4096, batch_tokens=4e6, zero=3),
    ),
    ("network h100-superpod --gpus 1024", lambda: gpuscale.network("h100-superpod", gpus=1024)),
    (
        "model llama3-8b --set model.vocab_size=32000",
        lambda: gpuscale.model("llama3-8b", set={"model.vocab_size": 32000}),
    ),
    ("explain mfu", lambda: gpuscale.explain("mfu")),
    (
        "plan llama3-8b --gpus 16 --tp 2,4 --alternatives 0",
        lambda: gpuscale.plan("llama3-8b", gpus=16, tp="2,4", alternatives=0),
    ),
    (
        "memory llama3-8b --sweep tp=1,2,4 --sweep-show peak_bytes",
        lambda: gpuscale.memory("llama3-8b", sweep={"tp": [1, 2, 4]}, sweep_show="peak_bytes"),
    ),
]


@pytest.mark.parametrize(("line", "call"), SAME)
def test_library_gives_what_the_command_prints(line, call, capsys):
    code = run([*shlex.split(line), "--json"])
    answer = call()
    assert answer.to_dict() == json.loads(capsys.readouterr().out)
    assert answer.ok == (code == 0)
    run(shlex.split(line))
    assert str(answer).strip() == capsys.readouterr().out.strip()


def test_every_name_is_there_and_every_parameter_is_documented():
    assert gpuscale.__all__[0] == "__version__" and len(gpuscale.__all__) > 20
    for name in gpuscale.__all__[1:]:
        found = getattr(api, name)
        if inspect.isfunction(found):
            doc = inspect.getdoc(found)
            if not name.startswith("load_"):
                assert all(f"\n{p} : " in doc for p in inspect.signature(found).parameters), name


def test_import_is_light():
    code = (
        "import gpuscale, sys; heavy = {'pydantic', 'rich', 'typer', 'numpy'} & set(sys.modules);"
        "print(len(heavy), 'plan' in dir(gpuscale), sum(m.startswith('gpuscale.') "
        "for m in sys.modules))"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.split() == ["0", "True", "1"]  # gpuscale.version


def test_unknown_name_of_the_package():
    with pytest.raises(AttributeError, match="no attribute `plans`"):
        _ = gpuscale.plans


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gpuscale.matmul_time("h100-smx", 1, 1, 1), "unknown GPU preset `h100-smx`"),
        (lambda: gpuscale.matmul_time("h100", float("nan"), 1, 1), "nan"),
        (lambda: gpuscale.network("h100-superpod", gpus=0), "between 1 and"),
        (lambda: gpuscale.network("h100-superpod", gpus=float("nan")), "nan"),
        (lambda: gpuscale.roofline("llama3-8b", zero=4), "between 0 and 3"),
        (lambda: gpuscale.memory("llama3-8b", tp=-1), "--tp"),
        (lambda: gpuscale.memory("llama3-8b", set=["model.x=1"]), "unknown --set key"),
        (lambda: gpuscale.memory("llama3-8b", calibration="/nowhere.toml"), "/nowhere.toml"),
    ],
)
def test_what_the_command_refuses_is_raised(call, message):
    with pytest.raises(gpuscale.GpuscaleError, match=message):
        call()


def test_answer_has_values_files_and_formulas(tmp_path):
    answer = gpuscale.matmul_time("b200", 64, 4096, 8192)
    assert answer["expected.time_s"] > answer["time_s"] == answer.result.time_s
    with pytest.raises(KeyError):
        _ = answer["nope.x"]
    answer.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["explain"]
    assert "2 * m * k * n" in answer.explain() and answer.csv().startswith("time_s,")
    assert gpuscale.memory("llama3-70b", tp=8, pp=8).svg("memory").startswith("<svg")
    with pytest.raises(gpuscale.GpuscaleError, match="ending"):
        answer.save(tmp_path / "a.pdf")


def test_report_says_the_call_that_remakes_it(tmp_path):
    answer = gpuscale.memory("llama3-70b", tp=8, sweep={"pp": [4, 8]})
    assert answer.call == "gpuscale.memory('llama3-70b', tp=8, sweep={'pp': [4, 8]})"
    answer.save(tmp_path / "a.html")
    text = html.unescape((tmp_path / "a.html").read_text("utf-8"))
    assert answer.call in text and eval(answer.call).to_dict() == answer.to_dict()


def test_notebook_form_escapes_names(tmp_path):
    text = Path(ROOT / "presets" / "gpu" / "h100-sxm.toml").read_text("utf-8")
    path = tmp_path / "x.toml"
    path.write_text(text.replace('"h100-sxm"', '"<script>alert(1)</script>"', 1), "utf-8")
    shown = gpuscale.matmul_time(str(path), 64, 4096, 8192)._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;" in shown
    assert shown.count("<table>") == shown.count("</table>") == 1
    assert "<td" in gpuscale.memory("llama3-70b", tp=8, pp=8)._repr_html_()
