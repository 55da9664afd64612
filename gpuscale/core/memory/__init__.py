"""Memory of training and serving: documents' formulas, and the model of each pipeline stage."""

from gpuscale.core.memory.peak import expected_peak, measured_like

__all__ = ["expected_peak", "measured_like"]
