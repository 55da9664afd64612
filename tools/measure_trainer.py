"""Time and memory of training steps on one GPU, as today's trainers take them; prints CSV rows.

    python tools/measure_trainer.py > rows.csv              every job of measure_trainer.toml
    python tools/measure_trainer.py JOB ... > rows.csv      some of them
    python tools/measure_trainer.py --commands              what gpuscale is asked about each
    python tools/measure_trainer.py --tiny cpu JOB ...      two layers, without a GPU: a trial

Models are made on the GPU with random weights, so nothing is downloaded. Each job has a process of
its own. The first two steps are not counted; a step's time is the median of the rest. Needs torch,
transformers and peft; trl and datasets for TRL's trainers, bitsandbytes for its formats and
optimizers, liger-kernel for the fused loss.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import math
import os
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

JOBS = Path(__file__).with_suffix(".toml")
Job = dict[str, Any]

WARM_UP = 2
STEPS = 12
ENOUGH_S = 5.0
"""Seconds of counted steps after which a job ends, once it has two."""
NEW_TOKENS = 128
LIMIT_S = 90.0
"""Seconds after which a job is ended from outside."""
OPTIMIZERS = {
    "adamw-foreach": "adamw_torch",
    "adamw-8bit": "adamw_bnb_8bit",
    "paged-adamw-8bit": "paged_adamw_8bit",
}
PACKAGES = ("torch", "transformers", "peft", "trl", "bitsandbytes", "liger-kernel")
SAID = (
    "model trainer method rank targets base attention experts loss optimizer recompute compiled "
    "seq_len micro_batch eval_batch"
).split()
FOUND = (
    "steps step_s fastest_s slowest_s tokens_per_s built_bytes allocated_bytes reserved_bytes "
    "device_bytes eval_allocated_bytes error"
).split()


def versions() -> str:
    """Versions of what takes part."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def command(job: Job) -> list[str]:
    """Command line that asks gpuscale about a job."""
    software = {"trl": "trl"}.get(job.get("trainer", ""), "hf-trainer")
    asked = ["gpuscale", "memory", job["model"], "--gpu", "h200-sxm", "--gpus", "1"]
    asked += ["--software", software, "--global-batch", str(job["micro_batch"])]
    options = "method rank targets base loss optimizer recompute seq_len micro_batch eval_batch"
    for name in options.split():
        if name in job and job[name] != "fp32":  # TRL's own; of others no option says it
            asked += [f"--{name.replace('_', '-')}", str(job[name])]
    if job.get("attention") == "eager":
        asked += ["--attention", "eager"]
    return asked + (["--compiled"] if job.get("compiled") else []) + ["--json"]


def config_of(model: dict[str, Any], tiny: bool) -> Any:
    """Return the configuration of a model; a tiny one has two narrow layers."""
    import transformers

    shape = dict(model)
    kind = shape.pop("model_type")
    if tiny:
        small = {"num_hidden_layers": 2, "n_layer": 2, "vocab_size": 512, "hidden_size": 256}
        small |= {"n_embd": 256, "intermediate_size": 128, "n_inner": 256, "num_experts": 8}
        small |= {"num_attention_heads": 8, "n_head": 8, "num_key_value_heads": 2, "head_dim": 32}
        small |= {"moe_intermediate_size": 64, "num_local_experts": 4}
        shape |= {k: v for k, v in small.items() if k in shape}
    known = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    return transformers.AutoConfig.for_model(kind, use_cache=False, **known, **shape)


def quantised(model: Any) -> Any:
    """Model whose maps, but the head, are bitsandbytes' nf4 with double quantisation."""
    import bitsandbytes
    import torch

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.Linear) and name != "lm_head":
                new = bitsandbytes.nn.Linear4bit(
                    child.in_features,
                    child.out_features,
                    bias=child.bias is not None,
                    compute_dtype=torch.bfloat16,
                    quant_type="nf4",
                    device="meta",
                )
                new.weight = bitsandbytes.nn.Params4bit(
                    child.weight.data.cpu(), requires_grad=False, quant_type="nf4"
                )
                new.bias = child.bias
                setattr(parent, name, new.to(child.weight.device))
    model.is_loaded_in_4bit = True
    return model


def built(job: Job, models: dict[str, Any], device: str) -> Any:
    """Model of a job with random weights, on the device."""
    import torch
    import transformers

    config = config_of(models[job["model"]], tiny=device == "cpu")
    how: dict[str, Any] = {}
    if job.get("attention"):
        how["attn_implementation"] = job["attention"]
    if job.get("experts"):
        how["experts_implementation"] = job["experts"]
    kept = torch.float32 if job.get("base") == "fp32" else torch.bfloat16
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=kept, **how)
    return quantised(model) if job.get("method") == "qlora" else model


def adapters_of(job: Job) -> Any:
    """PEFT's configuration of the adapters of a job; None in full training."""
    from peft import LoraConfig

    if job["method"] == "full":
        return None
    names = [f"{t}_proj" for t in job.get("targets", "").split(",") if t]
    targets: Any = names or "all-linear"
    return LoraConfig(r=job.get("rank", 16), target_modules=targets, task_type="CAUSAL_LM")


