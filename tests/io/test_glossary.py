"""Every entry: its formula gives what core computes, its words lead on, its command runs."""

import re
import shlex

import pytest

from gpuscale.answers.explain import find_entry, load_glossary
from gpuscale.cli.app import run
from gpuscale.errors import GpuscaleError
from gpuscale.textbook.evaluate import ARITHMETIC, evaluate, is_lookup, resolve

ENTRIES = load_glossary()
WANTED = """mfu hfu bubble zero-0 zero-1 zero-2 zero-3 fsdp hsdp sharp nvls critical-batch ridge
arithmetic-intensity busbw algbw tp pp cp ep dp sequence-parallel recompute 1f1b interleaved
zero-bubble dualpipe goodput kv-cache mla gqa moe roofline all-reduce""".split()


@pytest.mark.parametrize("name", WANTED)
def test_wanted_terms_are_there(name):
    assert find_entry(name).references
    assert find_entry(name.upper().replace("-", " ")) is find_entry(name)


@pytest.mark.parametrize("name", list(ENTRIES))
def test_formula_agrees_with_core(name):
    entry = ENTRIES[name]
    value = evaluate(entry.formula, (ARITHMETIC | entry.inputs).__getitem__)
    assert value > 0
    if entry.core:

        def names(word):
            return entry.inputs[word] if word in entry.inputs else resolve(word)

        assert evaluate(entry.core, names, is_lookup) == pytest.approx(value, rel=1e-9, abs=0)


def test_most_entries_have_a_core_function():
    assert sum(bool(e.core) for e in ENTRIES.values()) / len(ENTRIES) > 0.8


@pytest.mark.parametrize("name", list(ENTRIES))
def test_words_lead_on(name):
    entry = ENTRIES[name]
    assert set(entry.see) <= set(ENTRIES)
    assert not set(entry.also) & set(ENTRIES)


def test_every_word_means_one_entry():
    words = [word for e in ENTRIES.values() for word in (e.name, *e.also)]
    assert len(words) == len(set(words))


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted({e.command for e in ENTRIES.values() if e.command}))
def test_commands_run(line, capsys):
    fewer = re.sub(r"(plan .*--gpus )\d+", r"\g<1>64", line)  # as typed, of a smaller job
    assert run(shlex.split(fewer)[1:]) in (0, 1), capsys.readouterr().err


def test_unknown_term_gets_a_hint():
    with pytest.raises(GpuscaleError) as error:
        find_entry("bubbel")
    assert error.value.hint == "did you mean `bubble`?"
