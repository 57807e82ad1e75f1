"""A GPU that does not exist: its tensors, streams and kernels take no time; it refuses code that a real GPU refuses."""
