"""Servers in the ways that people start them: each text as its engine's own parser takes it."""

import pytest

from gpuscale.answers.launch_check import LaunchCheck
from gpuscale.launch.read.detect import read_launch

SCRIPTS = [  # text, what a reader sees; the name of the file where it matters
    ("vllm serve --config c.yaml -tp 2 -dp 4 > log 2>&1 &", {"model_name": None, "n_gpus": 8}),
    ("sudo systemctl restart llama-server; llama-cli -m b.gguf", {"model_name": "b"}),
    ("pkill -f vllm.entrypoints; vllm serve a/b --speculative-config '{}'", {"model_name": "a/b"}),
    ("vllm serve a/b --structured-outputs-config.backend x -pp 2", {"not_understood": [], "pp": 2}),
    ('vllm serve "$M" "$@"', {"n_gpus": None, "unread": {"model": "$M", "tp": "$@"}}),
    (
        "docker run --gpus all -v x:/data ghcr.io/huggingface/text-generation-inference:2 "
        "--model-id a/b --num-shard 4 --quantize bitsandbytes --max-total-tokens 4096",
        {"kind": "tgi", "model_name": "a/b", "tp": 4, "weights": "int8", "seq_len": 4096},
    ),
    (
        "docker run vllm/vllm-openai:v1 --model a/b -tp 2 --enforce-eager",
        {"kind": "vllm", "model_name": "a/b", "tp": 2, "serves": {"eager": True}},
    ),
    (
        "python -m sglang.launch_server --model a/b --tp 8 --expert-parallel-size 8",
        {"kind": "sglang", "ep": 8},
    ),
    (
        "./main -m /x/Qwen3-8B-Q4_K_M.gguf -ngl 20 -ts 1,1 -ctk q8_0 -c 8192",
        {"kind": "llamacpp", "model_name": "Qwen3-8B-Q4_K_M", "pp": 2, "kv": "fp8", "n_gpus": 2},
    ),
    (
        "vllm serve a/b --cpu-offload-gb 20",
        {"beyond": ["--cpu-offload-gb: weights that stay on the host are not predicted"]},
    ),
    ("sglang serve; vllm serve a/b --cpu-offload-gb 0", {"model_name": "a/b", "beyond": []}),
    ("lipo -create -output dist/llama-server a b\nllama-cli -m b.gguf", {"model_name": "b"}),
    (
        "python quantize.py --model_dir a/b --qformat fp8 --tp_size 2\n"
        "trtllm-build --checkpoint_dir ckpt --max_batch_size 8 --max_seq_len 4096",
        {"kind": "trtllm", "model_name": "a/b", "tp": 2, "weights": "fp8", "max_seqs": 8},
    ),
    ("trace.sh python3 -m sglang.launch_server --model a/b --tp 8", {"tp": 8, "kind": "sglang"}),
    ("lmdeploy serve api_server a/b --tp 2 --quant-policy 8", {"kind": "lmdeploy", "kv": "fp8"}),
    (
        "python -m dynamo.vllm --model a/b --is-prefill-worker -tp 2 &\n"
        "python -m dynamo.vllm --model a/b -tp 4 --is-decode-worker",
        {"kind": "vllm", "n_gpus": 6, "serves": {"disagg": "1xTP2+1xTP4"}},
    ),
]


@pytest.mark.parametrize(("text", "wanted"), SCRIPTS)
def test_a_command_is_read(text, wanted):
    found = read_launch({"run.sh": text})
    assert {key: getattr(found, key) for key in wanted} == wanted


