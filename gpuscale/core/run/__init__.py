"""A whole training run: its days and dollars."""
