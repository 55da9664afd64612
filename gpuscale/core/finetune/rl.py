"""RL post-training: rollouts by the serving model, updates by the fine-tuning model, and a step."""

METHODS = ("dpo", "ppo", "grpo", "rloo")

RELATIVES = {
    "orpo": ("dpo", False),
    "simpo": ("dpo", False),
    "dapo": ("grpo", False),
    "gspo": ("grpo", False),
    "dr-grpo": ("grpo", False),
    "reinforce++": ("rloo", True),
}
"""Methods that are another one to a planner -> (that method, whether it has a KL term)."""

ALL_METHODS = (*METHODS, *RELATIVES)
ROLLED_OUT = tuple(m for m in ALL_METHODS if RELATIVES.get(m, (m,))[0] != "dpo")
"""Methods that generate what they train on."""
