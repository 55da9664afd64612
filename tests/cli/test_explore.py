"""The explorer in a test terminal: keys in, what the screen says out."""

import asyncio
import sys

import pytest

from gpuscale.cli.app import run
from gpuscale.cli.explore_job import TASKS, ExploredJob, rows

FIRST = {"model": "llama3.1-8b", "gpu": "h100", "gpus": "16"}


def test_the_job_steps_through_its_dimensions_and_pins_layouts():
    job = ExploredJob("pretrain", FIRST)
    assert job.stepped("gpus", 1).given["gpus"] == "32"
    assert job.with_(gpus="24").stepped("gpus", -1).given["gpus"] == "8"
    assert job.stepped("tp", -1).given["tp"] == "", "the planner's own is the least"
    found = rows(job, job.answer())
    assert len(found) > 5
    assert found[0].cells[-1] == "chosen"
    pinned = job.with_(**found[3].pins)
    again, (layout, _, memory) = rows(pinned, pinned.answer())[0].cells, found[3].cells[:3]
    assert (again[0], again[2]) == (layout, memory), "a layout that is said is likelier tuned"
    assert pinned.released().line == job.line == "gpuscale plan llama3.1-8b --gpus 16 --gpu h100"


@pytest.mark.parametrize("task", TASKS)
def test_every_dimension_is_an_option_of_its_command(task):
    job = ExploredJob("pretrain", FIRST).as_task(task)
    assert all(job.about(name) for name in job.dimensions)
    assert rows(job, job.answer()), task


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "gpuscale.cli.explore_screen", raising=False)
    assert run(["explore"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "gpuscale[explore]" in err


def test_an_unknown_task_and_a_pipe_are_refused(capsys):
    assert run(["explore", "--task", "tune"]) == 2
    assert "fine-tune" in capsys.readouterr().err
    pytest.importorskip("textual", reason="the extra explore is not installed")
    assert run(["explore"]) == 2
    assert "needs a terminal" in capsys.readouterr().err


def driven(steps):
    """Run the explorer, with `steps(app, pilot)` at the keys."""
    pytest.importorskip("textual", reason="the extra explore is not installed")
    from gpuscale.cli.explore_screen import Explorer

    app = Explorer(ExploredJob("pretrain", FIRST))

    async def go():
        async with app.run_test(size=(140, 48)) as pilot:
            await settled(app, pilot)
            await steps(app, pilot)

    asyncio.run(go())


async def settled(app, pilot):
    await pilot.pause(0.1)
    await app.workers.wait_for_complete()
    await pilot.pause(0.1)


def said(app, where="#answer"):
    from textual.widgets import Static

    return str(app.query_one(where, Static).render())


@pytest.mark.slow
def test_keys_change_the_job_and_the_answer_is_redrawn():
    async def steps(app, pilot):
        assert "16 h100-sxm" in said(app)
        assert "Memory of a GPU" in said(app, "#bars")
        assert "█" in said(app, "#bars")
        await pilot.press("down", "down", "right")
        await settled(app, pilot)
        assert "32 h100-sxm" in said(app)
        assert "GPUs" in said(app, "#about")
        await pilot.press("e", *["backspace"] * 2, *"64", "enter")
        await settled(app, pilot)
        assert "64 h100-sxm" in said(app)
        await pilot.press("t")
        await settled(app, pilot)
        assert "LoRA of llama3.1-8b on 64" in said(app)

    driven(steps)


@pytest.mark.slow
def test_a_layout_is_pinned_compared_and_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def steps(app, pilot):
        await pilot.press("c")
        await pilot.pause()
        assert "kept:" in said(app, "#beside")
        await pilot.press("tab", "down", "down", "p")
        await settled(app, pilot)
        assert app.job.given["tp"]
        assert said(app) != said(app, "#beside")
        for name in ("run.sh", "run.txt"):
            await pilot.press("w", *["backspace"] * 12, *name, "enter")
            await pilot.pause()
        assert "torchrun" in (tmp_path / "run.sh").read_text()
        assert (tmp_path / "run.txt").read_text() == f"{app.job.line}\n"
        await pilot.press("r")
        await settled(app, pilot)
        assert "--tp" not in app.job.line

    driven(steps)


@pytest.mark.slow
def test_what_cannot_be_answered_is_said():
    async def steps(app, pilot):
        await pilot.press("e", *["backspace"] * 12, *"nomodel", "enter")
        await settled(app, pilot)
        assert "unknown model" in said(app)

    driven(steps)
