"""Attack what is written and what is read: hostile texts in scripts, bombs in launch files.

`scripts` changes texts of saved answers to what a shell would run, writes every launch file and
runs it where each program is a stub that does nothing: whatever comes of it, nothing of the text
may run. `bombs` reads files made to hang or to fill the memory, each in a process of its own, and
wants an answer or one line of error within its seconds and megabytes.

    python tools/attack.py scripts --cases 2000 [--seed 1]
    python tools/attack.py bombs [name ...]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

RUN = "touch PWNED"
HOSTILE = [
    f"a\n{RUN}\n",
    f"a\r{RUN}\r",
    f"a\r\n{RUN}\r\n",
    f"a\u2028{RUN}\u2028",
    f"a\x0b{RUN}\x85{RUN}",
    f"$({RUN})",
    f"`{RUN}`",
    f"'; {RUN}; '",
    f'"; {RUN}; "',
    f"; {RUN} #",
    f"& {RUN} &",
    f"| {RUN}",
    f"\nEND\n{RUN}\n",
    f"END\nEND_\n{RUN}",
    f"${{X:-$({RUN})}}",
    f"\\\n{RUN}",
    f"a: b\n- |\n  {RUN}",
    f"@first-machine@; {RUN}",
    f"--x=$({RUN})",
    f"<({RUN})",
]
PROGRAMS = "torchrun srun sbatch python python3 accelerate vllm trtllm-serve scontrol".split()
SOFTWARE = {
    "megatron-core": "megatron",
    "torchtitan": "torchtitan",
    "deepspeed-zero3": "deepspeed",
    "fsdp": "accelerate",
    "jax": "maxtext",
    "nanotron": "nanotron",
}
WRAPPERS = ("torchrun", "slurm", "skypilot", "dstack", "kubernetes")
STARTED = ("run", "commands", "command", "args")
"""Keys of a manifest under which commands stand."""
BOMB_S, BOMB_BYTES = 5.0, 500e6


def asked(*words: str) -> tuple[int, str, str]:
    """Run a command line in this process."""
    from gpuscale.cli.app import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    return code, out.getvalue(), err.getvalue()


def saved_answers() -> list[dict[str, Any]]:
    """Answers of `plan`, `memory` and `serve` that launch files are written from."""
    found = []
    for software in SOFTWARE:
        command = "plan" if software == "megatron-core" else "memory"
        line = (command, "llama3-8b", "--gpus", "16", "--software", software, "--json")
        found.append(json.loads(asked(*line)[1]))
    for engine in ("vllm", "sglang", "trtllm"):
        load = ("--rate", "1", "--input", "512", "--output", "64", "--gpu", "h100")
        code, text, _ = asked("serve", "llama3-8b", *load, "--engine", engine, "--json")
        found += [json.loads(text)] if code == 0 else []
    return found


def texts_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """(table, key) of every text in a saved answer."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in list(pairs):
        if isinstance(one, str):
            yield value, key
        elif isinstance(one, (dict, list)):
            yield from texts_in(one)


def spoiled(rng: random.Random, answer: dict[str, Any]) -> dict[str, Any]:
    """Change some texts of an answer, or numbers into texts, to what a shell would run."""
    made = copy.deepcopy(answer)
    places = [*texts_in(made["inputs"]), *texts_in(made["result"])]
    for table, key in rng.sample(places, min(len(places), rng.choice([1, 1, 2, 3]))):
        hostile = rng.choice(HOSTILE)
        table[key] = rng.choice([hostile, f"{table[key]}{hostile}", f"{hostile}{table[key]}"])
    if rng.random() < 0.2:
        table = rng.choice([made["inputs"], made["result"], made["result"].get("layout")])
        if isinstance(table, dict):
            table[rng.choice(list(table))] = rng.choice(HOSTILE)
    return made


def hostile_model(rng: random.Random, folder: Path) -> Path:
    """Write a model file with a hostile name, in a file and folder of a hostile name."""
    from gpuscale.io.presets import preset_path

    text = Path(preset_path("model", "llama3-8b")).read_text("utf-8")
    name = rng.choice(HOSTILE)
    text = "\n".join(
        f"{key} = {json.dumps(name)}" if key in ("name", "hub") else line
        for line in text.split("\n")
        for key in (line.partition(" ")[0],)
    )
    place = folder / rng.choice(["m", f"x; {RUN}", f"$({RUN})", f"`{RUN}`", f"a\n{RUN}"])
    place.mkdir(exist_ok=True)
    path = place / f"model{rng.choice(['', f'$({RUN})', f';{RUN};', f'{chr(10)}{RUN}'])}.toml"
    path.write_text(text, "utf-8")
    return path


