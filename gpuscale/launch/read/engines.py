"""Serving engines as their commands are written: programs, options, images, number formats.

Options are those of each engine's own parser: vLLM `EngineArgs` and `vllm serve`, SGLang
`ServerArgs`, `trtllm-serve` and `trtllm-build`, `text-generation-launcher`, `lmdeploy serve`,
llama.cpp's `common/arg.cpp`, Dynamo's `dynamo.vllm`, `.sglang` and `.trtllm` workers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine is started."""

    title: str
    programs: str  # pattern of a word that starts it; none: two words do (`PAIRS`), or a file
    options: Mapping[str, str]  # option -> field of a record, or what `serving.read` makes of it
    flags: Mapping[str, str] = field(default_factory=dict)  # options without a value -> likewise
    variables: str = ""  # before an option's name in a variable that says the same


def _many(text: str) -> dict[str, str]:
    """Options by field: ``tp: -tp --tensor-parallel-size``, one field a line."""
    lines = (line.partition(":") for line in text.strip().splitlines())
    return {option: name.strip() for name, _, options in lines for option in options.split()}


WORKERS = {"--is-prefill-worker": "prefill", "--is-decode-worker": "decode"}
"""Flags of Dynamo's workers -> the pool that they are of."""

VLLM = Engine(
    "vLLM server",
    r"vllm\.entrypoints[\w.]*|dynamo\.vllm",
    _many(
        """
        model: --model -m
        tp: --tensor-parallel-size -tp --tp
        pp: --pipeline-parallel-size -pp
        dp: --data-parallel-size -dp
        seq_len: --max-model-len
        max_seqs: --max-num-seqs
        weights: --quantization -q
        dtype: --dtype
        kv: --kv-cache-dtype
        memory_utilization: --gpu-memory-utilization
        chunk: --max-num-batched-tokens
        config: --config
        draft: --speculative-config --speculative-model
        adapters: --max-loras
        adapter_rank: --max-lora-rank
        transfer: --kv-transfer-config
        role: --disaggregation-mode
        device: --device
        """
    ),
    _many("eager: --enforce-eager\nwhole_experts: --enable-expert-parallel\nlora: --enable-lora")
    | WORKERS,
)
SGLANG = Engine(
    "SGLang server",
    r"sglang\.launch_server|dynamo\.sglang[\w.]*",
    _many(
        """
        model: --model-path --model
        tp: --tp --tp-size --tensor-parallel-size
        pp: --pp --pp-size --pipeline-parallel-size
        dp: --dp --dp-size --data-parallel-size
        ep: --ep --ep-size --expert-parallel-size
        seq_len: --context-length
        max_seqs: --max-running-requests
        weights: --quantization
        dtype: --dtype
        kv: --kv-cache-dtype
        memory_utilization: --mem-fraction-static
        chunk: --chunked-prefill-size
        config: --config
        draft: --speculative-algorithm --speculative-algo
        adapters: --max-loras-per-batch
        adapter_rank: --max-lora-rank
        role: --disaggregation-mode
        device: --device
        """
    ),
    _many(
        """
        attention: --enable-dp-attention
        eager: --disable-cuda-graph
        whole_experts: --enable-ep-moe --enable-deepep-moe
        lora: --enable-lora
        """
    )
    | WORKERS,
)
TRTLLM = Engine(
    "TensorRT-LLM server",
    r"trtllm-serve|trtllm-build|trtllm-bench|dynamo\.trtllm"
    r"|convert_checkpoint\.py|quantize\.py",
    _many(
        """
        model: --model --model-path --model-dir
        checkpoint: --checkpoint-dir
        tp: --tp-size --tensor-parallel-size --tp
        pp: --pp-size --pipeline-parallel-size --pp
        ep: --ep-size --expert-parallel-size --ep --moe-ep-size
        seq_len: --max-seq-len --max-input-len
        max_seqs: --max-batch-size
        weights: --qformat --quantization
        kv: --kv-cache-dtype
        memory_utilization: --kv-cache-free-gpu-memory-fraction --free-gpu-memory-fraction
        chunk: --max-num-tokens
        config: --extra-llm-api-options --config --extra-engine-args
        role: --disaggregation-mode --server-role
        """
    ),
    WORKERS,
)
TGI = Engine(
    "Text Generation Inference server",
    r"text-generation-launcher",
    _many(
        """
        model: --model-id
        tp: --num-shard
        seq_len: --max-total-tokens
        max_seqs: --max-batch-size
        weights: --quantize
        dtype: --dtype
        kv: --kv-cache-dtype
        """
    ),
)
LMDEPLOY = Engine(
    "LMDeploy server",
    "",
    _many(
        """
        tp: --tp
        dp: --dp
        ep: --ep
        seq_len: --session-len
        max_seqs: --max-batch-size
        weights: --model-format
        kv: --quant-policy
        chunk: --max-prefill-token-num
        device: --device
        """
    ),
)
LLAMACPP = Engine(
    "llama.cpp server",
    r"(llama-(server|cli|bench|run|batched-bench|perplexity)|llama-server-\w+)(\.exe)?",
    _many(
        """
        model: -m --model
        hub: -hf -hfr --hf-repo
        file: -hff --hf-file
        seq_len: -c --ctx-size
        max_seqs: -np --parallel
        kv: -ctk --cache-type-k
        kv_values: -ctv --cache-type-v
        chunk: -ub --ubatch-size
        ngl: -ngl --n-gpu-layers --gpu-layers
        n_cpu_moe: -ncmoe --n-cpu-moe
        split: -ts --tensor-split
        split_mode: -sm --split-mode
        devices: -dev --device
        override: -ot --override-tensor
        draft: -md --model-draft
        """
    ),
    _many("cpu_moe: -cmoe --cpu-moe"),
    variables="LLAMA_ARG_",
)
ENGINES: dict[str, Engine] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "trtllm": TRTLLM,
    "tgi": TGI,
    "lmdeploy": LMDEPLOY,
    "llamacpp": LLAMACPP,
    "ollama": Engine("Ollama model", "", {}),
    "tabbyapi": Engine("TabbyAPI server", "", {}),
}
"""Engine -> how it is started; the order in which a command is asked."""

