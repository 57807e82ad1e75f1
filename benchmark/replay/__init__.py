"""A stretch of a run trained again from a checkpoint, and compared with the run's evidence record by record."""
