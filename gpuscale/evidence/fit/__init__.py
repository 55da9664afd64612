"""Fits calibration constants to measurements; pure Python."""
