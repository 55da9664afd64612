"""What a model holds and computes: parameters, FLOP, cache, operators."""
