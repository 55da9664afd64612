"""Levels of a network and the collectives that run over them."""
