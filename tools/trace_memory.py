"""Peak memory of a training step of Hugging Face transformers, read off its own operators.

The model is built on tensors without data (torch's FakeTensorMode), so a real shape needs neither a
GPU nor its memory: what every operator returns is counted from its making to its end. What a kernel
takes inside itself, and what an allocator loses, is not seen. Needs torch, transformers and peft.

    python tools/trace_memory.py [MODEL ...] > tests/data/traced_memory.csv
"""

import argparse
import csv
import gc
import sys
import warnings
import weakref

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

warnings.filterwarnings("ignore")
LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
SHAPES = {
    "llama3-8b": ("llama", 128256, LLAMA | {"num_hidden_layers": 32, "intermediate_size": 14336}),
    "qwen3-8b": (
        "qwen3",
        151936,
        LLAMA | {"num_hidden_layers": 36, "intermediate_size": 12288, "head_dim": 128},
    ),
    "qwen2.5-1.5b": (
        "qwen2",
        151936,
        {
            "hidden_size": 1536,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "intermediate_size": 8960,
            "tie_word_embeddings": True,
        },
    ),
}
MIXTURES = {  # of four layers: a whole model takes hours
    "qwen3-30b-a3b": (
        "qwen3_moe",
        151936,
        {
            "hidden_size": 2048,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 4,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "norm_topk_prob": True,
        },
    )
}
SEQ_LEN = 512  # short: the CPU's attention makes a mask of its square that a GPU's does not


class Live(TorchDispatchMode):
    """Counts the bytes of all storages that are alive, and the most there were."""

    def __init__(self):
        super().__init__()
        self.known, self.now, self.most = set(), 0, 0

    def add(self, tensor):
        """Count the storage of a tensor until it goes."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, -(-storage.nbytes() // 512) * 512
        if key not in self.known:
            self.known.add(key)
            weakref.finalize(storage, self.drop, key, size)
            self.now += size
            self.most = max(self.most, self.now)

    def drop(self, key, size):
        """Forget a storage."""
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for value in tree_flatten(found)[0]:
            if isinstance(value, torch.Tensor):
                self.add(value)
        return found

    def peak(self):
        """Most bytes since the last look."""
        gc.collect()
        most, self.most = self.most, self.now
        return most


def adapted(model, targets):
    """Model with LoRA adapters of rank 16 in fp32, as PEFT makes them."""
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    BaseTunerLayer._move_adapter_to_device_of_base_layer = lambda *_, **__: None
    torch.nn.Module.to = lambda self, *_, **__: self  # tensors without data cannot be swapped
    return get_peft_model(model, LoraConfig(r=16, target_modules=targets, task_type="CAUSAL_LM"))


def traced(name, targets="", weights="bf16", recompute="none", micro_batch=4, attention="sdpa"):
    """Peaks of a step as the Trainer runs it with bf16=True, and of an evaluation. [byte]."""
    kind, vocab, shape = (SHAPES | MIXTURES)[name]
    config = transformers.AutoConfig.for_model(kind, vocab_size=vocab, use_cache=False, **shape)
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[weights]
    live = Live()
    with FakeTensorMode(allow_non_fake_inputs=True), live:
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation=attention, dtype=dtype
        )
        if targets:
            if recompute == "full":
                model.enable_input_require_grads()
            model = adapted(model, "all-linear" if targets == "all-linear" else targets.split(","))
        if recompute == "full":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        for tensor in (*model.parameters(), *model.buffers()):
            live.add(tensor)
        step = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], fused=True)
        ids = torch.zeros((micro_batch, SEQ_LEN), dtype=torch.long)
        found = {}
        for _ in range(2):  # the first step makes the optimizer's states
            live.peak()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(input_ids=ids, labels=ids)
            loss = out.loss
            del out  # `compute_loss` returns the loss alone
            loss.backward()
            del loss
            found["pass_bytes"] = live.peak()
            step.step()
            found["step_bytes"] = live.peak()
            step.zero_grad()
        model.eval()
        live.peak()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            model(input_ids=ids, labels=ids)
        found["evaluation_bytes"] = live.peak()
    return found


CASES = [
    {"recompute": recompute, "micro_batch": micro, **how}
    for how in ({}, {"weights": "fp32"}, {"targets": "all-linear"}, {"targets": "q_proj,v_proj"})
    for recompute, micro in (("none", 4), ("full", 4), ("full", 32))
] + [{"targets": "all-linear", "attention": "eager", "recompute": "none", "micro_batch": 8}]
OF_MIXTURES = [
    {},
    {"targets": "q_proj,v_proj"},
    {"targets": "all-linear"},
    {"targets": "all-linear", "recompute": "full"},
]


def main():
    """Trace every case of every model, or of those named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    named = parser.parse_args().models
    out = csv.writer(sys.stdout, lineterminator="\n")
    fields = ("targets", "weights", "recompute", "micro_batch", "attention")
    peaks = ("pass_bytes", "step_bytes", "evaluation_bytes")
    out.writerow(("model", *fields, "seq_len", *peaks, "n_layers", "versions"))
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    to = torch.nn.Module.to
    usual = {"targets": "", "weights": "bf16", "recompute": "none", "micro_batch": 4}
    for name in named or SHAPES | MIXTURES:
        layers = MIXTURES[name][2]["num_hidden_layers"] if name in MIXTURES else ""
        for case in OF_MIXTURES if name in MIXTURES else CASES:
            how = usual | {"attention": "sdpa"} | case
            found = traced(name, **how)
            torch.nn.Module.to = to
            out.writerow(
                (
                    name,
                    *(how[f] for f in fields),
                    SEQ_LEN,
                    *(found[p] for p in peaks),
                    layers,
                    versions,
                )
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