def watch(profiled: bool) -> Any:
    """Make a callback that times steps and ends the training when it has enough of them."""
    import torch
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def __init__(self) -> None:
            self.ends: list[float] = []
            self.profile: Any = None

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if self.profile:
                self.profile.stop()
                control.should_training_stop = True
                return
            self.ends.append(time.perf_counter())
            counted = len(self.ends) - WARM_UP
            spent = self.ends[-1] - self.ends[min(WARM_UP, len(self.ends)) - 1]
            if counted >= STEPS or (counted >= 2 and spent > ENOUGH_S):
                control.should_training_stop = not profiled
                if profiled:  # one step more, with its kernels
                    self.profile = torch.profiler.profile()
                    self.profile.start()

    return Watch()


def print_kernels(profile: Any) -> None:
    """Kernels of one step on standard error, by their time."""
    kernels = [e for e in profile.key_averages() if e.device_type.name == "CUDA"]
    kernels.sort(key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in kernels)
    print(f"kernels {total / 1e3:.2f} ms, {sum(e.count for e in kernels)} calls", file=sys.stderr)
    for event in kernels[:30]:
        ms = event.self_device_time_total / 1e3
        print(f"  {ms:9.3f} ms {event.count:6d} {event.key[:110]}", file=sys.stderr)


def arguments(job: Job, device: str) -> dict[str, Any]:
    """Arguments of a trainer; those not here are as it comes."""
    said: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": job["micro_batch"],
        "max_steps": WARM_UP + STEPS + 1,
        "bf16": True,
        "gradient_checkpointing": job["recompute"] == "full",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": device == "cpu",
    }
    if job.get("optimizer"):
        said["optim"] = OPTIMIZERS.get(job["optimizer"], job["optimizer"])
    if job.get("loss") == "fused":
        said["use_liger_kernel"] = True
    if job.get("compiled"):
        said["torch_compile"] = True
    if job.get("eval_batch"):
        said["per_device_eval_batch_size"] = job["eval_batch"]
    return said


def tokenizer(vocab: int) -> Any:
    """Tokenizer of numbers, for TRL, which wants one."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"{i}": i for i in range(vocab)}
    made = Tokenizer(models.WordLevel(words, unk_token="0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="1", pad_token="2", unk_token="0"
    )


def trainer_of(job: Job, model: Any, device: str) -> Any:
    """Trainer of a job over rows of random tokens, all of the full length."""
    import torch

    vocab, length = model.config.vocab_size, job["seq_len"]
    torch.manual_seed(0)
    n = max((WARM_UP + STEPS + 1) * job["micro_batch"], 2 * job.get("eval_batch", 0))
    n = min(n, 256) if job.get("trainer") == "trl" else n
    ids = torch.randint(3, vocab, (n, length)).tolist()
    watching = watch(bool(job.get("profiled")))
    said = arguments(job, device)
    if job.get("trainer") == "trl":
        trainer = of_trl(job, model, said, ids, watching)
    else:
        trainer = of_transformers(job, model, said, ids, watching)
    return trainer, watching


def of_transformers(job: Job, model: Any, said: dict[str, Any], ids: Any, watching: Any) -> Any:
    """Trainer of Transformers, with PEFT's adapters where the method has them."""
    from peft import get_peft_model, prepare_model_for_kbit_training
    from transformers import Trainer, TrainingArguments, default_data_collator

    if job["method"] == "qlora":
        checkpoints = job["recompute"] == "full"
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpoints)
    elif job["method"] != "full" and job["recompute"] == "full":
        model.enable_input_require_grads()
    adapters = adapters_of(job)
    rows = [{"input_ids": row, "labels": row} for row in ids]
    return Trainer(
        model=get_peft_model(model, adapters) if adapters else model,
        args=TrainingArguments(**said),
        train_dataset=rows,
        eval_dataset=rows[: job.get("eval_batch", 1)],
        data_collator=default_data_collator,
        callbacks=[watching],
    )


