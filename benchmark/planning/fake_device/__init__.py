"""A GPU that does not exist: its tensors, streams and kernels take no time, and it refuses what a real GPU refuses."""
