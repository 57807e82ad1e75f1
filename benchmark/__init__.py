"""What is timed: the run's configuration, data loading, the loop, evaluation, checkpoints, logs, and their review."""