FILES = [
    ("Modelfile", "FROM llama3.1\nPARAMETER num_ctx 8192", ("ollama", "llama3.1-8b", 1, 8192)),
    ("a.Modelfile", "FROM hf.co/a/Phi-4-GGUF:Q8_0", ("ollama", "Phi-4-GGUF-Q8_0", 1, None)),
    ("Dockerfile", 'ENV M=a/b\nCMD ["sh", "-c", "vllm serve $M -tp 2"]', ("vllm", "a/b", 2, None)),
    (
        "Dockerfile.gpu",
        'FROM ghcr.io/ggml-org/llama.cpp:server-cuda\nCMD ["-m", "/m/b.gguf", "-c", "4096"]',
        None,
    ),
    (
        "compose.yml",
        "services:\n  s:\n    image: own\n    environment: {TP: 4}\n"
        "    command: --model ${M:-a/b} -tp ${TP:-2} --max-model-len 4096",
        ("vllm", "a/b", 2, 4096),
    ),
    ("x.service", "[Service]\nExecStart=/opt/llama-server -m b.gguf -c 4096 \\\n -np 2", None),
    (
        "docker-compose.yml",
        "services:\n  v:\n    image: lmsysorg/sglang\n"
        "    entrypoint: python3 -m sglang.launch_server\n"
        "    command: --model-path a/b\n      --tp 2",
        ("sglang", "a/b", 2, None),
    ),
    (
        "k.yaml",
        "containers:\n- image: x/text-generation-inference:1\n  env:\n"
        "  - {name: MODEL_ID, value: a/b}\n  - {name: NUM_SHARD, value: '2'}",
        ("tgi", "a/b", 2, None),
    ),
    ("e.yml", "enable_attention_dp: true\ntensor_parallel_size: 8", ("trtllm", None, 8, None)),
    (
        "r.yaml",
        "kind: RayService\nspec:\n  serveConfigV2: |\n    applications:\n    - args:\n"
        "        llm_configs:\n        - model_loading_config: {model_id: n, model_source: a/b}\n"
        "          engine_kwargs: {tensor_parallel_size: 2, max_model_len: 4096}",
        ("vllm", "a/b", 2, 4096),
    ),
    ("t.yaml", "s:\n  t: {{TOKEN}}\nrun: vllm serve a/b -tp 4", ("vllm", "a/b", 4, None)),
]


@pytest.mark.parametrize(("name", "text", "wanted"), FILES, ids=[one[0] for one in FILES])
def test_a_file_is_read(name, text, wanted):
    found = read_launch({name: text})
    said = (found.kind, found.model_name, found.n_gpus, found.seq_len)
    assert said == (wanted or ("llamacpp", "b", 1, 4096))


def test_what_a_script_says_where_a_variable_is_missing_is_not_shown():
    text = 'M="${1:?Usage: $0 MODEL}"\nvllm serve "$M" -tp ${TP:?how many} --port ${PORT:-1}'
    assert read_launch({"a.sh": text}).unread == {"model": "${1}", "tp": "${TP}"}
    said = read_launch({"a.sh": text}, {"1": "a/b", "TP": "2"})
    assert (said.model_name, said.tp) == ("a/b", 2)


def test_a_file_of_options_says_what_its_command_does_not():
    command = "vllm serve a/b --config /etc/c.yaml --max-model-len 4096"
    alone = read_launch({"a.sh": command})
    assert (alone.tp, alone.beside, len(alone.notes)) == (1, [], 1)  # not here: it is said
    for options in (
        "tensor-parallel-size: 4\nport: 1",
        "kv-cache-dtype: fp8\ntensor_parallel_size: 4",
    ):
        both = read_launch({"a.sh": command, "c.yaml": options + "\nmax-model-len: 8192"})
        assert (both.tp, both.n_gpus, both.seq_len, both.notes) == (4, 4, 4096, [])
    near = read_launch({"a.sh": command}, look=lambda path: (path, "tensor-parallel-size: 2"))
    assert (near.tp, near.n_gpus) == (2, 2)


def test_pools_of_a_manifest_are_one_service_and_its_models_are_not_mixed():
    pool = (
        "kind: Deployment\nmetadata: {name: x-%s}\nspec:\n  replicas: %d\n  c:\n  - command: %s\n"
    )
    served = "[vllm, serve, a/b, -tp, '2']"
    both = pool % ("prefill", 3, served) + "---\n" + pool % ("decode", 1, served)
    found = read_launch({"d.yaml": both})
    assert found.serves["disagg"] == "3xTP2+1xTP2"
    assert found.n_gpus == 8
    two = pool % ("one", 1, "[vllm, serve, c/d]") + "---\n" + pool % ("two", 1, served)
    assert (read_launch({"d.yaml": two}).model_name, read_launch({"d.yaml": two}).tp) == ("a/b", 2)


