"""Forward and backward passes written out, on plain tensors: what is computed, kept and sent, and when."""
