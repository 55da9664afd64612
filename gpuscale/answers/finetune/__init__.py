"""Fine-tuning: what `memory` and `plan` answer when a `--method` is named."""
