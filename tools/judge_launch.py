"""Put launch files of random plans to the frameworks' own parsers, and record their verdicts.

    python tools/judge_launch.py FRAMEWORK JUDGE [--n 200] [--python PYTHON] [--source MEGATRON]

JUDGE is a script of tools/judges, which asks the framework's code about one launch: it prints
`OK {facts}` and exits 0, or `REJECT: reason` and exits 1 (for Megatron: arguments
`--world-size N --gpu-arch A -- FLAGS`;
for the others the file or the words it judges). Verdicts go to tests/data/launch/FRAMEWORK.json:
ordinary tests hold the files against them and need no framework.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gpuscale
from gpuscale.answers.saved import launch_of
from gpuscale.errors import GpuscaleError
from gpuscale.launch.dialects.megatron import narrow_states
from gpuscale.launch.dialects.nested import dialect
from gpuscale.launch.dialects.write import writes
from gpuscale.launch.job import TrainingLaunch, Written
from gpuscale.specs.model import ModelSpec

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "launch"
RECIPES = dialect("megatron-bridge").names
SOFTWARE = {
    "megatron": ["megatron-core", "megatron-bridge"],
    "megatron-bridge": ["megatron-bridge"],
    "torchtitan": ["torchtitan"],
    "deepspeed": ["deepspeed-zero3"],
    "accelerate": ["fsdp"],
    "maxtext": ["jax"],
    "nanotron": ["nanotron"],
}
IMPORTS = {
    "megatron": "",
    "megatron-bridge": "",
    "torchtitan": "torch triton torchtitan.config.manager torchtitan.train",
    "deepspeed": "torch hjson deepspeed",
    "accelerate": "torch yaml deepspeed accelerate",
    "maxtext": "jax jax.numpy flax.struct omegaconf pydantic",
    "nanotron": "torch torch.distributed numpy dacite yaml packaging.version",
}
"""Modules that a judge's process imports once, beside those that the judge's own `load` imports."""
DENSE = ["llama3-8b", "llama3-70b", "qwen2.5-14b", "qwen3-32b", "llama3.1-405b", "gpt3-175b"]
MOE = ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "qwen3-235b-a22b"]
MODELS = {
    "megatron": DENSE + MOE,
    "megatron-bridge": list(RECIPES),
    "torchtitan": [m for m in dialect("torchtitan").names if m != "qwen3-0.6b"],
    "deepspeed": DENSE[:5],
    "accelerate": DENSE[:5],
    "maxtext": DENSE + MOE,
    "nanotron": ["llama3-8b", "llama3-70b", "llama2-7b", "llama2-13b", "mistral-7b"],
}
USUAL = {
    "megatron": [
        ("llama3-8b", 8),
        ("llama3-8b", 64),
        ("llama3-70b", 64),
        ("llama3-70b", 512),
        ("llama3-70b", 4096),
        ("llama3.1-405b", 1024),
        ("gpt3-175b", 512),
        ("mixtral-8x7b", 64),
        ("qwen3-30b-a3b", 64),
        ("deepseek-v3", 512),
        ("deepseek-v3", 2048),
        ("qwen3-235b-a22b", 256),
    ],
    "torchtitan": [
        ("llama3-8b", 8),
        ("llama3-8b", 64),
        ("llama3-8b", 256),
        ("llama3-70b", 64),
        ("llama3-70b", 256),
        ("llama3-70b", 1024),
        ("llama3.1-405b", 512),
        ("llama3.1-405b", 1024),
        ("qwen3-14b", 32),
        ("qwen3-32b", 64),
        ("qwen3-30b-a3b", 64),
        ("gpt-oss-20b", 16),
    ],
}
USUAL["maxtext"] = USUAL["megatron"]
USUAL["megatron-bridge"] = [
    row for row in USUAL["megatron"] if row[0] in dialect("megatron-bridge").names
]
USUAL["megatron-bridge"] += [("gpt-oss-20b", 16), ("qwen2.5-14b", 32)]
USUAL["nanotron"] = [row for row in USUAL["megatron"] if row[0].startswith("llama3-")]
USUAL["nanotron"] += [(m, n) for m in ("llama2-7b", "llama2-13b") for n in (8, 16, 64)]
for name in ("deepspeed", "accelerate"):
    USUAL[name] = [(m, n) for m in DENSE[:4] for n in (8, 32, 64)]


SETTINGS = {
    "cuda_graphs": ("layer", "full"),
    "dispatcher": ("alltoall", "deepep", "hybridep"),
    "overlap_ep": ("on",),
    "moments": ("bf16",),
    "gradients": ("bf16",),
    "recompute_modules": ("core_attn,mlp", "layernorm", "moe_act"),
    "offload_layers": ("2",),
}
"""What a run sets beside its layout, as `plan` takes it."""


def plans(framework: str, n: int, seed: int) -> list[dict[str, Any]]:
    """Plan the usual jobs, then random ones with random pins; what has no answer is skipped."""
    rng = random.Random(seed)
    made: list[dict[str, Any]] = []
    usual = list(USUAL[framework])
    while len(made) < n:
        if usual:
            model, gpus = usual.pop(0)
            given: dict[str, Any] = {}
        else:
            model, gpus = rng.choice(MODELS[framework]), 8 * 2 ** rng.randint(0, 7)
            given = {"seq_len": rng.choice((2048, 4096, 8192, 32768))}
            given["global_batch"] = gpus * 2 ** rng.randint(0, 4)
            for pin, values in (
                ("tp", (1, 2, 4, 8)),
                ("pp", (1, 2, 4, 8)),
                ("cp", (1, 2, 4)),
                ("recompute", ("none", "full", "selective")),
                ("micro_batch", (1, 2, 4)),
            ):
                if rng.random() < 0.3:
                    given[pin] = str(rng.choice(values))
            for name, words in SETTINGS.items() if "megatron" in framework else ():
                routed = name in ("dispatcher", "overlap_ep")
                if rng.random() < 0.25 and (model in MOE or not routed):
                    given[name] = rng.choice(words)
        try:
            answer = gpuscale.plan(
                model,
                gpus=str(gpus),
                software=rng.choice(SOFTWARE[framework]),
                cluster=rng.choice(("dgx-h100", "dgx-b200", "dgx-a100")),
                alternatives=0,
                **given,
            ).to_dict()
            writes(launch_of(answer["job"]), framework)
        except GpuscaleError:  # no plan, or one that the framework is said not to run
            if not given:  # a usual job
                raise
            continue
        made.append(answer)
    return made


def _bridge_facts(job: TrainingLaunch) -> dict[str, Any]:
    """Say what the file must change of a recipe's own settings."""
    lay, s = job.layout, job.settings
    graphs = {"layer": "transformer_engine", "full": "full_iteration"}
    return {
        "seq_len": lay.seq_len,
        "recompute": lay.recompute if lay.recompute in ("full", "selective") else None,
        "distributed_optimizer": lay.zero_stage >= 1 or narrow_states(job),
        "fsdp": lay.zero_stage >= 2,
        "cuda_graphs": graphs.get(s.cuda_graphs or "", "none"),
        "overlap_dp": lay.overlap_dp,
        "overlap_tp": lay.tp > 1 and lay.sequence_parallel and lay.overlap_tp,
        "overlap_ep": bool(s.overlap_ep),
        "narrow": lay.precision not in ("bf16", "fp16"),
        "stages": list(job.stage_layers),
    }


