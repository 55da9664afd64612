"""One file a framework: a `TrainingLaunch` as that framework's flags or configuration."""
