"""Run one training step on tensors without memory, and count what it computes, sends and holds."""
