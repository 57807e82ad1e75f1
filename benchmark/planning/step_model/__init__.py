"""Model a training step: durations of operations, and the schedule that runs them."""
