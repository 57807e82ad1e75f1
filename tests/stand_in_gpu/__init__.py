"""A GPU that is not there, below PyTorch's CUDA build, for trying code that has never met a real one; run by hand."""
