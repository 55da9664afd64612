"""All answers match, and none of them is a reference value read back."""

import ast
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from gpuscale.textbook import evaluate as quiz
from gpuscale.textbook.evaluate import ExpressionError, evaluate, parse

QUESTIONS = quiz.load_questions()
REFERENCE = quiz.load_reference()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.id)
def test_answer_matches_the_reference(question):
    found = quiz.answer(question, REFERENCE)
    assert found.matched, (found.exact, found.expected, question.compute)


def test_the_documents_are_covered():
    assert len(QUESTIONS) == len({q.id for q in QUESTIONS}) == 460
    assert {q.id for q in QUESTIONS} == set(REFERENCE)
    verdicts = Counter(q.verdict for q in QUESTIONS)
    assert verdicts == {"agrees": 342, "rounded": 41, "wrong": 43, "ambiguous": 34}
    assert {q.document for q in QUESTIONS} == {"000", "001", "002", "003", "004"}


def test_wrong_documents_are_told_in_one_line():
    from gpuscale.textbook.explain import note_text, stated_text

    for q in QUESTIONS:
        assert "\n" not in note_text(q)
        if q.verdict == "wrong":
            assert q.note
            printed = note_text(q).removeprefix(f"document {q.document} prints ")
            assert printed.lstrip('"').startswith(stated_text(q)), note_text(q)


def test_verdict_agrees_with_the_distance_of_the_stated_value():
    for q in QUESTIONS:
        expected = REFERENCE[q.id][0]
        if q.stated_si is None or not isinstance(expected, (int, float)):
            continue
        distance = abs(q.stated_si / expected - 1)
        assert distance <= 0.005 or q.verdict != "agrees", q.id
        assert distance > 0.005 or q.verdict != "wrong", q.id


# --- no expected value is read back as an answer ---


def test_answers_need_no_reference_file(tmp_path, monkeypatch):
    before = {q.id: quiz.compute(q) for q in QUESTIONS}
    for document in quiz.DOCUMENTS:
        table = json.loads((quiz.DATA / f"{document}.json").read_text())
        for row in table["answers"]:  # neither stated values nor notes are needed
            for key in ("stated", "stated_si", "note", "formula"):
                row.pop(key, None)
            row["formula"] = ""
        (tmp_path / f"{document}.json").write_text(json.dumps(table))
    monkeypatch.setattr(quiz, "DATA", tmp_path)
    with pytest.raises(FileNotFoundError):
        quiz.load_reference()
    after = {q.id: quiz.compute(q) for q in quiz.load_questions()}
    assert after == before


def test_a_changed_reference_changes_no_answer_and_matches_none(tmp_path, monkeypatch):
    def other(value):
        if isinstance(value, list):
            return [other(v) for v in value]
        if isinstance(value, bool):
            return not value
        return f"not {value}" if isinstance(value, str) else 3 * value + 1

    shutil.copytree(quiz.DATA, tmp_path, dirs_exist_ok=True)
    changed = {k: [other(v), tolerance] for k, (v, tolerance) in REFERENCE.items()}
    (tmp_path / "expected.json").write_text(json.dumps(changed))
    monkeypatch.setattr(quiz, "DATA", tmp_path)
    reference = quiz.load_reference()
    for question in QUESTIONS:
        answer = quiz.answer(question, reference)
        assert answer.exact == quiz.compute(question)
        assert not answer.matched, question.id


def test_every_answer_calls_core_or_looks_up_a_catalogue():
    for question in QUESTIONS:
        called = {n.func.id for n in ast.walk(parse(question.compute)) if isinstance(n, ast.Call)}
        assert called - set(quiz.BUILTINS) or set("*/+-") & set(question.compute), question.id
        assert called <= set(quiz.MODULE_OF) | quiz.LOOKUPS | set(quiz.BUILTINS)


def test_registered_functions_are_those_of_core():
    for name, module in quiz.MODULE_OF.items():
        function = quiz.resolve(name)
        assert function.__module__.startswith(f"gpuscale.{module}"), name
    for name in quiz.LOOKUPS:
        assert quiz.resolve(name).__module__ == "gpuscale.textbook.formulas"


def test_every_registered_name_is_used():
    used = {
        n.func.id for q in QUESTIONS for n in ast.walk(parse(q.compute)) if isinstance(n, ast.Call)
    }
    assert used == set(quiz.MODULE_OF) | quiz.LOOKUPS | set(quiz.BUILTINS)


LOOKED_UP = ("gpu", "node", "vendor_gpu", "link", "recipe", "rule", "unit_layout", "nvlink")
CHANGES = (lambda v: 2 * v, lambda v: v + 1, lambda v: 64 * v, lambda v: v * 0.5, lambda v: v / 8)


class _Change(ast.NodeTransformer):
    """Put `changed(leaf)` for the leaf number `at`: a number, or a figure that is looked up."""

    def __init__(self, at: int) -> None:
        self.at, self.n = at, 0

    def leaf(self, node: ast.expr) -> ast.expr:
        self.n += 1
        if self.n - 1 != self.at:
            return node
        return ast.Call(ast.Name("changed"), [node], [])

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        number = isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
        return self.leaf(node) if number else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        text = ast.unparse(node)
        if text.startswith(tuple(f"{name}(" for name in LOOKED_UP)):
            return self.leaf(node)
        return ast.Attribute(self.visit(node.value), node.attr)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if ast.unparse(node).startswith("nvlink("):
            return self.leaf(node)
        return ast.Subscript(self.visit(node.value), node.slice)


