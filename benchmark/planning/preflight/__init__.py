"""Find out what a machine can do before a job is spent on it: checks, a slice of the model, the first contact."""
