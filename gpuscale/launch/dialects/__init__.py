"""Frameworks' words as data: rows of field, option and words, walked forwards and backwards."""
