"""Jobs that train: plans, memory, timelines and checkpoints, of fine-tuning and RL too."""
