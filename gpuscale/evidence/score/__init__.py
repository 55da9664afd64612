"""Scores predictions against published measurements."""
