"""Hostile texts in what is written, bombs in what is read; the suite is `tools/attack.py`."""

import errno
import os
import runpy
import signal
import time
from pathlib import Path

import pytest
from running import invoke

from gpuscale.answers.launch_check.document import hidden_of
from gpuscale.foreign import comment, csv_cell, fenced, here_document, markdown, markdown_cell
from gpuscale.io import text as reader
from gpuscale.launch.secrets import Hidden

tool = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "attack.py"))
BOMBS = tool["bombs"]()
GEMM = Path(__file__).parents[2] / "gpuscale" / "data" / "validation" / "gemm.csv"


@pytest.mark.slow
def test_no_text_of_an_answer_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tool["attack_scripts"](30, seed=3) == 0


@pytest.mark.parametrize("hostile", tool["HOSTILE"])
def test_texts_stay_where_they_are_put(hostile):
    assert len(comment(hostile).splitlines()) == 1
    assert "\n" not in markdown_cell(hostile) and not markdown(f"<b>{hostile}").startswith("<b>")
    lines = here_document("f", hostile)
    assert lines[0].endswith(f"<<'{lines[-1]}'") and lines[-1] not in lines[1:-1]
    assert str(csv_cell(f"={hostile}")).startswith("'=")


def test_a_fence_is_longer_than_what_it_holds():
    assert fenced(["```", "````sh"]).startswith("`````text\n")


@pytest.mark.parametrize("name", ["regex0", "braces0", "merge40", "python0", "heredocs", "bash0"])
def test_bombs_end_in_an_answer_or_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MOST_S", 0.5)
    file, text = BOMBS[name]
    (tmp_path / file).write_text(text)
    done = invoke("launch-check", str(tmp_path / file), "--model", "llama3-8b", "--gpus", "8")
    assert done.returncode in (0, 1, 2)
    if done.returncode == 2:
        assert done.stdout == "" and done.stderr.startswith("error: ")


@pytest.fixture(scope="module")
def others():
    return tool["other_bombs"]()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log-0-0", "log-1-0", "log-5-11", "log-inf", "model-deep"])
def test_bombs_for_other_readers_end_too(name, others, tmp_path):
    command, file, (parts, times) = others[name]
    (tmp_path / file).write_text("".join(parts) * min(times, 1000))
    done = invoke(*command, str(tmp_path / file), "--json")
    assert done.returncode in (0, 1, 2)
    assert done.returncode < 2 or done.stderr.startswith("error: ")


@pytest.mark.parametrize("spends", ["time", "memory", "one text"])
def test_what_no_reader_bounds_is_given_up(spends, monkeypatch):
    monkeypatch.setattr(reader, "MOST_S", 0.2)
    held = []
    with pytest.raises(reader.GpuscaleError, match="given up"), reader.bounded("file"):
        while spends == "time":
            pass
        while spends == "memory":
            held.append(bytearray(1_000_000))
        held.append(b"x" * 10**10)


