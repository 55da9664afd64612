"""An answer in Python: a mapping, a frame, a piece of a notebook; errors that help."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpuscale


@pytest.fixture(scope="module")
def answer():
    return gpuscale.memory("llama3-70b", tp=8, pp=4)


def test_it_is_a_mapping(answer):
    assert "peak_bytes" in answer and "mfu" not in answer and "expected.total_bytes" in answer
    assert dict(answer)["fits"] is True and list(answer) == list(answer.to_dict()["result"])
    assert len(answer) == len(list(answer)) and answer.get("mfu", 1) == 1 and bool(answer)
    with pytest.raises(KeyError, match="did you mean `peak_bytes`"):
        answer["peek_bytes"]
    with pytest.raises(KeyError, match="nothing: there are fits, layout"):
        answer["nothing"]
    with pytest.raises(AttributeError, match="figures are keys"):
        _ = answer.peak_gb


def test_its_layers(answer, monkeypatch):
    monkeypatch.delenv("GPUSCALE_SHOW", raising=False)
    assert str(answer).splitlines()[0] == answer.summary[0].value
    assert answer.text("figures") in answer.text() and len(str(answer)) < len(answer.text())
    shown = answer._repr_mimebundle_()
    assert shown["text/plain"] == str(answer)
    assert "<svg" in shown["text/html"] and "<details>" in shown["text/html"]


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_frame_is_of_what_is_installed(answer, monkeypatch, name):
    for module in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(gpuscale.GpuscaleError, match="pandas or polars"):
        answer.to_frame()
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(DataFrame=lambda rows: (name, rows)))
    made, rows = answer.to_frame()
    assert made == name and rows[-1]["part"] == "total"
    assert rows[-1]["expected_bytes"] == answer["peak_bytes"]


def test_a_wrong_argument_and_a_bad_value_say_what_is_meant():
    with pytest.raises(TypeError, match="did you mean `gpus`"):
        gpuscale.plan("llama3-8b", gpuss=8)
    with pytest.raises(TypeError, match="did you mean `tp` \\(tensor parallelism\\)"):
        gpuscale.plan("llama3-8b", tensor_parallel=8)
    with pytest.raises(TypeError, match=r"plan\(\) takes model without a name, all else with it"):
        gpuscale.plan("llama3-8b", 8)
    with pytest.raises(gpuscale.GpuscaleError) as told:
        gpuscale.plan("lama3-8b", gpus=8)
    if sys.version_info >= (3, 11):
        assert told.value.__notes__ == [f"hint: {told.value.hint}"]


@pytest.mark.slow
def test_its_keys_are_known_to_mypy(tmp_path, monkeypatch):
    root = Path(__file__).parent.parent
    keys = runpy.run_path(str(root / "tools" / "answer_keys.py"))
    assert keys["same"](), "run tools/answer_keys.py --update"
    api = pytest.importorskip("mypy.api")
    (tmp_path / "job.py").write_text(ASKED, "utf-8")
    monkeypatch.setenv("MYPYPATH", str(root))
    said, _, code = api.run(["--cache-dir", str(tmp_path), str(tmp_path / "job.py")])
    told = [line.partition(": ")[2] for line in said.splitlines()[:-1]]
    assert code == 1 and len(told) == 4, said
    assert told[0] == 'note: Revealed type is "float"' and told[1].endswith('"float | None"')
    assert 'did you mean "gpus"' in told[2] and "Incompatible types" in told[3]


ASKED = """import gpuscale

answer = gpuscale.plan("llama3-8b", gpus=8)
reveal_type(answer["step_s"])
reveal_type(gpuscale.serve("llama3-8b")["at_most_per_s"])
gpuscale.plan("llama3-8b", gpuss=8)
fits: str = answer["fits"]
"""