def of_trl(job: Job, model: Any, said: dict[str, Any], ids: Any, watching: Any) -> Any:
    """Trainer of TRL; a pair of DPO is one prompt of half the length with two answers."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    common = {"callbacks": [watching], "processing_class": tokenizer(model.config.vocab_size)}
    common["peft_config"] = adapters_of(job)
    said["max_length"] = job["seq_len"]
    if job["method"] != "dpo":
        rows = Dataset.from_dict({"input_ids": ids})
        return SFTTrainer(model=model, args=SFTConfig(**said), train_dataset=rows, **common)
    half = job["seq_len"] // 2
    texts = [[" ".join(map(str, part)) for part in (row[:half], row[half:-1])] for row in ids]
    answers = [answer for _, answer in texts]
    columns = {
        "prompt": [f"{prompt} " for prompt, _ in texts],
        "chosen": answers,
        "rejected": answers[1:] + answers[:1],
    }
    rows = Dataset.from_dict(columns)
    return DPOTrainer(model=model, args=DPOConfig(**said), train_dataset=rows, **common)


def generated(job: Job, model: Any) -> dict[str, Any]:
    """Tokens a second of `generate`: twice as it comes, the second counts."""
    import torch

    model.eval()
    shape = (job["micro_batch"], job["seq_len"])
    ids = torch.randint(3, model.config.vocab_size, shape, device=model.device)
    taken = []
    for new in (8, 8, NEW_TOKENS):
        start = time.perf_counter()
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            use_cache=True,
        )
        if ids.is_cuda:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    step = (taken[2] - taken[1]) / (NEW_TOKENS - 8)
    peak = torch.cuda.max_memory_allocated() if ids.is_cuda else 0
    rate = round(job["micro_batch"] / step, 1)
    return {"steps": NEW_TOKENS, "step_s": step, "tokens_per_s": rate, "allocated_bytes": peak}


def measured(job: Job, models: dict[str, Any], device: str) -> dict[str, Any]:
    """Step time and peaks of one job."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    model = built(job, models, device)
    if job.get("trainer") == "generate":
        return generated(job, model)
    on_gpu = device == "cuda"
    found: dict[str, Any] = {}
    if on_gpu:
        torch.cuda.empty_cache()
        found["built_bytes"] = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    trainer, watching = trainer_of(job, model, device)
    trainer.train()
    if watching.profile:
        print_kernels(watching.profile)
    times = [b - a for a, b in zip(watching.ends, watching.ends[1:], strict=False)][WARM_UP - 1 :]
    found["steps"] = len(times)
    found["step_s"] = round(statistics.median(times), 5)
    found["fastest_s"], found["slowest_s"] = round(min(times), 5), round(max(times), 5)
    pairs = 2 if job["method"] == "dpo" else 1
    tokens = pairs * job["micro_batch"] * job["seq_len"]
    found["tokens_per_s"] = round(tokens / found["step_s"], 1)
    if on_gpu:
        free, total = torch.cuda.mem_get_info()
        found["allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["reserved_bytes"] = torch.cuda.max_memory_reserved()
        found["device_bytes"] = total - free
        torch.cuda.reset_peak_memory_stats()
    if job.get("eval_batch"):
        trainer.evaluate()
        found["eval_allocated_bytes"] = torch.cuda.max_memory_allocated() if on_gpu else 0
    return found


def in_child(job: Job, models: dict[str, Any], device: str) -> dict[str, Any]:
    """Measure a job in a forked process, which takes its memory along when it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(2, 1)  # what trainers print is no row
        try:
            found: dict[str, Any] = measured(job, models, device)
        except BaseException as error:
            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        with os.fdopen(writing, "w") as out:
            out.write(repr(found))
            out.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return finished(child, pipe)


def finished(child: int, pipe: Any) -> dict[str, Any]:
    """Read what a child wrote, or that it was ended at the limit."""
    import ast
    import select
    import signal

    if not select.select([pipe], [], [], LIMIT_S)[0]:
        os.kill(child, signal.SIGKILL)
    text = pipe.read()
    os.waitpid(child, 0)
    return ast.literal_eval(text) if text else {"error": "ended at the limit, or died"}


def main() -> None:
    """Measure jobs one after another."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--commands", action="store_true", help="what gpuscale is asked")
    parser.add_argument("--tiny", default="cuda", metavar="cpu", help="two narrow layers")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no job after")
    parser.add_argument("--profile", nargs="*", default=(), metavar="JOB", help="and its kernels")
    said = parser.parse_args()
    table = tomllib.loads(JOBS.read_text())
    chosen = {name: dict(table["jobs"][name]) for name in said.jobs or table["jobs"]}
    for name in said.profile:
        chosen[name]["profiled"] = True
    if said.commands:
        for name, job in chosen.items():
            if job.get("trainer") != "generate":
                print(name, *command(job))
        return
    run(chosen, table["models"], said.tiny, said.seconds)


def run(chosen: dict[str, Job], models: dict[str, Any], device: str, seconds: float) -> None:
    """Print one row a job, as soon as it is there."""
    os.environ.setdefault(
        "PYTORCH_NVML_BASED_CUDA_CHECK", "1"
    )  # a parent that forks has no context
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("WANDB_DISABLED", "true")
    import peft
    import transformers

    began = time.perf_counter()
    names = [transformers.Trainer, transformers.AutoModelForCausalLM, peft.get_peft_model]
    print(f"{len(names)} imports {time.perf_counter() - began:.1f} s", file=sys.stderr)
    if any(job.get("trainer") == "trl" for job in chosen.values()):
        import trl

        print(trl.SFTTrainer, trl.DPOTrainer, file=sys.stderr)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(("id", *SAID, *FOUND, "versions"))
    for name, job in chosen.items():
        if time.perf_counter() - began > seconds:
            print(f"{name}: no time left", file=sys.stderr)
            continue
        start = time.perf_counter()
        found = in_child(job, models, device)
        print(f"{name} {time.perf_counter() - start:.1f} s {found}", file=sys.stderr, flush=True)
        cells = [job.get(k, "") for k in SAID] + [found.get(k, "") for k in FOUND]
        out.writerow((name, *cells, versions()))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