def hf_config(model: ModelSpec) -> dict[str, Any]:
    """Write a model as its `config.json` says it, for judges that ask a hub otherwise."""
    kinds = {"llama3": "llama", "llama3.1": "llama", "qwen2.5": "qwen2", "gpt-oss": "gpt_oss"}
    family = model.name.rsplit("-", 1)[0]
    mixer = next(iter(model.mixers.values()))
    ffns = {f.kind: f for f in model.ffns.values()}
    dense, moe = ffns.get("dense"), ffns.get("moe")
    config: dict[str, Any] = {
        "model_type": kinds.get(family, "qwen3_moe" if moe else "qwen3"),
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "num_hidden_layers": model.n_layers,
        "num_attention_heads": mixer.n_heads,
        "num_key_value_heads": getattr(mixer, "n_kv_heads", mixer.n_heads),
        "intermediate_size": dense.ffn_hidden_size if dense else moe.expert_ffn_hidden_size,
        "tie_word_embeddings": model.tie_embeddings,
        "max_position_embeddings": model.max_position,
    }
    if moe:
        config |= {"num_experts_per_tok": moe.top_k, "num_experts": moe.n_experts}
        config["moe_intermediate_size"] = moe.expert_ffn_hidden_size
        config["num_local_experts"] = moe.n_experts
    if mixer.kind != "mla":
        return config | {"head_dim": mixer.head_dim}
    latent = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    config |= {name: getattr(mixer, name) for name in latent}
    config |= {
        "model_type": "deepseek_v3" if mixer.q_lora_rank else "deepseek_v2",
        "n_routed_experts": moe.n_experts,
        "n_shared_experts": moe.shared_ffn_hidden_size // moe.expert_ffn_hidden_size,
        "first_k_dense_replace": sum(f == "dense" for _, f in model.layer_sequence),
        "num_nextn_predict_layers": model.n_mtp_layers,
    }
    return config


