"""Memory of training and serving: the states of a model, each pipeline stage, each replica."""
