"""Parameter counts against transformers (meta device), against published sizes, and by identity."""

import csv
import json
from pathlib import Path

import pytest

from gpuscale.core.model.params import count_params, expert_params
from gpuscale.errors import GpuscaleError
from gpuscale.io.hf_config import spec_from_config
from gpuscale.io.models import load_model
from gpuscale.io.presets import preset_names

DATA = Path(__file__).parent.parent / "data" / "hf_configs"
CASES = json.loads((DATA / "configs.json").read_text())
COUNTS = list(csv.DictReader((DATA / "params.csv").open()))
TODAY = json.loads((DATA / "today.json").read_text())
NEAR = list(csv.DictReader((DATA / "today.csv").open()))
REAL = list(csv.DictReader((DATA / "real" / "params.csv").open()))


def test_every_case_is_counted():
    assert {row["config"] for row in COUNTS} == set(CASES)
    assert {row["config"] for row in NEAR} == set(TODAY)
    assert len(CASES) > 100 and len(REAL) == 23


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: row["config"])
def test_count_is_that_of_transformers(row):
    spec, _ = spec_from_config(CASES[row["config"]], row["config"])
    params = count_params(spec)
    assert params.total_params == int(row["params_total"])


@pytest.mark.parametrize("row", NEAR, ids=lambda row: row["config"])
def test_types_of_this_year_count_as_in_transformers(row):
    """Exactly, or but for small vectors and biases (0.1 %), towers and Ling's gates (1 %)."""
    spec, _ = spec_from_config(TODAY[row["config"]], row["config"])
    total, counted = count_params(spec).total_params, int(row["params_total"])
    assert abs(total - counted) <= float(row["within"]) * counted