def facts_wanted(job: TrainingLaunch, framework: str) -> dict[str, int]:
    """Say what the parser must derive from the file."""
    lay = job.layout
    if framework in ("megatron", "megatron-bridge"):
        wanted = {"layers": job.model.n_layers, "hidden": job.model.hidden_size}
        if framework == "megatron-bridge":
            wanted |= _bridge_facts(job)
        return wanted | {
            "tp": lay.tp,
            "pp": lay.pp,
            "vpp": lay.vpp,
            "cp": lay.cp,
            "ep": lay.ep,
            "dp": lay.dp,
            "replicas": lay.dp * lay.cp // (lay.shard_group_size or lay.dp * lay.cp),
            "micro_batch": lay.micro_batch_size,
            "accumulation": lay.n_micro_batches,
        }
    if framework == "maxtext":
        wanted = {"tp": lay.tp, "pp": lay.pp, "vpp": lay.vpp, "cp": lay.cp, "ep": lay.ep}
        wanted |= {"layers": job.model.n_layers, "hidden": job.model.hidden_size}
        return wanted | {
            "dp": lay.dp,
            "micro_batch": lay.micro_batch_size,
            "accumulation": lay.n_micro_batches,
            "seq_len": lay.seq_len,
        }
    if framework == "nanotron":
        wanted = {"tp": lay.tp, "pp": lay.pp, "cp": lay.cp, "dp": lay.dp, "seq_len": lay.seq_len}
        wanted |= {"layers": job.model.n_layers, "hidden": job.model.hidden_size}
        return wanted | {
            "micro_batch": lay.micro_batch_size,
            "accumulation": lay.n_micro_batches,
            "zero_stage": lay.zero_stage,
            "recompute": lay.recompute == "full",
        }
    if framework == "torchtitan":
        wanted = {"tp": lay.tp, "pp": lay.pp, "cp": lay.cp, "ep": lay.ep}
        if lay.pp > 1:
            return wanted | {"micro_batch": lay.micro_batch_size}
        return wanted | {"local_batch": lay.micro_batch_size, "accumulation": lay.n_micro_batches}
    if framework == "deepspeed":
        return {
            "micro_batch": lay.micro_batch_size,
            "accumulation": lay.n_micro_batches,
            "zero_stage": lay.zero_stage,
        }
    return {"processes": lay.n_gpus}


