"""Measured rows, scores of the predictions on them, and fits to them."""