def test_a_format_in_the_name_of_a_folder_is_served(tmp_path):
    path = tmp_path / "a.sh"
    path.write_text("vllm serve /models/Qwen2.5-72B-Instruct-AWQ -tp 2 --max-model-len 8192")
    answer = LaunchCheck((str(path),)).answer()
    assert answer.result.fits  # 16 bits would take 145 GB of 160
    assert any("int4" in str(block) for block in answer.blocks)


def test_the_author_before_the_name_of_a_gguf_is_no_part_of_it(tmp_path):
    path = tmp_path / "a.sh"
    path.write_text("llama-server -m /m/Qwen_Qwen3-8B-Q4_K_M.gguf -c 4096")
    answer = LaunchCheck((str(path),)).answer()
    assert any("qwen3-8b, q4_k_m" in str(block) for block in answer.blocks)


@pytest.mark.parametrize("kind", ["tgi", "lmdeploy", "ollama", "llamacpp"])
def test_every_engine_is_answered(kind, tmp_path):
    lines = {
        "tgi": ("a.sh", "text-generation-launcher --model-id Qwen/Qwen3-8B"),
        "lmdeploy": ("a.sh", "lmdeploy serve api_server Qwen/Qwen3-8B"),
        "ollama": ("Modelfile", "FROM qwen3"),
        "llamacpp": ("a.sh", "llama-server -m Qwen3-8B-Q8_0.gguf -ngl 99 -c 0"),
    }
    name, text = lines[kind]
    (tmp_path / name).write_text(text)
    report = LaunchCheck((str(tmp_path / name),)).answer().result
    assert (report.kind, report.fits, report.missing) == (kind, True, ())


def test_a_server_is_checked_with_its_own_share_and_version(tmp_path):
    """vLLM 0.6.4 on an RTX 3090 refused 29,000 tokens of Llama 3.1 8B: 23,648 fit [1]_.

    .. [1] vLLM issue 10517; at 20,000 tokens the pass is smaller, 31,232 fit, and it starts.
    """
    path = tmp_path / "a.yaml"
    for length, starts in ((29_000, False), (20_000, True)):
        path.write_text(
            "s:\n  image: vllm/vllm-openai:v0.6.4.post1\n"
            f"  command: --model meta-llama/Llama-3.1-8B-Instruct --max-model-len {length}"
        )
        report = LaunchCheck((str(path),), gpu="rtx-3090").answer().result
        assert (report.fits, report.said.serves["version"]) == (starts, "0.6.4")


@pytest.mark.parametrize(
    ("more", "gathers"),
    [("", True), (" --moe-a2a-backend deepep", False), (" --enable-deepep-moe", False)],
)
def test_ranks_of_sglang_gather_tokens_where_nobody_names_deepep(more, gathers):
    line = "python -m sglang.launch_server --model-path a/b --tp 16 --dp 16 --enable-dp-attention"
    assert read_launch({"a.sh": line + more}).serves.get("no_deepep", False) is gathers


@pytest.mark.parametrize(
    ("line", "switch"),
    [
        (
            "python -m sglang.launch_server --model-path a/b --tp 16 --dp 16 --enable-dp-attention",
            "--enable-two-batch-overlap",
        ),
        ("vllm serve a/b --data-parallel-size 16 --enable-expert-parallel", "--enable-dbo"),
    ],
)
def test_one_batch_computes_where_nobody_asks_for_two(line, switch):
    assert read_launch({"a.sh": line}).serves["no_two_batches"] is True
    assert "no_two_batches" not in read_launch({"a.sh": f"{line} {switch}"}).serves
