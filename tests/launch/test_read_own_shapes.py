"""torchtitan and MaxText: configurations in Python, models by their own keys, GPUs by degrees."""

import json

import pytest

from gpuscale.cli.app import run
from gpuscale.errors import GpuscaleError
from gpuscale.launch.found import layout_of
from gpuscale.launch.named import gpu_named
from gpuscale.launch.read.detect import read_launch


def read(text, name="run.sh", **variables):
    return read_launch({name: text}, variables)


def test_registered_configuration_says_what_the_options_leave_out():
    found = read(
        "torchrun -m torchtitan.train --module llama3 --config llama3_70b "
        "--parallelism.tensor_parallel_degree 4"
    )
    assert (found.seq_len, found.micro_batch_size, found.recompute) == (8192, 8, "full")
    assert (found.tp, found.model_name) == (4, "llama3.1-70b")
    own = read("torchrun -m torchtitan.train --module mine --config mine_3b")
    assert (own.unread, own.seq_len, own.zero_stage) == ({"recipe": "mine_3b"}, None, None)


def test_a_train_script_takes_its_configuration_from_its_environment():
    found = read("export NGPU=4\nCONFIG_FILE=a/llama3_8b.toml ./run_train.sh --model.name mine\n")
    assert (found.beside, found.world_size, found.not_understood) == (["llama3_8b.toml"], 4, [])
    found = read("NGPU=4 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh\n")
    assert (found.model_name, found.seq_len, found.world_size) == ("llama3.1-8b", 8192, 4)


def test_toml_with_blocks_checkpointed_in_turn():
    found = read(
        """
        [model]
        name = "llama3"
        flavor = "debugmodel"
        [training]
        dtype = "bfloat16"
        [activation_checkpoint]
        mode = "selective"
        selective_ac_option = "2"
        [parallelism]
        data_parallel_shard_degree = 8
        """,
        "8xb200.toml",
    )
    assert (found.n_gpus, found.gpu, found.settings["recipe"]) == (8, "b200", "bf16-adam")
    from gpuscale.io.software import load_software

    layout = layout_of(found, found.model, load_software("torchtitan"), 8, None)
    assert (layout.recompute, layout.recompute_layers) == ("full", 3)  # of six


def test_a_program_that_reads_a_job_config_is_torchtitan():
    found = read(
        "#SBATCH --nodes=4\nsrun torchrun --nnodes 4 --nproc_per_node 8 train.py "
        "--job.config_file ./train_configs/my_8b.toml --training.tensor_parallel_degree 1"
    )
    assert (found.kind, found.world_size, found.beside) == ("torchtitan", 32, ["my_8b.toml"])
    toml = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\ntensor_parallel_degree = 8\n'
    files = {
        "run.sh": "torchrun train.py --job.config_file my_8b.toml "
        "--training.tensor_parallel_degree 1",
        "my_8b.toml": toml,
    }
    assert (read_launch(files).tp, read_launch(files).model_name) == (1, "llama3.1-8b")


def test_maxtext_model_by_its_keys():
    found = read(
        "python3 MaxText/train.py MaxText/configs/base.yml per_device_batch_size=4 "
        "base_num_decoder_layers=42 base_num_kv_heads=8 base_num_query_heads=32 base_emb_dim=4096 "
        "base_mlp_dim=11008 head_dim=128 vocab_size=102400 compile_topology=v4-256"
    )
    assert found.model.n_layers == 42
    assert (found.n_gpus, found.gpu) == (128, "tpu-v4")
    scaled = read(
        "python3 MaxText/train.py MaxText/configs/base.yml global_parameter_scale=64 "
        "per_device_batch_size=3"
    )
    assert (scaled.model.n_layers, scaled.model.hidden_size) == (64, 8192)  # 16 x 4, 2048 x 4
    first = read("python3 MaxText/train.py MaxText/configs/base.yml scale=3")
    assert "2023" in first.beyond[0]


