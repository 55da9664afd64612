"""Frozen pydantic models of GPUs, clusters, models and jobs."""
