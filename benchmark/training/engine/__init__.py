"""One training step and one evaluation on many devices: state, passes, optimizer, batches."""