def test_of_several_commands_the_one_that_trains_is_read():
    """Decoding says more of itself; MaxText's DPO is its train command with a key."""
    decode = "python3 -m MaxText.decode base.yml model_name=gemma-2b max_target_length=16"
    train = "python3 -m MaxText.train base.yml model_name=gemma-2b per_device_batch_size=2"
    found = read(f"{decode} per_device_batch_size=1\n{train} use_dpo=true\n{decode}\n")
    assert (found.seq_len, found.beyond, found.rl) == (2048, [], {"method": "dpo"})


@pytest.mark.parametrize(
    ("framework", "model", "keys", "expected"),
    [
        (
            "maxtext",
            "llama3.1_405B.yaml",
            "per_device_batch_size: 5, max_target_length: 8192",
            ("llama3.1-405b", 5, 8192, "bf16", "mi355x"),
        ),
        (
            "torchtitan",
            "deepseek_v3_671b-fp8.yaml",
            "training: {local_batch_size: 2, seq_len: 4096}",
            ("deepseek-v3", 2, 4096, "fp8", "mi355x"),
        ),
    ],
)
def test_primus_over_each_framework(framework, model, keys, expected):
    text = (
        f"modules: {{pre_trainer: {{framework: {framework}, config: pre_trainer.yaml, "
        f"model: {model}, overrides: {{{keys}}}}}}}\n"
    )
    found = read(text, "MI355X/pretrain.yaml")
    said = (found.model_name, found.micro_batch_size, found.seq_len, found.precision, found.gpu)
    assert (found.kind, said) == (framework, expected)


def test_maxtext_server_and_a_layer_of_multi_token_prediction():
    served = read(
        "docker run maxengine python MaxText/maxengine_server.py MaxText/configs/base.yml "
        "model_name=gemma-7b per_device_batch_size=4 max_prefill_predict_length=1024"
    )
    assert served.beyond
    assert read("python3 -m MaxText.train base.yml model_name=deepseek3-671b mtp_num_layers=1").mtp


@pytest.mark.parametrize(
    ("keys", "recompute", "modules"),
    [
        ("remat_policy=minimal_with_context", "selective", ("layernorm", "mlp_act", "moe_act")),
        ("remat_policy=save_dot_with_context_except_mlp", "selective", ("layernorm", "mlp", "moe")),
        (
            "remat_policy=custom query_proj=device value_proj=device context=device",
            "selective",
            ("layernorm", "attn_proj", "mlp", "moe"),
        ),
        ("remat_policy=proj", "selective", None),  # of 2023
        ("remat_policy=custom decoder_layer_input=offload", "full", None),
        ("remat_policy=custom query_proj=device key_proj=device", "selective", None),
    ],
)
def test_maxtext_policies_of_recomputation(keys, recompute, modules):
    found = read(f"python3 -m MaxText.train base.yml model_name=llama3-8b {keys}")
    assert (found.recompute, found.beyond) == (recompute, [])
    assert modules is None or found.settings["recompute_modules"] == modules
    assert found.offload_activations == ("offload" in keys)


def test_command_in_a_container_in_a_command():
    found = read(
        'python runner.py --COMMAND="\n  sudo docker run \\\n  image bash -c \\"\n'
        "  export A=1\n  python3 -m MaxText.train MaxText/configs/base.yml \\\n"
        '   model_name=llama3-8b per_device_batch_size=3\n  \\"\n"'
    )
    assert (found.kind, found.micro_batch_size) == ("maxtext", 3)


def test_machines_of_clouds():
    assert gpu_named("a3-megagpu-8g") == "gcp-a3-mega"
    assert gpu_named("instance: p5.48xlarge") == "aws-p5"
    assert gpu_named("step5.48") is None


def test_commands_that_name_their_file_take_the_rest_from_it():
    yaml = (
        "parallelism: {dp: 4, pp: 2, tp: 2}\n"
        "tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 4, sequence_length: 2048}\n"
        "model: {model_config: {is_starcoder2_config: true, hidden_size: 1024, grouped_query: true,"
        " num_attention_heads: 16, num_kv_heads: 4, num_hidden_layers: 4, vocab_size: 49152}}\n"
    )
    script = "torchrun --nproc_per_node=8 --nnodes 2 run_train.py --config-file configs/a.yaml"
    assert (read(script).kind, read(script).beside) == ("nanotron", ["configs/a.yaml"])
    found = read_launch({"run.sh": script, "a.yaml": yaml})
    assert (found.world_size, found.seq_len, found.schedule) == (16, 2048, "gpipe")
    dense = next(iter(found.model.ffns.values()))
    assert (dense.ffn_hidden_size, found.model.n_layers) == (4096, 4)