def _variants(text):
    """Expressions with one leaf changed."""
    at = 0
    while True:
        change = _Change(at)
        variant = ast.unparse(change.visit(ast.parse(text, mode="eval").body))
        if at >= change.n:
            return
        yield variant
        at += 1


def _answers_with(text, before):
    for change in CHANGES:

        def changed(value, change=change):
            if isinstance(value, (str, tuple)):
                return f"{value}?"
            number = change(value)
            return int(number) if isinstance(value, int) else number

        names = {"changed": changed}
        try:
            found = evaluate(text, lambda n, names=names: names.get(n) or quiz.resolve(n))
        except ExpressionError:
            continue  # refused: not an answer
        if found != before:
            return True
    return False


BY_NAME = {  # everything that the answer depends on is a name or bits
    "si.mega",
    "si.giga",
    "si.tera",
    "si.peta",
    "si.trillion",
    "nd.z",
    "quant.int4",
    "comm.fp16",
    "dep.671.params",
    "net.peak_size",
    "cp.ulysses",
    "kv.llama70b",
    "kv.deepseek",
    "llm.quiz5.q3.ep_lhs",
    "coll.hier.node",
    "spec.v100.bf16",
    "spec.a100.bf16",
    "spec.a100.fp8",
    "spec.h100.bf16",
    "spec.h100.fp8",
    "spec.h200.bf16",
    "spec.h200.fp8",
    "spec.b200.bf16",
    "spec.b200.fp8",
    "spec.b200.fp4",
}


def test_other_inputs_give_other_answers():
    """Answers follow from their inputs: no function returns a document's value whatever it gets."""
    fixed = {
        q.id
        for q in QUESTIONS
        if not any(_answers_with(v, quiz.compute(q)) for v in _variants(q.compute))
    }
    assert fixed == BY_NAME


@pytest.mark.parametrize(
    ("id_", "catalogue_key", "factor"),
    [
        ("gpu.quiz1.q3.h100", "bf16_flop_per_s", 1.0),  # that question uses fp16
        ("dp.h100.cross", "bf16_flop_per_s", 2.0),
        ("fl.decode.time", "hbm_bytes_per_s", 0.5),
        ("node.quiz2.q3", "scaleup_bytes_per_s", 0.5),
    ],
)
def test_answers_follow_the_catalogue(monkeypatch, id_, catalogue_key, factor):
    from gpuscale.textbook import formulas as catalogue

    question = next(q for q in QUESTIONS if q.id == id_)
    before = quiz.compute(question)
    spec = catalogue.gpu("h100")
    doubled = spec.model_copy(update={catalogue_key: 2 * getattr(spec, catalogue_key)})
    quiz.resolve.cache_clear()
    monkeypatch.setattr(catalogue, "gpu", lambda name: doubled)
    try:
        assert quiz.compute(question) == pytest.approx(factor * before, rel=1e-12)
    finally:
        quiz.resolve.cache_clear()


# --- the evaluator ---


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "gpu.__class__",
        "gpu('h100').__class__",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "open('/etc/passwd')",
        "gpu(*('h100',))",
        "gpu(**{})",
        "1 if True else 2",
        "f'{1}'",
        "1 and 2",
        "9 ** 9 ** 9",
        "1 / 0",
        "gpu('nothing')",
        "max()",
        "element_bytes('bf17')",
        "",
        "1 +",
        "(" * 200,
        "x" * 501,
        "unknown(1)",
        "1 < 2 < 3",
    ],
)
def test_evaluator_refuses(text):
    from gpuscale.errors import GpuscaleError

    with pytest.raises((ExpressionError, GpuscaleError)):
        evaluate(text, quiz.resolve, quiz.is_lookup)


def test_explanation_puts_the_numbers_in():
    from gpuscale.textbook.explain import explain

    question = next(q for q in QUESTIONS if q.id == "gpu.quiz1.q3.h100")
    found = explain(question)
    assert found.exact == quiz.compute(question)
    assert [s.call for s in found.steps] == ["critical_intensity(9.9e+14, 3.35e+12)"]
    assert {f.value for f in found.figures} == {990e12, 3.35e12}
    assert all(f.source for f in found.figures)


def test_terms_evaluate_to_their_value():
    from gpuscale.textbook.explain import explain, term

    n = 0
    for question in QUESTIONS:
        found = term(question, explain(question))
        if found is None:
            continue
        n += 1
        value = eval(found.formula, {"__builtins__": {}}, {**found.inputs, "max": max, "min": min})
        assert value == pytest.approx(found.value, rel=1e-12), question.id
    assert n > 400


def test_data_lies_inside_the_package():
    assert (
        Path(quiz.__file__).parent in quiz.DATA.parents
        or quiz.DATA.parent == Path(quiz.__file__).parent
    )
