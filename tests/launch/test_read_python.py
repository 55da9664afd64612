"""Training programs in Python and notebooks: values by functions, files, classes, arguments."""

import json

import pytest

from gpuscale.cli.app import run
from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.detect import read_launch

HEAD = "from trl import SFTTrainer, SFTConfig\nfrom peft import LoraConfig\n"
CASES = [  # program, files near it, what it says
    (
        "def load(name):\n    return AutoModelForCausalLM.from_pretrained(name)\n"
        "def main(a):\n    load(a.m)\n    SFTTrainer(args=SFTConfig(max_length=a.n))\n"
        "p.add_argument('--m', default='a/b-7b')\np.add_argument('--n', default=512)\n"
        "main(p.parse_args())\n",
        {},  # what a function is called with; TRL's own defaults
        {"model_name": "a/b-7b", "seq_len": 512, "recompute": "full", "precision": "bf16"},
    ),
    (
        "def read(path):\n    with open(path) as f:\n        return yaml.safe_load(f)\n"
        "cfg = read('conf/a.yaml')\nt = dict(cfg['train'])\nt['max_length'] = 64 * 4\n"
        "AutoModelForCausalLM.from_pretrained(cfg['model'])\nSFTConfig('o', **t)\n",
        {"a.yaml": "model: a/b-7b\ntrain: {per_device_train_batch_size: 3, bf16: false}\n"},
        {"model_name": "a/b-7b", "micro_batch_size": 3, "seq_len": 256},
    ),
    (
        "from config import Config, RANK\nc = Config(batch=5)\nLoraConfig(r=RANK)\n"
        "AutoModelForCausalLM.from_pretrained(c.model, load_in_4bit=c.four)\n"
        "TrainingArguments('o', per_device_train_batch_size=c.batch)\nTrainer()\n",
        {"config.py": "RANK = 4\n@dataclass\nclass Config:\n    model: str = 'a/b-7b'\n"
         "    batch: int = 1\n    four: bool = True\n"},
        {"model_name": "a/b-7b", "micro_batch_size": 5, "lora_rank": 4, "method": "qlora"},
    ),
    (
        "MAX_LENGTH = 300\nmodel_id = 'a/b-7b'\nm = get_model(model_id)\n"
        "TrainingArguments('o', gradient_accumulation_steps=16 if len(sys.argv) > 1 else 8)\n",
        {},  # by the names that mean it
        {"model_name": "a/b-7b", "seq_len": 300, "accumulation": 8, "micro_batch_size": 8},
    ),
    (
        "p.add_argument('--b', type=int)\np.add_argument('--n', default=6)\n"
        "args = p.parse_args()\nGRPOTrainer(args=GRPOConfig('o', num_generations=args.n,\n"
        "  per_device_train_batch_size=args.b if args.b is not None else args.n))\n",
        {},
        {"micro_batch_size": 6, "unread": {}},
    ),
    (
        "AutoModelForCausalLM.from_pretrained('a/b-7b')\nSFTConfig('o')\nSFTTrainer()\n"
        "GRPOTrainer(args=GRPOConfig('o', max_prompt_length=96, max_completion_length=32))\n",
        {},
        {"seq_len": 128, "notes": ["one of several trainings: GRPOConfig is read"]},
    ),
    (
        "cfg = yaml.safe_load(open('train_config.yaml'))\n"
        "TrainingArguments('o', per_device_train_batch_size=cfg['b'])\nTrainer()\n",
        {},
        {"beside": ["train_config.yaml"], "unread": {"micro_batch_size": "cfg['b']"}},
    ),
    (
        "AutoModelForSeq2SeqLM.from_pretrained('a/b')\nTrainingArguments('o')\nTrainer()\n",
        {},
        {"beyond": ["AutoModelForSeq2SeqLM.from_pretrained: an encoder and a decoder"]},
    ),
    (
        "from a import b\nAutoModelForCausalLM.from_pretrained('a/b', load_in_4bit=True)\n"
        "SFTConfig('o', max_length=99)\n",
        {"a.py": "import c", "c.py": "import a"},  # circular
        {"beyond": ["quantised weights without adapters: transformers does not train them"]},
    ),
    (
        "c = Settings.load('conf.yaml')\nyaml.safe_load(open('conf.yaml'))\n"
        "AutoModelForCausalLM.from_pretrained('a/b')\nTrainingArguments('o')\n",
        {},
        {"beside": ["conf.yaml"], "micro_batch_size": None},
    ),
    (
        "AutoModelForCausalLM.from_pretrained('a/b')\n"
        "SFTConfig(batch_size=4, grad_accum_steps=2)\nSFTTrainer()\n",
        {},  # of a library of one's own
        {"micro_batch_size": 4, "accumulation": 2},
    ),
    (
        "VeraConfig(r=8)\nAutoModelForCausalLM.from_pretrained('a/b')\nTrainingArguments('o')\n",
        {},
        {"beyond": ["VeraConfig: adapters other than LoRA and DoRA are not predicted"]},
    ),
    (
        "p.add_argument('--lora')\nargs = p.parse_args()\nm = AutoModel.from_pretrained('a/b')\n"
        "if args.lora is not None and args.x:\n    m = get_peft_model(m, LoraConfig(r=4))\n"
        "if not args.lora:\n    TrainingArguments('o', per_device_train_batch_size=3)\n",
        {},  # an option whose default is None
        {"method": "full", "micro_batch_size": 3,
         "notes": []},
    ),
    (
        "p.add_argument('--lora', required=True)\na = p.parse_args()\n"
        "if a.lora:\n    m = AutoModel.from_pretrained('a/b')\n    LoraConfig(r=4)\n"
        "else:\n    m = AutoModel.from_pretrained('a/c')\nTrainingArguments('o')\n",
        {},
        {"method": "lora", "model_name": "a/b",
         "notes": ["the model a/b only if a.lora; taken", "adapters only if a.lora; taken"]},
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("program", "near", "wanted"), CASES)
def test_values_of_a_program_are_found_where_they_stand(program, near, wanted):
    def look(path):
        return (path, text) if (text := near.get(path.split("/")[-1])) else None

    found = read_launch({"a.py": HEAD + program}, look=look)
    assert {key: getattr(found, key) for key in wanted} == wanted


def notebook(*cells, **metadata):
    code = [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": "# a"}, *code], **metadata})


def test_a_notebook_is_its_cells_and_one_process():
    cells = (
        "%%capture\n!pip install x \\\n  y",
        "this is no Python",
        "from unsloth import FastModel\nfour = True\n"
        "m, t = FastModel.from_pretrained('a/b-3b', max_seq_length=512, load_in_4bit=four)",
        "m = FastModel.get_peft_model(m, r=32)\nif 1:\n    !nvidia-smi",
        HEAD + "SFTTrainer(args=SFTConfig(per_device_train_batch_size=2))",
        "!ollama create m -f Modelfile",
    )
    found = read_launch({"a.ipynb": notebook(*cells, metadata={"colab": {"gpuType": "T4"}})})
    assert (found.kind, found.model_name, found.n_gpus) == ("unsloth", "a/b-3b", 1)
    assert (found.method, found.lora_rank, found.seq_len) == ("qlora", 32, 512)
    assert (found.gpu, found.precision, found.micro_batch_size) == ("t4", "fp16", 2)


def test_a_notebook_starts_the_files_that_it_writes():
    program = HEAD + "AutoModelForCausalLM.from_pretrained('a/b-3b')\nSFTConfig(max_length=640)\n"
    started = "!accelerate launch --num_processes 4 train.py --epochs 1"
    found = read_launch({"a.ipynb": notebook("%%writefile train.py\n" + program, started)})
    assert (found.model_name, found.seq_len, found.world_size) == ("a/b-3b", 640, 4)
    for text in ("{", "[]", notebook("x = 1")):
        with pytest.raises(GpuscaleError, match="a.ipynb: (not a notebook|its cells start no)"):
            read_launch({"a.ipynb": text})


def test_a_line_starts_the_program_that_trains_wherever_it_stands(tmp_path, capsys):
    (tmp_path / "src").mkdir()
    program = HEAD + "AutoModelForCausalLM.from_pretrained('gpt2')\nSFTConfig(max_length=64)\n"
    (tmp_path / "src" / "sft.py").write_text(program)
    lines = "cd src\nlm_eval --model hf\nuv run python -u sft.py | tee log\npython train_rm.py"
    (tmp_path / "run.sh").write_text(lines)
    assert run(["launch-check", str(tmp_path / "run.sh"), "--gpus", "1"]) == 0
    printed = capsys.readouterr().out
    assert "gpt2" in printed and "sequences of 64" in printed and "train_rm.py" in printed


@pytest.mark.slow
def test_options_go_over_the_recipe_that_a_program_is_given():
    recipe = "model_name_or_path: a/b-7b\nuse_peft: true\nload_in_4bit: true\nlora_r: 4\n"
    line = "accelerate launch --num_processes 2 run_sft.py conf.yaml --load_in_4bit=false"
    program = HEAD + "p = H4ArgumentParser((A, SFTConfig))\na, t = p.parse()\nSFTTrainer(args=t)\n"
    near = {"run_sft.py": program, "conf.yaml": recipe}
    found = read_launch({"a.sh": line}, look=lambda p: (p, near[p]) if p in near else None)
    assert (found.method, found.lora_rank, found.model_name) == ("lora", 4, "a/b-7b")
    told = "accelerate launch s.py --config x/conf.yaml --lora_r 8 --per_device_train_batch_size 2"
    for given in ({"conf.yaml": recipe}, near):  # as well where it is given beside its script
        found = read_launch({"a.sh": told, **given})
        assert (found.method, found.lora_rank, found.model_name) == ("qlora", 8, "a/b-7b")
        assert (found.micro_batch_size, found.beside) == (2, [])


def test_a_module_is_started_and_a_model_of_rewards_is_not_the_one_that_is_trained():
    program = (
        "AutoModelForSequenceClassification.from_pretrained('c/d')\n"
        "GRPOTrainer(model='a/b-7b', args=GRPOConfig('o', num_generations=4))\n"
    )
    near = {"src/train/grpo.py": HEAD + program}
    line = {"a.sh": "python -m src.train.grpo --seed 1"}
    found = read_launch(line, look=lambda p: (p, near[p]) if p in near else None)
    assert (found.model_name, found.rl["group"], found.beyond) == ("a/b-7b", 4, [])


def test_a_trainer_of_another_library_is_not_that_of_transformers():
    program = (
        "from transformers import AutoModelForCausalLM\nfrom nnscaler.cli.trainer import Trainer\n"
        "AutoModelForCausalLM.from_pretrained('a/b-7b')\nTrainer(train_args=t).run()\n"
    )
    line = {"a.sh": "torchrun --nproc_per_node 8 train.py --plan_ngpus 4"}
    found = read_launch(line, look=lambda p: (p, program) if p == "train.py" else None)
    assert (found.kind, found.micro_batch_size) == ("program", None)


def test_an_export_is_no_training():
    table = "model_name_or_path: a/b\ntemplate: c\nexport_dir: d\n"
    assert "an export" in read_launch({"a.yaml": table}).beyond[0]
    line = {"a.sh": "python eval_icl.py --model_name_or_path a/b"}
    assert read_launch(line).beyond == ["eval_icl.py: by its name no training"]
    line = {"a.sh": "accelerate launch swift/cli/sft.py --model a/b --quant_bits 4"}
    assert (read_launch(line).kind, read_launch(line).method) == ("ms-swift", "qlora")


def test_a_base_model_alone_is_no_axolotl():
    own = "base_model: a/b\ntraining: {lr: 1}\n"
    with pytest.raises(GpuscaleError, match="not a launch file"):
        read_launch({"a.yaml": own})
    assert read_launch({"a.yaml": own + "datasets: []\n"}).kind == "axolotl"


def test_a_trainer_under_torchrun_that_names_no_sharding_holds_replicas(tmp_path, capsys):
    line = "--model_name_or_path Qwen/Qwen2.5-7B --gradient_checkpointing --bf16 --max_length 512"
    (tmp_path / "a.sh").write_text(f"torchrun --nproc_per_node 8 t.py {line}")
    run(["launch-check", str(tmp_path / "a.sh")])
    assert "DP 8 replicas" in capsys.readouterr().out


def test_what_would_be_faster_is_python_and_leaves_notebooks_alone(tmp_path, capsys):
    program = (
        "from unsloth import FastModel\nm, t = FastModel.from_pretrained('unsloth/Llama-3.2-1B')\n"
        "m = FastModel.get_peft_model(m, r=8, use_gradient_checkpointing='unsloth')\n"
        + HEAD
        + "SFTTrainer(args=SFTConfig(max_length=512, per_device_train_batch_size=2))\n"
    )
    (tmp_path / "a.py").write_text(program)
    (tmp_path / "a.ipynb").write_text(notebook(program))
    run(["launch-check", str(tmp_path / "a.py")])
    assert "+m = FastModel.get_peft_model(m, r=8, use_gradient_checkpointing=False)" in (
        capsys.readouterr().out
    )
    run(["launch-check", str(tmp_path / "a.ipynb")])
    printed = capsys.readouterr().out
    assert "What would change it" in printed and "+++" not in printed