@pytest.mark.parametrize(
    ("command", "kind", "beside", "size"),
    [
        ("composer -n 8 train/train.py yamls/mpt-7b.yaml max_seq_len=4096", "llm-foundry",
         ["yamls/mpt-7b.yaml"], (4096, 8)),
        ("python -m levanter.main.train_lm --config_path config/a.yaml --model.seq_len 512",
         "levanter", ["config/a.yaml"], (512, None)),
        ("litgpt finetune_lora checkpoints/org/m --train.max_seq_length 512 --devices 4", "litgpt",
         [], (512, 4)),
    ],
)  # fmt: skip
def test_commands_of_frameworks_with_files(command, kind, beside, size):
    found = read(command)
    assert (found.kind, found.beside, (found.seq_len, found.world_size)) == (kind, beside, size)


def test_job_written_by_a_script_and_a_run_of_a_cloud():
    job = "#!/bin/bash\n#SBATCH --gres=gpu:4\nsrun litgpt pretrain pythia-160m --devices 4\n"
    found = read(f"name=job\ncat >$name <<EOD\n{job}EOD\nsbatch $name\n")
    assert (found.kind, found.model_name, found.micro_batch_size) == ("litgpt", "pythia-160m", 4)
    run = (
        "image: x\ncompute: {gpus: 16, gpu_type: a100_40gb}\ncommand: composer train.py\n"
        "parameters: {train_loader: {}, max_seq_len: 2048, global_train_batch_size: 64,\n"
        "  model: {d_model: 1024, n_heads: 8, n_layers: 2, vocab_size: 50368}}\n"
    )
    found = read(run, "run.yaml")
    assert (found.n_gpus, found.gpu, found.seq_len) == (16, "a100-40gb", 2048)


def test_one_stage_has_no_schedule_and_sharding_is_olmos_habit():
    one = (
        "parallelism: {dp: 4, pp: 1, tp: 1}\n"
        "tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 4, sequence_length: 2048}\n"
    )
    assert read(one, "a.yaml").schedule is None
    olmo = "model: {d_model: 1024, n_heads: 8, n_layers: 2}\nglobal_train_batch_size: 8\n"
    olmo += "device_train_microbatch_size: 1\n"
    assert read(olmo, "o.yaml").zero_stage == 3
    assert read(olmo + "distributed_strategy: ddp\n", "o.yaml").zero_stage == 0


def test_maxtext_pipeline_of_micro_batches():
    found = read(
        "python3 -m MaxText.train base.yml model_name=llama3-8b per_device_batch_size=2 "
        "ici_pipeline_parallelism=4 ici_fsdp_parallelism=2 num_layers_per_pipeline_stage=4"
    )
    assert (found.pp, found.vpp, found.accumulation, found.micro_batch_size) == (4, 2, 4, 2)


@pytest.mark.parametrize(
    ("text", "name", "targets"),
    [
        ("litgpt finetune_lora checkpoints/org/m", "run.sh", ("q", "v")),
        ("litgpt finetune_lora org/m --lora_key true --lora_mlp true", "run.sh",
         ("q", "k", "v", "gate", "up", "down")),
        ("model_name_or_path: org/m\nstage: sft\nfinetuning_type: lora\nlora_target: q_proj,v_proj",
         "a.yaml", ("q", "v")),
        ("base_model: org/m\nadapter: lora\nlora_target_linear: true", "b.yaml", ("all-linear",)),
    ],
)  # fmt: skip
def test_maps_that_get_adapters(text, name, targets):
    assert read(text, name).targets == targets


def test_levanters_classes_of_models_have_a_length():
    found = read("model: {type: gpt2, hidden_dim: 64}\ntrainer: {train_batch_size: 8, mp: f32}\n",
                 "l.yaml")  # fmt: skip
    assert (found.seq_len, found.precision) == (1024, "fp32")


