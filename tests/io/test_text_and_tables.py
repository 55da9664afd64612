"""The one reader of files: whatever the bytes, text or one line of what is wrong, and bounded."""

import gzip
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.errors import GpuscaleError
from gpuscale.io import text
from gpuscale.io.text import read_lines, read_rows, read_text


def refused(call, *args):
    with pytest.raises(GpuscaleError) as caught:
        found = call(*args)
        list(found)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("bytes") / "file"


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_text_or_refused(path, data, packed):
    path.write_bytes(gzip.compress(data) if packed else data)
    try:
        whole = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        whole = "\0"
    if "\0" in whole:
        assert re.search("not text|empty|binary|cannot be read", refused(read_text, path))
        assert refused(read_lines, path, 99)
    else:
        assert "".join(read_lines(path, 99)) == whole
        assert read_text(path) == whole if data.strip() else "is empty" in refused(read_text, path)


HOSTILE = {
    "zeros": (b"a,b\n" + b"\0" * 5_000_001, "longer than 1 MB"),
    "one line": (b"a,b\n" + b"1," * 2_500_001, "longer than 1 MB"),
    "short lines": (b"a,b\n" + b"1,2\n" * 1_250_000, "more than 50,001 lines"),
    "wide": (b"a," * 5_000 + b"\n" + b"1\n" * 2_500_000, "more than 1,000,000 cells"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_too_large_is_refused_early(name, packed, path):
    data, message = HOSTILE[name]
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    assert message in refused(read_rows, path)
    assert "larger than 5 MB" in refused(read_text, path)


def test_a_table_of_many_bytes_is_refused(path, monkeypatch):
    monkeypatch.setattr(text, "MAX_TABLE_BYTES", 1_000)
    path.write_text("a,b\n" * 300)
    assert "larger than" in refused(read_lines, path, 400)


def test_packed_file_that_is_cut_off(path):
    path.write_bytes(gzip.compress(b"a,b\n1,2\n" * 99)[:-9])
    assert "cannot be read" in refused(read_rows, path)
    assert "cannot be read" in refused(read_text, path)


def test_rows_are_by_name_and_whole(path):
    path.write_bytes(b"\xef\xbb\xbfa, b,\n1 ,2,3\n\n4\n5,6,7,8\n")
    rows = read_rows(path)
    assert rows == [{"a": "1", " b": "2"}, {"a": "4", " b": ""}, {"a": "5", " b": "6"}]
    assert "no rows" in refused(read_rows, "/dev/null")


def test_lines_come_one_at_a_time(path):
    path.write_bytes(b"a,b\n" * 50 + b"\xe9")
    lines = read_lines(path, 99)
    assert list(itertools.islice(lines, 50)) == ["a,b\n"] * 50
    assert "not text" in refused(lambda: lines)
    assert text.MAX_ROWS * 2 <= text.MAX_CELLS
