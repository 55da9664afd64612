"""Terms of the field: formula, an example that core computes, limits of validity, references."""
