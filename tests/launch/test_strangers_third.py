"""Third draw of strangers' files: what was read wrongly or asked without need, in own words.

Each case names the file whose options it has (repository@commit, path); facts alone are taken.
"""

import pytest

from gpuscale.cli.app import run
from gpuscale.launch.read.detect import read_launch
from gpuscale.launch.read.files import gpu_of

MEGATRON_CONFIG = (
    "actor_rollout_ref:\n  model: {enable_gradient_checkpointing: false}\n  actor:\n"
    "    megatron: {tensor_model_parallel_size: 4, sequence_parallel: true}\n"
)
MEGATRON = (
    "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer trainer.nnodes=1 "
    "trainer.n_gpus_per_node=8 actor_rollout_ref.model.path=a/b"
)
DYNAMIC = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 8 "
    "--data.max_len 9216 --rollout.max_new_tokens 8192 --train.dynamic_batch_enable "
    "--train.max_tokens_per_gpu 32768 --actor.model_name_or_path a/b"
)
OWN = (
    "model: {model_name: a/b, max_seq_length: 1536}\nqlora: {load_in_4bit: true, lora_r: 16}\n"
    "training: {per_device_train_batch_size: 1, gradient_accumulation_steps: 4}\n"
    "parallel: {strategy: deepspeed_zero3, gradient_checkpointing: true}\n"
)
T0 = (
    "torchrun --nproc_per_node 8 --nnodes 8 finetune_t0.py --deepspeed --zero-stage 1 "
    "--train-samples 6_348_800 --num-layers 30 --hidden-size 4096 --num-attention-heads 32 "
    "--seq-length 2048 --micro-batch-size 4 --global-batch-size 2048 --fp16"
)
CLASSES = "megatron sft --model a/b --task_type seq_cls --num_labels 265 --max_length 2048"
THINKER = (
    "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\ncutoff_len: 16384\n"
    "global_batch_size: 96\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 3\n"
)
PROFILES = (
    "services:\n  prefill: {image: vllm/vllm-openai, profiles: [pd], command: --model a/p}\n"
    "  one: {image: vllm/vllm-openai, command: --model a/b --max-model-len 8192}\n"
)
ADAPTERS = (
    "base_model: a/b\nadapter: lora\nlora_r: 16\nsequence_len: 4096\nmicro_batch_size: 32\n"
    "lora_modules_to_save: [embed_tokens, lm_head]\n"
)
KUBEAI = (
    "kind: Model\nspec:\n  url: hf://a/b\n  engine: VLLM\n  args: [--max-model-len=32768]\n"
    "  resourceProfile: {profile}\n"
)
KAITO = (
    "kind: Workspace\nresource: {instanceType: Standard_NC96ads_A100_v4}\n"
    "inference: {preset: {name: llama-3.1-8b-instruct}}\n"
)
PROMPTS = (
    "trainer: {devices: 8, num_nodes: 1}\nmodel: {virtual_prompt_style: no-prompts, "
    "tensor_model_parallel_size: 4, global_batch_size: 64, micro_batch_size: 8}\n"
)
UNSLOTH = (
    "python train.py --model_name_or_path a/b --per_device_train_batch_size 2 --max_seq_len 2048 "
    "--use_peft_lora True --lora_r 8 --use_unsloth True"
)
WORKER = "python3 -m fastchat.serve.vllm_worker --model-path a/b --num-gpus 2"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        # OpenRLHF/OpenRLHF@3c3be623 examples/scripts/train_prorlv2_math_hybrid_engine.sh
        ("a.sh", DYNAMIC, {"micro_batch_size": 3, "n_gpus": None, "gpus_per_node": 8}),
        # awslabs/awsome-distributed-training@0edaf152 qlora training_config_zero3.yaml
        (
            "a.yaml",
            OWN,
            {
                "kind": "trainer",
                "method": "qlora",
                "lora_rank": 16,
                "seq_len": 1536,
                "accumulation": 4,
                "recompute": "full",
                "asked": {"strategy": "deepspeed_zero3"},
            },
        ),
        # bigscience-workshop/bigscience@9e64edec train/tr13-mtf/smaller_models tr13f-6b3-mtf
        ("a.slurm", T0, {"world_size": 64, "zero_stage": 1, "asked": {}}),
        # modelscope/ms-swift@3602360a examples/megatron/mcore_bridge/lora/seq_cls.sh
        ("a.sh", CLASSES, {"beyond": ["seq_cls: another head and loss than a language model's"]}),
        # open-thoughts/open-thoughts@e3ad6c98 train/OpenThinker-32B.yaml
        ("a.yaml", THINKER, {"world_size": 32, "asked": {}}),
        # vllm-project/aibrix@e3e10f9e deployment/standalone/docker-compose.yml
        ("a.yml", PROFILES, {"model_name": "a/b", "seq_len": 8192, "n_gpus": 1}),
        ("a.yml", PROFILES.partition("  one")[0], {"model_name": "a/p"}),
        # modal-labs/llm-finetuning@9e977043 config/codellama.yml
        ("a.yml", ADAPTERS, {"tuning": {"train_embeddings": True}, "lora_rank": 16}),
        # substratusai/kubeai@2f32ef49 manifests/models/deepseek-r1-70b-gh200-fp8.yaml, opt-125m-cpu
        ("a.yaml", KUBEAI.format(profile="nvidia-gpu-gh200:1"), {"gpu": "gh200", "n_gpus": 1}),
        ("a.yaml", KUBEAI.format(profile="cpu:1"), {"other_machine": "a CPU"}),
        # kaito-project/kaito@056b8280 examples/inference/kaito_workspace_llama-3.1_8b_instruct.yaml
        ("a.yaml", KAITO, {"gpu": "a100-80gb", "tp": 4, "n_gpus": 4}),
        # NVIDIA/NeMo-Framework-Launcher@26e42fa9 conf/adapter_learning/llama/squad.yaml
        ("a.yaml", PROMPTS, {"beyond": ["peft_scheme adapter: training of it is not predicted"]}),
        # huggingface/peft examples/sft/run_unsloth_peft.sh
        ("a.sh", UNSLOTH, {"software": "unsloth", "method": "lora"}),
        # lm-sys/FastChat fastchat/serve/vllm_worker.py
        ("a.sh", WORKER, {"kind": "vllm", "tp": 2, "n_gpus": 2}),
    ],
)
def test_what_is_read(name, text, wanted):
    found = read_launch({name: text})
    assert {key: getattr(found, key) for key in wanted} == wanted


