"""Launch files of training and serving frameworks: written from a layout, read back into one."""

FRAMEWORKS = tuple(
    "megatron megatron-bridge primus torchtitan maxtext nanotron deepspeed accelerate "
    "llama-factory axolotl trl ms-swift megatron-swift torchtune unsloth verl verl-sft "
    "openrlhf nemo-rl nemo-automodel oumi litgpt veomni mistral-finetune llm-foundry".split()
)
"""Training frameworks whose files are written."""
