"""RL post-training: rollouts by the serving model, updates by the fine-tuning model, and a step."""