def test_a_checkouts_own_configuration_of_verl_is_read():
    """ElliottYan/LUFFY@01f4ae06 verl/trainer/config/ppo_megatron_trainer.yaml, and its example."""
    near = {"verl/trainer/config/ppo_megatron_trainer.yaml": MEGATRON_CONFIG}
    look = lambda path: (path, near[path]) if path in near else None  # noqa: E731
    found = read_launch({"a.sh": MEGATRON}, {}, look)
    assert (found.tp, found.zero_stage, found.recompute, found.asked) == (4, 1, "none", {})
    alone = read_launch({"a.sh": MEGATRON})
    assert (alone.tp, alone.recompute, alone.beside) == (1, "full", [])


def test_files_that_hydra_composes_are_read():
    """mll-lab-nu/RAGEN@20daedc4 config/_2_sokoban.yaml over base.yaml."""
    base = "model_path: a/b\nactor_rollout_ref: {model: {path: '${model_path}'}}\n"
    rollout = "n: 4\n"
    files = {"base.yaml": base, "rollout/four.yaml": rollout}
    look = lambda path: (path, files[path]) if path in files else None  # noqa: E731
    over = (
        "defaults: [base, {rollout@actor_rollout_ref.rollout: four}, _self_]\n"
        "algorithm: {adv_estimator: grpo}\n"
    )
    found = read_launch({"a.yaml": over}, {}, look)
    assert (found.model_name, found.rl["group"], found.asked) == ("a/b", 4, {})