PAIRS = {
    ("vllm", "serve"): "vllm",
    ("sglang", "serve"): "sglang",
    ("lmdeploy", "serve"): "lmdeploy",
    ("lmdeploy", "chat"): "lmdeploy",
}
"""A program and its first argument -> engine."""

IMAGES = {
    "vllm-openai-cpu": "vllm serve --device cpu",
    "vllm/vllm-openai": "vllm serve",
    "vllm-openai": "vllm serve",
    "rocm/vllm": "vllm serve",
    "vllm/vllm-tpu": "vllm serve",
    "text-generation-inference": "text-generation-launcher",
    "llama.cpp:server": "llama-server",
    "llama.cpp:full": "llama-server",
}
"""Part of an image's name -> the program that it starts with the arguments that it is given."""


def program_of(image: str) -> str:
    """Program that an image starts by itself; empty where its arguments name one."""
    return next((program for part, program in IMAGES.items() if part in image), "")


FORMATS = {
    "awq": "awq",
    "awq-marlin": "awq",
    "int4-awq": "awq",
    "w4a16-awq": "awq",
    "w4a8-awq": "awq",
    "gptq": "gptq",
    "gptq-marlin": "gptq",
    "marlin": "gptq",
    "int4-wo": "int4",
    "int8-wo": "int8",
    "int8-sq": "int8",
    "eetq": "int8",
    "bitsandbytes-nf4": "nf4",
    "bitsandbytes-fp4": "nf4",
    "modelopt": "fp8",
    "modelopt-fp4": "nvfp4",
    "petit-nvfp4": "nvfp4",
    "fbgemm-fp8": "fp8",
    "ptpc-fp8": "fp8",
    "w8a8-fp8": "fp8",
    "fp8": "fp8",
    "w8a8-int8": "int8",
    "int8": "int8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "experts-int8": "int8",
}
"""An engine's word for a quantisation -> format of the weights; others leave them as published."""


def weights_of(word: str, engine: str) -> str | None:
    """Format of the weights that an engine's word means; None: as the checkpoint has them.

    >>> weights_of("awq_marlin", "vllm"), weights_of("bitsandbytes", "tgi"), weights_of("auto", "")
    ('awq', 'int8', None)
    """
    name = re.sub(r"[\s_]+", "-", word.strip().lower())
    if name == "bitsandbytes":  # TGI's is LLM.int8(), the others' 4 bits
        return "int8" if engine == "tgi" else "nf4"
    return FORMATS.get(name)


def cache_of(word: str) -> str | None:
    """Format of the cache that an engine's word means; None: 16 bits, or as the engine has it.

    >>> cache_of("fp8_e5m2"), cache_of("q8_0"), cache_of("auto")
    ('fp8', 'fp8', None)
    """
    name = word.strip().lower()
    return "fp8" if re.match(r"fp8|q[458]|iq4|int[48]|[48]$|nvfp4", name) else None


DEVICES = {
    "npu": "Ascend NPUs",
    "ascend": "Ascend NPUs",
    "hpu": "Gaudi",
    "neuron": "AWS Trainium",
    "cpu": "a CPU",
    "openvino": "a CPU",
}
"""`--device` of the engines -> machines that no preset answers for."""

SERVER = tuple(
    "--host --port --api --uvicorn --ssl --allow --chat-template --enable-auto-tool --tool "
    "--served --root-path --middleware --lora-modules --disable-frontend --enable-log "
    "--disable-log "
    "--enable-request --headless --log --response-role --disable-uvicorn --no- --reasoning "
    "--enable-server --is-prefill --is-decode --disaggregation --connector --enable-multimodal "
    "--multimodal --migration --custom-jinja --dyn --store-kv --disable-access --disable-fastapi "
    "--h11 --return-tokens --prompt-adapters --max-log-len --endpoint --request-plane".split()
)
"""Beginnings of the options of the HTTP server, or of Dynamo, that say nothing of the engine."""
