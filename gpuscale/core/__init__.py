"""Pure cost models: SI floats in, records out; imports only the standard library."""
