"""Each program's own print format, numbers made up: fact, unit and value."""

import io
from pathlib import Path

import pytest

from gpuscale.io.log_reader import read_log
from gpuscale.io.text import read_toml

CASES = read_toml(Path(__file__).with_name("printed.toml"))["case"]

EXCERPTS = read_toml(Path(__file__).with_name("excerpts.toml"))["case"]


@pytest.mark.slow
@pytest.mark.parametrize("case", EXCERPTS, ids=[c["source"] for c in EXCERPTS])
def test_an_excerpt_of_a_public_log_is_read(case):
    log = read_log(io.BytesIO((case["text"] + "\n").encode()))
    found = [(f.value, f.unit) for f in log.all() if not isinstance(f.value, str)]
    found += [(v, t.unit) for t in log.tracks.values() for v in t.series.values]
    for value, unit in case["figures"]:
        units = (unit,) if unit else ("", "tokens", "requests")
        assert any(v == pytest.approx(value, rel=6e-3) and u in units for v, u in found), value


@pytest.mark.parametrize("case", CASES, ids=[f"{c['program']}-{i}" for i, c in enumerate(CASES)])
def test_a_printed_line_is_read(case):
    log = read_log(io.BytesIO((case["text"] + "\n").encode()))
    found = {f.name: f for f in log.all()}
    for name, (value, unit) in case.get("facts", {}).items():
        assert name in found, (name, sorted(found))
        assert log.number(name) == pytest.approx(value), name
        assert found[name].unit == unit, name
        assert found[name].program == case["program"], name
    assert not set(case.get("none", ())) & set(found)
    rows = dict(case.get("rows", {}))
    if rows:
        [row] = log.tables[rows.pop("table")]
        for name, (value, unit) in rows.items():
            assert (row[name].value, row[name].unit) == (pytest.approx(value), unit), name
    assert not [t for t in case.get("none_tables", ()) if log.tables.get(t)]