def test_an_argument_that_chooses_is_asked_for(tmp_path, capsys):
    """alibaba/Pai-Megatron-Patch@a098ca5a examples/llama2/run_ds_train_huggingface_llama.sh."""
    script = tmp_path / "a.sh"
    script.write_text(
        "SIZE=$1\nif [ $SIZE = 7B ]; then M=meta-llama/Llama-2-7b-hf\n"
        "elif [ $SIZE = 13B ]; then M=meta-llama/Llama-2-13b-hf\nfi\n"
        "torchrun --nproc_per_node 8 train.py --model_name_or_path $M --max_length 2048 --bf16 "
        "--per_device_train_batch_size 1 --gradient_checkpointing True --fsdp full_shard\n"
    )
    run(["launch-check", str(script)])
    assert "argument 1, by which it chooses ($SIZE = 7B)" in capsys.readouterr().out
    run(["launch-check", str(script), "--var", "1=13B"])
    out = capsys.readouterr().out
    assert "llama2-13b" in out and "argument 1" not in out


def test_a_person_says_what_a_command_would_print():
    """simplescaling/s1@77272c6e train/sft_slurm.sh."""
    text = (
        "n=$(nvidia-smi -L | wc -l)\ntorchrun --nproc_per_node 8 train.py --model_name_or_path a/b "
        "--per_device_train_batch_size 1 --gradient_accumulation_steps $((16/n)) --max_length 64"
    )
    assert "accumulation" in read_launch({"a.sh": text}).unread
    assert read_launch({"a.sh": text}, {"n": "8"}).accumulation == 2


OF_TRAINER = " --model_name_or_path a/b --per_device_train_batch_size 1"
OF_RECIPE = "model_name_or_path: a/b\nper_device_train_batch_size: 1\nmax_length: 4096\n"
ENABLED = f"torchrun t.py{OF_TRAINER} --lora_enable True --tune_mm_vision False"
FOURTH = (
    "policy:\n  model_name: a/b\n  precision: bfloat16\n  max_total_sequence_length: 512\n"
    "  tensor_model_parallel_size: 2\n  dtensor_cfg: {enabled: false, tensor_parallel_size: "
    "'${policy.tensor_model_parallel_size}'}\n  megatron_cfg: {enabled: true, pipeline_dtype: "
    "'${policy.precision}', tensor_model_parallel_size: '${policy.tensor_model_parallel_size}'}\n"
    "grpo: {num_prompts_per_step: 32}\n"
)
PRIME = (
    "python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 trainer.nnodes=1 data.n_samples=4 "
    "algorithm.adv_estimator=rloo actor_rollout_ref.model.path=a/b "
    "data.train_batch_size=256 reward_model.rm_type={kind}"
)
SEES = (
    "torchrun --nproc_per_node 8 finetune.py --model_name_or_path a/b --tune_vision true "
    "--use_lora true --per_device_train_batch_size 1 --model_max_length 2048"
)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        # NVIDIA/NeMo-Skills nemo_skills/training/nemo_rl/configs/grpo.yaml
        ("a.yaml", FOURTH, {"tp": 2, "zero_stage": 1, "asked": {}}),
        # PRIME-RL/PRIME training/examples/run_prime_main.sh
        ("a.sh", PRIME.format(kind="normal"), {"global_batch_size": 1024, "asked": {}}),
        (
            "a.sh",
            PRIME.format(kind="prime"),
            {
                "beyond": [
                    "reward_model.rm_type prime: a second model trains too, which is not predicted"
                ]
            },
        ),
        # QwenLM/Qwen3-VL qwen-vl-finetune/scripts/sft_30a3b_lora.sh
        ("a.sh", ENABLED, {"method": "lora", "lora_rank": 64, "beyond": []}),
        # ChenmienTan/RL2 examples/gem_reinforce.sh
        (
            "a.sh",
            "torchrun --nproc_per_node=4 -m RL2.trainer.ppo rollout.env_path=envs/gem.py",
            {"program": "RL2/trainer/ppo.py", "gpus_per_node": 4},
        ),
        # philschmid/deep-learning-pytorch-huggingface deepseed-falcon-180b-lora-fa.ipynb
        ("a.sh", "torchrun run_ds_lora.py" + OF_TRAINER, {"beside": ["run_ds_lora.py"]}),
        ("a.sh", "torchrun x_lora.py --lora_r 8" + OF_TRAINER, {"beside": [], "method": "lora"}),
        # FlagAlpha/Llama2-Chinese train/pretrain/pretrain.sh
        ("a.sh", "deepspeed --num_gpus 8 pretrain_clm.py --bf16" + OF_TRAINER, {"kind": "trainer"}),
        # taishan1994/DPO-Finetuning train_config/qwen2_dpo_config.yaml
        ("c/qwen2_dpo_config.yaml", OF_RECIPE, {"rl": {"method": "dpo"}}),
        ("c/dpo/qwen2_config.yaml", OF_RECIPE, {"rl": {}}),
        # RLHFlow/Online-RLHF sft/llama3-8b-it.yaml
        (
            "a.yaml",
            "base_model: a/b\nmodel_type: AutoModelForCausalLM\nmicro_batch_size: 1\n"
            "sequence_len: 64\nof_no_use: 1\n",
            {"not_understood": ["of_no_use"]},
        ),
        # OpenBMB/MiniCPM-V finetune/finetune_lora.sh
        ("a.sh", SEES, {"beyond": ["tune_vision: more than a decoder-only language model trains"]}),
    ],
)
def test_what_is_read_of_the_fourth_and_fifth_draw(name, text, wanted):
    found = read_launch({name: text})
    assert {key: getattr(found, key) for key in wanted} == wanted


