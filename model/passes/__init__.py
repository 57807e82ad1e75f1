"""Forward and backward passes written out on plain tensors: the order of computation, messages and freed memory."""
