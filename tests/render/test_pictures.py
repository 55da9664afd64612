"""Pictures: well-formed, with their numbers, the same from the command line and the library."""

import re
import shlex
import xml.etree.ElementTree as ET

import pytest

from gpuscale.cli.app import run
from gpuscale.render.chart import Axis, Gantt, Lines, Mark, Series, Span, Stack
from gpuscale.render.draw import to_svg
from gpuscale.render.terminal import drawn, letters

SVG = "{http://www.w3.org/2000/svg}"

LINES = Lines(
    "k",
    "T <&>",
    Axis("size", "bytes", True),
    Axis("time", "s"),
    [Series("a", [(1e3, 1.0, ""), (1e6, 2.0, "")]), Series("b", [(1e4, 3.0, "p")], line=False)],
    [Mark("x", 1e5, "here"), Mark("y", 2.5, "there")],
    "note",
)
STACK = Stack(
    "k",
    "Memory",
    Axis("memory", "bytes"),
    ["weights", "working"],
    [("one", [4e9, 2e9]), ("two", [1e9, 0.0])],
    (8e9, "limit"),
)
GANTT = Gantt(
    "k",
    "Step",
    Axis("time", "s"),
    4.0,
    [("forward", "F"), ("backward", "B")],
    [("stage 1", [Span(0.0, 1.0, 0, "1"), Span(2.0, 2.0, 1, "1")])],
)


def texts(root):
    return ["".join(e.itertext()) for e in root.iter() if e.tag in (f"{SVG}text", f"{SVG}title")]


@pytest.mark.parametrize("chart", [LINES, STACK, GANTT])
def test_svg_is_xml_inside_its_box(chart):
    drawing = to_svg(chart)
    root = ET.fromstring(drawing)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("role") == "img" and root.get("aria-label") == chart.title
    assert not re.search(r"(?i)\bnan\b|\binf\b", drawing)
    for box in root.iter(f"{SVG}rect"):
        x, y = float(box.get("x")), float(box.get("y"))
        assert -1 <= x and x + float(box.get("width")) <= width + 1
        assert -1 <= y and y + float(box.get("height")) <= height + 1


def test_widths_are_in_proportion_and_tooltips_have_numbers():
    root = ET.fromstring(to_svg(STACK))
    tips = {
        t.text: float(box.get("width"))
        for box in root.iter(f"{SVG}rect")
        if (t := box.find(f"{SVG}title")) is not None
    }
    assert tips["one, weights: 4 GB (66.7 %)"] == pytest.approx(
        4 * tips["two, weights: 1 GB (100.0 %)"], rel=1e-3
    )
    assert tips["one, working: 2 GB (33.3 %)"] > 0 and len(tips) == 3
    assert "limit" in texts(root) and "6 GB" in texts(root)
    names = texts(ET.fromstring(to_svg(LINES)))
    assert {"T <&>", "size", "time", "here", "there", "note"} <= set(names)
    assert "p: 10 kB, 3 s" in names


def test_terminal_pictures():
    picture = drawn(STACK, 80)
    title, lines = picture.title, picture.lines
    assert title == "Memory" and all(len(text) <= 80 for text in lines)
    assert lines[0].count("W") == pytest.approx(2 * lines[0].count("O"), abs=2)
    assert lines[0].count("W") == pytest.approx(4 * lines[1].count("W"), abs=4)
    lines = drawn(GANTT, 80).lines
    row = lines[0].split()[-1]
    assert re.fullmatch(r"F+\.+B+", row)
    assert row.count("B") == pytest.approx(2 * row.count("F"), abs=2)
    lines = drawn(LINES, 80).lines
    assert sum(text.count("o") for text in lines[:16]) == 2 and "time over size" in "".join(lines)


def test_letters_differ():
    names = ["weights", "working", "w", "w", "ww"]
    assert len(set(letters(names))) == len(names)


PICTURES = [
    ("memory llama3-70b --tp 8 --pp 4", ["memory"]),
    (
        "plan llama3-70b --gpus 64",
        ["step", "timeline", "memory", "memory-time", "alternatives", "limits", "sensitivity"],
    ),
    ("plan llama3-8b --gpus 64,128,256", ["scaling", "mfu", "pareto"]),
    ("roofline llama3-70b", ["roofline", "limits"]),
    ("collective all-reduce dgx-h100 --gpus 64 --sweep 1MB:1GB", ["time", "busbw"]),
    ("collective all-reduce dgx-h100 --gpus 64 --bytes 1GB", ["levels"]),
    ("matmul-time h100 64 4096 4096", ["roofline"]),
    ("matmul-time h100 1e9 --op add", ["roofline"]),
    ("roofline chip b200", ["roofline"]),
    ("matmul-time h100 4096 4096 4096 --sweep gpu.hbm_bytes_per_s=1TB/s..8TB/s", None),
    ("timeline llama3-70b --gpus 64 --tp 8 --pp 4", ["timeline", "memory", "memory-time"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("line", "keys"), PICTURES)
def test_commands_draw(line, keys, tmp_path, capsys):
    names = [f"x.{key}.svg" for key in keys or []] or ["x.svg"]
    more = [arg for name in names for arg in ("-o", str(tmp_path / name))]
    code = run([*shlex.split(line), "--plot", *more])
    shown = capsys.readouterr()
    assert code in (0, 1), shown.err
    for name in names:
        ET.fromstring((tmp_path / name).read_text("utf-8"))
    assert "no picture" not in shown.err
    assert max(map(len, shown.out.splitlines())) < 400


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ("model gpt2 -o x.svg", "no picture"),
        ("memory gpt2 -o x.nothing.svg", "unknown picture `nothing`"),
        ("memory gpt2 -o missing/x.svg", "no folder"),
        ("memory gpt2 -o x.gif", "the ending `.gif` is not known"),
    ],
)
def test_what_cannot_be_drawn_is_said(args, error, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = run(shlex.split(args))
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "") and error in shown.err
    assert not list(tmp_path.iterdir())


def test_png(tmp_path, capsys):
    path = tmp_path / "x.png"
    code = run(["memory", "llama3-70b", "--tp", "8", "--pp", "4", "-o", str(path)])
    shown = capsys.readouterr()
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        assert (code, shown.out) == (2, "") and "PNG needs the package resvg_py" in shown.err
        return
    assert code in (0, 1) and path.read_bytes().startswith(b"\x89PNG\r\n")


def test_the_report_says_how_to_make_it_again(tmp_path, capsys):
    path = tmp_path / "x.html"
    args = ["memory", "llama3-70b", "--tp", "8", "--pp", "4", "-o", str(path)]
    assert run(args) in (0, 1)
    page = path.read_text("utf-8")
    assert f"gpuscale {shlex.join(args)}" in page and "://" not in page.replace(
        "http://www.w3.org/2000/svg", ""
    ).replace("https://", "")
    assert "src=" not in page and "@import" not in page and "url(" not in page
    assert page.count("<script>") == 1 and 'lang="en"' in page
    first = page
    assert run(args) in (0, 1) and path.read_text("utf-8") == first
