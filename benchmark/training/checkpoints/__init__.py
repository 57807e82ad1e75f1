"""A run's own checkpoints: written in the background, verified, loaded in any topology."""