def test_kimi_linear_as_its_hub_has_it():
    """The released file lists its layers from one, and has its delta heads in a table."""
    saved = TODAY["kimi-linear"]
    own = {"full_attn_layers": [5], "kda_layers": [1, 2, 3, 4, 6, 7, 8], "num_heads": 32}
    own |= {"head_dim": 128, "short_conv_kernel_size": 4}
    dropped = ("layer_types", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    config = {k: v for k, v in saved.items() if k not in (*dropped, "mlp_layer_types")}
    hub = config | {"linear_attn_config": own, "first_k_dense_replace": 1}
    assert count_params(spec_from_config(hub, "x")[0]) == count_params(
        spec_from_config(saved, "x")[0]
    )


def test_experts_without_their_number_are_not_read_as_dense():
    """Their width says that there are some; only `null` in their place says that there are none."""
    plain = {"hidden_size": 2048, "num_hidden_layers": 8, "vocab_size": 999, "model_type": "hy_v3"}
    plain |= {"num_attention_heads": 16, "intermediate_size": 4096}
    experts = plain | {"moe_intermediate_size": 512, "num_experts_per_tok": 2}
    assert spec_from_config(plain, "x")[0].layers == "8 x full+dense"
    with pytest.raises(GpuscaleError, match="num_local_experts: this key is required and missing"):
        spec_from_config(experts, "x")
    assert "moe" not in spec_from_config(experts | {"n_routed_experts": None}, "x")[0].layers


def test_omni_is_its_thinker():
    text = CASES["qwen2"] | {"model_type": "qwen2_5_omni_text"}
    omni = {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": text}}
    spec, warnings = spec_from_config(omni, "x")
    assert count_params(spec) == count_params(spec_from_config(CASES["qwen2"], "x")[0])
    assert warnings == ["x: the part that speaks is not counted"]


@pytest.mark.parametrize("row", [r for r in REAL if r["params_total"]], ids=lambda row: row["file"])
def test_released_config_counts_as_transformers_does(row):
    spec, _ = spec_from_config(json.loads((DATA / "real" / row["file"]).read_text()), row["file"])
    params = count_params(spec)
    assert params.total_params == int(row["params_total"])
    own = params.embedding_params + params.head_params
    assert own == int(row["params_embedding_and_head"])


def test_kimi_k2_is_that_of_maxtext():
    """MaxText's Kimi K2 has 1,026,408,232,448 with one routing bias per expert, 60 x 384."""
    path = DATA / "real" / "moonshotai--Kimi-K2-Instruct.json"
    spec, _ = spec_from_config(json.loads(path.read_text()), "x")
    assert count_params(spec).total_params == 1_026_408_232_448 - 60 * 384


EXACT = [  # preset, total, active with embedding, active without, MTP; source
    ("gpt2", 124_439_808, 124_439_808, 123_653_376, 0, "nanoGPT transformer_sizing.ipynb"),
    ("llama3.1-405b", 405_853_388_800, None, 403_752_042_496, 0, "transformers 5.23.0"),
    ("mixtral-8x7b", 46_702_792_704, 12_879_925_248, 12_748_853_248, 0, "transformers 5.23.0"),
    (
        "deepseek-v3",
        671_026_419_200,
        37_552_297_472,
        36_625_618_432,
        11_610_068_224,
        "DeepSeek-V3 README: 671B, 37B active, 11.5B unique of the MTP module",
    ),
    ("gpt-oss-20b", 20_914_757_184, 4_187_440_704, 3_608_307_264, 0, "gpt-oss card: 20.9B, 3.6B"),
    ("gpt-oss-120b", 116_829_156_672, 5_711_982_912, 5_132_849_472, 0, "card: 116.8B, 5.1B"),
    ("glm-4.5-air", 106_852_251_264, 13_424_129_664, 12_803_372_672, 2_375_059_584, "GLM-4.5"),
    ("qwen3-30b-a3b", 30_532_122_624, 3_353_032_704, 3_041_867_776, 0, "Qwen3: 30.5B, 3.3B"),
    ("bloom-176b", 176_247_271_424, 176_247_271_424, 176_247_271_424, 0, "BLOOM: 176,247,271,424"),
]


@pytest.mark.parametrize(("name", "total", "active", "no_lookup", "mtp", "source"), EXACT)
def test_presets_count_exactly(name, total, active, no_lookup, mtp, source):
    params = count_params(load_model(name).spec)
    assert params.total_params == total, source
    assert active is None or params.active_params == active, source
    assert params.active_params_excl_embedding == no_lookup, source
    assert params.mtp_params == mtp, source


@pytest.mark.parametrize("name", preset_names("model"))
def test_preset_agrees_with_the_published_size(name):
    spec = load_model(name).spec
    params = count_params(spec)
    assert spec.name == name
    assert spec.sources.get("shape"), "every preset says where its shape is from"
    if spec.published_params:
        off = abs(params.total_params / spec.published_params - 1)
        assert off < 0.04
        assert off < 0.01 or "published" in spec.notes, "a deviation over 1 % is explained"
        if spec.published_params % 100_000:  # printed to the last parameter, not rounded
            assert params.total_params == spec.published_params
    if spec.published_active_params:  # labels round, and some count the embedding, some do not
        low, high = params.active_params_excl_embedding, params.active_params
        off = abs(high / spec.published_active_params - 1)
        assert off < 0.01 or "active" in spec.notes, "a deviation over 1 % is explained"
        assert low < 1.2 * spec.published_active_params < 1.5 * high


@pytest.mark.parametrize("name", preset_names("model"))
def test_parts_add_to_the_total(name):
    p = count_params(load_model(name).spec)
    parts = (
        p.embedding_params
        + p.head_params
        + p.mixer_params
        + p.ffn_params
        + p.norm_params
        + p.vision_params
        + p.extra_params
    )
    assert parts == p.total_params
    assert p.active_params_excl_embedding <= p.active_params <= p.total_params
    layers = sum(g.params for g in p.groups)
    assert layers <= p.mixer_params + p.ffn_params + p.norm_params


def test_active_counts_top_k_experts():
    """Mixtral: total - active is the six experts of each layer that a token does not meet."""
    spec = load_model("mixtral-8x7b").spec
    p = count_params(spec)
    idle = 6 * 32 * expert_params(spec.ffns["moe"], spec.hidden_size)
    assert p.total_params - p.active_params == idle == 6 * 32 * 3 * 4096 * 14336


SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "image_size": 896,
    "patch_size": 14,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "vision_use_head": False,
}


def _gemma3(**text):
    text = {"model_type": "gemma3_text", "sliding_window": 1024, **text}
    return {"model_type": "gemma3", "text_config": text, "vision_config": SIGLIP}


RELEASED = [  # config with the keys of the released file, total; source: size on its model page
    (
        {
            "model_type": "granitemoehybrid",
            "hidden_size": 2048,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 0,
            "shared_intermediate_size": 8192,
            "intermediate_size": 8192,
            "mamba_n_heads": 64,
            "mamba_d_head": 64,
            "mamba_d_state": 128,
            "mamba_d_conv": 4,
            "mamba_n_groups": 1,
            "vocab_size": 100352,
            "tie_word_embeddings": True,
            "position_embedding_type": "nope",
            "layer_types": [("mamba", "attention")[i % 10 == 5] for i in range(40)],
        },
        3_191_396_096,  # ibm-granite/granite-4.0-h-micro
    ),  # fmt: skip
    (_gemma3(hidden_size=2560, intermediate_size=10240, num_hidden_layers=34), 4_300_079_472),
    (
        _gemma3(
            hidden_size=3840,
            intermediate_size=15360,
            num_hidden_layers=48,
            head_dim=256,
            num_attention_heads=16,
            num_key_value_heads=8,
        ),
        12_187_325_040,
    ),
    (
        _gemma3(
            hidden_size=5376,
            intermediate_size=21504,
            num_hidden_layers=62,
            head_dim=128,
            num_attention_heads=32,
            num_key_value_heads=16,
        ),
        27_432_406_640,
    ),
    (
        {
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_attention_heads": 71,
            "bias": False,
            "num_hidden_layers": 32,
            "vocab_size": 65024,
            "multi_query": True,
        },
        6_921_720_704,
    ),
    (
        {
            "model_type": "gpt_neox",
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "num_attention_heads": 64,
            "num_hidden_layers": 44,
            "vocab_size": 50432,
        },
        20_554_567_680,
    ),
    (
        {
            "model_type": "cohere",
            "hidden_size": 12288,
            "intermediate_size": 33792,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "num_hidden_layers": 64,
            "vocab_size": 256000,
            "use_qk_norm": True,
        },
        103_810_674_688,
    ),
]


@pytest.mark.parametrize(("config", "total"), RELEASED, ids=lambda v: str(v)[:40])
def test_released_sizes(config, total):
    spec, _ = spec_from_config(config, "x")
    assert count_params(spec).total_params == total


STEP3 = {
    "model_type": "step3_text",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 64,
    "num_attention_groups": 1,
    "num_hidden_layers": 61,
    "vocab_size": 128815,
    "moe_layers_enum": ",".join(map(str, range(4, 60))),
    "moe_num_experts": 48,
    "moe_top_k": 3,
    "share_expert_dim": 5120,
    "moe_intermediate_size": 5120,
    "share_q_dim": 2048,
    "head_dim": 256,
}
MINIMAX = {
    "model_type": "minimax_text_01",
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 80,
    "vocab_size": 200064,
    "num_local_experts": 32,
    "num_experts_per_tok": 2,
    "attn_type_list": ([0] * 7 + [1]) * 10,
}


def test_families_without_transformers_hold_to_their_reports():
    """Step-3 report, table 1: 316B, 38B active; MiniMax-01 report: 456B, 45.9B active."""
    step3 = count_params(spec_from_config(STEP3, "x")[0])
    assert step3.total_params == pytest.approx(316e9, rel=0.005)
    assert step3.active_params_excl_embedding == pytest.approx(38e9, rel=0.005)
    minimax = count_params(spec_from_config(MINIMAX, "x")[0])
    assert minimax.total_params == pytest.approx(456e9, rel=0.002)
    no_vocabulary = minimax.active_params - minimax.embedding_params - minimax.head_params
    assert no_vocabulary == pytest.approx(45.9e9, rel=0.002)