def test_what_verl_keeps_beside_the_policy_is_what_the_file_asks_for():
    """`need_reference_policy` and `reward_model.enable` of verl; rollouts on GPUs of their own."""
    line = (
        "python -m verl.experimental.one_step_off_policy.main_ppo algorithm.adv_estimator=gae "
        "actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.nnodes=2 trainer.n_gpus_per_node=6 "
    )
    found = read_launch({"a.sh": line + "rollout.nnodes=2 rollout.n_gpus_per_node=2"})
    kept = {key: found.rl.get(key) for key in ("no_kl", "rule_reward", "engine", "rollout_gpus")}
    assert kept == {"no_kl": True, "rule_reward": True, "engine": "async", "rollout_gpus": 4}
    assert found.world_size == 16
    older = read_launch({"a.sh": line + "actor_rollout_ref.actor.ppo_micro_batch_size=64"})
    assert "no_kl" not in older.rl  # of releases whose reward had the term
    both = "actor_rollout_ref.actor.use_kl_loss=True reward_model.enable=True"
    assert not {"no_kl", "rule_reward", "engine"} & set(read_launch({"a.sh": line + both}).rl)


PAGE = "Do not:\n```\npip install vllm\n```\nbut\n```bash\n$ vllm serve Qwen/Qwen3-8B -tp 2\n```\n"
IMAGE = (
    "FROM python:3.12\nRUN cat <<EOF >/a.py\nimport os\nEOF\n"
    'ENTRYPOINT ["vllm", "serve", "Qwen/Qwen3-8B"]\nCMD ["-tp", "2"]\n'
)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("README.md", PAGE, ("vllm", "Qwen/Qwen3-8B", None, None, 2)),
        ("Dockerfile", IMAGE, ("vllm", "Qwen/Qwen3-8B", None, None, 2)),
    ],
)
def test_commands_are_found_where_they_stand(name, text, wanted):
    found = read_launch({name: text})
    said = found.kind, found.model_name, found.seq_len, found.max_seqs, found.tp
    assert said == wanted


def test_a_folder_and_a_name_make_the_path_of_a_model():
    text = (
        "from trl import GRPOConfig, GRPOTrainer\nfrom pathlib import Path\nMODELS = Path('m')\n"
        "class Config: pass\nConfig(output_dir='o', num_train_epochs=3)\n"
        "a = GRPOConfig(output_dir='o', per_device_train_batch_size=4, num_generations=4)\n"
        "GRPOTrainer(model=str(MODELS / 'Qwen2.5-3B-Instruct'), args=a)\n"
    )
    assert read_launch({"a.py": text}).model_name == "m/Qwen2.5-3B-Instruct"
    own = text.replace("GRPOConfig(", "Config(").replace("GRPOTrainer(", "train(")
    with pytest.raises(GpuscaleError, match="names no model and trainer"):
        read_launch({"a.py": own})


MODAL = """
import subprocess, modal
MODEL, N = "Qwen/Qwen3-8B", 2
@app.function(gpu=f"H100:{N}")
def serve():
    cmd = ["vllm", "serve", MODEL, "--host", "0.0.0.0"]
    cmd += ["--tensor-parallel-size", str(N)]
    cmd.extend(["--max-model-len", "8192"])
    subprocess.Popen(cmd)
"""
OFFLINE = (
    "from vllm import LLM\nm = LLM('Qwen/Qwen3-8B', tensor_parallel_size=2, max_model_len=8192)"
)
ENGINE = (
    "from sglang import Engine\nEngine(model_path='Qwen/Qwen3-8B', tp_size=2, context_length=8192)"
)
RAY = """
from ray.serve.llm import LLMConfig
LLMConfig(model_loading_config=dict(model_id="q", model_source="Qwen/Qwen3-8B"),
  engine_kwargs=dict(tensor_parallel_size=2, max_model_len=8192))
"""


@pytest.mark.parametrize("text", [MODAL, OFFLINE, ENGINE, RAY])
def test_a_program_starts_a_server(text):
    found = read_launch({"serve.py": text})
    assert found.kind == ("sglang" if "sglang" in text else "vllm")
    assert (found.model_name, found.tp, found.seq_len) == ("Qwen/Qwen3-8B", 2, 8192)


