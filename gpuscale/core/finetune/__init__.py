"""Fine-tuning: what is trained and how it is stored, memory by part, time of a step, answers."""
