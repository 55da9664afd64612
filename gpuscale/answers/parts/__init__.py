"""What a job is made of: a chip's limits, a product, a collective, a network, a model."""