def test_learners_and_engines_are_on_gpus_of_their_own():
    line = "python grpo_fast.py --model_name_or_path a/b --num_samples_per_prompt_rollout 16 "
    found = read_launch({"a.sh": line + "--per_device_train_batch_size 1"})
    assert "open-instruct" in found.beyond[0]
    areal = "allocation_mode: sglang:d4t2+d8\ngconfig: {n_samples: 8}\n"
    areal += "actor: {path: a/b, kl_ctl: 0.0}\n"
    found = read_launch({"a.yaml": areal})
    assert (found.world_size, found.rl["rollout_gpus"], found.rl["no_kl"]) == (16, 8, True)


def test_a_full_server_is_told_beside_one_user(tmp_path, capsys):
    (tmp_path / "a.sh").write_text("vllm serve Qwen/Qwen3-8B --max-model-len 1000 --max-num-seqs 4")
    assert run(["launch-check", str(tmp_path / "a.sh")]) == 0
    shown = capsys.readouterr().out
    assert "4 at a time  of 1,000 tokens: the sequences that the line allows" in shown


@pytest.mark.parametrize(
    ("words", "wanted", "beyond"),
    [
        ("main_ppo algorithm.adv_estimator=gigpo env.rollout.n=8", {"group": 8}, 0),
        ("main_ppo algorithm.adv_estimator=grpo trainer.val_only=True", {"method": "grpo"}, 1),
        ("main_generation model.path=a/b", {}, 1),
    ],
)
def test_programs_and_estimators_of_verl_and_its_kin(words, wanted, beyond):
    found = read_launch({"a.sh": f"python -m verl.trainer.{words} trainer.n_gpus_per_node=8"})
    assert {key: found.rl.get(key) for key in wanted} == wanted
    assert len(found.beyond) == beyond


def test_a_server_stands_in_the_script_that_a_script_writes():
    text = (
        'cat > "$ENTRY" <<EOF\n#!/bin/bash\nexec vllm serve a/b -tp 2\nEOF\n'
        'docker run -v "$ENTRY":/e.sh own /e.sh\necho "then: bash bench.sh"\n'
    )
    found = read_launch({"a.sh": text})
    assert (found.kind, found.model_name, found.tp) == ("vllm", "a/b", 2)
    with pytest.raises(GpuscaleError, match="a page or notes"):
        read_launch({"a.md": "```\nvllm serve ...\n```\n"})


def test_gradients_that_the_backward_pass_frees_are_not_counted(tmp_path, capsys):
    """70B in pure bf16 on 8 GPUs: 70.6e9 gradients of 2 bytes are 17.6 GB a GPU."""
    peaks = []
    for early in ("false", "true"):
        (file := tmp_path / "a.toml").write_text(
            '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nlocal_batch_size = 1\n'
            'seq_len = 8192\ndtype = "bfloat16"\n[parallelism]\ndata_parallel_shard_degree = 8\n'
            f'[activation_checkpoint]\nmode = "full"\n[optimizer]\n'
            f"early_step_in_backward = {early}\n"
        )
        run(["launch-check", str(file), "--gpu", "b200", "--json"])
        peaks.append(json.loads(capsys.readouterr().out)["result"]["peak_bytes"])
    assert (peaks[0] - peaks[1]) / 1e9 == pytest.approx(70.6 * 2 / 8, rel=0.02)


@pytest.mark.parametrize(
    ("keys", "precision", "held", "notes"),
    [
        ("quantization=int8 opt_type=sgd", "bf16", {"optimizer": 0.0}, 1),
        ("quantization=te_mxfp8 mu_dtype=bfloat16", "mxfp8", {"optimizer": 0.75}, 0),  # 6 of 8
        ("quantization=fp8_full mu_dtype=bfloat16 weight_dtype=bfloat16", "fp8", {}, 0),
        ("opt_type=muon", "bf16", {}, 1),
    ],
)
def test_maxtext_formats_and_optimizers(keys, precision, held, notes):
    """optax: `mu_dtype` is the first moment's; `optax.sgd` without momentum has no state."""
    found = read(f"python3 -m MaxText.train base.yml model_name=llama3-8b {keys}")
    assert (found.precision, found.held, len(found.notes)) == (precision, held, notes)
