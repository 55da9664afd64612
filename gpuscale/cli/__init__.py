"""Command line: one file per command; parse, load, compute, render."""
