"""The layout search: the declared space, its constraints, and the exact best of it."""
