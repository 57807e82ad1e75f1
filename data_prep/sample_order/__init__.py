"""The tokens of each training sample, and the order of the samples."""
