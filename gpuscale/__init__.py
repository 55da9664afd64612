"""Capacity planner for training and serving large language models on GPU clusters."""

__version__ = "0.1.0"
