"""Run one training step on tensors without memory, and count its computation, messages and memory."""
