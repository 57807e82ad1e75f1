"""What a machine can do, before a job is spent on finding out: checks, a slice of the model, the first contact."""
