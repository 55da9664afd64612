"""Measured rows as published, read into jobs."""
