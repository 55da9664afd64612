"""Network design: switches, links and cables of a fabric, what they cost, what a failure takes."""

TREES = ("fat-tree", "rail-optimised", "rail-only")
TOPOLOGIES = (*TREES, "dragonfly", "dragonfly+", "torus")
"""Kinds of network that can be designed."""
