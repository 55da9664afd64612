"""Formulas of core say where they are from."""

import runpy
from collections import defaultdict
from pathlib import Path

TOOL = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "cited.py"))
CALIBRATED = {"kernel", "network", "step"}  # rooms that cite in their presets too
BOOKKEEPING = {"layout", "plan", "quantity"}  # a handful of ratios and conversions


def test_four_of_five_numeric_functions_cite():
    found = [f for f in TOOL["functions"]() if f.room not in CALIBRATED]
    assert len(found) > 150
    assert sum(f.cites for f in found) >= 0.8 * len(found)


def test_no_room_is_left_behind():
    rooms = defaultdict(list)
    for f in TOOL["functions"]():
        rooms[f.room].append(f.cites)
    for room in rooms.keys() - CALIBRATED - BOOKKEEPING:
        assert sum(rooms[room]) >= 0.6 * len(rooms[room]), room
