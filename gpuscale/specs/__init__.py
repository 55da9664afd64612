"""Frozen records of GPUs, clusters, models and jobs."""
