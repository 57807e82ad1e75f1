"""Train a stretch of a run again from a checkpoint, and compare it with the run's evidence record by record."""
