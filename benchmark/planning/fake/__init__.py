"""A GPU that is not there: tensors, streams and kernels that take no time, and what a real one would not forgive."""