def test_devices_and_pipes_are_written_to(tmp_path):
    score = ("validate", "--gemm", str(GEMM), "--rows")
    assert invoke(*score, "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()
    assert "row-1" in invoke(*score, "-").stdout
    for line in (("memory", "llama3-8b", "--gpus", "64", "-o"), ("check", "jobs.toml", "--junit")):
        (tmp_path / "jobs.toml").write_text("[[job]]\ncommand = 'model llama3-8b'\n")
        line = tuple(w.replace("jobs.toml", str(tmp_path / "jobs.toml")) for w in line)
        assert invoke(*line, "/dev/null").returncode in (0, 1)
        assert Path("/dev/null").is_char_device()
        full = invoke(*line, "/dev/full")
        assert full.returncode == 2
        assert full.stderr.strip() == f"error: /dev/full: {os.strerror(errno.ENOSPC)}"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    assert invoke("matmul-time", "h100", "8", "8", "8", "-o", str(tmp_path / "a.json")).stderr == ""
    small = tmp_path / "small.csv"
    small.write_text("\n".join(GEMM.read_text().splitlines()[:3]) + "\n")
    assert invoke("validate", "--gemm", str(small), "--rows", str(pipe)).returncode == 0
    assert os.read(reading, 10) and pipe.is_fifo()
    os.close(reading)


def test_links_are_followed_to_what_the_user_owns_alone(tmp_path, monkeypatch):
    line = ("matmul-time", "h100", "8", "8", "8", "-o")
    mine, link = tmp_path / "mine.json", tmp_path / "link.json"
    mine.write_text("old")
    mine.chmod(0o640)
    link.symlink_to(mine)
    assert invoke(*line, str(link)).returncode == 0
    assert link.is_symlink() and mine.read_text() != "old" and mine.stat().st_mode & 0o777 == 0o640
    written = mine.read_text()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    done = invoke(*line, str(link))
    assert done.returncode == 2 and "another user" in done.stderr and mine.read_text() == written


def test_a_study_with_an_unknown_key_to_require_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = 'question = "matmul-time"\n[common]\ngpu = "h100"\nm = 64\nk = 64\n[grid]\nn = [64]\n'
    Path("s.toml").write_text(study)
    assert invoke("study", "s.toml", "--jobs", "1", "--require", "no_such<=1").returncode == 2
    assert os.listdir() == ["s.toml"]
    done = invoke("study", "s.toml", "--jobs", "1", "--require", "best.0.time_s<=1s")
    assert done.returncode == 0, done.stderr
    Path("t.toml").write_text(study.replace("m = 64\n", ""))
    assert "m of matmul-time is missing" in invoke("study", "t.toml").stderr


RUN = 'torchrun pretrain_gpt.py --num-layers 2 --max-num-seqs "8$AWS_SECRET" --seed $HOST_NAME\n'


def checked(*words):
    return invoke("launch-check", *map(str, words), "--model", "llama3-8b", "--gpus", "8")


def test_files_outside_the_checkout_are_not_read(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside / ".git", inside / "scripts", inside / "conf", outside):
        folder.mkdir(parents=True)
    script = inside / "scripts" / "run.sh"
    script.write_text("deepspeed --num_gpus 8 train.py --deepspeed ../../outside/ds.json\n")
    (outside / "ds.json").write_text(
        '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    )
    line = (script, "--seq-len", "4096", "--json")
    assert '"zero_stage": 3' not in checked(*line).stdout
    assert '"zero_stage": 3' in checked(*line, "--include", outside).stdout
    (inside / "conf" / "ds.json").symlink_to(outside / "ds.json")
    script.write_text("deepspeed --num_gpus 8 train.py --deepspeed conf/ds.json\n")
    assert '"zero_stage": 3' not in checked(*line).stdout
    assert "link out of its checkout" in checked(inside / "conf" / "ds.json").stderr
    (inside / "conf" / "ds.json").unlink()
    (inside / "conf" / "ds.json").write_text((outside / "ds.json").read_text())
    assert '"zero_stage": 3' in checked(*line).stdout
    assert "is no folder" in checked(*line, "--include", tmp_path / "none").stderr


@pytest.mark.parametrize("form", ["--json", "--explain"])
def test_secrets_and_files_that_were_not_given_are_not_repeated(tmp_path, form):
    (tmp_path / ".git").mkdir()
    (tmp_path / "prod.env").write_text("AWS_SECRET=hunter2pass\nHOST_NAME=db7.internal\n")
    given = tmp_path / "run.sh"
    given.write_text(f"source prod.env\nexport HF_TOKEN=hf_abcdef\nx --api-key sk-12345\n{RUN}")
    (tmp_path / "ds_config.json").write_text('{"train_batch_size": "key-9x", "api_key": "key-9x"}')
    for words in ((given,), (given, tmp_path / "ds_config.json"), (tmp_path / "ds_config.json",)):
        done = checked(*words, form)
        told = done.stdout + done.stderr
        for secret in ("hunter2", "db7.internal", "hf_abcdef", "sk-12345", "key-9x"):
            assert secret not in told, (secret, told)


SECRETS = [
    "--model-name meta/Llama --api_key VALUE --x 1",
    "export HF_TOKEN=VALUE",
    "a=b=c --name x secret: 'VALUE'",
    "store postgres://user:VALUE@host/db",
    "curl -H 'Authorization: Bearer VALUE'",
]


@pytest.mark.parametrize("line", SECRETS)
def test_a_secret_is_found_wherever_its_name_stands(line):
    hidden = Hidden({"run.sh": line.replace("VALUE", "s3cr3t-9")}, ["run.sh"])
    assert hidden.masked(line.replace("VALUE", "s3cr3t-9")) == line.replace("VALUE", "***")


def test_an_option_after_a_name_that_looks_secret_is_no_secret():
    line = "--use-auth-token --seq-length 4096"
    assert Hidden({"run.sh": line}, ["run.sh"]).masked(line) == line


def test_a_file_that_is_not_given_hides_no_word_of_the_programs_own():
    hidden = hidden_of(["run.sh"], {"run.sh": "", "near.py": "open('config.json'), 'secret.json'"})
    assert hidden.masked("give its config.json or secret.json") == "give its config.json or ***"


def test_a_change_shows_no_lines_of_files_that_were_not_given(tmp_path):
    (tmp_path / ".git").mkdir()
    layout = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --micro-batch-size 1"
    flags = f"{layout} --global-batch-size 64 --seq-length 4096 --bf16 --use-distributed-optimizer"
    command = f"WANDB_API_KEY=wk-777777 torchrun --nproc-per-node 8 pretrain_gpt.py {flags}\n"
    (tmp_path / "train.sh").write_text(command)
    (tmp_path / "run.sh").write_text("bash train.sh\n")
    own = checked(tmp_path / "train.sh").stdout
    other = checked(tmp_path / "run.sh").stdout
    assert "As a change of the file" in own and "+WANDB_API_KEY=*** torchrun" in own
    assert "As a change of the file" in other and "@@ -1 +1 @@" in other
    assert "wk-777777" not in own + other and "--nproc-per-node" not in other


def test_what_is_given_up_has_time_to_leave(monkeypatch):
    """A clock that stopped it again while it left could end the program."""
    monkeypatch.setattr(reader, "MOST_S", 0.1)
    left = []

    def leaving():
        try:
            while True:
                pass
        finally:
            until = time.process_time() + 0.1
            while time.process_time() < until:
                pass
            left.append("whole")

    with pytest.raises(reader.GpuscaleError, match="given up"), reader.bounded("file"):
        leaving()
    assert left == ["whole"]
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