def commands_of(name: str, text: str) -> list[str]:
    """Shell texts of a launch file: itself, or those of a manifest."""
    if name.endswith((".sh", ".sbatch")):
        return [text]
    import yaml

    def walk(value: Any, key: str = "") -> Iterator[str]:
        if isinstance(value, dict):
            for name, one in value.items():
                yield from walk(one, str(name))
        elif isinstance(value, list):
            for one in value:
                yield from walk(one, key)
        elif isinstance(value, str) and key in STARTED:
            yield value

    return [one for table in yaml.safe_load_all(text) for one in walk(table)]


def stubs(folder: Path) -> Path:
    """Programs that do nothing, and the two that show what ran."""
    place = folder / "bin"
    place.mkdir()
    for name in PROGRAMS:
        (place / name).write_text("#!/bin/sh\nexit 0\n")
        (place / name).chmod(0o755)
    for name in ("touch", "cat", "sh", "head", "cut"):
        (place / name).symlink_to(str(shutil.which(name)))
    return place


def ran(text: str, folder: Path, programs: Path) -> bool:
    """Whether anything of a hostile text ran with a script."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    subprocess.run(
        [str(shutil.which("bash")), "-c", text, "run.sh", "0", "head"],
        cwd=work,
        env={"PATH": str(programs), "SLURM_ARRAY_TASK_ID": "0", "SKYPILOT_NODE_IPS": "h"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    return any("PWNED" in path.name for path in work.rglob("*"))


def attack_scripts(cases: int, seed: int) -> int:
    """Write and run launch files of hostile answers; the number that ran a text of them."""
    rng, answers, counts = random.Random(seed), saved_answers(), {"written": 0, "refused": 0}
    failures = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        programs = stubs(folder)
        for number in range(cases):
            answer = rng.choice(answers)
            if rng.random() < 0.15:
                answer = copy.deepcopy(answer)
                answer["inputs"]["model"] = str(hostile_model(rng, folder))
            else:
                answer = spoiled(rng, answer)
            (folder / "a.json").write_text(json.dumps(answer), "utf-8")
            wrap = rng.choice(WRAPPERS)
            code, out, err = asked("launch", str(folder / "a.json"), "--wrap", wrap, "--json")
            counts["written" if code == 0 else "refused"] += 1
            wrong = "" if code in (0, 2) else f"exit {code}: {err[-300:]}"
            if code == 0:
                result = json.loads(out)["result"]
                name = result["file"]
                wrong = (
                    "it ran"
                    if any(ran(one, folder, programs) for one in commands_of(name, result["text"]))
                    else ""
                )
            if wrong:
                failures += 1
                Path(f"attack-{number}.json").write_text(json.dumps(answer))
                print(f"case {number}: {wrong}: attack-{number}.json --wrap {wrap}")
    print(f"{cases} cases: {counts}, {failures} failures")
    return failures


LETTERS = "abcdefghijklmnopqrstuvwxyz"
GPT = "torchrun pretrain_gpt.py --num-layers 2 "


def _yaml_aliases(width: int, depth: int, merge: bool) -> str:
    lines = [f"a0: &a0 {{{', '.join(f'k{i}: x' for i in range(width))}}}"]
    for at in range(1, depth):
        one = ", ".join([f"*a{at - 1}"] * width)
        lines.append(f"a{at}: &a{at} {{<<: [{one}]}}" if merge else f"a{at}: &a{at} [{one}]")
    return "\n".join([*lines, "model_name_or_path: x", "stage: sft"])


def _compose(n: int, more: str = "") -> str:
    service = "    image: vllm/vllm-openai\n    command: --model a/b --tensor-parallel-size 2\n"
    return "services:\n" + "".join(f"  s{i}:\n{service}{more}" for i in range(n))


def _python(expression: str) -> str:
    return (
        "from transformers import Trainer, TrainingArguments\n"
        f"args = TrainingArguments(output_dir='x', bf16={expression})\n"
        "Trainer(model='meta-llama/Meta-Llama-3-8B', args=args).train()\n"
    )


def bombs() -> Mapping[str, tuple[str, str]]:
    """Name -> (file name, text) of what is made to hang a reader."""
    made: dict[str, tuple[str, str]] = {}

    def put(name: str, file: str, text: str) -> None:
        made[name] = (file, text)

    word = "a" * 40
    for i, pattern in enumerate(
        (
            "^(a|a)*$",
            "^(a+)+$",
            "^(a*)*b",
            "(a|aa)+$",
            "^(([a-z])+.)+[A-Z]$",
            "(.*)*x",
            "(a?){40}a{40}",
        )
    ):
        put(f"regex{i}", "r.sh", f"A={word}!\nif [[ $A =~ {pattern} ]]; then {GPT}; fi\n")
    for i, pattern in enumerate(("*a" * 25 + "b", "*(a|aa)", "?*" * 40 + "!")):
        put(
            f"glob{i}",
            "g.sh",
            f"A={word}\ncase $A in {pattern}) B=1;; esac\n[[ $A == {pattern} ]]\n{GPT}",
        )
        put(
            f"cut{i}", "c.sh", f"A={word * 90}\nB=${{A##{pattern}}}\nC=${{A//{pattern}/x}}\n{GPT}$B"
        )
    for i, braces in enumerate(
        ("{1..1000}" * 3, "{1..1000}" * 4, "{a,b}" * 40, "{1..999999999}", "{{a,b},{c,d}}" * 20)
    ):
        put(f"braces{i}", "b.sh", f"echo {braces}\n{GPT}")
        put(f"for{i}", "f.sh", f"for i in {braces}; do A=$A$i; done\n{GPT}$A")
    put("heredocs", "h.sh", "<<EOF\n" * 43_000)
    put("heredocs-line", "h.sh", "cat " + "<<EOF " * 40_000 + "\n" + GPT)
    put("heredocs-word", "h.sh", "<<EOF" * 52_000)
    for n in (5, 10, 40):
        put(f"merge{n}", "m.yaml", _yaml_aliases(2, n, merge=True))
        put(f"merge-wide{n}", "m.yaml", _yaml_aliases(9, n, merge=True))
        put(f"alias{n}", "m.yaml", _yaml_aliases(9, n, merge=False))
    chain = "a0: &a0 {k: v}\n" + "".join(
        f"a{i}: &a{i}\n  <<: [*a{i - 1}, *a{i - 1}]\n  k{i}: v\n" for i in range(1, 40)
    )
    put("merge-chain", "m.yaml", chain)
    put("yaml-deep", "d.yaml", "a: " + "[" * 20_000)
    put("yaml-indent", "d.yaml", "".join(" " * i + "a:\n" for i in range(700)))
    put("yaml-many", "d.yaml", "---\na: 1\n" * 30_000)
    put("yaml-keys", "d.yaml", "".join(f"k{i}: {i}\n" for i in range(25_000)))
    put("yaml-float", "d.yaml", "model_name_or_path: x\nstage: sft\ncutoff_len: " + "1" * 100_000)
    put("yaml-tag", "d.yaml", "!!python/object/apply:os.system ['touch PWNED']\n" * 2000)
    put(
        "yaml-omega",
        "o.yaml",
        "".join(f"a{i}: ${{a{i + 1}}}${{a{i + 1}}}\n" for i in range(60))
        + "model: {}\ntrain_dataset: x\n",
    )
    put("services", "docker-compose.yaml", _compose(2500))
    put("services-env", "docker-compose.yaml", _compose(1500, "    environment: {A: b}\n"))
    put(
        "services-sh",
        "docker-compose.yaml",
        _compose(1200).replace("--model", "bash -c 'vllm serve"),
    )
    put(
        "swap",
        "config.yaml",
        "macros:\n"
        + "".join(f"  m{i}: ${{m{i + 1}}} ${{m{i + 1}}}\n" for i in range(40))
        + "models:\n  a:\n    cmd: llama-server ${m0}\n",
    )
    for i, expression in enumerate(
        (
            "not " * 900 + "True",
            "not " * 90_000 + "True",
            "-" * 5000 + "1",
            "(" * 150 + "1" + ")" * 150,
            "[" * 3000 + "]" * 3000,
            "9 ** 9 ** 9",
            "'a' * 10 ** 10",
            "[0] * 10 ** 9",
            "2 ** 2 ** 2 ** 2 ** 2",
            "1 << 10 ** 10",
            "len('x' * 10 ** 10)",
            "list(range(10 ** 10))",
            "sum(range(10 ** 10))",
            "' '.join(['x' * 1000] * 10 ** 7)",
            "1 if " * 3000 + "1" + " else 0" * 3000,
            "lambda: " * 2000 + "1",
            "a" + ".b" * 30_000,
            "f(" * 2000 + ")" * 2000,
            "1 + " * 60_000 + "1",
            "True and " * 30_000 + "True",
            "'%1000000000d' % 1",
            "'{:>1000000000}'.format(1)",
            "f'{1:>1000000000}'",
            "[x for x in range(10 ** 9)]",
            "'x'.rjust(10 ** 10)",
            "1e400 // 1",
            "int('9' * 100000)",
            "{**" * 90 + "{}" + "}" * 90,
        )
    ):
        put(f"python{i}", "p.py", _python(expression))
    doubling = "x = [1, 2]\n" + "x = x + x\n" * 60
    put("python-doubling", "p.py", doubling + _python("True"))
    put("python-text", "p.py", "x = 'ab'\n" + "x = x + x\n" * 60 + _python("True"))
    put("python-format", "p.py", "x = 'ab'\n" + "x = f'{x}{x}'\n" * 60 + _python("True"))
    verl = "actor_rollout_ref: {model: {path: a/b}}\n"
    put("hydra-self", "h.yaml", f"defaults: [{', '.join(['h'] * 64)}]\n" + verl)
    put("hydra-places", "h.yaml", f"defaults: [{', '.join(['{h@a.b: ../h}'] * 64)}]\n" + verl)
    put("verl-names", "v.yaml", verl + "".join(f"k{i}: ${{k{i + 1}}}\n" for i in range(20000)))
    put("python-calls", "p.py", "def f(x):\n    return f(x) + f(x)\ny = f(1)\n" + _python("True"))
    put(
        "python-functions",
        "p.py",
        "".join(f"def f{i}(x):\n    return f{i + 1}(x) + f{i + 1}(x)\n" for i in range(40))
        + "def f40(x):\n    return x\ny = f0(1)\n"
        + _python("y"),
    )
    put("python-loop", "p.py", "x = 0\nwhile True:\n    x = x + 1\n" + _python("True"))
    put(
        "python-for",
        "p.py",
        "x = 0\n"
        + "".join("    " * i + f"for i{i} in range(1000):\n" for i in range(8))
        + "    " * 8
        + "x += 1\n"
        + _python("True"),
    )
    put("python-lines", "p.py", "a = 1\n" * 45_000 + _python("True"))
    for i, line in enumerate(
        (
            "f() { f; f; }; f",
            ":(){ :|:& };:",
            "while true; do A=$A$A; done",
            "for ((;;)); do A=1; done",
            "A=$(printf '%1000000000d' 1)",
            "A=$(printf 'x%.0s' {1..1000}{1..1000})",
            "A=$(seq 1 1000000000)",
            "A=$((2**99999999))",
            "A=$((1<<99999999999))",
            "A=$((" + "9**" * 200 + "9))",
            "A=a; " + "A=${A//a/aa}; " * 40,
            "A=(" + "{1..1000} " * 1000 + ")",
            "B=A; " + "".join(f"A{i}=$A{i + 1}$A{i + 1}; " for i in range(99, 0, -1)),
            "A=$(yes)",
            "eval " * 5000 + "ls",
            "bash -c " * 3000 + "ls",
            "A=" + "$(echo " * 3000 + ")" * 3000,
            "A=" + "`echo " * 3000,
            "A=" + '"$(' * 3000,
            "if " * 5000,
            "case " * 5000 + "in",
            "[[ " + "! " * 20_000 + "a ]]",
            "[[ " + "( " * 20_000 + "a ]]",
            "[[ " + "a && " * 20_000 + "a ]]",
            "a | " * 20_000 + "b",
            "a && " * 30_000 + "b",
            "$((" + "1+" * 50_000 + "1))",
            "x=${" + "a:-${" * 20_000,
            "sed 's/" + "(a*)*" * 20 + "/x/' <<< " + word,
            "A=$(echo " + word * 500 + " | sed -E 's/(a|a)*b/x/g')",
            "A=$(echo " + word * 50 + " | grep -E '(a+)+b')",
            "A=$(echo " + word * 50 + " | awk '/(a+)+b/')",
            "A=$(echo " + word * 2000 + " | tr a-z A-Z | cut -c 1-9)",
            "export A={1..1000}{1..1000}",
            "mapfile -t A < <(seq 1 99999999)",
            "select x in {1..1000}{1..1000}; do echo; done",
            "until false; do A+=x; done",
            "shift 999999999999; set -- {1..1000}{1..1000}",
            "A[999999999]=1; A+=(x)",
            "trap 'f' EXIT; " * 9000,
        )
    ):
        put(f"bash{i}", "s.sh", f"{line}\n{GPT}$A\n")
    put("bash-words", "s.sh", GPT + "--a=b " * 40_000)
    put("bash-quotes", "s.sh", '"' * 250_001)
    put("bash-backslash", "s.sh", "\\\n" * 140_000)
    put(
        "bash-functions",
        "s.sh",
        "".join(f"f{i}() {{ f{i + 1}; f{i + 1}; }}\n" for i in range(60)) + "f0\n" + GPT,
    )
    put("bash-source", "s.sh", "source s.sh\nsource s.sh\n" + GPT)
    put("json-deep", "ds.json", '{"zero_optimization": ' * 60_000)
    put("json-long", "ds.json", '{"train_batch_size": ' + "9" * 200_000 + "}")
    put(
        "json-keys",
        "ds.json",
        "{" + ",".join(f'"k{i}": {i}' for i in range(20_000)) + ', "bf16": {}}',
    )
    put("toml-deep", "t.toml", "a = " + "[" * 40_000)
    put("toml-dots", "t.toml", "[training]\n" + "a" + ".a" * 60_000 + " = 1\n")
    put("toml-tables", "t.toml", "[training]\n" + "".join(f"[a.b{i}.c]\n" for i in range(15_000)))
    put("toml-headers", "t.toml", "[" + ".".join("a" * 1 for _ in range(50_000)) + "]\n")
    put("page", "page.md", "```bash\n" * 30_000)
    put("page-blocks", "page.md", "```bash\nvllm serve a/b\n```\n" * 8_000)
    put("page-fence", "page.md", "```" + " " * 200_000)
    put("docker", "Dockerfile", "FROM vllm/vllm-openai\n" + "RUN cat <<EOF > a\n" * 12_000)
    put("docker-echo", "Dockerfile", "FROM a\nRUN " + 'echo "' * 30_000)
    put("docker-env", "Dockerfile", "FROM a\n" + "ENV A=$A$A\n" * 20_000 + "CMD vllm serve $A\n")
    put("batch", "run.bat", "set A=%A%%A%\n" * 15_000 + "vllm serve %A%\n")
    put("batch-caret", "run.bat", "^\n" * 100_000)
    put("powershell", "run.ps1", "$a = $a + $a\n" * 15_000 + "vllm serve $a\n")
    put("unit", "a.service", "ExecStart=" + "\\\n" * 100_000)
    put("modelfile", "Modelfile", "FROM a\n" + "PARAMETER num_ctx 4\n" * 13_000)
    put(
        "notebook",
        "n.ipynb",
        json.dumps(
            {"cells": [{"cell_type": "code", "source": "x = 1\n" * 20, "outputs": []}] * 4000}
        ),
    )
    put(
        "notebook-shell",
        "n.ipynb",
        json.dumps(
            {
                "cells": [
                    {
                        "cell_type": "code",
                        "source": "!echo {1..1000}{1..1000}{1..1000}\n",
                        "outputs": [],
                    }
                ]
                * 20
            }
        ),
    )
    put(
        "notebook-text",
        "n.ipynb",
        json.dumps(
            {"cells": [{"cell_type": "markdown", "source": "```" * 5000, "outputs": []}] * 20}
        ),
    )
    put("helm", "values.yaml", "a: '" + "{{ .x }}" * 30_000 + "'\n")
    put("jinja", "x.yaml", "a: '" + "{{" * 120_000 + "'\n")
    put("omega", "x.yaml", "a: '" + "${" * 120_000 + "'\nmodel_name_or_path: x\nstage: sft\n")
    put("sbatch", "x.sbatch", "#SBATCH --nodes=4\n" * 15_000 + GPT)
    put("flags", "x.sh", GPT + " ".join(f"--x{i} 1" for i in range(22_000)))
    put("torchtitan", "x.sh", "torchrun -m torchtitan.train " + "--a.b.c 1 " * 25_000)
    put("commands", "x.sh", ("vllm serve a/b --tensor-parallel-size 2\n") * 7_000)
    put("megatrons", "x.sh", (GPT + "\n") * 6_000)
    return made


MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000}
MODEL |= {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
MODEL |= {"num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 8192}
PRINTED = (
    " iteration 1/ 9 | elapsed time per iteration (ms): ",
    "step: 1  loss: 1.0  memory: ",
    "Avg generation throughput: ",
    "{'loss': 1.0, 'throughput': ",
    "CUDA out of memory. Tried to allocate ",
    "NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via ",
    "#  size count type redop root time algbw busbw\n  1048576 262144 float sum -1 ",
    "| model | size | params | backend | test | t/s |\n| ",
    "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 ",
    "Rank 0: ",
)
"""Beginnings of lines that tables of logs know."""
FILLED = (
    "9" * 3900,
    " " * 3900,
    "1," * 1900,
    "1 " * 1900,
    "a=1 " * 900,
    "((((" * 900,
    "0:00" * 900,
)
FILLED += ("a" * 3900 + "=1", "[rank0]: " * 400, "\x1b[3" * 900, "e+" * 1900, "1m 1" * 900)
"""What fills a line up to the longest that is read."""


Parts = tuple[Iterable[str], int]
"""Texts one after the other, and how often all of them."""


def other_bombs() -> Mapping[str, tuple[tuple[str, ...], str, Parts]]:
    """Name -> (command, file name, parts): logs, model files and saved answers made to hang."""
    made: dict[str, tuple[tuple[str, ...], str, Parts]] = {}

    def log(name: str, text: str | Iterable[str], times: int = 1) -> None:
        parts = [text] if isinstance(text, str) else text
        made[f"log-{name}"] = (("diagnose",), "run.log", (parts, times))

    for i, printed in enumerate(PRINTED):
        for j, filling in enumerate(FILLED):
            log(f"{i}-{j}", f"{printed}{filling}\n", times=400)
    log("newlines", "\n" * 1_000_000, times=1000)
    log("one-line", "a=1 " * 100_000, times=200)
    log("returns", "\r 10%|#  | 1/100 [00:50<07:30,  5.01s/it]", times=500_000)
    log("shapes", (f"{LETTERS[i % 26] * (i % 900)} x=1\n" for i in range(90_000)))
    log("names", (f"name{'a' * (i % 97)}_{i} = {i}\n" for i in range(400_000)))
    log("ranks", (f"[rank{i}]: step: 1  tps: 5\n" for i in range(400_000)))
    log("runs", "step: 2  loss: 1.0  tps: 5\nstep: 1  loss: 1.0  tps: 5\n", times=200_000)
    log("tables", (f"| a{i} | b |\n|--|--|\n| 1 | 2 |\n" for i in range(100_000)))
    log("headers", "| model | size | t/s |\n", times=300_000)
    log("arguments", (f"  arg_{i} ......... {i}\n" for i in range(400_000)))
    log("zeros", "\0" * 1_000_000, times=50)
    log("bytes", "\ud7ff\u0800" * 100_000, times=50)
    log("escapes", "\x1b" * 1_000_000, times=20)
    log("numbers", "1" * 300 + " GB ", times=60_000)
    log("steps", (f"step: {'9' * 12}  loss: 1.0  tps: {i}\n" for i in range(300_000)))
    log("inf", "step: 1  loss: nan  tps: 1e999  mfu: 1e-999%\n", times=100_000)

    def model(name: str, text: str) -> None:
        made[f"model-{name}"] = (("model",), "config.json", ([text], 1))

    for key in ("num_hidden_layers", "vocab_size", "hidden_size", "num_attention_heads"):
        for j, value in enumerate(
            ("9" * 4000, "1e308", "-1", "0", "1" + "0" * 18, '"' + "9" * 99 + '"')
        ):
            model(
                f"{key}-{j}",
                json.dumps(MODEL | {key: 0}).replace(f'"{key}": 0', f'"{key}": {value}'),
            )
    model("deep", '{"text_config": ' * 100_000)
    model("list", json.dumps(MODEL | {"layer_types": ["full_attention"] * 2_000_000}))
    model("keys", json.dumps(MODEL | {f"k{i}": i for i in range(400_000)}))
    model("types", json.dumps(MODEL | {"layer_types": [["a"] * 100] * 10_000}))
    model("long", json.dumps(MODEL | {"architectures": ["A" * 5_000_000]}))
    for name in ("launch", "compare"):
        for j, text in enumerate(
            ('{"result": ' * 90_000, "[" * 90_000, '{"inputs": ' + "9" * 300_000)
        ):
            made[f"answer-{name}{j}"] = ((name,), "a.json", ([text], 1))
    return made | asked_bombs()


def asked_bombs() -> Mapping[str, tuple[tuple[str, ...], str, Parts]]:
    """Name -> (command, file name, parts): what a person may name in other questions."""
    made: dict[str, tuple[tuple[str, ...], str, Parts]] = {}

    def put(name: str, line: str, file: str, text: str | Iterable[str], times: int = 1) -> None:
        parts = [text] if isinstance(text, str) else text
        made[name] = tuple(line.split()), file, (parts, times)

    grid = "question = 'plan'\n[common]\nmodel = 'llama3-8b'\n[grid]\n"
    many = "[" + "1," * 150_000 + "]"
    put("study-grid", "study --out /dev/null", "s.toml", f"{grid}gpus = {many}\n")
    keys = ("gpus", "tp", "pp", "cp", "ep", "zero", "micro_batch", "seq_len")
    rows = "".join(f"{k} = {list(range(1, 60))}\n" for k in keys)
    put("study-keys", "study --out /dev/null", "s.toml", grid + rows)
    job = "[[job]]\ncommand = 'model gpt2'\n"
    put("check-jobs", "check", "j.toml", job, times=100_000)
    sweep = (
        "'collective all-reduce h100 --bytes 1GB --sweep inner=1..100000:500 --sweep top_k=1..9'"
    )
    put("check-sweeps", "check", "j.toml", f"[[job]]\ncommand = {sweep}\n", times=40)
    put("plan-job", "plan --job", "p.toml", "model = 'llama3-8b'\ngpus = " + "9" * 200_000)
    put("plan-dots", "plan --job", "p.toml", "a" + ".a" * 100_000 + " = 1\n")
    put("trace-rows", "serve llama3-8b --gpu h100 --trace", "t.csv", _requests("1", "1", 200_000))
    for j, (step, tokens) in enumerate((("1e-300", "1"), ("1e300", "9"), ("0", "9" * 18))):
        rows_of = _requests(step, tokens, 20_000)
        put(f"trace-{j}", "serve llama3-8b --gpu h100 --gpus 8 --trace", "t.csv", rows_of)
    lines = '{"timestamp": 1, "input_length": 9, "output_length": 9, "hash_ids": ' + "[" * 9000
    put("trace-json", "serve llama3-8b --gpu h100 --trace", "t.jsonl", lines + "\n", times=90)
    state = {"log_history": [{"step": i, "loss": 1.0, "step_time": 1e9} for i in range(200_000)]}
    put("state-json", "diagnose", "trainer_state.json", json.dumps(state))
    event = '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1e300, "dur": 1e300, "pid": 0},'
    events = ['{"traceEvents": [', *[event] * 300_000, "{}]}"]
    put("events-json", "diagnose", "trace.json", events)
    put("log-json", "diagnose", "run.jsonl", '{"a":' * 900 + "1" + "}" * 900 + "\n", times=900)
    examples = Path(__file__).resolve().parent.parent / "docs" / "examples"
    cluster, spec = ((examples / f"my-{n}.toml").read_text("utf-8") for n in ("cluster", "model"))
    more = "[[levels]]\nname = 'x{}'\ngpus = 8\n"
    levels = "".join(more.format(i) for i in range(40_000))
    put(
        "cluster-levels",
        "network --gpus 64",
        "c.toml",
        cluster.replace("[sources]", f"{levels}[sources]"),
    )
    layers = 'layers = "20 x (local+dense, full+dense)"'
    many = layers.replace("20", "999999999")
    put("model-layers", "model", "m.toml", spec.replace(layers, many))
    put("model-brackets", "model", "m.toml", spec.replace("20 x (", "20 x (" * 9000))
    put("cables", "network check", "c.csv", ["a_device,a_port,b_device,b_port\n", *_cables(90_000)])
    put(
        "own-runs",
        "calibrate",
        "r.csv",
        ["source,gpu,m,n,k,dtype,time_us\n", *["a,H100,8,8,8,bf16,1\n"] * 90_000],
    )
    put(
        "calibration",
        "matmul-time h100 8 8 8 --calibration",
        "c.toml",
        "[a]\n" + "b = 1\n[a.c]\n" * 90_000,
    )
    changes = "--set gpu" + ".x" * 50_000 + "=1"
    put("set-dots", f"memory --gpus 8 {changes}", "config.json", json.dumps(MODEL))
    huge = "--set gpu.hbm_bytes=" + "9" * 100_000
    put("set-digits", f"memory --gpus 8 {huge}", "config.json", json.dumps(MODEL))
    put(
        "set-many",
        "memory --gpus 8" + " --set gpu.hbm_bytes=1GB" * 4000,
        "config.json",
        json.dumps(MODEL),
    )
    points = "--sweep seq-len=1..99999999999:999999999"
    put("sweep-points", f"memory --gpus 8 {points}", "config.json", json.dumps(MODEL))
    answer = {"schema": 1, "command": "plan", "inputs": {"model": "llama3-8b", "gpus": 8}}
    layout = {"tp": 10**18, "pp": 10**9, "stage_layers": [1] * 400_000, "n_gpus": 10**300}
    for name in ("launch", "compare"):
        text = json.dumps(answer | {"result": {"layout": layout, "step_s": 1e300}})
        put(f"saved-{name}", name, "a.json", text)
    return made


def _cables(n: int) -> Iterator[str]:
    """Rows of a cable list in which everything is plugged into one port."""
    yield from (f"host{i},p{i},leaf,1\n" for i in range(n))


def _requests(step: str, tokens: str, n: int) -> Iterator[str]:
    """Rows of a traffic trace."""
    yield "timestamp,input_length,output_length\n"
    for i in range(n):
        yield f"{i * float(step)!r},{tokens},{tokens}\n"


def bombed(
    file: str, parts: Parts, command: tuple[str, ...] = ("launch-check",)
) -> tuple[float, float, int, str]:
    """Read a bomb in a process of its own: seconds, peak bytes, exit code, standard error."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file)
        with path.open("w", encoding="utf-8", newline="") as poured:
            for _ in range(parts[1]):
                poured.writelines(parts[0])
        words = [*command, str(path)]
        words += [str(path)] if command == ("compare",) else []
        words += ["--model", "llama3-8b", "--gpus", "8"] if command == ("launch-check",) else []
        code = f"import sys; from gpuscale.cli.app import run; sys.exit(run({words!r}))"
        err = Path(folder, "err")
        with err.open("wb") as told:
            done = subprocess.Popen(
                [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=told, cwd=folder
            )
            status, usage = _waited(done, 300.0)
        scale = 1024 if sys.platform != "darwin" else 1
        tail = err.read_text("utf-8", "replace")[-300:]
        took_s = usage.ru_utime + usage.ru_stime  # of the processor: the machine may be busy
        return took_s, usage.ru_maxrss * scale, status, tail


def _waited(process: subprocess.Popen[bytes], limit_s: float) -> tuple[int, resource.struct_rusage]:
    end = time.monotonic() + limit_s
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage
        if time.monotonic() > end:
            process.kill()
        time.sleep(0.01)


def attack_bombs(names: list[str]) -> int:
    """Read the bombs; the number of those that took too long, too much, or ended otherwise."""
    failures = 0
    check = ("launch-check",)
    known = {name: (file, ([text], 1), check) for name, (file, text) in bombs().items()}
    known |= {n: (file, parts, command) for n, (command, file, parts) in other_bombs().items()}
    for name in names or known:
        took_s, peak_bytes, code, err = bombed(*known[name])
        one_line = code != 2 or err.startswith("error: ") or len(err) == 300
        good = took_s < BOMB_S and peak_bytes < BOMB_BYTES and code in (0, 1, 2) and one_line
        failures += not good
        shown = " ".join(err.split())[:90]
        word = "ok" if good else "BAD"
        took = f"{took_s:6.2f} s {peak_bytes / 1e6:6.0f} MB {code:3}"
        print(f"{word:4}{name:18}{took} {shown}", flush=True)
    print(f"{len(names or known)} bombs, {failures} failures")
    return failures


def main() -> int:
    """Run an attack."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("scripts", "bombs"))
    parser.add_argument("names", nargs="*", help="bombs; all without any")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    what: dict[str, Callable[[], int]] = {
        "scripts": lambda: attack_scripts(given.cases, given.seed),
        "bombs": lambda: attack_bombs(given.names),
    }
    return int(what[given.what]() > 0)


if __name__ == "__main__":
    sys.exit(main())
