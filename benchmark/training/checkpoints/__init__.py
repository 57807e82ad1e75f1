"""A run's own checkpoints: written in the background, verified, and loaded in any topology."""
