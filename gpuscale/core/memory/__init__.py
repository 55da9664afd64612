"""Memory of training and serving: documents' formulas, and the model of each pipeline stage."""