def test_a_vocabulary_that_is_not_llamas_is_told():
    """llm-jp/scripts@6f19d2e9 pretrain/scripts/v3-8x1.8b-exp1-sakura/train.sh."""
    text = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --num-layers 2 "
        "--hidden-size 64 --num-attention-heads 4 --seq-length 64 --tokenizer-type Llama2Tokenizer"
    )
    files = ("x/tokenizer.model", "jp-100k.model")
    told = [read_launch({"a.sh": f"{text} --tokenizer-model {f}"}).unresolved for f in files]
    assert told == [[], ["size of the vocabulary (jp-100k.model's): 32,000 taken"]]


@pytest.mark.parametrize(
    ("printed", "gpu"),
    [  # unslothai/notebooks original_template/Llama3.3_(70B)_A100-Conversational.ipynb
        ("NVIDIA A100-SXM4-80GB. Num GPUs = 1.", "a100"),
        ("NVIDIA A100-SXM4-40GB. Num GPUs = 1.", "a100-40gb"),
        ("GPU = Tesla T4. Max memory = 14.7 GB.", "t4"),
        ("", "a100-40gb"),
    ],
)
def test_the_gpu_that_a_notebook_printed_goes_before_the_one_it_asks_for(printed, gpu):
    asks = '{"metadata": {"colab": {"gpuType": "A100"}}, "text": "'
    assert gpu_of(f'{asks}{printed}"}}') == gpu


def test_the_machine_of_a_verdict_is_said(tmp_path, capsys):
    """HuangXinzhe/llm_fine_tuning fine_tune/Atom/atom_fine_tune/finetune.sh names no GPU."""
    script = tmp_path / "a.sh"
    script.write_text(
        "deepspeed --include localhost:1,0 f.py --model_name_or_path meta-llama/Llama-2-7b-chat-hf "
        "--per_device_train_batch_size 1 --block_size 2048 --bf16 --gradient_checkpointing"
    )
    run(["launch-check", str(script)])
    out = capsys.readouterr().out
    assert "2 GPUs" in out and "dgx-h100  taken: --cluster or --gpu says another" in out
    run(["launch-check", str(script), "--gpu", "a100"])
    assert "taken: --cluster" not in capsys.readouterr().out
