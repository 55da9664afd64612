"""Count parameters of configs with transformers on the meta device, as fixtures for the tests.

Developer tool; needs torch and transformers, not gpuscale.
`python tools/make_hf_fixtures.py CONFIGS.json PARAMS.csv`, both in tests/data/hf_configs.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
from typing import Any


def count(config: dict[str, Any]) -> tuple[int, int]:
    """(all parameters with tied ones once, embedding and head) of one config."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    table = copy.deepcopy(config)
    parsed = CONFIG_MAPPING[table.pop("model_type")].from_dict(table)
    with torch.device("meta"):
        try:
            model = AutoModelForCausalLM.from_config(parsed)
        except ValueError as error:
            if "Unrecognized" not in str(error):
                raise
            model = AutoModelForImageTextToText.from_config(parsed)
    model.tie_weights()
    total = sum({id(p): p.numel() for p in model.parameters()}.values())
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    own_head = head is not None and head.weight is not embedding
    return total, embedding.numel() + (head.weight.numel() if own_head else 0)


def main(configs: str, target: str) -> None:
    """Write `target`, one row per config."""
    from transformers import __version__

    with open(configs, encoding="utf-8") as file:
        cases = json.load(file)
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["config", "params_total", "params_embedding_and_head", "counted_with"])
        for name, config in cases.items():
            writer.writerow([name, *count(config), f"transformers {__version__}, meta device"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("configs", help="JSON of configs by name")
    parser.add_argument("target", help="CSV to write")
    main(**vars(parser.parse_args()))
