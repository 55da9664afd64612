"""Turning result documents into text, Markdown, CSV and JSON."""
