"""A training step of every kind of rank, on tensors without memory in a world without processes."""
