"""A step of the code that trains on tensors without memory: what it computes, sends and holds."""
