"""Formulas of core say where they are from."""

import runpy
from collections import defaultdict
from pathlib import Path

TOOL = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "cited.py"))
BOOKKEEPING = {"layout", "plan", "quantity", "rules"}  # a handful of ratios and conversions


def test_four_of_five_numeric_functions_cite():
    found = list(TOOL["functions"]())
    assert len(found) > 250
    assert sum(f.cites for f in found) >= 0.8 * len(found)


def test_no_room_is_left_behind():
    rooms = defaultdict(list)
    for f in TOOL["functions"]():
        rooms[f.room].append(f.cites)
    for room in rooms.keys() - BOOKKEEPING:
        assert sum(rooms[room]) >= 0.6 * len(rooms[room]), room
