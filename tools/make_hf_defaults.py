"""Write gpuscale/io/hf_defaults.json: what transformers assumes for a key that is missing.

Developer tool; needs the package transformers. Facts only: the default of every key that the
reader uses, per model type.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path

TYPES = """
llama llama4_text mistral ministral3 mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_vl_text
qwen3_vl_moe_text qwen3_next qwen3_5_text qwen3_5_moe_text gemma gemma2 gemma3_text gemma4_text
phi phi3 gpt2 gpt_neox falcon deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm glm4 glm4_moe
glm4_moe_lite glm_moe_dsa minimax minimax_m2 minimax_m3_vl_text gpt_oss nemotron nemotron_h
mimo_v2_flash step3p5 olmo olmo2 olmo3 dbrx cohere cohere2 starcoder2 granite granitemoe
stablelm ernie4_5 ernie4_5_moe hunyuan_v1_dense hunyuan_v1_moe seed_oss bloom opt smollm3 exaone4
""".split()

KEYS = re.compile(
    r"hidden_size|num_|n_|intermediate|vocab|head|bias|tie|moe|mlp|expert|sparse|window|layer"
    r"|kv|lora|index|conv|state|ffn|norm$|qk_norm|gate|position_emb|max_pos|multi|parallel|alibi"
    r"|decoder|architecture|k_eq_v|share|latent|width|groups|hc_mult|gating|double_wide|d_model"
    r"|use_qk|dense"
)
SKIP = re.compile(
    r"token|is_|output_|return_|scale_|query_pre|original_max|overlap|residual|iters|dropout|epsilon|eps$|init|loss|jitter|scaling|act|router_log|_plan|logit"
)


def main(target: str) -> None:
    """Write the table."""
    from transformers import __version__
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    table: dict[str, dict[str, object]] = {"": {"transformers": __version__}}
    for name in TYPES:
        cls = CONFIG_MAPPING[name]
        kept: dict[str, object] = {}
        fields = {field.name for field in dataclasses.fields(cls)}
        renamed = set(cls.attribute_map) - set(cls.attribute_map.values())
        for field in dataclasses.fields(cls):
            value = field.default
            if field.name in renamed and cls.attribute_map[field.name] in fields:
                continue
            if field.name == "tie_word_embeddings" or (
                KEYS.search(field.name) and not SKIP.search(field.name)
            ):
                if isinstance(value, bool | int | str) and value != "":
                    kept[field.name] = value
        table[name] = kept
    lines = [f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in table.items()]
    Path(target).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("target", nargs="?", default="gpuscale/io/hf_defaults.json")
    main(parser.parse_args().target)
