"""Launch files of an attacker: an answer or one line, soon, whatever is in them."""

import time

import pytest
from running import invoke

RUN = "torchrun pretrain_gpt.py "
LETTERS = "abcdefghijkl"
ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 10)}]\n"
    for old, new in zip(LETTERS, LETTERS[1:], strict=False)
)
FILES = {
    "aliases.yaml": ALIASES,
    "self.yaml": "a: &a [*a]\nmodel_name_or_path: x\n",
    "many.yaml": "".join(f"k{i}: {i}\n" for i in range(400_000)),
    "nan.yaml": "model_name_or_path: x\nstage: sft\nper_device_train_batch_size: .nan\n",
    "large.yaml": "model_name_or_path: x\nstage: sft\nper_device_train_batch_size: 1.0e+300\n",
    "ds_nan.json": '{"train_batch_size": NaN, "train_micro_batch_size_per_gpu": Infinity}',
    "deep.json": '{"a":' * 50_000,
    "zero.toml": "[training]\nseq_len = 4096\n[parallelism]\ntensor_parallel_degree = 0\n",
    "replicas.toml": "[training]\nseq_len=8\n[parallelism]\ndata_parallel_replicate_degree=64\n",
    "warned.py": "a = 1if 2else 3\nTrainer(model=x)\n",
    "grows.sh": "A=1\n" + 'A="$A $A"\n' * 60 + RUN + "$A\n",
    "arrays.sh": "A=(1 2)\n" + "A=(${A[@]} ${A[@]})\n" * 60 + RUN + "${A[@]}\n",
    "lines.sh": "A=(\n" + '"a"\n' * 10_000,
    "braces.sh": RUN + "${a:-" * 10_000,
    "sums.sh": "A=$((" + "(" * 50_000 + "1))\n" + RUN + "$A\n",
    "here.sh": "bash <<E\n" * 20_000,
    "words.sh": RUN + "--num-layers 2 " * 15_000,
    "degrees.sh": RUN + "--num-layers 32 --tensor-model-parallel-size 0\n",
    "digits.sh": RUN + "--num-layers \u0663\u00b2 --micro-batch-size " + "9" * 5_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_hostile_launch_files(name, tmp_path):
    path = tmp_path / name
    path.write_text(FILES[name])
    start_s = time.process_time()
    done = invoke("launch-check", str(path), "--model", "llama3-8b", "--gpus", "8")
    assert time.process_time() - start_s < 15
    assert done.returncode in (0, 1, 2), done.stderr
    if done.returncode == 2:
        assert done.stdout == "" and done.stderr.startswith("error: ")


def test_the_bounds_say_why(tmp_path):
    for name, why in (
        ("aliases.yaml", "aliases make more than"),
        ("many.yaml", "larger than 0.3 MB"),
        ("grows.sh", "grows without measure"),
        ("zero.toml", "tp is 0, and must be 1 to"),
    ):
        path = tmp_path / name
        path.write_text(FILES[name])
        assert why in invoke("launch-check", str(path), "--model", "llama3-8b").stderr