def ask(judge: Judge, job: TrainingLaunch, written: Written) -> tuple[bool, str]:
    """Verdict of a judge: accepted, and the facts or the reason."""
    env = os.environ | dict(written.environment)
    world = str(job.layout.n_gpus)
    with tempfile.TemporaryDirectory() as folder:
        for file in written.files:
            Path(folder, file.name).write_text(file.text, "utf-8")
        first = Path(folder, written.files[0].name) if written.files else None
        if written.framework == "megatron":
            arch = "10" if job.cluster.gpu.architecture.startswith("blackwell") else "9"
            words = ["--world-size", world, "--gpu-arch", arch, "--", *written.train[1:]]
        elif written.framework == "megatron-bridge":
            arch = "10" if job.cluster.gpu.architecture.startswith("blackwell") else "9"
            words = ["--hf-config", json.dumps(hf_config(job.model)), "--world-size", world]
            words += ["--gpu-arch", arch, "--", *written.train[1:]]
        elif written.framework == "maxtext":
            words = ["--world-size", world, "--slices", str(job.n_nodes), "--", *written.train[2:]]
        elif written.framework == "torchtitan":
            words = ["--world-size", world, "--", *written.train[2:]]
        elif written.framework == "nanotron":
            words = ["--world-size", world, str(first)]
        elif written.framework == "deepspeed":
            apart = str(job.layout.tp * job.layout.pp)
            words = [str(first), "--world-size", world, "--model-parallel", apart, "--strict"]
        else:
            words = [str(first), "--world-size", world, "--strict"]
        return judge.ask(words, env)


class Judge:
    """A judge in a process of its own, which imports its framework once (tools/judges/serve.py)."""

    def __init__(self, words: list[str], modules: str) -> None:
        serve = Path(__file__).resolve().parent / "judges" / "serve.py"
        env = os.environ | {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        self.words = words[2:]
        self.process = subprocess.Popen(
            [words[0], str(serve), words[1], words[-1] if len(words) > 2 else "", *modules.split()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def ask(self, words: list[str], env: dict[str, str]) -> tuple[bool, str]:
        """Put one launch to the judge: accepted, and the facts or the reason."""
        assert self.process.stdin and self.process.stdout
        changed = {k: v for k, v in env.items() if os.environ.get(k) != v}
        print(json.dumps([[*self.words, *words], changed]), file=self.process.stdin, flush=True)
        code, said = json.loads(self.process.stdout.readline())
        return code == 0, said


def main() -> int:
    """Judge and record; exit 1 if a file was refused or derived otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=SOFTWARE)
    parser.add_argument("judge")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument(
        "--source", help="Megatron-LM's source, the folder of MaxText's wheel, or nanotron's source"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where verdicts go")
    given = parser.parse_args()
    words = [given.python, given.judge] + (["--source", given.source] if given.source else [])
    answers = plans(given.framework, given.n, given.seed)
    jobs = [launch_of(a["job"]) for a in answers]
    writings = [writes(job, given.framework) for job in jobs]
    judge = Judge(words, IMPORTS[given.framework])
    verdicts = [ask(judge, *pair) for pair in zip(jobs, writings, strict=True)]
    rows, bad = [], 0
    for job, written, (taken, said) in zip(jobs, writings, verdicts, strict=True):
        facts = json.loads(said.removeprefix("OK ")) if taken else {}
        wanted = facts_wanted(job, given.framework)
        agreed = taken and all(facts.get(k) == v for k, v in wanted.items())
        if not agreed:
            bad += 1
            print(job.model.name, asdict(job.layout), job.stage_layers, said, sep="\n  ")
        rows.append(
            {
                "model": job.model.name,
                "layout": asdict(job.layout),
                "chunks": job.stage_layers,
                "arch": job.cluster.gpu.architecture,
                "settings": {k: v for k, v in asdict(job.settings).items() if v is not None},
                "train": written.train,
                "unsaid": written.unsaid,
                "files": [f.text for f in written.files],
                "accepted": taken,
                "agreed": agreed,
            }
        )
    given.folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": writings[0].version, "rows": rows}, indent=None)
    (given.folder / f"{given.framework}.json").write_text(text + "\n", "utf-8")
    print(f"{given.framework}: {len(rows) - bad} of {len(rows)} accepted with the plan's degrees")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
